//! What each request's time was spent on.

use indexmap::IndexSet;
use offwake_recording::units::Nanos;

use crate::{
    blame::Blame,
    findings::{Culprit, CulpritTime, WaitMeanings},
};

use super::found::Request;

/// How many requests a thread takes on at a time.
const CHUNK: usize = 512;

/// Identifies a culprit within one [`Profiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CulpritId(pub(super) u32);

/// A part of a request's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestPart {
    pub(super) culprit: CulpritId,
    pub(super) time: CulpritTime,
}

/// What the time of requests was spent on.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    pub(super) culprits: IndexSet<Culprit>,
    parts: Vec<RequestPart>,
    /// Where the parts of each request end. They begin where those of the one before end.
    ends: Vec<usize>,
}

impl Profiles {
    /// Walks the time of all requests, on all CPUs. The parts of each add up to its latency.
    pub(super) fn new(
        blame: &Blame<'_>,
        meanings: &WaitMeanings<'_>,
        requests: &[Request],
    ) -> Self {
        let chunks: Vec<(usize, &[Request])> = requests.chunks(CHUNK).enumerate().collect();
        let visited = blame.visit_groups(
            meanings.sleep_detail(),
            &chunks,
            Visitor::default,
            |visitor, &(n, requests), walker| {
                let mut chunk = Chunk { n, parts: Vec::new(), counts: Vec::new() };
                for request in requests {
                    let own = blame.timeline().named_thread(request.thread, request.from);
                    let (parts, chains) =
                        walker.walk_time(request.thread, request.from, request.to);
                    let begin = chunk.parts.len();
                    for part in parts {
                        let (culprit, time) = Culprit::find(meanings, own, part, chains);
                        let (index, _) = visitor.culprits.insert_full(culprit);
                        let culprit = CulpritId(u32::try_from(index).unwrap_or(u32::MAX));
                        chunk.parts.push(RequestPart { culprit, time });
                    }
                    chunk.counts.push(chunk.parts.len() - begin);
                }
                visitor.chunks.push(chunk);
            },
        );
        let mut profiles = Self::default();
        let mut chunks = Vec::new();
        for (visitor, _) in visited {
            let ids: Vec<CulpritId> = (visitor.culprits.into_iter())
                .map(|culprit| {
                    let (index, _) = profiles.culprits.insert_full(culprit);
                    CulpritId(u32::try_from(index).unwrap_or(u32::MAX))
                })
                .collect();
            chunks.extend(visitor.chunks.into_iter().map(|mut chunk| {
                for part in &mut chunk.parts {
                    part.culprit =
                        ids.get(part.culprit.0 as usize).copied().unwrap_or(part.culprit);
                }
                chunk
            }));
        }
        chunks.sort_unstable_by_key(|chunk| chunk.n);
        for Chunk { parts, counts, .. } in chunks {
            let mut end = profiles.parts.len();
            profiles.ends.extend(counts.into_iter().map(|count| {
                end += count;
                end
            }));
            profiles.parts.extend(parts);
        }
        profiles
    }

    /// Returns the parts of the request in this place.
    pub(super) fn parts(&self, request: usize) -> &[RequestPart] {
        let begin = request.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let end = self.ends.get(request).copied().unwrap_or(0);
        self.parts.get(begin.unwrap_or(0)..end).unwrap_or_default()
    }

    /// Returns how much of a request's time a culprit took.
    pub(super) fn time_of(&self, request: usize, culprit: CulpritId) -> Nanos {
        let parts = self.parts(request).iter().filter(|part| part.culprit == culprit);
        parts.map(|part| part.time.time).sum()
    }
}

/// What one thread has walked.
#[derive(Default)]
struct Visitor {
    culprits: IndexSet<Culprit>,
    chunks: Vec<Chunk>,
}

/// The parts of the requests of one chunk.
struct Chunk {
    n: usize,
    parts: Vec<RequestPart>,
    /// How many each request has.
    counts: Vec<usize>,
}

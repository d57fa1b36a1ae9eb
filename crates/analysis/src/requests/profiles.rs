//! What each request's time was spent on.

use std::collections::HashMap;

use indexmap::IndexSet;
use offwake_recording::units::Timestamp;

use crate::{
    blame::{Blame, BlameEntryKind, StackPairId},
    findings::{Culprit, CulpritTime, CulpritWay, WaitMeanings},
    timeline::ThreadIndex,
};

use super::{
    found::{ClassId, Request},
    less_known::find_better_known,
    queue::{QueuedStretch, Queues},
    work_functions::FunctionId,
};

/// How many requests a thread takes on at a time.
const CHUNK: usize = 512;

/// Identifies a culprit within one [`Profiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CulpritId(pub(super) u32);

/// What some of a request's time was spent on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestCulprit {
    pub(super) culprit: Culprit,
    /// The class of the requests that the server worked on meanwhile, if it had not begun on this one.
    pub(super) queued_behind: Option<ClassId>,
}

type Culprits = IndexSet<RequestCulprit, foldhash::fast::RandomState>;

type Ways = IndexSet<CulpritWay, foldhash::fast::RandomState>;

/// Identifies a way within one [`Profiles`]; or says that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WayId(u32);

impl WayId {
    const NONE: Self = Self(u32::MAX);
}

/// What requests are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SpentOn {
    /// What somebody did for the request itself; of work that is divided by function, the rest.
    Culprit(CulpritId),
    /// Work of that program in a function.
    InFunction(CulpritId, FunctionId),
    /// The request lay in its socket while the server worked on requests of this class.
    Queue(ClassId),
}

/// A part of a request's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestPart {
    pub(super) culprit: CulpritId,
    pub(super) time: CulpritTime,
    /// Who waited for the culprit.
    pub(super) way: WayId,
}

/// What the time of requests was spent on.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    culprits: Culprits,
    /// The first of those culprits that differ from this one in what was queued behind them alone.
    first_alike: Vec<CulpritId>,
    ways: Ways,
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
        let queues = Queues::find(blame, requests);
        let chunks: Vec<(usize, &[Request])> = requests.chunks(CHUNK).enumerate().collect();
        let visited = blame.visit_groups(
            meanings.sleep_detail(),
            &chunks,
            Visitor::default,
            |visitor, &(n, requests), walker| {
                let mut chunk = Chunk { n, parts: Vec::new(), counts: Vec::new() };
                for request in requests {
                    let begin = chunk.parts.len();
                    for Stretch { thread, from, to, stack, queued_behind } in
                        divide(blame, request, &queues.stretches(request))
                    {
                        let own = blame.timeline().named_thread(thread, from);
                        let (parts, chains) = walker.walk_time(thread, from, to, stack);
                        for part in parts {
                            let (culprit, time) = Culprit::find(meanings, own, part, chains);
                            let way = CulpritWay::find(meanings, own, part.chain, chains);
                            let way = way.map_or(WayId::NONE, |way| visitor.number_way(way));
                            let culprit = RequestCulprit { culprit, queued_behind };
                            let (index, _) = visitor.culprits.insert_full(culprit);
                            let culprit = CulpritId(number(index));
                            chunk.parts.push(RequestPart { culprit, time, way });
                        }
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
                    CulpritId(number(index))
                })
                .collect();
            let ways: Vec<WayId> = (visitor.ways.into_iter())
                .map(|way| WayId(number(profiles.ways.insert_full(way).0)))
                .collect();
            chunks.extend(visitor.chunks.into_iter().map(|mut chunk| {
                for part in &mut chunk.parts {
                    part.way = ways.get(part.way.0 as usize).copied().unwrap_or(WayId::NONE);
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
        profiles.first_alike = find_first_alike(&profiles.culprits);
        profiles.join_less_known();
        profiles
    }

    /// Gives the parts of culprits to others that are the same ones, and of which more is known.
    fn join_less_known(&mut self) {
        let better_known = find_better_known(self);
        if better_known.is_empty() {
            return;
        }
        let Self { culprits, first_alike, parts, .. } = self;
        for part in parts {
            let first = first_alike.get(part.culprit.0 as usize);
            let more = first.and_then(|first| better_known.get(first));
            let known = |id: CulpritId| culprits.get_index(id.0 as usize);
            if let Some((less, more)) = known(part.culprit).zip(more.and_then(|&more| known(more)))
            {
                let culprit = more.culprit.clone();
                let joined = RequestCulprit { culprit, queued_behind: less.queued_behind };
                part.culprit = CulpritId(number(culprits.insert_full(joined).0));
            }
        }
        self.first_alike = find_first_alike(&self.culprits);
    }

    /// Returns the parts of all requests.
    pub(super) fn all_parts(&self) -> &[RequestPart] {
        &self.parts
    }

    /// Returns the culprits that differ in more than what was queued behind them.
    pub(super) fn distinct_culprits(&self) -> impl Iterator<Item = CulpritId> {
        let ids = (0..).map(CulpritId).zip(&self.first_alike);
        ids.filter(|&(id, first)| id == *first).map(|(id, _)| id)
    }

    /// Returns the way by which a part came to its culprit.
    pub(super) fn way(&self, id: WayId) -> Option<&CulpritWay> {
        self.ways.get_index(id.0 as usize)
    }

    /// Returns the parts of the request in this place.
    pub(super) fn parts(&self, request: usize) -> &[RequestPart] {
        let begin = request.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let end = self.ends.get(request).copied().unwrap_or(0);
        self.parts.get(begin.unwrap_or(0)..end).unwrap_or_default()
    }

    /// Returns the class of the requests that the server worked on in a part of a request that lay in its socket.
    pub(super) fn queued_behind(&self, part: &RequestPart) -> Option<ClassId> {
        self.culprit(part.culprit).and_then(|culprit| culprit.queued_behind)
    }

    /// Returns the same culprit for all parts that it has, whether requests lay in their sockets meanwhile or not.
    pub(super) fn first_alike(&self, culprit: CulpritId) -> CulpritId {
        self.first_alike.get(culprit.0 as usize).copied().unwrap_or(culprit)
    }

    /// Returns whether a culprit's time is work.
    pub(super) fn is_work(&self, culprit: CulpritId) -> bool {
        let kind = self.culprit(culprit).map(|known| known.culprit.kind());
        kind == Some(BlameEntryKind::Work)
    }

    /// Returns a culprit by its id.
    pub(super) fn culprit(&self, id: CulpritId) -> Option<&RequestCulprit> {
        self.culprits.get_index(id.0 as usize)
    }
}

/// Returns for each culprit the first one that is the same but for what was queued behind it.
fn find_first_alike(culprits: &Culprits) -> Vec<CulpritId> {
    let mut first: HashMap<&Culprit, CulpritId> = HashMap::new();
    let ids = (0..).map(CulpritId);
    (culprits.iter().zip(ids))
        .map(|(RequestCulprit { culprit, .. }, id)| *first.entry(culprit).or_insert(id))
        .collect()
}

/// A stretch of a request's time, and the thread whose time it is.
struct Stretch {
    thread: ThreadIndex,
    from: Timestamp,
    to: Timestamp,
    /// Where in its code the thread was at the end.
    stack: StackPairId,
    queued_behind: Option<ClassId>,
}

/// Divides a request into what the server did for others first, and what the one that asked waited for then.
fn divide(
    blame: &Blame<'_>,
    request: &Request,
    queued: &[QueuedStretch],
) -> impl Iterator<Item = Stretch> + use<> {
    let &Request { thread, server, to, .. } = request;
    let from = queued.last().map_or(request.from, |last| last.to);
    let own = Stretch { thread, from, to, stack: StackPairId::NONE, queued_behind: None };
    let for_others: Vec<Stretch> = (queued.iter())
        .map(|&QueuedStretch { from, to, behind, answered }| {
            let (_, stack) = blame.wait_and_waker_stacks(answered);
            Stretch { thread: server, from, to, stack, queued_behind: Some(behind) }
        })
        .collect();
    for_others.into_iter().chain([own])
}

/// What one thread has walked.
#[derive(Default)]
struct Visitor {
    culprits: Culprits,
    ways: Ways,
    chunks: Vec<Chunk>,
}

impl Visitor {
    fn number_way(&mut self, way: CulpritWay) -> WayId {
        WayId(number(self.ways.insert_full(way).0))
    }
}

/// Numbers the places of a set.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// The parts of the requests of one chunk.
struct Chunk {
    n: usize,
    parts: Vec<RequestPart>,
    /// How many each request has.
    counts: Vec<usize>,
}

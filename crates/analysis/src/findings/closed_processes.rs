//! Says of a process that none of its threads can go on, and what they wait for.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use offwake_recording::units::{Nanos, Tgid};

use crate::{blame::FrameEvidence, timeline::ThreadIndex};

use super::{chain_words::ChainTeller, model::FindingLine, write::FindingWriter};

/// The most groups of threads that are named.
const MAX_NAMED: usize = 3;

impl ChainTeller<'_> {
    /// Says that no thread of a process can go on, and what most of them wait for. None if one of them can, or
    /// if all but one of them wait for their next job: they have nothing to do then. What `told` wait for is told
    /// already.
    pub(super) fn describe_closed_process(
        &self,
        process: Tgid,
        told: &BTreeSet<ThreadIndex>,
        share: f64,
        writer: &mut FindingWriter<'_>,
    ) -> Option<(String, Vec<FindingLine>)> {
        let threads = self.graph.threads_of_closed_process(process)?;
        let has_job = |thread: &&ThreadIndex| {
            let wait = self.graph.open_wait(**thread);
            wait.is_some_and(|wait| self.blame.frame_evidence(wait) != FrameEvidence::WorkerLoop)
        };
        let with_jobs: Vec<ThreadIndex> = threads.iter().filter(has_job).copied().collect();
        let text = match (threads.len(), with_jobs.len()) {
            (1, 1) => "it has no other thread that could end this".to_owned(),
            (_, 0 | 1) => return None,
            (all, _) => format!("all {all} threads of the process wait for one another"),
        };
        let text = format!("{text}: deadlocked, or idle until a signal comes");
        let mut lines = vec![FindingLine::without_function(text.clone(), share, true)];
        let mut groups: IndexMap<(String, Option<String>), BTreeSet<ThreadIndex>> = IndexMap::new();
        for thread in with_jobs.into_iter().filter(|thread| !told.contains(thread)) {
            let state = self.state(thread, writer);
            groups.entry(state).or_default().insert(thread);
        }
        for ((what, function), threads) in groups.into_iter().take(MAX_NAMED) {
            let first = threads.first().copied()?;
            let program = writer.words.programs.program_of_thread(first);
            let time: Nanos = threads.iter().map(|&thread| self.graph.open_time(thread)).sum();
            let hop = writer.words.hop_at_end(program, &threads, function, what, time);
            lines.push(self.line(&hop, 2, share));
        }
        Some((text, lines))
    }
}

//! Says what the threads of a process wait for that somebody else waits for, where nobody knows which
//! of them it is.
//!
//! ```text
//! client ──answer──▶ java 812, which has 20 threads
//!                    ├── 18 of them wait for a lock that thread ledger holds    as long as the client
//!                    └── the others have nothing to do, or began to wait a moment ago
//! ```

use std::collections::BTreeSet;

use offwake_recording::units::{Nanos, Tgid};

use crate::{
    blame::{FrameEvidence, IdleState, cause::Cause},
    timeline::ThreadIndex,
};

use super::{
    chain_words::{ChainTeller, Position},
    kernel_waits::KernelWait,
    model::FindingLine,
    open_chains::{Awaited, OpenChain},
    write::FindingWriter,
};

/// Threads of a process that wait for the same, as far as words tell.
struct WaitingThreads {
    what: String,
    function: Option<String>,
    threads: BTreeSet<ThreadIndex>,
    time: Nanos,
    chain: OpenChain,
}

impl ChainTeller<'_> {
    /// Tells what most of those threads of a process wait for that have waited at least half as long
    /// as whoever waits for the process: which threads, and below it the chain that the first of them
    /// waits behind. Empty if none of them waits for anything that tells something.
    pub(super) fn describe_owner_threads(
        &self,
        process: Tgid,
        waiter: Nanos,
        share: f64,
        writer: &mut FindingWriter<'_>,
    ) -> Vec<FindingLine> {
        let groups = self.group_owner_threads(process, Nanos(waiter.0 / 2), writer);
        let Some(group) = groups.into_iter().max_by_key(|group| group.threads.len()) else {
            return Vec::new();
        };
        let WaitingThreads { what, function, threads, time, chain } = group;
        let first = threads.first().copied().unwrap_or(ThreadIndex(0));
        let program = writer.words.programs.program_of_thread(first);
        let hop = writer.words.hop_at_end(program, &threads, function, what, time);
        let mut lines = vec![self.line(&hop, 2, share)];
        let (later, _) = self.later_lines(&chain, share, writer);
        lines.extend(later.into_iter().map(|line| FindingLine {
            depth: line.depth.saturating_add(2),
            is_cause: false,
            ..line
        }));
        lines
    }

    fn group_owner_threads(
        &self,
        process: Tgid,
        least: Nanos,
        writer: &mut FindingWriter<'_>,
    ) -> Vec<WaitingThreads> {
        let mut groups: Vec<WaitingThreads> = Vec::new();
        for thread in self.graph.threads_of_process(process) {
            let time = self.graph.open_time(thread);
            if time < least || !self.has_something_to_do(thread, writer) {
                continue;
            }
            let chain = self.graph.follow(thread);
            let what = match chain.links.first() {
                Some(link) => self.link(thread, link, Position::Later, writer),
                None => self.state(thread, writer).0,
            };
            let function = self.wait_function(thread, writer);
            let is_same =
                |known: &&mut WaitingThreads| (&known.what, &known.function) == (&what, &function);
            match groups.iter_mut().find(is_same) {
                Some(known) => {
                    known.threads.insert(thread);
                    known.time += time;
                }
                None => {
                    let threads = BTreeSet::from([thread]);
                    groups.push(WaitingThreads { what, function, threads, time, chain });
                }
            }
        }
        groups
    }

    /// Returns whether something says that a thread is in the middle of something, and for whom or what
    /// it waits: it is not enough that it sleeps.
    fn has_something_to_do(&self, thread: ThreadIndex, writer: &mut FindingWriter<'_>) -> bool {
        let Some(wait) = self.graph.open_wait(thread) else { return false };
        if self.blame.own_idle_state(wait) == IdleState::Idle {
            return false;
        }
        if let Some(link) = self.graph.find_link(thread) {
            // Over a connection it may be its client that it waits for.
            return !link.awaited.is_message()
                || link.awaited == Awaited::AnswerToLoop
                || self.graph.asks(wait);
        }
        let Some(meaning) = self.meaning(thread, writer) else { return false };
        let evidence = self.blame.frame_evidence(wait);
        match meaning.cause {
            _ if meaning.lock().is_some()
                || meaning.kernel.is_some_and(KernelWait::is_of_busy_thread) =>
            {
                true
            }
            Cause::Disk
            | Cause::PageFault
            | Cause::Memory
            | Cause::KernelLock
            | Cause::FileLock
            | Cause::Timer
            | Cause::Throttled
            | Cause::Stopped => evidence != FrameEvidence::WorkerLoop,
            _ => evidence.is_request(),
        }
    }
}

//! Processes that were stopped while others waited for them.
//!
//! ```text
//! web.py asks redis, again and again   each wait ends with a timeout of its own
//! └ redis-server                       is stopped (SIGSTOP) all the while
//! ```

use std::collections::{BTreeMap, BTreeSet};

use offwake_recording::{
    StopOrigin, ThreadKind,
    units::{Nanos, Tgid, Tid, Timestamp},
};

use crate::{
    blame::{
        Blame, BlameEntryKind, Stop,
        cause::{Cause, WaitedOn},
    },
    timeline::{State, ThreadIndex},
};

use super::{
    model::{Finding, FindingHop, FindingLine},
    write::{FindingWriter, describe_hop, describe_hop_without_function},
};

/// Who was stopped for less than this part of the window kept nobody waiting.
const MIN_STOPPED: f64 = 0.02;

/// Processes of which the first thread was stopped, and how.
pub(super) struct StoppedProcesses(BTreeMap<Tgid, StoppedProcess>);

struct StoppedProcess {
    thread: ThreadIndex,
    stop: Stop,
    /// By whom, if that went on at the end.
    origin: Option<StopOrigin>,
    time: Nanos,
}

impl StoppedProcesses {
    /// Finds them. A stop is one of a whole process: its first thread stands for all.
    pub(super) fn find(blame: &Blame<'_>) -> Self {
        let mut stopped = BTreeMap::new();
        if !blame.sleeps().iter().any(|sleep| sleep.cause == Cause::Stopped) {
            return Self(stopped);
        }
        let origins: BTreeMap<Tid, &StopOrigin> = (blame.recording().stopped_threads.iter())
            .map(|stopped| (stopped.tid, &stopped.origin))
            .collect();
        let least = blame.recording().meta.window.length().0 as f64 * MIN_STOPPED;
        for (thread, n) in blame.timeline().threads.iter().zip(0..) {
            if thread.kind == ThreadKind::Kernel || thread.tid != Tid(thread.tgid.0) {
                continue;
            }
            let mut time = Nanos(0);
            let mut last = None;
            let mut until = Timestamp(0);
            for interval in thread.track.iter() {
                let State::Blocked(wait) = interval.state else { continue };
                if let Some(stop) = blame.stop_of_wait(wait) {
                    (time, last) = (time + interval.to.since(interval.from), Some(stop));
                    until = interval.to;
                }
            }
            if let Some(stop) = last.filter(|_| time.0 as f64 >= least) {
                let is_open = until >= blame.recording().meta.window.end;
                let origin = origins.get(&thread.tid).filter(|_| is_open).copied().cloned();
                let known = StoppedProcess { thread: ThreadIndex(n), stop, origin, time };
                stopped.insert(thread.tgid, known);
            }
        }
        Self(stopped)
    }

    /// Returns whether no process was stopped.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns those that have the other end of what a wait was on.
    pub(super) fn at_other_end(&self, blame: &Blame<'_>, on: Option<WaitedOn>) -> BTreeSet<Tgid> {
        let file = match on {
            Some(WaitedOn::File { file, .. }) if !self.0.is_empty() => file,
            _ => return BTreeSet::new(),
        };
        let peers = blame.recording().files.socket(file).map_or(&[][..], |socket| &socket.peers);
        peers.iter().map(|peer| peer.tgid).filter(|peer| self.0.contains_key(peer)).collect()
    }

    /// Names in a finding the one of these processes that its waits were for, if the finding names
    /// nobody: what ended the waits was a timeout, say.
    pub(super) fn name_in(
        &self,
        finding: &mut Finding,
        awaited: &BTreeSet<Tgid>,
        writer: &FindingWriter<'_>,
    ) {
        let names_somebody = finding.chain.len() > 1
            || [BlameEntryKind::Work, BlameEntryKind::CpuQueue]
                .iter()
                .any(|kind| kind.name() == finding.cause.kind);
        let only = awaited.first().filter(|_| awaited.len() == 1 && !names_somebody);
        let Some(process) = only.and_then(|process| self.0.get(process)) else { return };
        let hop = process.hop(writer);
        finding.lines.iter_mut().for_each(|line| line.is_cause = false);
        finding.lines.push(FindingLine {
            detail: process.time.to_string(),
            ..FindingLine::without_function(
                describe_hop_without_function(&hop),
                finding.share,
                true,
            )
        });
        finding.cause.text = describe_hop(&hop);
        finding.text = format!("{}: {}", finding.text, finding.cause.text);
        finding.chain.push(hop);
    }
}

impl StoppedProcess {
    fn hop(&self, writer: &FindingWriter<'_>) -> FindingHop {
        let program = writer.words.programs.program_of_thread(self.thread);
        let threads = BTreeSet::from([self.thread]);
        let what = self.stop.describe(self.origin.as_ref());
        let hop = writer.words.hop(program, &threads, None, what, self.time);
        FindingHop { thread_name: None, ..hop }
    }
}

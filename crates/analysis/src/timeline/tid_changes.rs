//! Threads that change their tid: exec gives a thread that is not the first of its process the tid
//! of that one, which has ended by then
//! ([`de_thread`](https://github.com/torvalds/linux/blob/v6.12/fs/exec.c#L968)).
//!
//! ```text
//!                                       change       exec
//! tid 7   first thread ------ exit        +--[==]------+------------>   the thread that was 9
//! tid 9   ---------[= waits for 7 =]------+
//!                   seq 4                     seq 5, counted on
//! ```
//!
//! The kernel half counts a thread's records on, whatever its tid, so the numbers tell which of the
//! records of tid 7 are of the thread that was 9.

use std::collections::HashMap;

use offwake_recording::{
    Recording, ThreadEvent, ThreadExit,
    units::{Tid, Timestamp},
};

use super::lives::{CountedKind, TidRecords};

/// A thread's change of its tid.
#[derive(Clone, Copy, Debug)]
pub(super) struct TidChange<'a> {
    /// The earliest moment at which the thread was seen under its new tid.
    pub at: Timestamp,
    /// The number of its newest wait or preemption by then.
    pub seq: u32,
    /// The exit of the first thread, if that was recorded under the tid that the two exchanged.
    pub exit_of_first: Option<&'a ThreadExit>,
}

/// The changes of tids in a recording.
#[derive(Debug, Default)]
pub(super) struct TidChanges<'a> {
    /// By the old tid, in order of time.
    from: HashMap<Tid, Vec<TidChange<'a>>>,
    /// By the new tid, in order of time.
    to: HashMap<Tid, Vec<TidChange<'a>>>,
}

impl<'a> TidChanges<'a> {
    /// Finds the changes of tids. `tids` is sorted by tid.
    pub(super) fn find(recording: &'a Recording, tids: &[TidRecords]) -> Self {
        let records_of = |tid: Tid| {
            tids.binary_search_by_key(&tid, |records| records.tid).ok().map(|n| &tids[n])
        };
        let mut changes = Self::default();
        for exec in &recording.thread_events {
            let Some(old_tid) = exec.old_tid else { continue };
            let old = records_of(old_tid);
            let last_seen = old.map_or(Timestamp(0), |old| old.last_switch_in(recording, exec.at));
            let (at, seq) = match records_of(exec.tid) {
                Some(new) => find_start(recording, new, last_seen, exec),
                None => (exec.at, exec.seq),
            };
            // The thread itself has not ended.
            let exit_of_first = (old
                .and_then(|old| old.last_exit(recording, (last_seen, exec.at))))
            .filter(|exit| exit.tgid == exec.tgid);
            let change = TidChange { at, seq, exit_of_first };
            changes.from.entry(old_tid).or_default().push(change);
            changes.to.entry(exec.tid).or_default().push(change);
        }
        changes
    }

    /// Returns the changes from a tid to another.
    pub(super) fn leaving(&self, tid: Tid) -> &[TidChange<'a>] {
        self.from.get(&tid).map_or(&[], Vec::as_slice)
    }

    /// Returns the changes from other tids to this one.
    pub(super) fn arriving_at(&self, tid: Tid) -> &[TidChange<'a>] {
        self.to.get(&tid).map_or(&[], Vec::as_slice)
    }
}

/// Finds since when a thread has had its new tid, and how many records it had made by then: goes back
/// from the exec for as long as the numbers say that the records are its own, but not past the last
/// moment at which it was seen under its old tid.
fn find_start(
    recording: &Recording,
    new: &TidRecords,
    last_seen: Timestamp,
    exec: &ThreadEvent,
) -> (Timestamp, u32) {
    let (mut start, mut seq) = (exec.at, exec.seq);
    for entry in new.entries_before(recording, exec.at) {
        let is_own = entry.at >= last_seen && entry.seq == seq;
        match entry.kind {
            CountedKind::Record(counted) if is_own && seq > 0 => seq = seq.saturating_sub(counted),
            CountedKind::Event if is_own => {}
            CountedKind::Record(_) | CountedKind::Event => break,
        }
        start = entry.at;
    }
    (start, seq)
}

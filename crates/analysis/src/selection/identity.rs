//! Which thread of the timeline a record is about. The kernel gives the ids of threads and processes
//! again.

use std::ops::Range;

use offwake_recording::{
    ThreadEvent,
    units::{Tgid, Tid, Timestamp},
};

use crate::timeline::{Thread, Timeline};

/// One of the processes that had an id, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    /// The process's id.
    pub tgid: Tgid,
    /// When the process's first thread was created; none if that thread was not seen.
    pub created: Option<Timestamp>,
}

impl Process {
    /// The process that had an id at a moment.
    pub fn at(timeline: &Timeline, tgid: Tgid, at: Timestamp) -> Self {
        let leaders = timeline.threads.get(range_of(timeline, Tid(tgid.0))).unwrap_or_default();
        let is_older = |leader: &&Thread| leader.created.is_none_or(|created| created <= at);
        let leader = leaders.iter().rev().find(is_older).or_else(|| leaders.first());
        Self { tgid, created: leader.and_then(|leader| leader.created) }
    }

    /// The process of a thread.
    pub fn from_thread(timeline: &Timeline, thread: &Thread) -> Self {
        Self::at(timeline, thread.tgid, thread.created.unwrap_or(thread.from))
    }
}

/// The threads that had a tid, as a range of the timeline's.
fn range_of(timeline: &Timeline, tid: Tid) -> Range<usize> {
    let threads = &timeline.threads;
    threads.partition_point(|thread| thread.tid < tid)
        ..threads.partition_point(|thread| thread.tid <= tid)
}

/// The threads that an event is about, as indices: more than one if a thread took over another's id
/// and time of creation by `exec`.
pub(super) fn threads_of_event<'a>(
    timeline: &'a Timeline,
    thread_event: &'a ThreadEvent,
) -> impl Iterator<Item = usize> + 'a {
    range_of(timeline, thread_event.tid).filter(|&index| {
        let thread = timeline.threads.get(index);
        thread.is_some_and(|thread| thread.created == Some(thread_event.created))
    })
}

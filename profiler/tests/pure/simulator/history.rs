//! What happened on a machine, moment by moment.

use std::collections::BTreeMap;

use offwake_recording::units::Tgid;

use super::{ThreadId, kernel_half::IsRecorded, program::Outside};

/// A wait by the order in which they began, the whole machine's in one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId(pub usize);

/// A futex: by its process and address if it is private.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Futex {
    pub process: Option<Tgid>,
    pub address: u64,
}

/// Where a thread queues for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub cpu: usize,
    /// Since when, if it was moved there while it was runnable.
    pub moved: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    OnCpu(usize),
    /// The queue is that of the CPU that it came to in the end; none if it was not seen to.
    Runnable(Option<Queue>),
    /// A CPU quota keeps the thread from running.
    Throttled,
    Blocked(WaitId),
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeSource {
    Thread(ThreadId),
    Outside(Outside),
}

#[derive(Clone, Debug)]
pub struct Wait {
    pub thread: ThreadId,
    /// The lock that the thread waited for.
    pub lock: Option<Futex>,
    /// Whether the wait is on a futex with the value that a contended lock has: a lock, or a counter
    /// that happens to have it.
    pub looks_like_lock: bool,
    /// What woke the thread; none if the records tell of nobody.
    pub wake_source: Option<WakeSource>,
}

#[derive(Clone, Debug)]
pub struct Life {
    pub created: u64,
    pub creator: Option<ThreadId>,
    pub died: Option<u64>,
    /// What the thread did, and since when.
    pub spans: Vec<(u64, Activity)>,
}

impl Life {
    /// What the thread did, as (from, to, activity), none of them empty.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64, Activity)> + '_ {
        let end = self.died.unwrap_or(u64::MAX);
        let ends = self.spans.iter().skip(1).map(|&(from, _)| from).chain([end]);
        self.spans
            .iter()
            .zip(ends)
            .map(|(&(from, activity), to)| (from, to, activity))
            .filter(|(from, to, _)| from < to)
    }
}

/// What happened on a machine.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The lives of all threads, by [`ThreadId`].
    pub lives: Vec<Life>,
    /// All waits, by [`WaitId`].
    pub waits: Vec<Wait>,
    /// The releases of a lock that woke somebody, in order of time: when, and by whom.
    pub releases: BTreeMap<Futex, Vec<(u64, ThreadId)>>,
    /// The threads that held a lock, from when to when, whether anybody was woken or not.
    pub held: BTreeMap<Futex, Vec<(u64, u64, ThreadId)>>,
}

impl History {
    /// Records that from now on a thread does something else.
    pub fn record_activity(&mut self, thread: ThreadId, now: u64, activity: Activity) {
        self.lives[thread.0].spans.push((now, activity));
    }

    /// Records that a thread was seen to be runnable.
    pub fn record_runnable(&mut self, thread: ThreadId, now: u64) {
        if !matches!(self.lives[thread.0].spans.last(), Some((_, Activity::Runnable(_)))) {
            self.record_activity(thread, now, Activity::Runnable(None));
        }
    }

    /// Records that a runnable thread came to a CPU, and where it queued if the records tell of that.
    pub fn record_switch_in(
        &mut self,
        thread: ThreadId,
        now: u64,
        queue: Queue,
        is_recorded: IsRecorded,
    ) {
        let spans = &mut self.lives[thread.0].spans;
        if is_recorded == IsRecorded::Yes
            && let Some((_, Activity::Runnable(stood))) = spans.last_mut()
        {
            *stood = Some(queue);
        }
        spans.push((now, Activity::OnCpu(queue.cpu)));
    }
}

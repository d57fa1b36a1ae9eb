//! What happened on a machine, moment by moment.

use std::collections::BTreeMap;

use offwake::units::Tgid;

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
pub enum Doing {
    OnCpu(usize),
    /// The queue is that of the CPU that it came to in the end; none if it was not seen to.
    Runnable(Option<Queue>),
    Blocked(WaitId),
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ender {
    Thread(ThreadId),
    Outside(Outside),
}

#[derive(Clone, Debug)]
pub struct Wait {
    pub thread: ThreadId,
    /// The lock that it was for.
    pub lock: Option<Futex>,
    /// None if nobody was seen to end it.
    pub ender: Option<Ender>,
}

#[derive(Clone, Debug)]
pub struct Life {
    pub created: u64,
    pub creator: Option<ThreadId>,
    pub died: Option<u64>,
    /// Since when it did what.
    pub spans: Vec<(u64, Doing)>,
}

impl Life {
    /// What it did, as (from, to, what), none of them empty.
    pub fn spans(&self) -> impl Iterator<Item = (u64, u64, Doing)> + '_ {
        let end = self.died.unwrap_or(u64::MAX);
        let ends = self.spans.iter().skip(1).map(|&(from, _)| from).chain([end]);
        self.spans
            .iter()
            .zip(ends)
            .map(|(&(from, doing), to)| (from, to, doing))
            .filter(|(from, to, _)| from < to)
    }
}

/// What happened on a machine.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// By [`ThreadId`].
    pub lives: Vec<Life>,
    /// By [`WaitId`].
    pub waits: Vec<Wait>,
    /// The releases of a lock that woke somebody, in order of time: when, and by whom.
    pub releases: BTreeMap<Futex, Vec<(u64, ThreadId)>>,
    /// Who held a lock from when to when, whether anybody was woken or not.
    pub held: BTreeMap<Futex, Vec<(u64, u64, ThreadId)>>,
}

impl History {
    /// From now on a thread does something else.
    pub fn turn(&mut self, thread: ThreadId, now: u64, doing: Doing) {
        self.lives[thread.0].spans.push((now, doing));
    }

    /// A thread is seen to be runnable.
    pub fn found_runnable(&mut self, thread: ThreadId, now: u64) {
        if !matches!(self.lives[thread.0].spans.last(), Some((_, Doing::Runnable(_)))) {
            self.turn(thread, now, Doing::Runnable(None));
        }
    }

    /// A runnable thread came to a CPU, so that it is known where it stood, if that was seen.
    pub fn record_switch_in(
        &mut self,
        thread: ThreadId,
        now: u64,
        queue: Queue,
        is_recorded: IsRecorded,
    ) {
        let spans = &mut self.lives[thread.0].spans;
        if is_recorded == IsRecorded::Yes
            && let Some((_, Doing::Runnable(stood))) = spans.last_mut()
        {
            *stood = Some(queue);
        }
        spans.push((now, Doing::OnCpu(queue.cpu)));
    }
}

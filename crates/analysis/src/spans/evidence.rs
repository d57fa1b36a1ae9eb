//! What spans are found from, and the little that they ask of it.

use crate::{
    blame::{
        Ender,
        cause::{Cause, WaitedOn, waited_on},
        is_for_a_lock,
    },
    timeline::{Thread, ThreadIndex, Timeline, WaitIndex, WakeUse, wake_use},
};
use offwake_recording::{
    Begin, Recording, Scope, ThreadRef, Wait,
    units::{Nanos, Timestamp},
};

/// A recording, and what was found out about its waits.
#[derive(Clone, Copy)]
pub struct Evidence<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// What its threads did.
    pub timeline: &'a Timeline,
    /// Who ended each wait.
    pub ender: &'a dyn Fn(WaitIndex) -> Ender,
    /// What each wait was on.
    pub cause: &'a dyn Fn(WaitIndex) -> Cause,
}

/// Where a wait lies: `from..to` is its blocked part inside the window, if it has one.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) thread: Option<ThreadIndex>,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl<'a> Evidence<'a> {
    /// A wait's record.
    pub(super) fn wait(&self, index: WaitIndex) -> Option<Wait> {
        self.recording.waits.get(index.0 as usize)
    }

    /// Where a wait lies.
    pub(super) fn place(&self, index: WaitIndex) -> Option<Place> {
        if let Some(place) = self.timeline.place(index) {
            return Some(Place { thread: Some(place.thread), from: place.from, to: place.to });
        }
        let waits = &self.recording.waits;
        let row = waits.rows().get(index.0 as usize)?;
        let at = if row.begin() == Begin::Newborn { row.on } else { row.off };
        let (at, _) = self.recording.meta.window.clip(at, at);
        let thread = self.timeline.find(waits.waiter(row).tid, at);
        Some(Place { thread, from: at, to: at })
    }

    /// How many waits there are.
    pub(super) fn count(&self) -> usize {
        self.recording.waits.len()
    }

    /// Every wait.
    pub(super) fn waits(&self) -> impl Iterator<Item = WaitIndex> + use<> {
        (0..u32::try_from(self.count()).unwrap_or(u32::MAX)).map(WaitIndex)
    }

    /// A thread.
    pub(super) fn thread(&self, index: ThreadIndex) -> Option<&'a Thread> {
        self.timeline.thread(index)
    }

    /// The task that ended a wait.
    pub(super) fn task(&self, index: WaitIndex) -> Option<ThreadRef> {
        match (self.ender)(index) {
            Ender::Task(task) => Some(task),
            Ender::Nobody(_) | Ender::External(_) | Ender::Interrupt(_) => None,
        }
    }

    /// The thread that ended a wait, as far as its life is known.
    pub(super) fn waker(&self, index: WaitIndex) -> Option<ThreadIndex> {
        self.timeline.find(self.task(index)?.tid, self.place(index)?.to)
    }

    /// How long a wait was blocked inside the window.
    pub(super) fn blocked(&self, index: WaitIndex) -> Nanos {
        self.place(index).map_or(Nanos(0), |place| place.to.since(place.from))
    }

    /// When a wait was ended: before its switch-out, if its wake came that early.
    pub(super) fn woken_at(&self, index: WaitIndex) -> Timestamp {
        let Some(place) = self.place(index) else { return Timestamp(0) };
        let row = self.recording.waits.rows().get(index.0 as usize);
        match row.map(|row| (wake_use(row), row.woken_at())) {
            Some((WakeUse::Early, Some(woken))) => {
                woken.max(self.recording.meta.window.start).min(place.to)
            }
            _ => place.to,
        }
    }

    /// The very thing that a wait was on.
    pub(super) fn waited_on(&self, index: WaitIndex) -> Option<WaitedOn> {
        waited_on(&self.wait(index)?, (self.cause)(index))
    }

    /// Whether what a thread did was recorded: of a thread out of scope only its wakes are known.
    pub(super) fn is_recorded(&self, index: ThreadIndex) -> bool {
        self.thread(index)
            .is_some_and(|thread| self.recording.meta.scope == Scope::Machine || thread.in_target)
    }

    /// Whether whoever ends such a wait can hand something over by that: a thread's first task, say. A
    /// lock is let go of, a disk or a clock has nothing to say.
    pub(super) fn can_carry(&self, index: WaitIndex) -> bool {
        let Some(wait) = self.wait(index) else { return false };
        if wait.begin == Begin::Newborn {
            return true;
        }
        match (self.cause)(index) {
            Cause::Socket
            | Cause::Pipe
            | Cause::Eventfd
            | Cause::Poll
            | Cause::Child
            | Cause::Signal
            | Cause::IoUring
            | Cause::Tty
            | Cause::Other => true,
            Cause::Futex => !is_for_a_lock(&wait, Cause::Futex),
            Cause::Timer
            | Cause::Disk
            | Cause::PageFault
            | Cause::KernelLock
            | Cause::Stopped
            | Cause::Throttled => false,
        }
    }
}

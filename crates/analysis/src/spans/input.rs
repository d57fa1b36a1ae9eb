//! The input that spans are found from, and queries on it.

use crate::{
    blame::{
        ConnectionSide, ConnectionSides, WakeSource,
        cause::{Cause, WaitedOn, waited_on},
        is_lock_wait,
    },
    timeline::{Thread, ThreadIndex, Timeline, WaitIndex, WakeUse, wake_use},
};
use offwake_recording::{
    Begin, Recording, ThreadRef, Wait,
    units::{Nanos, Timestamp},
};

/// A recording, and what was found out about its waits before spans are built.
#[derive(Clone, Copy)]
pub struct SpanInput<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// What its threads did.
    pub timeline: &'a Timeline,
    /// Returns who or what ended a wait.
    pub wake_source: &'a dyn Fn(WaitIndex) -> WakeSource,
    /// Returns the cause of a wait.
    pub cause: &'a dyn Fn(WaitIndex) -> Cause,
}

/// A wait's thread and its blocked part inside the window, `from..to`; empty if it has none.
#[derive(Clone, Copy)]
pub(super) struct WaitInterval {
    pub(super) thread: Option<ThreadIndex>,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl<'a> SpanInput<'a> {
    /// Returns a wait's record.
    pub(super) fn wait(&self, index: WaitIndex) -> Option<Wait> {
        self.recording.waits.get(index.0 as usize)
    }

    /// Returns a wait's interval.
    pub(super) fn interval(&self, index: WaitIndex) -> Option<WaitInterval> {
        if let Some(place) = self.timeline.blocked_interval(index) {
            return Some(WaitInterval {
                thread: Some(place.thread),
                from: place.from,
                to: place.to,
            });
        }
        let waits = &self.recording.waits;
        let row = waits.rows().get(index.0 as usize)?;
        let at = if row.begin() == Begin::Newborn { row.on } else { row.off };
        let (at, _) = self.recording.meta.window.clip(at, at);
        let thread = self.timeline.find_thread(waits.waiter(row).tid, at);
        Some(WaitInterval { thread, from: at, to: at })
    }

    /// Returns the number of waits.
    pub(super) fn wait_count(&self) -> usize {
        self.recording.waits.len()
    }

    /// Returns all waits.
    pub(super) fn waits(&self) -> impl Iterator<Item = WaitIndex> + use<> {
        (0..u32::try_from(self.wait_count()).unwrap_or(u32::MAX)).map(WaitIndex)
    }

    /// Returns a thread.
    pub(super) fn thread(&self, index: ThreadIndex) -> Option<&'a Thread> {
        self.timeline.thread(index)
    }

    /// Returns the task that ended a wait.
    pub(super) fn waker_task(&self, index: WaitIndex) -> Option<ThreadRef> {
        match (self.wake_source)(index) {
            WakeSource::Task(task) => Some(task),
            WakeSource::Unknown(_) | WakeSource::External(_) | WakeSource::Interrupt(_) => None,
        }
    }

    /// Returns the thread that ended a wait, if the timeline has it.
    pub(super) fn waker_thread(&self, index: WaitIndex) -> Option<ThreadIndex> {
        self.timeline.find_thread(self.waker_task(index)?.tid, self.interval(index)?.to)
    }

    /// Returns how long a wait was blocked inside the window.
    pub(super) fn blocked_time(&self, index: WaitIndex) -> Nanos {
        self.interval(index).map_or(Nanos(0), |place| place.to.since(place.from))
    }

    /// Returns when a wait was ended: before its switch-out if its wake came that early.
    pub(super) fn woken_at(&self, index: WaitIndex) -> Timestamp {
        let Some(place) = self.interval(index) else { return Timestamp(0) };
        let row = self.recording.waits.rows().get(index.0 as usize);
        match row.map(|row| (wake_use(row), row.woken_at())) {
            Some((WakeUse::Early, Some(woken))) => {
                woken.max(self.recording.meta.window.start).min(place.to)
            }
            _ => place.to,
        }
    }

    /// Returns the object that a wait was on.
    pub(super) fn waited_on(&self, index: WaitIndex) -> Option<WaitedOn> {
        waited_on(&self.wait(index)?, (self.cause)(index))
    }

    /// Returns the end of a connection that a wait was on.
    pub(super) fn side(&self, sides: &ConnectionSides<'_>, index: WaitIndex) -> ConnectionSide {
        self.wait(index).map_or(ConnectionSide::Unknown, |wait| sides.waiter_side(&wait))
    }

    /// Returns whether a thread's own records were recorded: of a thread out of scope only its
    /// wakes are.
    pub(super) fn is_recorded(&self, index: ThreadIndex) -> bool {
        self.timeline.are_waits_recorded(index)
    }

    /// Returns whether the thread that ends a wait may hand something over by that, such as a
    /// thread's first task. To release a lock hands nothing over, and neither does a disk or a
    /// clock.
    pub(super) fn can_hand_over(&self, index: WaitIndex) -> bool {
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
            | Cause::SysvSem
            | Cause::SysvMsg
            | Cause::Mqueue
            | Cause::Inotify
            | Cause::Other => true,
            Cause::Futex => !is_lock_wait(&wait, Cause::Futex),
            Cause::Timer
            | Cause::Disk
            | Cause::PageFault
            | Cause::Memory
            | Cause::KernelLock
            | Cause::FileLock
            | Cause::Stopped
            | Cause::Throttled => false,
        }
    }
}

//! One wait in several pieces: a thread that is woken, finds nothing, and goes back to sleep.
//!
//! ```text
//! waiter  --+-- blocked --+-r-+##+-- blocked ----------+--
//!           |   first     ^ wake | ^ a retry of it
//!                                at most 10 us on a CPU: a look, and no more
//! ```

use crate::timeline::{State, WaitIndex};
use offwake_recording::{Syscall, Wait, units::Nanos};

use super::{
    Blame, Ender,
    cause::{Cause, syscalls},
};

/// CPU time in which nothing but a look can be taken.
pub const LOOK: Nanos = Nanos(10_000);

impl Blame<'_> {
    /// Whether a wait goes on with the one before it of the same thread: on the same lock, which
    /// somebody else had taken meanwhile; or a reader's that was woken because there was room to write.
    #[must_use]
    pub fn is_retry(&self, wait: WaitIndex) -> bool {
        self.piece_before(wait).is_some()
    }

    fn piece_before(&self, wait: WaitIndex) -> Option<WaitIndex> {
        let (row, verdict) = self.verdict(wait)?;
        let is_lock = self.locks.is_lock(row.pattern.index());
        if !is_lock && verdict.cause != Cause::Socket {
            return None;
        }
        let before = self.wait_just_before(wait)?;
        let (row_before, _) = self.verdict(before)?;
        let patterns = self.recording.waits.patterns();
        let (one, other) = (&patterns[row_before.pattern], &patterns[row.pattern]);
        if (one.waiter, one.call) != (other.waiter, other.call) {
            return None;
        }
        let goes_on = if is_lock {
            !self.has_released(before, wait)
        } else {
            self.recording.waits.get(before.0 as usize).is_some_and(|wait| is_for_room(&wait))
        };
        goes_on.then_some(before)
    }

    /// The wait before this one, if its thread only took a look in between.
    fn wait_just_before(&self, wait: WaitIndex) -> Option<WaitIndex> {
        let (track, place) = self.timeline.interval(wait)?;
        let look = track.get(place.checked_sub(1)?)?;
        if look.state != State::OnCpu || look.to.since(look.from) > LOOK {
            return None;
        }
        (0..place - 1).rev().take(2).find_map(|earlier| match track.get(earlier)?.state {
            State::Blocked(before) => Some(before),
            State::Runnable(_) | State::OnCpu | State::Lost => None,
        })
    }

    /// Whether a thread had the lock between two waits for it: then it released it.
    fn has_released(&self, before: WaitIndex, wait: WaitIndex) -> bool {
        let between = self.timeline.place(before).zip(self.timeline.place(wait));
        let Some((one, other)) = between else { return false };
        let Some((row, _)) = self.verdict(wait) else { return false };
        let releases = self.locks.between(row.pattern.index(), one.to, other.from);
        let own = self.timeline.thread(other.thread).map(|thread| thread.tid);
        releases.iter().any(|release| {
            matches!(self.ender(release.wait), Ender::Task(task) if Some(task.tid) == own)
        })
    }
}

/// Whether one that waits to read from a socket was woken by the other end's reading: there was room
/// to write again ([`sock_wfree`](https://github.com/torvalds/linux/blob/v6.12/net/core/sock.c#L2581)).
#[must_use]
pub fn is_for_room(wait: &Wait) -> bool {
    let reads =
        |syscall: Option<&Syscall>| syscall.and_then(syscalls::name).is_some_and(syscalls::reads);
    let wake = wait.wake.as_ref().and_then(|wake| wake.syscall.as_ref());
    reads(wait.syscall.as_ref()) && reads(wake)
}

//! Retries: one wait in several pieces, as a thread is woken, finds nothing, and sleeps again.
//!
//! ```text
//! waiter  --+-- blocked --+-r-+##+-- blocked ----------+--
//!           |   first     ^ wake | ^ a retry of it
//!                                at most 10 us on a CPU: a check, and no more
//! ```

use crate::timeline::{State, WaitIndex};
use offwake_recording::{Syscall, Wait, units::Nanos};

use super::{
    Blame, WakeSource,
    cause::{Cause, syscalls},
};

/// The most CPU time between two waits for the second to count as a retry: a thread can do no more
/// in it than check what it waits for.
pub const MAX_RETRY_CPU_TIME: Nanos = Nanos(10_000);

impl Blame<'_> {
    /// Returns whether a wait continues the one before it of the same thread: on the same lock,
    /// which another thread had taken meanwhile; or on a socket, of a reader that was woken because
    /// the socket could be written to.
    #[must_use]
    pub fn is_retry(&self, wait: WaitIndex) -> bool {
        self.previous_piece(wait).is_some()
    }

    fn previous_piece(&self, wait: WaitIndex) -> Option<WaitIndex> {
        let (row, pattern) = self.pattern(wait)?;
        let is_lock = self.locks.is_lock(row.pattern.index());
        if !is_lock && pattern.cause != Cause::Socket {
            return None;
        }
        let before = self.previous_wait(wait)?;
        let (row_before, _) = self.pattern(before)?;
        let patterns = self.recording.waits.patterns();
        let (one, other) = (&patterns[row_before.pattern], &patterns[row.pattern]);
        if (one.waiter, one.call) != (other.waiter, other.call) {
            return None;
        }
        let goes_on = if is_lock {
            !self.held_lock_between(before, wait)
        } else {
            self.recording
                .waits
                .get(before.0 as usize)
                .is_some_and(|wait| is_woken_by_write_space(&wait))
        };
        goes_on.then_some(before)
    }

    /// Returns the wait before this one if its thread did no more than check in between.
    fn previous_wait(&self, wait: WaitIndex) -> Option<WaitIndex> {
        let (track, place) = self.timeline.track_position(wait)?;
        let interval = track.get(place.checked_sub(1)?)?;
        if interval.state != State::OnCpu || interval.to.since(interval.from) > MAX_RETRY_CPU_TIME {
            return None;
        }
        (0..place - 1).rev().take(2).find_map(|earlier| match track.get(earlier)?.state {
            State::Blocked(before) => Some(before),
            State::Runnable(_)
            | State::Throttled(_)
            | State::OnCpu
            | State::Lost
            | State::Summed(_) => None,
        })
    }

    /// Returns whether a thread held the lock between two waits for it: then there is a release by
    /// it.
    fn held_lock_between(&self, before: WaitIndex, wait: WaitIndex) -> bool {
        let between =
            self.timeline.blocked_interval(before).zip(self.timeline.blocked_interval(wait));
        let Some((one, other)) = between else { return false };
        let Some((row, _)) = self.pattern(wait) else { return false };
        let releases = self.locks.releases_between(row.pattern.index(), one.to, other.from);
        let own = self.timeline.thread(other.thread).map(|thread| thread.tid);
        releases.iter().any(|release| {
            matches!(self.wake_source(release.wait), WakeSource::Task(task) if Some(task.tid) == own)
        })
    }
}

/// Returns whether a thread that waits to read from a socket was woken because the other end had
/// read, so that there was space to write again
/// ([`sock_wfree`](https://github.com/torvalds/linux/blob/v6.12/net/core/sock.c#L2581)).
#[must_use]
pub fn is_woken_by_write_space(wait: &Wait) -> bool {
    let reads =
        |syscall: Option<&Syscall>| syscall.and_then(syscalls::name).is_some_and(syscalls::reads);
    let wake = wait.wake.as_ref().and_then(|wake| wake.syscall.as_ref());
    reads(wait.syscall.as_ref()) && reads(wake)
}

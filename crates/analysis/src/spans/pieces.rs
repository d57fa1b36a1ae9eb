//! One wait in several pieces: who waits to read from a socket is woken too when the other end has
//! read, because there is room to write again. It finds nothing, and goes back to sleep
//! (`docs/blame.md`, "One wait in several pieces").
//!
//! ```text
//! A  --+-- blocked --+--+-- blocked ----------+--
//!                    ^ B has read the request: there is room to write again
//!                                             ^ B has answered
//! ```
//!
//! Who comes back to the same wait after anything else may have been answered: between threads that
//! are quick, an answer and the next request need no more time than a check.

use crate::{
    blame::{MAX_RETRY_CPU_TIME, cause::Cause, is_woken_by_write_space},
    timeline::WaitIndex,
};
use offwake_recording::{
    Wait,
    units::{Nanos, Timestamp},
};

use super::{SpanInput, thread_waits::ThreadWaits};

/// Which waits are pieces of one wait.
pub(super) struct WaitPieces {
    /// The piece before a wait, by [`WaitIndex`].
    previous: Vec<Option<WaitIndex>>,
    /// Whether another piece comes after a wait, by [`WaitIndex`].
    is_continued: Vec<bool>,
    /// When a wait's first piece began, and how long all pieces up to the wait were, by
    /// [`WaitIndex`].
    sums: Vec<(Timestamp, Nanos)>,
}

impl WaitPieces {
    pub(super) fn new(evidence: SpanInput<'_>) -> Self {
        let count = evidence.wait_count();
        let mut pieces = Self {
            previous: vec![None; count],
            is_continued: vec![false; count],
            sums: Vec::new(),
        };
        let lanes = ThreadWaits::new(evidence, |wait| evidence.blocked_time(wait) > Nanos(0));
        let neighbours = lanes.waits().iter().zip(lanes.waits().iter().skip(1));
        for (&first, &second) in neighbours {
            if is_next_piece(evidence, first, second) == Some(true)
                && let Some(before) = pieces.previous.get_mut(second.0 as usize)
                && let Some(first_goes_on) = pieces.is_continued.get_mut(first.0 as usize)
            {
                (*before, *first_goes_on) = (Some(first), true);
            }
        }
        pieces.sums = (evidence.waits())
            .map(|wait| {
                let from = evidence.interval(wait).map_or(Timestamp(0), |place| place.from);
                (from, evidence.blocked_time(wait))
            })
            .collect();
        for &wait in lanes.waits() {
            let before =
                pieces.previous(wait).and_then(|before| pieces.sums.get(before.0 as usize));
            if let Some(&(from, sum)) = before
                && let Some(of_wait) = pieces.sums.get_mut(wait.0 as usize)
            {
                *of_wait = (from, sum + of_wait.1);
            }
        }
        pieces
    }

    /// Returns whether the wait's thread went back to the same wait at once.
    pub(super) fn is_continued(&self, wait: WaitIndex) -> bool {
        self.is_continued.get(wait.0 as usize).is_some_and(|goes_on| *goes_on)
    }

    /// Returns when the wait's first piece began.
    pub(super) fn start(&self, wait: WaitIndex) -> Timestamp {
        self.sums.get(wait.0 as usize).map_or(Timestamp(0), |(from, _)| *from)
    }

    /// Returns how long the wait was blocked in all pieces up to this one.
    pub(super) fn blocked_time(&self, wait: WaitIndex) -> Nanos {
        self.sums.get(wait.0 as usize).map_or(Nanos(0), |(_, blocked)| *blocked)
    }

    fn previous(&self, wait: WaitIndex) -> Option<WaitIndex> {
        self.previous.get(wait.0 as usize).copied().flatten()
    }
}

/// Returns whether the second wait is the first one's next piece. None if they are not of one
/// thread.
fn is_next_piece(evidence: SpanInput<'_>, first: WaitIndex, second: WaitIndex) -> Option<bool> {
    let (one, other) = (evidence.interval(first)?, evidence.interval(second)?);
    let index = one.thread.filter(|_| one.thread == other.thread)?;
    let between = evidence.thread(index)?.track.times_between(one.to, other.from);
    let wait = evidence.wait(first)?;
    Some(
        (evidence.cause)(first) == Cause::Socket
            && is_woken_by_write_space(&wait)
            && is_same_wait(&wait, &evidence.wait(second)?)
            && between.on_cpu <= MAX_RETRY_CPU_TIME
            && between.lost == Nanos(0),
    )
}

/// Returns whether two waits are on the same object, in the same call.
fn is_same_wait(one: &Wait, other: &Wait) -> bool {
    one.syscall == other.syscall && one.file == other.file && one.user_stack == other.user_stack
}

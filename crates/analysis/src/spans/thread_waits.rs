//! Each thread's waits in order of time, those that can be spans and those that are too short.

use std::ops::Range;

use offwake_recording::units::Timestamp;

use crate::timeline::{ThreadIndex, WaitIndex};

use super::{SpanInput, input::WaitInterval};

/// Waits by thread, then by time. Those of one thread do not overlap.
pub(super) struct ThreadWaits {
    waits: Vec<WaitIndex>,
    /// When each of [`Self::waits`] began and ended. Looked up in the timeline for each comparison
    /// instead, they took an eighth of the time in which a million requests are found.
    times: Vec<(Timestamp, Timestamp)>,
    /// The end of each thread's waits, by [`ThreadIndex`]. They begin where those of the thread
    /// before end.
    ends: Vec<usize>,
}

impl ThreadWaits {
    /// Collects the waits for which `belongs` returns true.
    pub(super) fn new(evidence: SpanInput<'_>, belongs: impl Fn(WaitIndex) -> bool) -> Self {
        let mut waits: Vec<_> = (evidence.waits())
            .filter(|&index| belongs(index))
            .filter_map(|index| {
                let WaitInterval { thread, from, to } = evidence.interval(index)?;
                Some((thread?, (from, to), index))
            })
            .collect();
        waits.sort_by_key(|&(thread, (from, _), _)| (thread, from));
        let threads = 0..u32::try_from(evidence.timeline.threads.len()).unwrap_or(u32::MAX);
        let ends = threads.map(|n| waits.partition_point(|(thread, ..)| thread.0 <= n)).collect();
        let (waits, times) = waits.into_iter().map(|(_, times, index)| (index, times)).unzip();
        Self { waits, times, ends }
    }

    /// Returns all waits.
    pub(super) fn waits(&self) -> &[WaitIndex] {
        &self.waits
    }

    /// Returns the range in [`Self::waits`] of the waits that begin and end inside `from..to` of a
    /// thread's life.
    pub(super) fn inside(
        &self,
        thread: ThreadIndex,
        from: Timestamp,
        to: Timestamp,
    ) -> Range<usize> {
        self.range_of(thread, to, |(began, _)| began < from)
    }

    /// Returns the same range, with the wait that had begun before if it ends there.
    pub(super) fn ending_inside(
        &self,
        thread: ThreadIndex,
        from: Timestamp,
        to: Timestamp,
    ) -> Range<usize> {
        self.range_of(thread, to, |(_, ended)| ended <= from)
    }

    /// Returns the range of a thread's waits that end before `to`, without the first for which
    /// `is_over` returns true.
    fn range_of(
        &self,
        thread: ThreadIndex,
        to: Timestamp,
        is_over: impl Fn((Timestamp, Timestamp)) -> bool,
    ) -> Range<usize> {
        let n = thread.0 as usize;
        let first = n.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&e| e);
        let end = self.ends.get(n).map_or(first, |&end| end);
        let lane = self.times.get(first..end).unwrap_or_default();
        let begin = lane.partition_point(|&times| is_over(times));
        let end = lane.partition_point(|&(_, ended)| ended < to);
        first + begin..first + end.max(begin)
    }
}

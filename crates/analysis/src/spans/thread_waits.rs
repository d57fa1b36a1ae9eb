//! Each thread's waits in order of time, those that can be spans and those that are too short.

use std::ops::Range;

use offwake_recording::units::Timestamp;

use crate::timeline::{ThreadIndex, WaitIndex};

use super::{SpanInput, input::WaitInterval};

/// Waits by thread, then by time. Those of one thread do not overlap.
pub(super) struct ThreadWaits<'a> {
    evidence: SpanInput<'a>,
    waits: Vec<WaitIndex>,
    /// The end of each thread's waits, by [`ThreadIndex`]. They begin where those of the thread
    /// before end.
    ends: Vec<usize>,
}

impl<'a> ThreadWaits<'a> {
    /// Collects the waits for which `belongs` returns true.
    pub(super) fn new(evidence: SpanInput<'a>, belongs: impl Fn(WaitIndex) -> bool) -> Self {
        let mut waits: Vec<_> = (evidence.waits())
            .filter_map(|index| Some((evidence.interval(index)?.thread?, index)))
            .filter(|&(_, index)| belongs(index))
            .collect();
        waits.sort_by_key(|&(thread, index)| {
            (thread, evidence.interval(index).map(|place| place.from))
        });
        let threads = 0..u32::try_from(evidence.timeline.threads.len()).unwrap_or(u32::MAX);
        let ends = threads.map(|n| waits.partition_point(|(thread, _)| thread.0 <= n)).collect();
        Self { evidence, waits: waits.into_iter().map(|(_, index)| index).collect(), ends }
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
        self.range_of(thread, to, |place| place.from < from)
    }

    /// Returns the same range, with the wait that had begun before if it ends there.
    pub(super) fn ending_inside(
        &self,
        thread: ThreadIndex,
        from: Timestamp,
        to: Timestamp,
    ) -> Range<usize> {
        self.range_of(thread, to, |place| place.to <= from)
    }

    /// Returns the range of a thread's waits that end before `to`, without the first for which
    /// `is_over` returns true.
    fn range_of(
        &self,
        thread: ThreadIndex,
        to: Timestamp,
        is_over: impl Fn(WaitInterval) -> bool,
    ) -> Range<usize> {
        let n = thread.0 as usize;
        let first = n.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&e| e);
        let end = self.ends.get(n).map_or(first, |&end| end);
        let lane = self.waits.get(first..end).unwrap_or_default();
        let begin =
            lane.partition_point(|&index| self.evidence.interval(index).is_some_and(&is_over));
        let end = lane.partition_point(|&index| {
            self.evidence.interval(index).is_some_and(|place| place.to < to)
        });
        first + begin..first + end.max(begin)
    }
}

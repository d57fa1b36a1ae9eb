//! Intervals on the shared clock, and what is left of them inside a window.

use serde::{Deserialize, Serialize};

/// From `start_ns` up to `end_ns`, both `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// When the interval begins.
    pub start_ns: u64,
    /// When the interval ends, not before it begins.
    pub end_ns: u64,
}

impl Interval {
    /// The interval between two moments.
    #[must_use]
    pub fn new(start_ns: u64, end_ns: u64) -> Self {
        Self { start_ns, end_ns }
    }

    /// The interval's length in ns.
    #[must_use]
    pub fn length_ns(self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// The part that lies in `window` too; none if they do not meet.
    #[must_use]
    pub fn clipped(self, window: Self) -> Option<Self> {
        let part = Self::new(self.start_ns.max(window.start_ns), self.end_ns.min(window.end_ns));
        (part.start_ns < part.end_ns).then_some(part)
    }

    /// Whether it lies in `window` from its beginning to its end.
    #[must_use]
    pub fn inside(self, window: Self) -> bool {
        self.start_ns >= window.start_ns && self.end_ns <= window.end_ns
    }
}

/// Whether each meets each of the others.
#[must_use]
pub fn all_meet(intervals: &[Interval]) -> bool {
    intervals.iter().all(|one| intervals.iter().all(|other| one.clipped(*other).is_some()))
}

/// The sum of what lies inside `window`, in ns.
#[must_use]
pub fn total_in(intervals: impl IntoIterator<Item = Interval>, window: Interval) -> u64 {
    intervals.into_iter().filter_map(|one| one.clipped(window)).map(Interval::length_ns).sum()
}

/// How long both lists were inside an interval at the same time, in ns.
///
/// ```text
///   a   |--------|      |----|
///   b       |---------|
///            ####               4 of them
/// ```
///
/// The intervals of one list must not overlap each other.
#[must_use]
pub fn overlap_ns(a: &[Interval], b: &[Interval]) -> u64 {
    a.iter().map(|&one| total_in(b.iter().copied(), one)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_cuts_on_both_sides() {
        let window = Interval::new(10, 20);
        let lengths = |list: &[(u64, u64)]| {
            total_in(list.iter().map(|&(start, end)| Interval::new(start, end)), window)
        };
        assert_eq!(lengths(&[(0, 10), (20, 30)]), 0);
        assert_eq!(lengths(&[(5, 12), (18, 40)]), 4);
        assert_eq!(lengths(&[(0, u64::MAX)]), 10);
    }

    #[test]
    fn one_that_ends_where_another_begins_does_not_meet_it() {
        let all = [Interval::new(0, 10), Interval::new(5, 20), Interval::new(10, 20)];
        assert!(all_meet(&all[..2]) && all_meet(&all[1..]));
        assert!(!all_meet(&all));
    }

    #[test]
    fn overlap_counts_only_what_both_have() {
        let a = [Interval::new(0, 10), Interval::new(20, 25)];
        let b = [Interval::new(6, 22)];
        assert_eq!(overlap_ns(&a, &b), 4 + 2);
        assert_eq!(overlap_ns(&a, &[]), 0);
    }
}

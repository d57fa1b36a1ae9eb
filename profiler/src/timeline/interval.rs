//! What a thread was doing, interval by interval.

use crate::units::{Nanos, Timestamp};

use super::WaitIndex;

/// What a thread was doing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was on a CPU.
    OnCpu,
    /// It could have gone on, and waited for a CPU.
    Runnable,
    /// It was blocked, in this wait.
    Blocked(WaitIndex),
    /// Not known: records of it were lost, or there is nothing that says.
    Lost,
}

/// A state and when it began. It lasts until the next interval begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    from: Timestamp,
    state: State,
}

/// How a stretch of time divides over the states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Time on a CPU.
    pub on_cpu: Nanos,
    /// Time waiting for a CPU.
    pub runnable: Nanos,
    /// Time blocked, gaps not included.
    pub blocked: Nanos,
    /// Time of which nothing is known.
    pub lost: Nanos,
}

impl Split {
    /// All of it.
    #[must_use]
    pub fn total(self) -> Nanos {
        self.on_cpu + self.runnable + self.blocked + self.lost
    }

    fn add(&mut self, state: State, length: Nanos) {
        match state {
            State::OnCpu => self.on_cpu += length,
            State::Runnable => self.runnable += length,
            State::Blocked(_) => self.blocked += length,
            State::Lost => self.lost += length,
        }
    }

    fn minus(self, earlier: Self) -> Self {
        Self {
            on_cpu: self.on_cpu - earlier.on_cpu,
            runnable: self.runnable - earlier.runnable,
            blocked: self.blocked - earlier.blocked,
            lost: self.lost - earlier.lost,
        }
    }
}

/// Intervals between two running totals. A look-up walks at most this many, so that a thousand
/// waits for one busy thread don't walk all of its intervals a thousand times.
const STRIDE: usize = 64;

/// A thread's life, divided into intervals without holes or overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    intervals: Vec<Interval>,
    /// The split of everything before interval `n * STRIDE`.
    totals: Vec<Split>,
    /// The split of everything before the last interval.
    closed: Split,
    end: Timestamp,
}

impl Track {
    /// An empty one that begins at `start`.
    #[must_use]
    pub fn starting(start: Timestamp) -> Self {
        Self { end: start, ..Self::default() }
    }

    /// When it ends.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// Appends `state` from the end until `to`; nothing if `to` is not after the end.
    pub(super) fn extend(&mut self, to: Timestamp, state: State) {
        if to <= self.end {
            return;
        }
        if self.intervals.last().is_none_or(|last| last.state != state) {
            if let Some(last) = self.intervals.last() {
                self.closed.add(last.state, self.end.since(last.from));
            }
            if self.intervals.len().is_multiple_of(STRIDE) {
                self.totals.push(self.closed);
            }
            self.intervals.push(Interval { from: self.end, state });
        }
        self.end = to;
    }

    /// The intervals in order, as (from, to, state).
    pub fn iter(&self) -> impl Iterator<Item = (Timestamp, Timestamp, State)> + '_ {
        let ends = self.intervals.iter().skip(1).map(|next| next.from).chain([self.end]);
        self.intervals.iter().zip(ends).map(|(interval, to)| (interval.from, to, interval.state))
    }

    /// The interval that `at` lies in, as (from, to, state).
    #[must_use]
    pub fn at(&self, at: Timestamp) -> Option<(Timestamp, Timestamp, State)> {
        let next = self.intervals.partition_point(|interval| interval.from <= at);
        let interval = self.intervals.get(next.checked_sub(1)?)?;
        let to = self.intervals.get(next).map_or(self.end, |next| next.from);
        (at < to).then_some((interval.from, to, interval.state))
    }

    /// How `from..to` divides, as far as it lies inside.
    #[must_use]
    pub fn split(&self, from: Timestamp, to: Timestamp) -> Split {
        self.until(to.max(from)).minus(self.until(from))
    }

    /// How everything before `at` divides.
    fn until(&self, at: Timestamp) -> Split {
        let at = at.min(self.end);
        let begun = self.intervals.partition_point(|interval| interval.from < at);
        let Some(block) = begun.checked_sub(1).map(|last| last / STRIDE) else {
            return Split::default();
        };
        let mut split = self.totals.get(block).copied().unwrap_or_default();
        let walked = self.intervals.get(block * STRIDE..begun).unwrap_or_default();
        for (interval, next) in walked.iter().zip(walked.iter().skip(1)) {
            split.add(interval.state, next.from.since(interval.from));
        }
        if let Some(last) = walked.last() {
            split.add(last.state, at.since(last.from));
        }
        split
    }
}

#[cfg(test)]
mod tests {
    use super::{Split, State, Track};
    use crate::{timeline::WaitIndex, units::Timestamp};

    #[test]
    fn running_totals_say_what_a_walk_says() {
        let states = [State::OnCpu, State::Blocked(WaitIndex(0)), State::Runnable, State::Lost];
        let mut track = Track::starting(Timestamp(1_000));
        for n in 0..1_000_u64 {
            track.extend(track.end() + crate::units::Nanos(1 + n * n % 7), states[n as usize % 4]);
        }
        for (from, to, state) in track.iter() {
            for at in [from.0, (from.0 + to.0) / 2, to.0 - 1] {
                assert_eq!(track.at(Timestamp(at)), Some((from, to, state)));
            }
        }
        assert_eq!(track.at(Timestamp(999)), None);
        assert_eq!(track.at(track.end()), None);
        for (from, to) in [(0, 9_000), (1_000, 1_001), (1_003, 1_900), (1_500, 1_500), (2_000, 10)]
        {
            let (from, to) = (Timestamp(from), Timestamp(to));
            let mut walked = Split::default();
            for (begin, end, state) in track.iter() {
                walked.add(state, end.min(to).since(begin.max(from)));
            }
            assert_eq!(track.split(from, to), walked, "{from:?}..{to:?}");
        }
    }
}

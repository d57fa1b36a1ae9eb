//! What a thread was doing, interval by interval.

use crate::search::partition_near;
use offwake_recording::units::{Cpu, Nanos, Timestamp};

use super::{PreemptionIndex, SummedIndex, ThrottleIndex, WaitIndex};

/// The event since which a runnable thread has been waiting for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnableSince {
    /// The wake that ended this wait.
    Woken(WaitIndex),
    /// The preemption that took its CPU.
    Preempted(PreemptionIndex),
}

/// What a thread was doing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The thread was on a CPU.
    OnCpu,
    /// The thread could run, and waited for a CPU.
    Runnable(RunnableSince),
    /// The thread could run, and a CPU quota kept it from that.
    Throttled(ThrottleIndex),
    /// The thread was blocked in this wait.
    Blocked(WaitIndex),
    /// Unknown: records of the thread were lost, or there never were any.
    Lost,
    /// On a CPU, runnable and blocked in turns: its short waits were summed up, and only how long each was
    /// in all is known.
    Summed(SummedIndex),
}

impl State {
    /// Returns whether it is not known what the thread did at any moment: nothing can be concluded from
    /// what it seems not to have done.
    #[must_use]
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Lost | Self::Summed(_))
    }
}

/// A [`State`] in four bytes: two bits for its kind, the rest for the record that it comes from, or
/// for the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedState(u32);

impl PackedState {
    const INDEX: u32 = (1 << 30) - 1;
    const OTHER: u32 = 0;
    const BLOCKED: u32 = 1 << 30;
    const WOKEN: u32 = 2 << 30;
    const PREEMPTED: u32 = 3 << 30;
    const LOST: Self = Self(Self::OTHER);
    const ON_SOME_CPU: Self = Self(Self::OTHER | 1);
    /// On a CPU whose number is added to this.
    const ON_CPU: u32 = Self::OTHER | 2;
    /// Throttled, with the record's index in the bits below this one.
    const THROTTLED: u32 = Self::OTHER | 1 << 29;
    /// Short waits that were summed up, with the record's index in the bits below this one.
    const SUMMED: u32 = Self::OTHER | 1 << 28;

    fn new(state: State, cpu: Option<Cpu>) -> Self {
        let with = |kind: u32, index: u32| match index {
            0..=Self::INDEX => Self(kind | index),
            // A thousand million records don't fit into any memory: what can't be told is lost.
            _ => Self::LOST,
        };
        match state {
            State::OnCpu => {
                cpu.map_or(Self::ON_SOME_CPU, |cpu| Self(Self::ON_CPU + u32::from(cpu.0)))
            }
            State::Lost => Self::LOST,
            State::Throttled(throttle) => match throttle.0 {
                index @ 0..Self::THROTTLED => Self(Self::THROTTLED | index),
                _ => Self::LOST,
            },
            State::Summed(summed) => match summed.0 {
                index @ 0..Self::SUMMED => Self(Self::SUMMED | index),
                _ => Self::LOST,
            },
            State::Blocked(wait) => with(Self::BLOCKED, wait.0),
            State::Runnable(RunnableSince::Woken(wait)) => with(Self::WOKEN, wait.0),
            State::Runnable(RunnableSince::Preempted(preemption)) => {
                with(Self::PREEMPTED, preemption.0)
            }
        }
    }

    fn state(self) -> State {
        let index = self.0 & Self::INDEX;
        match self.0 & !Self::INDEX {
            Self::BLOCKED => State::Blocked(WaitIndex(index)),
            Self::WOKEN => State::Runnable(RunnableSince::Woken(WaitIndex(index))),
            Self::PREEMPTED => State::Runnable(RunnableSince::Preempted(PreemptionIndex(index))),
            _ if self == Self::LOST => State::Lost,
            _ if index & Self::THROTTLED != 0 => {
                State::Throttled(ThrottleIndex(index & !Self::THROTTLED))
            }
            _ if index & Self::SUMMED != 0 => State::Summed(SummedIndex(index & !Self::SUMMED)),
            _ => State::OnCpu,
        }
    }

    fn cpu(self) -> Option<Cpu> {
        let number = match self.state() {
            State::OnCpu => self.0.checked_sub(Self::ON_CPU)?,
            State::Runnable(_)
            | State::Throttled(_)
            | State::Blocked(_)
            | State::Lost
            | State::Summed(_) => return None,
        };
        u16::try_from(number).ok().map(Cpu)
    }
}

/// How some time of a thread's life divides over the states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTimes {
    /// Time on a CPU.
    pub on_cpu: Nanos,
    /// Time in which the thread could run, and did not: it waited for a CPU, or was throttled.
    pub runnable: Nanos,
    /// Of that, the time in which a CPU quota kept the thread from running.
    pub throttled: Nanos,
    /// Time blocked, gaps not included.
    pub blocked: Nanos,
    /// Time of which it is not known what the thread did at any moment.
    pub lost: Nanos,
    /// Of that, the time in which short waits were summed up.
    pub summed: Nanos,
}

impl StateTimes {
    /// Returns the sum of all states.
    #[must_use]
    pub fn total(self) -> Nanos {
        self.on_cpu + self.runnable + self.blocked + self.lost
    }

    /// Adds the times of another stretch.
    pub(crate) fn add_times(&mut self, other: Self) {
        self.on_cpu += other.on_cpu;
        self.runnable += other.runnable;
        self.throttled += other.throttled;
        self.blocked += other.blocked;
        self.lost += other.lost;
        self.summed += other.summed;
    }

    fn add(&mut self, state: State, length: Nanos) {
        match state {
            State::OnCpu => self.on_cpu += length,
            State::Runnable(_) => self.runnable += length,
            State::Throttled(_) => {
                self.runnable += length;
                self.throttled += length;
            }
            State::Blocked(_) => self.blocked += length,
            State::Lost => self.lost += length,
            State::Summed(_) => {
                self.lost += length;
                self.summed += length;
            }
        }
    }
}

/// An interval of a thread's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The interval's first moment.
    pub from: Timestamp,
    /// The first moment after the interval.
    pub to: Timestamp,
    /// What the thread was doing.
    pub state: State,
}

/// A thread's life, divided into intervals without holes or overlaps.
///
/// Twelve bytes an interval: three of them for each wait are what a timeline takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    starts: Vec<Timestamp>,
    states: Vec<PackedState>,
    end: Timestamp,
}

impl Track {
    /// Creates an empty track that begins at `start`.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self { end: start, ..Self::default() }
    }

    /// Returns the end of the track.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// Returns the number of intervals.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns whether the track has no interval.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Appends `state` from the end until `to`; nothing if `to` is not after the end.
    pub(super) fn extend(&mut self, to: Timestamp, state: State) {
        self.append(to, PackedState::new(state, None));
    }

    /// Appends time on a CPU, which may be unknown, from the end until `to`.
    pub(super) fn extend_on_cpu(&mut self, to: Timestamp, cpu: Option<Cpu>) {
        self.append(to, PackedState::new(State::OnCpu, cpu));
    }

    fn append(&mut self, to: Timestamp, state: PackedState) {
        if to <= self.end {
            return;
        }
        match self.states.last_mut() {
            Some(last) if *last == state => {}
            // It stays on one CPU for as long as it does not leave it.
            Some(last) if last.state() == State::OnCpu && state == PackedState::ON_SOME_CPU => {}
            Some(last) if *last == PackedState::ON_SOME_CPU && state.state() == State::OnCpu => {
                *last = state;
            }
            _ => {
                self.starts.push(self.end);
                self.states.push(state);
            }
        }
        self.end = to;
    }

    /// Frees the memory that was reserved for more intervals.
    pub(super) fn shrink_to_fit(&mut self) {
        self.starts.shrink_to_fit();
        self.states.shrink_to_fit();
    }

    /// Returns an interval by its index.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<Interval> {
        let (from, state) = (*self.starts.get(place)?, self.states.get(place)?.state());
        let to = self.starts.get(place + 1).copied().unwrap_or(self.end);
        Some(Interval { from, to, state })
    }

    /// Returns the CPU of an on-CPU interval, if it is known.
    #[must_use]
    pub fn cpu(&self, place: usize) -> Option<Cpu> {
        self.states.get(place)?.cpu()
    }

    /// Returns the intervals in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Interval> + '_ {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    /// Returns the intervals that reach into the time between two moments, the last one first.
    pub(crate) fn newest_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = Interval> + use<'_> {
        (0..self.count_begun_before(to, self.len()))
            .rev()
            .map_while(move |place| self.get(place).filter(|interval| interval.to > from))
    }

    /// Returns the index of the interval that contains `at`.
    #[must_use]
    pub fn index_at(&self, at: Timestamp) -> Option<usize> {
        let place = self.starts.partition_point(|&from| from <= at).checked_sub(1)?;
        (at < self.end).then_some(place)
    }

    /// Counts the intervals that begin before `at`, searching around the index `near` first: a
    /// caller that goes through a recording in order of time finds the number within a few steps.
    #[must_use]
    pub fn count_begun_before(&self, at: Timestamp, near: usize) -> usize {
        let starts = &self.starts;
        partition_near(starts.len(), near, |n| starts.get(n).is_some_and(|&from| from < at))
    }

    /// Returns the interval that contains `at`.
    #[must_use]
    pub fn interval_at(&self, at: Timestamp) -> Option<Interval> {
        self.get(self.index_at(at)?)
    }

    /// Returns how the whole track divides over the states.
    #[must_use]
    pub fn total_times(&self) -> StateTimes {
        self.times_between(Timestamp(0), self.end)
    }

    /// Returns how `from..to` divides over the states, as far as it lies inside the track.
    #[must_use]
    pub fn times_between(&self, from: Timestamp, to: Timestamp) -> StateTimes {
        let mut split = StateTimes::default();
        let first = self.starts.partition_point(|&start| start <= from).saturating_sub(1);
        let intervals = (first..self.len()).filter_map(|place| self.get(place));
        for interval in intervals.take_while(|interval| interval.from < to) {
            split.add(interval.state, interval.to.min(to).since(interval.from.max(from)));
        }
        split
    }
}

#[cfg(test)]
mod tests {
    use super::{PreemptionIndex, RunnableSince, State, Track};
    use crate::timeline::{SummedIndex, ThrottleIndex, WaitIndex};
    use offwake_recording::units::{Cpu, Nanos, Timestamp};

    #[test]
    fn a_time_on_a_cpu_is_one_interval_wherever_its_cpu_became_known() {
        let mut track = Track::starting_at(Timestamp(0));
        track.extend_on_cpu(Timestamp(10), None);
        track.extend_on_cpu(Timestamp(20), Some(Cpu(65_535)));
        track.extend_on_cpu(Timestamp(30), None);
        assert_eq!((track.len(), track.cpu(0)), (1, Some(Cpu(65_535))));
        track.extend(Timestamp(40), State::Lost);
        track.extend_on_cpu(Timestamp(50), None);
        assert_eq!((track.len(), track.cpu(1), track.cpu(2)), (3, None, None));
        assert_eq!(
            track.interval_at(Timestamp(45)).map(|interval| interval.state),
            Some(State::OnCpu)
        );
    }

    #[test]
    fn an_interval_is_found_from_wherever_the_search_begins() {
        let states = [
            State::OnCpu,
            State::Blocked(WaitIndex(0)),
            State::Runnable(RunnableSince::Woken(WaitIndex(0))),
            State::Runnable(RunnableSince::Preempted(PreemptionIndex(7))),
            State::Lost,
            State::Throttled(ThrottleIndex(3)),
            State::Summed(SummedIndex(5)),
        ];
        let mut track = Track::starting_at(Timestamp(1_000));
        for n in 0..100_u64 {
            track.extend(track.end() + Nanos(1 + n * n % 7), states[n as usize % states.len()]);
        }
        for (place, interval) in track.iter().enumerate() {
            assert_eq!(interval.state, states[place % states.len()]);
            for at in [interval.from.0, (interval.from.0 + interval.to.0) / 2, interval.to.0 - 1] {
                assert_eq!(track.interval_at(Timestamp(at)), Some(interval));
            }
            for near in [0, place / 2, place, place + 1, place + 9, track.len(), usize::MAX] {
                assert_eq!(track.count_begun_before(interval.from, near), place);
                assert_eq!(track.count_begun_before(interval.to, near), place + 1);
            }
        }
        assert_eq!(track.interval_at(Timestamp(999)), None);
        assert_eq!(track.interval_at(track.end()), None);
        assert_eq!(track.count_begun_before(Timestamp(0), 50), 0);
        assert_eq!(track.count_begun_before(Timestamp(u64::MAX), 50), track.len());
    }
}

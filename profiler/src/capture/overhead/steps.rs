//! The steps in which detail is given up, known beforehand. Each gives up what those before it do, too.

use offwake_recording::{DetailStep, units::Nanos};
use profiler_ebpf::detail::Detail;

/// Recognised stacks are checked so many times less often, as a power of two.
const FEWER_CHECKS: u32 = 4;
/// Registers alone are trusted so many times longer, as a power of two: for 128 ms, and one answer in 256
/// is left to the cache behind them.
const LONGER_TRUST: u32 = 4;
/// Waits shorter than this are summed up: more and more of them.
const SUMMED_BELOW: [Nanos; 3] = [Nanos(20_000), Nanos(100_000), Nanos(1_000_000)];
/// Waits so long have their waker's stacks, when those below the last of these are summed up.
const WAKER_STACKS_FROM: Nanos = Nanos(10_000_000);
/// Waits shorter than this are summed up where no stacks are taken: what can be given up at all.
const SUMMED_WITHOUT_STACKS: [Nanos; 2] = [Nanos(1_000_000), Nanos(10_000_000)];
/// The steps before waits are summed up.
const STEPS_BEFORE: usize = 3;

/// A step: an index into the list of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step(pub usize);

impl Step {
    /// The last one, which gives up most.
    pub const LAST: Self = Self(STEPS_BEFORE + SUMMED_BELOW.len() + SUMMED_WITHOUT_STACKS.len());

    /// The last one with all stacks of longer waits.
    pub const LAST_WITH_STACKS: Self = Self(STEPS_BEFORE + SUMMED_BELOW.len() - 1);

    /// What the step gives up, and above which length of a wait it does not.
    pub fn describe(self) -> (DetailStep, Option<Nanos>) {
        match self.0 {
            0 => (DetailStep::Full, None),
            1 => (DetailStep::FewerChecks, None),
            2 => (DetailStep::LongerTrust, None),
            other => match SUMMED_BELOW.get(other - STEPS_BEFORE) {
                Some(&below) => (DetailStep::ShortWaitsSummed, Some(below)),
                None => match other - STEPS_BEFORE - SUMMED_BELOW.len() {
                    0 => (DetailStep::FewerWakerStacks, Some(WAKER_STACKS_FROM)),
                    last => (DetailStep::NoStacks, SUMMED_WITHOUT_STACKS.get(last - 1).copied()),
                },
            },
        }
    }

    /// Below which length waits are summed up.
    fn summed_below(self) -> Option<Nanos> {
        match self.describe() {
            (DetailStep::ShortWaitsSummed | DetailStep::NoStacks, below) => below,
            (DetailStep::FewerWakerStacks, _) => SUMMED_BELOW.last().copied(),
            _ => None,
        }
    }

    /// The step as the kernel half is told.
    pub fn detail(self) -> Detail {
        let (step, threshold) = self.describe();
        let from = |first: DetailStep, value: u32| if step >= first { value } else { 0 };
        Detail {
            check_shift: from(DetailStep::FewerChecks, FEWER_CHECKS),
            trust_shift: from(DetailStep::LongerTrust, LONGER_TRUST),
            // Who ends a wait that is summed up has no stacks either.
            waker_stacks_from_ns: threshold.map_or(0, |threshold| threshold.0),
            is_without_stacks: from(DetailStep::NoStacks, 1),
            is_late: u32::from(self == Self::LAST),
            summed_below_ns: self.summed_below().map_or(0, |below| below.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Detail, DetailStep, Step};

    #[test]
    fn every_step_gives_up_what_those_before_it_do() {
        assert_eq!(Step(0).detail(), Detail::default());
        assert_eq!(Step::LAST.describe().0, DetailStep::NoStacks);
        assert_eq!(Step::LAST_WITH_STACKS.describe().0, DetailStep::ShortWaitsSummed);
        let next = Step(Step::LAST_WITH_STACKS.0 + 1);
        assert_eq!(next.describe().0, DetailStep::FewerWakerStacks);
        for number in 0..Step::LAST.0 {
            let (less, more) = (Step(number).detail(), Step(number + 1).detail());
            assert!(Step(number).describe() < Step(number + 1).describe());
            assert!(less.check_shift <= more.check_shift && less.trust_shift <= more.trust_shift);
            // Without stacks, nobody asks how long a wait was.
            let has_more = more.is_without_stacks != 0
                || less.waker_stacks_from_ns <= more.waker_stacks_from_ns;
            assert!(has_more && less.is_without_stacks <= more.is_without_stacks);
            assert!(less.summed_below_ns <= more.summed_below_ns);
            let is_summed =
                more.summed_below_ns == 0 || more.waker_stacks_from_ns >= more.summed_below_ns;
            assert!(is_summed, "who ends a wait that is summed up has stacks");
        }
    }
}

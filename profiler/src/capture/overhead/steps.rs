//! The steps in which detail is given up, known beforehand. Each gives up what those before it do, too.

use offwake_recording::{DetailStep, units::Nanos};
use profiler_ebpf::detail::Detail;

/// Recognised stacks are checked so many times less often, as a power of two.
const FEWER_CHECKS: u32 = 4;
/// Registers alone are trusted so many times longer, as a power of two: for 128 ms, and one answer in 256
/// is left to the cache behind them.
const LONGER_TRUST: u32 = 4;
/// Waits so long have their waker's stacks: shorter and shorter ones go without.
const WAKER_STACKS_FROM: [Nanos; 4] =
    [Nanos(20_000), Nanos(100_000), Nanos(1_000_000), Nanos(10_000_000)];

/// A step: an index into the list of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step(pub usize);

impl Step {
    /// The last one, which gives up most.
    pub const LAST: Self = Self(3 + WAKER_STACKS_FROM.len());

    /// What the step gives up, and above which length of a wait it does not.
    pub fn describe(self) -> (DetailStep, Option<Nanos>) {
        match self.0 {
            0 => (DetailStep::Full, None),
            1 => (DetailStep::FewerChecks, None),
            2 => (DetailStep::LongerTrust, None),
            other => match WAKER_STACKS_FROM.get(other - 3) {
                Some(&from) => (DetailStep::FewerWakerStacks, Some(from)),
                None => (DetailStep::NoStacks, None),
            },
        }
    }

    /// The step as the kernel half is told.
    pub fn detail(self) -> Detail {
        let (step, threshold) = self.describe();
        let from = |first: DetailStep, value: u32| if step >= first { value } else { 0 };
        Detail {
            check_shift: from(DetailStep::FewerChecks, FEWER_CHECKS),
            trust_shift: from(DetailStep::LongerTrust, LONGER_TRUST),
            waker_stacks_from_ns: threshold.map_or(0, |threshold| threshold.0),
            is_without_stacks: from(DetailStep::NoStacks, 1),
            unused: 0,
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
        for number in 0..Step::LAST.0 {
            let (less, more) = (Step(number).detail(), Step(number + 1).detail());
            assert!(Step(number).describe() < Step(number + 1).describe());
            assert!(less.check_shift <= more.check_shift && less.trust_shift <= more.trust_shift);
            // Without stacks, nobody asks how long a wait was.
            let has_more = more.is_without_stacks != 0
                || less.waker_stacks_from_ns <= more.waker_stacks_from_ns;
            assert!(has_more && less.is_without_stacks <= more.is_without_stacks);
        }
    }
}

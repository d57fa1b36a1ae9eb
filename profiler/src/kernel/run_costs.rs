//! Reading what the programs cost, by their own clock.

use aya::{
    Ebpf, Pod,
    maps::{MapData, MapError, PerCpuArray},
};
use offwake_recording::units::Nanos;
use profiler_ebpf::run_costs::{DISPATCH_NS, GROUPS, Group, RunCosts};

use super::KernelError;

const NAME: &str = "RUN_COSTS";

/// So many timed runs tell how long one takes.
const ENOUGH_TIMED: u64 = 4;

/// [`RunCosts`] as aya reads it: the wrapper can be [`Pod`].
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodCosts(RunCosts);

// SAFETY: `RunCosts` is `repr(C)` and holds `u64`s alone.
unsafe impl Pod for PodCosts {}

/// The runs of one group of programs on all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GroupCost {
    runs: u64,
    timed: u64,
    timed_ns: u64,
}

/// What all programs have cost, from their loading on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramCosts([GroupCost; GROUPS]);

impl ProgramCosts {
    /// Estimates how long the programs have run since an earlier reading, on all CPUs: each of those that
    /// ran was as long as those on average that were timed meanwhile, or in all if they were too few.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Nanos {
        let each = self.0.iter().zip(&earlier.0).enumerate().map(|(group, (now, before))| {
            let runs = now.runs.saturating_sub(before.runs);
            let mut timed = now.timed.saturating_sub(before.timed);
            let mut timed_ns = now.timed_ns.saturating_sub(before.timed_ns);
            if timed < ENOUGH_TIMED {
                (timed, timed_ns) = (now.timed, now.timed_ns);
            }
            let one = timed_ns.checked_div(timed).unwrap_or(0) + DISPATCH_NS;
            // The program at the end of an interrupt is taken to cost as much as that at its beginning.
            let programs = if group == Group::Interrupt as usize { 2 } else { 1 };
            runs.saturating_mul(one).saturating_mul(programs)
        });
        Nanos(each.fold(0, u64::saturating_add))
    }
}

/// Reads what the programs cost; any thread may.
pub struct ProgramCostReader {
    costs: PerCpuArray<MapData, PodCosts>,
}

impl ProgramCostReader {
    /// Takes the costs out of the loaded kernel half.
    pub(super) fn from_ebpf(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let map = ebpf.take_map(NAME).ok_or(KernelError::Missing(NAME))?;
        Ok(Self { costs: PerCpuArray::try_from(map).map_err(failed)? })
    }

    /// Adds up the costs of all CPUs.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand them out.
    pub fn read(&self) -> Result<ProgramCosts, KernelError> {
        let per_cpu = self.costs.get(&0, 0).map_err(failed)?;
        let mut sums = ProgramCosts::default();
        for PodCosts(cpu) in per_cpu.iter() {
            for (sum, cost) in sums.0.iter_mut().zip(&cpu.of) {
                sum.runs += cost.runs;
                sum.timed += cost.timed;
                sum.timed_ns += cost.timed_ns;
            }
        }
        Ok(sums)
    }
}

fn failed(source: MapError) -> KernelError {
    KernelError::Map { map: NAME, source }
}

#[cfg(test)]
mod tests {
    use super::{GroupCost, Nanos, ProgramCosts};
    use profiler_ebpf::run_costs::{DISPATCH_NS, GROUPS, Group};

    fn costs(group: Group, runs: u64, timed: u64, timed_ns: u64) -> ProgramCosts {
        let mut costs = ProgramCosts::default();
        costs.0[group as usize] = GroupCost { runs, timed, timed_ns };
        costs
    }

    #[test]
    fn every_run_counts_as_long_as_those_that_were_timed_meanwhile() {
        let before = costs(Group::Switch, 1_000, 10, 90_000);
        let now = costs(Group::Switch, 2_000, 20, 95_000);
        assert_eq!(now.since(&before), Nanos(1_000 * (500 + DISPATCH_NS)));
        assert_eq!(now.since(&now), Nanos(0));
    }

    #[test]
    fn where_too_few_were_timed_all_that_ever_were_count() {
        let before = costs(Group::Switch, 1_000, 10, 90_000);
        let now = costs(Group::Switch, 1_010, 11, 99_000_000);
        assert_eq!(now.since(&before), Nanos(10 * (9_000_000 + DISPATCH_NS)));
        let never = costs(Group::Switch, 10, 0, 0);
        assert_eq!(never.since(&ProgramCosts([GroupCost::default(); GROUPS])), Nanos(200));
    }

    #[test]
    fn an_interrupt_has_a_program_at_either_end() {
        let now = costs(Group::Interrupt, 100, 10, 800);
        assert_eq!(now.since(&ProgramCosts::default()), Nanos(2 * 100 * (80 + DISPATCH_NS)));
    }
}

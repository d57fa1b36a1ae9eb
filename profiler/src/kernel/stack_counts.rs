//! Reading how the kernel half obtained stacks.

use aya::{
    Ebpf, Pod,
    maps::{MapData, MapError, PerCpuArray},
};
use offwake_recording::{HalfCounts, StackCounts};
use profiler_ebpf::stack_counts::{STACK_KINDS, StackCounters, StackKind};

use super::KernelError;

const NAME: &str = "STACK_COUNTS";

/// [`StackCounters`] as aya reads it: the wrapper can be [`Pod`].
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodCounters(StackCounters);

// SAFETY: `StackCounters` is `repr(C)` and holds `u64`s alone.
unsafe impl Pod for PodCounters {}

/// Whether the counters at this index are those of user stacks.
fn is_user(kind: usize) -> bool {
    [StackKind::WaitUser, StackKind::WakeUser].into_iter().any(|user| user as usize == kind)
}

/// Adds what one CPU has counted of the kinds of stacks that are included.
fn add_kinds(half: &mut HalfCounts, cpu: &StackCounters, includes: impl Fn(usize) -> bool) {
    let sum = |counts: &[u64; STACK_KINDS]| -> u64 {
        counts.iter().enumerate().filter(|(kind, _)| includes(*kind)).map(|(_, count)| count).sum()
    };
    half.recognised += sum(&cpu.cache_hits);
    half.taken += sum(&cpu.cache_misses);
    half.checked += sum(&cpu.checked);
    half.disagreed += sum(&cpu.mismatched);
    half.by_registers += sum(&cpu.by_registers);
    half.by_registers_checked += sum(&cpu.by_registers_checked);
    half.by_registers_disagreed += sum(&cpu.by_registers_mismatched);
}

/// Reads how many stacks were obtained in which way; any thread may.
pub struct StackCountReader {
    counters: PerCpuArray<MapData, PodCounters>,
}

impl StackCountReader {
    /// Takes the counters out of the loaded kernel half.
    pub(super) fn from_ebpf(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let map = ebpf.take_map(NAME).ok_or(KernelError::Missing(NAME))?;
        Ok(Self { counters: PerCpuArray::try_from(map).map_err(failed)? })
    }

    /// Adds up the counters of all CPUs, since the programs were loaded.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand them out.
    pub fn read(&self) -> Result<StackCounts, KernelError> {
        let per_cpu = self.counters.get(&0, 0).map_err(failed)?;
        let mut stacks = StackCounts::default();
        for PodCounters(cpu) in per_cpu.iter() {
            add_kinds(&mut stacks.user, cpu, is_user);
            add_kinds(&mut stacks.kernel, cpu, |kind| !is_user(kind));
            stacks.over_budget += cpu.over_budget;
            stacks.distrusted += cpu.distrusted;
            stacks.thinned_out += cpu.thinned_out;
        }
        Ok(stacks)
    }
}

fn failed(source: MapError) -> KernelError {
    KernelError::Map { map: NAME, source }
}

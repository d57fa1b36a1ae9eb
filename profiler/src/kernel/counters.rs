//! Reading what the kernel half counts of its own work, and having the kernel measure it.

use std::os::fd::OwnedFd;

use aya::{
    Ebpf, Pod,
    maps::{MapData, MapError, PerCpuArray},
    sys::{Stats, enable_stats},
};
use profiler_ebpf::stack_counts::{STACK_KINDS, StackCounters, StackKind};

use super::{KernelError, attach, program_info::ProgramInfo};
use crate::{
    recording::{HalfCounts, ProgramTime, StackCounts},
    units::{Nanos, Timestamp},
};

const NAME: &str = "STACK_COUNTS";

/// [`StackCounters`] is plain integers; the wrapper is what lets aya know.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Counters(StackCounters);

// SAFETY: `StackCounters` is `repr(C)` and holds `u64`s alone.
unsafe impl Pod for Counters {}

/// Whether the counters at this index are those of user stacks.
fn is_user(kind: usize) -> bool {
    [StackKind::WaitUser, StackKind::WakeUser].into_iter().any(|user| user as usize == kind)
}

/// Adds what one CPU has counted of the kinds of stacks that are included.
fn add(half: &mut HalfCounts, cpu: &StackCounters, includes: impl Fn(usize) -> bool) {
    let sum = |counts: &[u64; STACK_KINDS]| -> u64 {
        counts.iter().enumerate().filter(|(kind, _)| includes(*kind)).map(|(_, count)| count).sum()
    };
    half.recognised += sum(&cpu.cache_hits);
    half.taken += sum(&cpu.cache_misses);
    half.checked += sum(&cpu.checked);
    half.disagreed += sum(&cpu.mismatched);
}

/// What tells how long a program has run.
struct Program {
    is_of_interrupts: bool,
    info: ProgramInfo,
}

/// Counts how stacks are come by, for any thread to read.
pub struct StackCounting {
    counters: PerCpuArray<MapData, Counters>,
}

impl StackCounting {
    /// Takes the counters out of the loaded kernel half.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
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
        for Counters(cpu) in per_cpu.iter() {
            add(&mut stacks.user, cpu, is_user);
            add(&mut stacks.kernel, cpu, |kind| !is_user(kind));
            stacks.over_budget += cpu.over_budget;
            stacks.distrusted += cpu.distrusted;
        }
        Ok(stacks)
    }
}

/// Has the kernel measure the programs, now and then.
pub struct ProgramClock {
    programs: Vec<Program>,
    measured: ProgramTime,
    /// Under way: what the programs had taken before, and what has the kernel measure.
    measurement: Option<(ProgramTime, Timestamp, OwnedFd)>,
}

impl ProgramClock {
    /// Finds the programs of the loaded kernel half.
    pub(super) fn of(ebpf: &Ebpf) -> Self {
        let programs = ebpf.programs().filter_map(|(name, program)| {
            let info = ProgramInfo::of(program)?;
            Some(Program { is_of_interrupts: attach::says_which_interrupt(name), info })
        });
        let programs = programs.collect();
        Self { programs, measured: ProgramTime::default(), measurement: None }
    }

    /// What was measured so far.
    #[must_use]
    pub fn measured(&self) -> ProgramTime {
        self.measured
    }

    /// Whether the programs are being measured.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.measurement.is_some()
    }

    /// Has the kernel measure the programs from now on, if it can (5.8 and later).
    pub fn begin_measuring(&mut self) {
        let Ok(switched_on) = enable_stats(Stats::RunTime) else { return };
        self.measurement = Some((self.taken(), super::now(), switched_on));
    }

    /// Has it stop.
    pub fn end_measuring(&mut self) {
        let Some((before, begin, switched_on)) = self.measurement.take() else { return };
        let (after, end) = (self.taken(), super::now());
        drop(switched_on);
        self.measured.measured += end.since(begin);
        self.measured.scheduler += Nanos(after.scheduler.0.saturating_sub(before.scheduler.0));
        self.measured.interrupts += Nanos(after.interrupts.0.saturating_sub(before.interrupts.0));
    }

    fn taken(&self) -> ProgramTime {
        let mut taken = ProgramTime::default();
        for Program { is_of_interrupts, info } in &self.programs {
            let time = if *is_of_interrupts { &mut taken.interrupts } else { &mut taken.scheduler };
            *time += Nanos(info.number("run_time_ns").unwrap_or(0));
        }
        taken
    }
}

fn failed(source: MapError) -> KernelError {
    KernelError::Map { map: NAME, source }
}

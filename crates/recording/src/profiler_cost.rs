//! What the kernel half did for a recording, and what it took.

use crate::units::Nanos;

/// How one half of stacks was come by, all CPUs added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalfCounts {
    /// Recognised without being taken, those that were checked included.
    pub recognised: u64,
    /// Taken since they were not recognised: user stacks are copied, kernel stacks walked.
    pub taken: u64,
    /// Recognised and taken all the same.
    pub checked: u64,
    /// Checked, and others than they were taken for.
    pub disagreed: u64,
    /// Of those that were recognised, those that were by registers alone.
    pub by_registers: u64,
    /// Recognised by registers alone, and taken all the same.
    pub by_registers_checked: u64,
    /// Recognised by registers alone, checked, and others than they were taken for.
    pub by_registers_disagreed: u64,
}

/// How stacks were come by, of threads that wait and of those that wake others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCounts {
    /// Their user halves.
    pub user: HalfCounts,
    /// Their kernel halves.
    pub kernel: HalfCounts,
    /// Neither recognised nor walked: the time for it was used up.
    pub over_budget: u64,
    /// Kinds of stacks of single threads that are walked every time, as too many disagreed.
    pub distrusted: u64,
    /// User stacks that were not copied, by chance, as those before them had not been unwound yet.
    pub thinned_out: u64,
}

/// The time that the programs ran, by the kernel's own statistics. Those cost time themselves, so they
/// are switched on for a moment now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramTime {
    /// How long it was measured.
    pub measured: Nanos,
    /// What programs at switches, wakes and in threads' lives took meanwhile, on all CPUs.
    pub scheduler: Nanos,
    /// What those took that say which interrupt a CPU is in.
    pub interrupts: Nanos,
}

/// Both, from a moment on: of the loading, of the window's opening, or of a stretch's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfilerCost {
    /// Stacks.
    pub stacks: StackCounts,
    /// Programs.
    pub programs: ProgramTime,
}

impl ProfilerCost {
    const NAMES: [&'static str; 20] = [
        "user_stacks_recognised",
        "user_stacks_taken",
        "user_stacks_checked",
        "user_stacks_disagreed",
        "kernel_stacks_recognised",
        "kernel_stacks_taken",
        "kernel_stacks_checked",
        "kernel_stacks_disagreed",
        "stacks_over_budget",
        "stacks_distrusted",
        "programs_measured_ns",
        "programs_scheduler_ns",
        "programs_interrupts_ns",
        "user_stacks_by_registers",
        "user_stacks_by_registers_checked",
        "user_stacks_by_registers_disagreed",
        "kernel_stacks_by_registers",
        "kernel_stacks_by_registers_checked",
        "kernel_stacks_by_registers_disagreed",
        "stacks_thinned_out",
    ];

    fn numbers(&mut self) -> [&mut u64; 20] {
        let Self { stacks, programs } = self;
        let StackCounts { user, kernel, over_budget, distrusted, thinned_out } = stacks;
        [
            &mut user.recognised,
            &mut user.taken,
            &mut user.checked,
            &mut user.disagreed,
            &mut kernel.recognised,
            &mut kernel.taken,
            &mut kernel.checked,
            &mut kernel.disagreed,
            over_budget,
            distrusted,
            &mut programs.measured.0,
            &mut programs.scheduler.0,
            &mut programs.interrupts.0,
            &mut user.by_registers,
            &mut user.by_registers_checked,
            &mut user.by_registers_disagreed,
            &mut kernel.by_registers,
            &mut kernel.by_registers_checked,
            &mut kernel.by_registers_disagreed,
            thinned_out,
        ]
    }

    /// Every number with the name that it is stored by.
    pub(super) fn named_counts(mut self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::NAMES.into_iter().zip(self.numbers().map(|number| *number))
    }

    /// Back from names and numbers; names that are not known are passed over.
    pub(super) fn from_named_counts<'n>(rows: impl IntoIterator<Item = (&'n str, u64)>) -> Self {
        let mut profiler_cost = Self::default();
        for (name, number) in rows {
            if let Some(place) = Self::NAMES.iter().position(|known| *known == name) {
                *profiler_cost.numbers()[place] = number;
            }
        }
        profiler_cost
    }

    /// What was done since an earlier reading of the same counters. What is distrusted stays so.
    #[must_use]
    pub fn since(mut self, mut earlier: Self) -> Self {
        earlier.stacks.distrusted = 0;
        for (number, before) in self.numbers().into_iter().zip(earlier.numbers()) {
            *number = number.saturating_sub(*before);
        }
        self
    }
}

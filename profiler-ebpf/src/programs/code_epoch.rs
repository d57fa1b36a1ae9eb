//! Begins the epochs of processes' code, as something may come to be mapped where other code was
//! ([`profiler_ebpf::code_epoch`]).

use profiler_ebpf::{
    code_epoch::{counter_index, epoch_after, may_map_code},
    record::Syscall,
    syscalls::MAPS,
};

use super::{atomic, maps::CODE_EPOCHS, syscall, target, task::Task};

/// The current epoch of a process's code.
#[inline(always)]
pub fn current_epoch(tgid: u32) -> u32 {
    epoch_after(CODE_EPOCHS.get(counter_index(tgid)).copied().unwrap_or(0))
}

/// Begins the next epoch of a process's code.
#[inline(always)]
pub fn begin_next_epoch(tgid: u32) {
    let Some(ended) = CODE_EPOCHS.get_ptr_mut(counter_index(tgid)) else { return };
    // SAFETY: the entry is aligned and lives as long as the map; all CPUs change it in this way.
    unsafe { atomic::add(ended, 1) };
}

/// `vm_unmapped_area`: the kernel looks for a free range in the current task's address space.
#[inline(always)]
pub fn on_vm_unmapped_area() {
    let task = Task::current();
    if target::is_profiler(task) {
        return;
    }
    let mut syscall = Syscall::default();
    task.syscall(task.registers(), &mut syscall);
    let [_, _, protection, flags, ..] = syscall.args;
    if syscall::table_entry(&syscall) & MAPS != 0 && may_map_code(protection, flags) {
        begin_next_epoch(task.tgid());
    }
}

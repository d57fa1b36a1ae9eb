//! When something may come to be mapped where other code of a process was
//! ([`profiler_ebpf::code_epoch`]).

use profiler_ebpf::{
    code_epoch::{may_bring_code, nth, of},
    record::Syscall,
    syscalls::MAPS,
};

use super::{atomic, maps::CODE_EPOCHS, syscall, target, task::Task};

/// The epoch of a process's code.
#[inline(always)]
pub fn epoch(tgid: u32) -> u32 {
    nth(CODE_EPOCHS.get(of(tgid)).copied().unwrap_or(0))
}

/// The next epoch of a process's code begins.
#[inline(always)]
pub fn end_epoch(tgid: u32) {
    let Some(ended) = CODE_EPOCHS.get_ptr_mut(of(tgid)) else { return };
    // SAFETY: the entry is aligned and lives as long as the map; all CPUs change it in this way.
    unsafe { atomic::add(ended, 1) };
}

/// The current task looks for room in its address space.
#[inline(always)]
pub fn room_is_wanted() {
    let task = Task::current();
    if target::is_profiler(task) {
        return;
    }
    let mut syscall = Syscall::default();
    task.syscall(task.registers(), &mut syscall);
    let [_, _, protection, flags, ..] = syscall.args;
    if syscall::look_up(&syscall) & MAPS != 0 && may_bring_code(protection, flags) {
        end_epoch(task.tgid());
    }
}

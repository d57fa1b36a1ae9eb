//! When something may come to be mapped where other code of a process was
//! ([`profiler_ebpf::code_epoch`]).

use core::arch::asm;

use profiler_ebpf::{code_epoch::of, record::Syscall, syscalls::MAPS};

use super::{maps::CODE_EPOCHS, syscall, target, task::Task};

/// `MAP_ANONYMOUS`, the same on every machine that BPF programs run on but alpha, mips, parisc and xtensa:
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/mman-common.h#L22>
const MAP_ANONYMOUS: u64 = 0x20;

/// The epoch of a process's code.
#[inline(always)]
pub fn epoch(tgid: u32) -> u32 {
    CODE_EPOCHS.get(of(tgid)).copied().unwrap_or(0)
}

/// The next epoch of a process's code begins.
#[inline(always)]
pub fn end_epoch(tgid: u32) {
    let Some(epoch) = CODE_EPOCHS.get_ptr_mut(of(tgid)) else { return };
    // The compiler offers no atomic operations for this machine, which has them.
    // SAFETY: the entry is aligned and lives as long as the map; all CPUs change it in this way.
    unsafe {
        asm!("lock *(u32 *)({epoch} + 0) += {one}", epoch = in(reg) epoch, one = in(reg) 1_u64);
    }
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
    if syscall::look_up(&syscall) & MAPS != 0 && syscall.args[3] & MAP_ANONYMOUS == 0 {
        end_epoch(task.tgid());
    }
}

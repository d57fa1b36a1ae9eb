//! Which processes are the profiler's own ([`profiler_ebpf::own_processes`]).

use core::ptr;

use profiler_ebpf::own_processes::{NOBODY, PLACES, is_in, place_for, row_of};

use super::{
    config::{CONFIG, frozen},
    maps::OWN_PROCESSES,
    task::Task,
};

/// Whether a process is in the table.
#[inline(always)]
pub fn contains(tgid: u32) -> bool {
    OWN_PROCESSES.get(row_of(tgid)).is_some_and(|row| is_in(row, tgid))
}

/// Notes that a process was forked: all that the profiler forks while the programs are attached are its
/// own, for a command that it records was forked before. Whoever else has got a number of one of ours is
/// none.
#[inline(always)]
pub fn note_fork(parent: Task, child: Task) {
    let (parent, child) = (parent.tgid(), child.tgid());
    if parent == child {
        return;
    }
    let is_ours = parent == frozen(&CONFIG.self_tgid);
    if contains(child) == is_ours {
        return;
    }
    let Some(row) = OWN_PROCESSES.get_ptr_mut(row_of(child)) else { return };
    // SAFETY: the row lives as long as the map. Who reads a place meanwhile finds one process or the other.
    unsafe {
        if is_ours {
            let place = place_for(&*row, child) & (PLACES - 1);
            ptr::write_volatile(&raw mut (*row)[place], child);
            return;
        }
        for place in 0..PLACES {
            if (*row)[place] == child {
                ptr::write_volatile(&raw mut (*row)[place], NOBODY);
            }
        }
    }
}

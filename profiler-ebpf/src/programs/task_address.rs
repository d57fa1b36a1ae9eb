//! Reads what is rarely read of a thread, by the address of its `struct task_struct`.
//!
//! A load of a pointer through a typed pointer costs 15 ns less than a read by a helper, but since 6.3 the
//! verifier looks through the names of all of the kernel's types up to four times for each such load on
//! each path: 1.5 ms
//! ([`btf_nested_type_is_trusted`](https://github.com/torvalds/linux/blob/v6.12/kernel/bpf/btf.c)). An
//! address can also be handed to a global function, which is verified once.

use profiler_ebpf::record::COMM_LEN;

use super::{
    config::{CONFIG, offset},
    interrupt_context::pointer_as_number,
    task::{Task, cgroup_id_at, peek},
    task_local::TaskLocal,
};

/// The address of a `struct task_struct`.
#[derive(Clone, Copy)]
pub struct TaskAddress(u64);

impl TaskAddress {
    /// That of a task that the kernel vouches for. It goes through the thread's own memory: on another
    /// CPU, or in an interrupt, the same address may be written there at the same time, but no other.
    #[inline(always)]
    pub fn from_task(task: Task, local: &mut TaskLocal) -> Self {
        Self(pointer_as_number(&mut local.task_address, task.as_ptr()))
    }

    /// The one that [`TaskAddress::from_task`] found last for a thread.
    #[inline(always)]
    pub fn last_found(local: &TaskLocal) -> Self {
        Self(local.task_address)
    }

    #[inline(always)]
    fn load<T: Copy + Default>(self, offset: usize) -> T {
        peek(self.0 + offset as u64)
    }

    /// Thread id in the root PID namespace.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        self.load(offset(&CONFIG.offsets.task_pid))
    }

    /// Process id in the root PID namespace.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        self.load(offset(&CONFIG.offsets.task_tgid))
    }

    /// The parent process; 0 if there is none.
    #[inline(always)]
    pub fn parent_tgid(self) -> u32 {
        Self(self.load(offset(&CONFIG.offsets.task_real_parent))).tgid()
    }

    /// When the thread was created, in ns of `CLOCK_MONOTONIC`.
    #[inline(always)]
    pub fn start_time(self) -> u64 {
        self.load(offset(&CONFIG.offsets.task_start_time))
    }

    /// Id of the thread's cgroup in the v2 hierarchy.
    #[inline(always)]
    pub fn cgroup(self) -> u64 {
        let css_set: u64 = self.load(offset(&CONFIG.offsets.task_cgroups));
        cgroup_id_at(peek(css_set + offset(&CONFIG.offsets.css_set_dfl_cgrp) as u64))
    }

    /// The thread's name.
    #[inline(always)]
    pub fn comm(self) -> [u8; COMM_LEN] {
        self.load(offset(&CONFIG.offsets.task_comm))
    }
}

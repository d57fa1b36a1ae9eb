//! The constants that the loader freezes into the programs before the verifier sees them: what the
//! kernel lacks, and what was not asked for, is pruned there and costs nothing.

use crate::offsets::Offsets;

/// Which threads are the target ([`Config::target`]).
pub mod target {
    /// All threads.
    pub const ALL: u32 = 0;
    /// Those of the processes in the map of targets, and of the processes that they fork.
    pub const PROCESSES: u32 = 1;
    /// Those in the map of targets, by tid.
    pub const THREADS: u32 = 2;
    /// Those in a cgroup of the v2 hierarchy or below it.
    pub const CGROUP: u32 = 3;
    /// Those in one of the cgroups in the map of target cgroups, all at one depth, or below it.
    pub const CGROUPS: u32 = 4;
    /// Those of the processes in the map of targets, and not of the processes that they fork.
    pub const PROCESSES_ALONE: u32 = 5;
}

/// How a process came into the map of targets: the map's values.
pub mod target_origin {
    /// It was asked for, or was forked by a target process while the programs were attached.
    pub const ASKED_FOR_OR_FORKED: u32 = 1;
    /// It is the child of a target process, and was forked before the programs were attached.
    pub const FORKED_BEFORE: u32 = 2;
}

/// Which threads' waits are recorded ([`Config::scope`]).
pub mod scope {
    /// Those of the whole machine, so that a chain can lead anywhere.
    pub const MACHINE: u32 = 0;
    /// Those of the target alone.
    pub const TARGET: u32 = 1;
}

/// How stacks are obtained ([`Config::stacks`]).
pub mod stacks {
    /// No stacks are recorded.
    pub const OFF: u32 = 0;
    /// Every stack is walked or copied.
    pub const EXACT: u32 = 1;
    /// A stack that a thread has had before is found in a cache; others are walked or copied.
    pub const CACHED: u32 = 2;
}

/// How user stacks are obtained ([`Config::user_stacks`]).
pub mod user_stacks {
    /// The top of a user stack is copied, and unwound in user space.
    pub const COPIED: u32 = 0;
    /// The kernel walks user stacks by frame pointers.
    pub const WALKED: u32 = 1;
}

/// Every setting that is fixed before the programs are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    /// One of [`target`].
    pub target: u32,
    /// One of [`scope`].
    pub scope: u32,
    /// One of [`stacks`].
    pub stacks: u32,
    /// The profiler's own process, of which nothing is recorded. Its others are in a table
    /// ([`crate::own_processes`]).
    pub self_tgid: u32,
    /// The target cgroup's id.
    pub cgroup: u64,
    /// Mixed into stack ids, so that no program can construct two stacks with one id.
    pub stack_seed: u64,
    /// The target cgroups' depth below the root.
    pub cgroup_level: u32,
    /// 1 if `sched_switch` passes the previous state (5.18 and later).
    pub switch_has_state: u32,
    /// The bit of [`Offsets::task_thread_status`] that is set in a 32-bit syscall.
    pub compat_mask: u32,
    /// 1 if task storage is not to be used, so that a test runs what stands in for it.
    pub stand_in_only: u32,
    /// The device of the one filesystem that all sockets are on (`dev_t`), 0 if it is not known.
    pub socket_device: u32,
    /// A cache hit is verified by walking or copying the stack all the same where a random number
    /// is below this: all hits at `u32::MAX`, one in 64 at `u32::MAX / 64`.
    pub check_threshold: u32,
    /// How much of each CPU's time walking and copying stacks may take, in 2⁻²⁰ parts; 0 if there
    /// is no limit.
    pub stack_budget: u32,
    /// How many threads are tracked at once. Those of the target are tracked in any case, unless
    /// the target is every thread.
    pub max_threads: u32,
    /// One of [`user_stacks`].
    pub user_stacks: u32,
    /// 1 if detail may be given up ([`crate::detail`]). Where it may not, nothing of that is in the programs
    /// that the kernel runs.
    pub is_adjustable: u32,
    /// Where the functions begin that run programs at tracepoints (`bpf_trace_run1` and so on):
    /// frames of a kernel stack up to theirs are left out, as tracing made them. 0 if it is not
    /// known.
    pub tracing_begin: u64,
    /// Where those functions end.
    pub tracing_end: u64,
    /// Where the kernel keeps its fields.
    pub offsets: Offsets,
    /// Makes the length a multiple of 8: there must be no padding.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<Config>() == 92 + size_of::<Offsets>());
};

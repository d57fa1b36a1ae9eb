//! The harness: it starts workloads whose truth is known by construction, runs the real `offwake`
//! on them, and checks what offwake says against what the workloads measured themselves.
//!
//! Nothing of the kernel is mocked: the tests under `tests/` want root and fail without it.

pub mod blame_accuracy;
pub mod browser;
pub mod case;
pub mod cgroup;
pub mod clock;
pub mod cpu_hotplug;
pub mod docker;
pub mod folded;
pub mod full_disk;
pub mod gaps;
pub mod gdb;
pub mod ground_truth;
pub mod incidents;
pub mod intervals;
pub mod kernel_objects;
pub mod ledger;
pub mod loads;
pub mod lock_turns;
pub mod loop_disk;
pub mod machine_lock;
pub mod offwake;
pub mod paths;
pub mod process;
pub mod programs;
pub mod raw_events;
pub mod report;
pub mod report_tables;
pub mod runc;
pub mod spans;
pub mod tags;
pub mod task_locals;
pub mod thread_waits;
pub mod throttled_disk;
pub mod tmux;
pub mod wait_until;
pub mod workload;
pub mod workloads;

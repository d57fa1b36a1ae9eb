//! The harness: it starts workloads whose truth is known by construction, runs the real `offwake`
//! on them, and checks what offwake says against what the workloads measured themselves.
//!
//! Nothing of the kernel is mocked: the tests under `tests/` want root and fail without it.

pub mod browser;
pub mod case;
pub mod cgroup;
pub mod clock;
pub mod docker;
pub mod folded;
pub mod gdb;
pub mod intervals;
pub mod kernel_objects;
pub mod ledger;
pub mod loads;
pub mod offwake;
pub mod places;
pub mod process;
pub mod processors;
pub mod programs;
pub mod report;
pub mod scarce;
pub mod spans;
pub mod tally;
pub mod task_locals;
pub mod tmux;
pub mod truth;
pub mod turn;
pub mod wait_until;
pub mod workload;
pub mod workloads;

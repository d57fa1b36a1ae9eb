//! The contract between the kernel half and the user half: the layout of every record that crosses
//! the rings, of the counters, and of the constants that the loader freezes into the programs.
//!
//! This library is their only definition. It is `no_std`, holds no pointer, and both halves are
//! compiled from the same source; sizes are asserted at compile time. Times are nanoseconds of
//! `CLOCK_MONOTONIC` (`bpf_ktime_get_ns`).
//!
//! | module | what it defines |
//! |---|---|
//! | [`record`] | the records on the rings: waits, preemptions, stacks, threads, exits, samples |
//! | [`user_stack`] | copies of user stacks, and the call sites whose stacks need no copy |
//! | [`python`] | how Python frames are walked, and what is captured of them |
//! | [`config`] | the constants that the loader freezes into the programs |
//! | [`syscalls`] | the table of what each syscall's arguments refer to |
//! | [`loss`], [`stack_counts`] | counters: what was lost, and how stacks were obtained |
//! | [`detail`], [`run_costs`] | how much detail is recorded, and what the programs cost |
//! | [`marker`] | what programs mark in their own code |
//! | [`file_lock`] | who was refused a lock on a file, and who had it |
//! | [`disk_use`] | how much each process reads from block devices, and writes to them |
//! | [`run_queue_clock`] | how the scheduler's clock is compared with that of the records |
//! | [`code_epoch`] | when a return address may begin to stand for other code |
//! | [`own_processes`] | the profiler's own processes, of which nothing is recorded |
//! | [`tags`] | what programs say of what their threads are doing |
//!
//! The programs themselves are the binary `offwake-bpf` (`main.rs`), whose documentation lists
//! which program runs at which tracepoint.

#![no_std]

pub mod code_epoch;
pub mod config;
pub mod detail;
pub mod disk_use;
pub mod file_lock;
pub mod loss;
pub mod marker;
pub mod offsets;
pub mod own_processes;
pub mod python;
pub mod record;
pub mod run_costs;
pub mod run_queue_clock;
pub mod stack_counts;
pub mod syscalls;
pub mod tags;
pub mod user_stack;

//! The contract between the kernel half and the user half: the layout of every record that crosses
//! the rings, of the counters, and of the constants that the loader freezes into the programs.
//!
//! This library is the only definition of them. It is `no_std`, holds no pointer, and both halves
//! are compiled from the same source; sizes are asserted at compile time. Times are nanoseconds of
//! `CLOCK_MONOTONIC` (`bpf_ktime_get_ns`).

#![no_std]

pub mod code_epoch;
pub mod config;
pub mod loss;
pub mod python;
pub mod record;
pub mod stack_counts;
pub mod syscalls;
pub mod user_stack;

//! Blame → findings: what holds the target up, in a short list that every view begins with.
//!
//! ```text
//! Blame ── every wait ──▶ trees by meaning ──▶ ranked ──▶ Findings ──▶ every view
//!          (parts)        (program, function)
//! ```
//!
//! A finding is a group of waits that mean the same: threads of one program that slept in the same
//! function of their own code. Its chain leads from them over the programs that they waited for to
//! the cause, the end of the path on which most of the time was spent.

mod activity;
mod awaited_children;
mod awaited_things;
mod blocked_loops;
mod chain_words;
mod closed_processes;
mod condition_waits;
mod connection_peer;
mod coroutines;
mod cpu_holders;
mod culprit_ways;
mod culprits;
mod deadlocks;
mod describe;
mod disk_names;
mod disk_users;
mod executions;
mod find;
mod found;
mod fuse_servers;
mod hop_tree;
mod io_limits;
mod kernel_waits;
mod last_owners;
mod less_known;
mod limited_waits;
mod meaning;
mod memory_waits;
mod model;
mod open_chains;
mod open_waits;
mod owner_threads;
pub(crate) mod part_by_part;
mod path_sums;
mod polled_locks;
mod possible_holders;
mod programs;
mod root;
mod running;
mod same_cause;
mod sleep_lengths;
mod stopped;
mod tree;
mod wait_meanings;
mod waiting_words;
mod who;
mod write;

pub use blocked_loops::EventLoop;
pub use coroutines::Coroutines;
pub(crate) use culprit_ways::CulpritWay;
pub(crate) use culprits::{
    Culprit, CulpritTime, CulpritWriter, ServerProgram, with_culprit_writer,
};
pub(crate) use find::{FindingInput, find_findings};
pub use hop_tree::{HopBox, HopTree, TimeByClass};
pub use io_limits::{FindingIoLimit, IoLimitUnit};
pub use model::{
    DiskUser, Finding, FindingCause, FindingDisk, FindingHop, FindingKind, FindingLine,
    FindingSleep, Findings, SameCauseSum, TargetActivity,
};
pub(crate) use path_sums::{PathSums, TargetWait, WaitTrees};
pub(crate) use wait_meanings::WaitMeanings;
pub(crate) use who::{in_waits_of_threads, over_threads, time_of_threads};

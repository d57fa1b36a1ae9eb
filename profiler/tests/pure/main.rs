//! The pure half: recording → timeline → blame → report, with no kernel and no clock.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

#[cfg(target_arch = "x86_64")]
mod answer_parts;
#[cfg(target_arch = "x86_64")]
mod awaited_things;
#[cfg(target_arch = "x86_64")]
mod blames;
#[cfg(target_arch = "x86_64")]
mod blocked_loops;
#[cfg(target_arch = "x86_64")]
mod broadcasts;
#[cfg(target_arch = "x86_64")]
mod causes;
#[cfg(target_arch = "x86_64")]
mod chain_pictures;
#[cfg(target_arch = "x86_64")]
mod chains;
#[cfg(target_arch = "x86_64")]
mod chains_api;
mod closed_processes;
#[cfg(target_arch = "x86_64")]
mod connection_holders;
mod connection_threads;
mod containers;
#[cfg(target_arch = "x86_64")]
mod corruption;
mod disks;
mod draw;
mod event_loops;
mod exports;
#[cfg(target_arch = "x86_64")]
mod filters;
mod findings;
#[cfg(target_arch = "x86_64")]
mod firefox;
#[cfg(target_arch = "x86_64")]
mod first_lines;
#[cfg(target_arch = "x86_64")]
mod fixtures;
#[cfg(target_arch = "x86_64")]
mod flames;
#[cfg(target_arch = "x86_64")]
mod formats;
#[cfg(target_arch = "x86_64")]
mod fuse_servers;
#[cfg(target_arch = "x86_64")]
mod golden;
#[cfg(target_arch = "x86_64")]
mod hop_pictures;
#[cfg(target_arch = "x86_64")]
mod html;
#[cfg(target_arch = "x86_64")]
mod idle_servers;
#[cfg(target_arch = "x86_64")]
mod interpreter_lock;
mod io_limits;
#[cfg(target_arch = "x86_64")]
mod kernel_locks;
mod last_acquirers;
mod lock_names;
#[cfg(target_arch = "x86_64")]
mod loop_asks;
mod mailboxes;
mod markers;
#[cfg(target_arch = "x86_64")]
mod not_told_apart;
mod open_pipes;
mod open_wait_lengths;
mod open_waits;
mod outputs;
#[cfg(target_arch = "x86_64")]
mod overviews;
mod own_coroutines;
#[cfg(target_arch = "x86_64")]
mod passed_on;
#[cfg(target_arch = "x86_64")]
mod perfetto;
#[cfg(target_arch = "x86_64")]
mod poll_ticks;
mod properties;
#[cfg(target_arch = "x86_64")]
mod quotas;
mod recordings;
mod refused_locks;
#[cfg(target_arch = "x86_64")]
mod replay;
mod report_limit;
mod request_culprits;
mod request_functions;
mod request_queues;
mod requests;
mod retained_ranges;
#[cfg(target_arch = "x86_64")]
mod room;
mod run_queue_clock;
#[cfg(target_arch = "x86_64")]
mod safepoints;
#[cfg(target_arch = "x86_64")]
mod schema;
#[cfg(target_arch = "x86_64")]
mod served;
#[cfg(target_arch = "x86_64")]
mod shared_locks;
mod shared_walks;
mod simulated_by_hand;
#[cfg(target_arch = "x86_64")]
mod simulations;
#[cfg(target_arch = "x86_64")]
mod simulator;
#[cfg(target_arch = "x86_64")]
mod sizes;
#[cfg(target_arch = "x86_64")]
mod slow_readers;
mod softirqd_deliveries;
mod spans;
#[cfg(target_arch = "x86_64")]
mod stopped;
mod strategies;
mod targets;
mod timed_locks;
mod timelines;
#[cfg(target_arch = "x86_64")]
mod top;
mod totals;
#[cfg(target_arch = "x86_64")]
mod unanswered;

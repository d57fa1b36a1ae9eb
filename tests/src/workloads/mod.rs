//! The workloads: programs so small that what they wait for is known by construction.
//!
//! Each runs until its standard input is closed. Before, it has printed a line of JSON that says
//! who plays which role ([`crate::ground_truth::Ready`]); afterwards it prints what each role measured
//! ([`crate::ground_truth::GroundTruth`]). By hand, for five seconds:
//!
//! ```text
//! sleep 5 | offwake-workload futex-handoff
//! ```

mod asleep;
mod back_pressure;
mod barrier;
mod broadcast;
mod callers;
mod chains;
mod children;
mod compat32;
mod condvar;
mod connection;
mod crashes;
mod crowded_tcp;
mod epoll_chain;
mod faults;
mod file_locks;
mod fsync;
mod futex_handoff;
mod held_back;
mod held_locks;
mod hunger;
mod inode_locks;
mod lines;
mod mailboxes;
pub mod mapped_file;
mod moves;
mod mutex;
mod namespaces;
mod owned_locks;
mod passed_on;
mod polled;
mod polls;
mod queues;
mod quotas;
pub(crate) mod raw;
mod request_reply;
mod served;
mod shared;
mod shared_cpu;
mod shared_locks;
mod shared_loop;
mod signals;
mod sleeps;
pub mod stage;
mod stuck;
mod uring;

use anyhow::Result;
use stage::Stage;

/// A workload: plays its roles until it is told to stop.
pub type Workload = fn(&Stage) -> Result<()>;

/// All workloads by name.
pub const WORKLOADS: &[(&str, Workload)] = &[
    ("futex-handoff", futex_handoff::run),
    ("hostile-names", futex_handoff::run_with_hostile_names),
    ("mutex", mutex::plain),
    ("pi-mutex", mutex::with_priority_inheritance),
    ("condvar", condvar::run),
    ("pipe", request_reply::over_pipes),
    ("unix-socket", request_reply::over_a_unix_socket),
    ("loopback-tcp", request_reply::over_loopback_tcp),
    ("through-a-middle", request_reply::through_a_middle),
    ("servers-that-end", request_reply::servers_that_end),
    ("ping-pong", request_reply::ping_pong),
    ("epoll-server-tcp", served::over_tcp),
    ("epoll-server-unix", served::over_a_unix_socket),
    ("sleeper", sleeps::sleeper),
    ("short-and-long-sleeps", sleeps::short_and_long),
    ("timer-over-hog", sleeps::over_a_hog),
    ("first-wait", sleeps::first_wait),
    ("two-spinners", sleeps::two_spinners),
    ("moved-while-runnable", moves::while_runnable),
    ("near-callers", callers::near),
    ("far-callers", callers::far),
    ("faults-in-one-syscall", faults::in_one_syscall),
    ("moved-to-and-fro", moves::to_and_fro),
    ("child-exit", children::child_exit),
    ("fork-churn", children::fork_churn),
    ("vfork-churn", children::vfork_churn),
    ("epoll", polls::epoll_on_a_pipe),
    ("poll", polls::poll_on_an_eventfd),
    ("eventfd", polls::read_of_an_eventfd),
    ("polled-left", polled::answered_by_left),
    ("polled-right", polled::answered_by_right),
    ("polled-left-hangs", polled::not_answered_by_left),
    ("polled-right-hangs", polled::not_answered_by_right),
    ("fsync", fsync::beside_a_hog),
    ("throttled-writer", fsync::throttled),
    ("three-writers", fsync::three_processes),
    ("fsync-of-many-files", fsync::many_files),
    ("sigwait", signals::sigwait),
    ("sigsuspend", signals::sigsuspend),
    ("read-cut-short-by-itimer", signals::read_cut_short_by_itimer),
    ("read-cut-short-by-posix-timer", signals::read_cut_short_by_posix_timer),
    ("sleeps-beside-a-blocked-alarm", signals::sleeps_beside_a_blocked_alarm),
    ("stuck-all-along", stuck::all_along),
    ("stuck-one-after-the-other", stuck::one_after_the_other),
    ("barrier-late-left", barrier::late_left),
    ("barrier-late-right", barrier::late_right),
    ("chain-condvar", chains::over_condvars),
    ("chain-pipe", chains::over_pipes),
    ("chain-unix", chains::over_unix_sockets),
    ("chain-tcp", chains::over_loopback_tcp),
    ("lock-with-a-sleep-inside", held_locks::with_a_sleep_inside),
    ("lock-handed-over", held_locks::handed_over),
    ("pi-lock-handed-over", held_locks::pi_handed_over),
    ("timed-lock-handed-over", held_locks::handed_over_with_timeouts),
    ("lock-given-up", held_locks::given_up),
    ("rwlock-two-readers", shared_locks::two_readers),
    ("rwlock-one-reader", shared_locks::one_reader),
    ("answer-held-back-by-tcp", held_back::until_a_timer),
    ("answer-in-pieces", held_back::not_at_all),
    ("flock-handed-over", file_locks::by_flock),
    ("fcntl-lock-handed-over", file_locks::by_fcntl),
    ("ofd-lock-handed-over", file_locks::by_ofd),
    ("file-lock-held-by-left", file_locks::held_by_left),
    ("file-lock-held-by-right", file_locks::held_by_right),
    ("mapped-file-in-a-cgroup", mapped_file::read_in_a_cgroup),
    ("inode-lock-of-one-file", inode_locks::write_to_one_file),
    ("inode-locks-of-two-files", inode_locks::write_to_two_files),
    ("asleep-in-a-pipe", asleep::in_a_pipe),
    ("asleep-in-a-futex", asleep::in_a_futex),
    ("asleep-in-a-timer", asleep::in_a_timer),
    ("asleep-behind-a-middle", asleep::behind_a_middle),
    ("deadlock", owned_locks::deadlock),
    ("deadlock-of-processes", owned_locks::deadlock_of_processes),
    ("mutex-held-by-left", owned_locks::mutex_held_by_left),
    ("mutex-held-by-right", owned_locks::mutex_held_by_right),
    ("mutexes-in-a-row", owned_locks::in_a_row),
    ("mutexes-in-another-row", owned_locks::in_another_row),
    ("pi-mutex-held-by-left", owned_locks::pi_mutex_held_by_left),
    ("rwlock-held-by-left", owned_locks::rwlock_held_by_left),
    ("rwlock-held-by-right", owned_locks::rwlock_held_by_right),
    ("condition-never-signalled", owned_locks::condition_never_signalled),
    ("sysv-sem", queues::semaphore),
    ("sysv-sem-timeout", queues::semaphore_timeout),
    ("sysv-msg", queues::sysv_messages),
    ("sysv-msg-full", queues::sysv_room),
    ("mqueue", queues::posix_messages),
    ("mqueue-full", queues::posix_room),
    ("mqueue-timeout", queues::posix_timeout),
    ("inotify", queues::inotify),
    ("crash-behind-a-socket", crashes::behind_a_socket),
    ("crash-behind-wait4", crashes::behind_wait4),
    ("broadcast-futex", broadcast::by_futex),
    ("broadcast-condvar", broadcast::by_condvar),
    ("uring-read", uring::reads),
    ("uring-fsync", uring::syncs),
    ("worker-beside-a-hog", shared_cpu::worker_beside_a_hog),
    ("sleeper-beside-a-hog", shared_cpu::sleeper_beside_a_hog),
    ("between-namespaces", namespaces::between),
    ("between-namespaces-short", namespaces::with_short_connections),
    ("between-namespaces-hung", namespaces::with_a_hung_server),
    ("shared-loop-epoll", shared_loop::over_epoll),
    ("shared-loop-poll", shared_loop::over_poll),
    ("shared-loop-uring", shared_loop::over_io_uring),
    ("shared-loop-crowd", shared_loop::in_a_crowd),
    ("shared-loop-big-crowd", shared_loop::in_a_big_crowd),
    ("shared-loop-uring-crowd", shared_loop::in_a_crowd_over_io_uring),
    ("shared-loop-workers", shared_loop::with_workers),
    ("shared-loop-two-servers", shared_loop::with_two_servers),
    ("shared-loop-pipelined", shared_loop::pipelined),
    ("shared-loop-timer", shared_loop::with_a_timer),
    ("shared-loop-busy", shared_loop::busy_with_others),
    ("mailbox-channel-server", mailboxes::server_behind_channels),
    ("mailbox-channel-loop", mailboxes::loop_behind_channels),
    ("mailbox-pipe-server", mailboxes::server_behind_pipes),
    ("mailbox-pipe-loop", mailboxes::loop_behind_pipes),
    ("mailbox-epoll-server", mailboxes::server_behind_epoll),
    ("mailbox-signalfd-server", mailboxes::server_behind_signals),
    ("mailbox-signalfd-loop", mailboxes::loop_behind_signals),
    ("mailbox-sigwait-server", mailboxes::server_behind_signals_alone),
    ("results-passed-on", passed_on::results_of_two),
    ("spinner", quotas::spinner),
    ("spinner-beside-a-hog", quotas::spinner_beside_a_hog),
    ("server-beside-a-hog", quotas::server_beside_a_hog),
    ("epoll-chain-tcp", epoll_chain::over_tcp),
    ("epoll-chain-unix", epoll_chain::over_unix_sockets),
    ("back-pressure-pipe", back_pressure::over_a_pipe),
    ("back-pressure-unix", back_pressure::over_a_unix_socket),
    ("back-pressure-tcp", back_pressure::over_loopback_tcp),
    ("crowded-tcp", crowded_tcp::run),
    ("hungry", hunger::run),
    ("compat32-sleep", compat32::sleeping),
    ("compat32-futex", compat32::in_a_futex),
    ("compat32-pipe", compat32::answering),
];

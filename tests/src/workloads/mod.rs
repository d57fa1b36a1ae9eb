//! The workloads: programs so small that what they wait for is known by construction.
//!
//! Each runs until its standard input is closed. Before, it has printed a line of JSON that says
//! who plays which role ([`crate::truth::Ready`]); afterwards it prints what each role measured
//! ([`crate::truth::Truth`]). By hand, for five seconds:
//!
//! ```text
//! sleep 5 | offwake-workload futex-handoff
//! ```

mod children;
mod compat32;
mod condvar;
mod fsync;
mod futex_handoff;
mod moves;
mod mutex;
mod polls;
mod raw;
mod request_reply;
mod served;
mod shared;
mod signals;
mod sleeps;
pub mod stage;
mod stuck;

use anyhow::Result;
use stage::Stage;

/// A workload: plays its roles until it is told to stop.
pub type Workload = fn(&Stage) -> Result<()>;

/// All workloads by name.
pub const WORKLOADS: &[(&str, Workload)] = &[
    ("futex-handoff", futex_handoff::run),
    ("hostile-names", futex_handoff::run_with_hostile_names),
    ("mutex", mutex::run),
    ("condvar", condvar::run),
    ("pipe", request_reply::over_pipes),
    ("unix-socket", request_reply::over_a_unix_socket),
    ("loopback-tcp", request_reply::over_loopback_tcp),
    ("through-a-middle", request_reply::through_a_middle),
    ("servers-that-end", request_reply::of_the_dying),
    ("ping-pong", request_reply::ping_pong),
    ("epoll-server-tcp", served::over_tcp),
    ("epoll-server-unix", served::over_a_unix_socket),
    ("sleeper", sleeps::sleeper),
    ("short-and-long-sleeps", sleeps::short_and_long),
    ("timer-over-hog", sleeps::over_a_hog),
    ("first-wait", sleeps::first_wait),
    ("two-spinners", sleeps::two_spinners),
    ("moved-while-runnable", moves::run),
    ("child-exit", children::child_exit),
    ("fork-churn", children::fork_churn),
    ("vfork-churn", children::vfork_churn),
    ("epoll", polls::epoll_on_a_pipe),
    ("poll", polls::poll_on_an_eventfd),
    ("eventfd", polls::read_of_an_eventfd),
    ("fsync", fsync::run),
    ("sigwait", signals::sigwait),
    ("sigsuspend", signals::sigsuspend),
    ("stuck-all-along", stuck::all_along),
    ("stuck-one-after-the-other", stuck::one_after_the_other),
    ("compat32-sleep", compat32::sleeping),
    ("compat32-futex", compat32::in_a_futex),
    ("compat32-pipe", compat32::answering),
];

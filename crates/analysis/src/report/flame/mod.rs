//! Blamed time as weighted paths of frames: what flame graphs and their kin are drawn of.
//!
//! ```text
//!            chain                      off-wake                off-cpu
//!
//!  ^  [work]         kind of blame
//!  |  db-77          its thread
//!  |  answer         its frames,
//!  |  tcp_sendmsg    leaf first
//!  |  --
//!  |  worker-1043    who ended the      worker-1043
//!  |  finish_job     wait, and its      finish_job
//!  |  futex_wake     frames, leaf       futex_wake
//!  |  --             first              --
//!  |  futex_wait     the wait's         futex_wait              futex_wait
//!  |  handle         frames             handle                  handle
//!  |  web-1042       who waited         web-1042                web-1042
//! ```
//!
//! Off-wake flame graphs, the waker's stack upside down on the sleeper's, are Brendan Gregg's:
//! <https://www.brendangregg.com/blog/2016-02-01/linux-wakeup-offwake-profiling.html>.

mod frame;
mod path;
mod tree;
mod view;

pub use frame::{Frame, FrameKind};
pub(super) use path::leaf_name;
pub(crate) use path::shown;
pub use path::{Path, paths};
pub(super) use tree::{NodeId, Tree};
pub use view::{Direction, FlameGraph, GroupBy, ThreadNames, View};

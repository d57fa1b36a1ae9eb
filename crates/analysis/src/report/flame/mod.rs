//! Blamed time as weighted paths of frames, and as flame graphs: what pictures and their kin are
//! drawn of.
//!
//! ```text
//! Report, View ── paths ──▶ Path ──▶ Tree ──▶ Layout ───────┐
//!                             │        │                    ├─▶ svg/: the picture
//!                             │        └─▶ Summaries ───────┤
//!                             │                             └─▶ html/flame.rs: the page's boxes
//!                             └──▶ folded, pprof, speedscope
//! ```
//!
//! `Tree` adds up what paths have in common, `Layout` says which of its frames a picture shows
//! and where, in the unit of the data, and `Summaries` what the waits through each of them have in
//! common. None of them knows a pixel, a colour or a file format.
//!
//! The frames of a path:
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

mod layout;
mod path;
mod summary;
mod tree;
mod view;

pub(super) use layout::{Layout, PlacedFrame};
pub(super) use path::leaf_name;
pub(crate) use path::shown_parts;
pub use path::{Frame, FrameKind, Path, paths};
pub(super) use summary::{Summaries, WaitSummary};
pub(super) use tree::{ClassTimes, NodeId, Tree};
pub use view::{Direction, FlameGraphKind, GroupBy, ThreadNames, View};

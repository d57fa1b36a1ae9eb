//! Blamed time as weighted paths of frames, and as flame graphs: what pictures and their kin are
//! drawn of.
//!
//! ```text
//! Report, View ── paths ──▶ Path ──▶ Tree ──▶ Layout ───────┐
//!             │               │        │                    ├─▶ svg/: the picture
//!             │               │        └─▶ Summaries ───────┘
//!             │               └──▶ folded, pprof, speedscope
//!             └─── PathBuilder ───▶ html/chain_tree.rs: the page's boxes
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
//!  |  web-1042       who waited         web-1042                web-1042
//!  |  handle         the wait's         handle                  handle
//!  |  futex_wait     frames             futex_wait              futex_wait
//!  |  --                                --
//!  |  futex_wake     who woke it, and   futex_wake
//!  |  finish_job     its frames, leaf   finish_job
//!  |  worker-1043    first              worker-1043
//!  |  --
//!  |  tcp_sendmsg
//!  |  answer         its frames,
//!  |  db-77          its thread
//!  v  [work]         kind of blame
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
pub use path::{Frame, FrameKind, Path, paths};
pub(crate) use path::{PathBuilder, shown_parts};
pub(super) use summary::{Summaries, WaitSummary};
pub(super) use tree::{ClassTimes, NodeId, Tree};
pub use view::{Direction, FlameGraphKind, FrameDetail, GroupBy, ThreadNames, View};

//! The flight recorder: retains the last slices of a recording in memory, and writes them out as a
//! snapshot when it is asked to.
//!
//! ```text
//!            retired              retained                         now
//!  slices  ─ ─ ─ ─ ─ ─ ┬──────┬──────┬──────┬──────┬──────┬──────┤
//!                │     │ as they were encoded, one after another │
//!                ▼     └─────────────────────────────────────────┘
//!             Context: who the threads are, what they did last; stacks, frames, …
//!
//!  a snapshot:  Context | the retained slices | what a survey says of everybody now | names
//! ```
//!
//! A retired slice leaves behind what the retained ones refer to, and nothing else: the newest
//! record of each living thread proves, by its number, that nothing was lost between it and the
//! first one that is retained.

mod context;
mod names;
mod output;
mod recorder;
mod retained;
mod snapshot;
mod stacks;
mod threads;

pub use output::{FlightRecorderPlan, SnapshotEvent, Viewer};
pub use recorder::FlightRecorder;
pub use retained::{RetainedSlices, Retention};
pub use snapshot::{FrameTables, RetainedSnapshot};

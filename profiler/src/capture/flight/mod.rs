//! The flight recorder: keeps the last stretch of a recording in memory, and writes it out when it
//! is asked to.
//!
//! ```text
//!            retired               kept                            now
//!  slices  ─ ─ ─ ─ ─ ─ ┬──────┬──────┬──────┬──────┬──────┬──────┤
//!                │     │ as they were encoded, one after another │
//!                ▼     └─────────────────────────────────────────┘
//!             Context: who the threads are, what they did last; stacks, frames, …
//!
//!  a snapshot:  Context | the kept slices | what a survey says of everybody now | names
//! ```
//!
//! A retired slice leaves behind what the kept ones refer to, and nothing else: that of each living
//! thread the newest record is there proves, by its number, that nothing was lost between it and the
//! first one kept.

mod context;
mod frozen;
mod kept;
mod live;
mod sink;
mod stacks;
mod threads;
mod writer;

pub use frozen::{Frozen, Stretch, Tables, Why};
pub use kept::{Keep, Kept};
pub use live::{Live, Viewer};
pub use sink::{Flight, FlightPlan};
pub use writer::{Event, NewNames, Unfinished, numbered};

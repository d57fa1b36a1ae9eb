//! Blamed time as a flame graph that any browser shows: with zoom, search, and details of each frame.
//!
//! ```text
//! findings::HopTree ──────────────── hops.rs ───────────┐
//! flame::{Tree, Layout, Summaries} ── single.rs ────────┤
//!                                   └ differential.rs ──┴─▶ Picture ── picture.rs ──▶ SVG
//! header.rs, hover.rs: its texts    palette.rs: its colours    assets/: its script and style
//! ```

mod differential;
mod header;
mod hops;
mod hover;
mod palette;
mod picture;
mod rows;
mod single;

pub use differential::write as write_diff;
pub(crate) use single::draws_hops;
pub use single::write;

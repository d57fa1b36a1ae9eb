//! The live view: what is on screen of the figures of a run's last stretches, and what keys do.
//!
//! ```text
//! a stretch's bytes ──Analyst──▶ Picture (Figures of the window, Totals since start)
//!                                   │
//!                      keys ──▶ View ├──▶ Tables (rows: filtered, sorted) ──▶ draw
//! ```
//!
//! The [figures](offwake_analysis::top) themselves come from the analysis. Nothing here has a clock or does
//! I/O either: the terminal, the keyboard and the files are the binary's.

mod chain;
mod draw;
mod order;
mod paint;
mod selection;
mod tables;
mod view;
mod words;

pub use draw::draw;
pub use offwake_analysis::top::{
    Account, Analyst, Blocking, Culprit, Figure, Figures, Header, Leaf, NoPicture, Picture, Rows,
    Since, Standing, ThreadKey, Totals, WaitKey, Waited,
};
pub use paint::Paint;
pub use view::{Deed, Key, Pane, Span, View};

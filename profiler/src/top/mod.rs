//! The live view: what is on screen of the figures of a run's last stretches, and what keys do.
//!
//! ```text
//! a stretch's bytes ──TopAnalysis──▶ TopData (Figures of the window, Totals since start)
//!                                       │
//!                     keys ──▶ ViewState ├──▶ tables (rows: filtered, sorted) ──▶ draw
//! ```
//!
//! The [figures](offwake_analysis::top) themselves come from the analysis. Nothing here has a clock or does
//! I/O either: the terminal, the keyboard and the files are the binary's.

mod chain;
mod describe;
mod draw;
mod head;
mod order;
mod selection;
mod style;
mod tables;
mod view_state;

pub use draw::draw;
pub use style::ColourMode;
pub use view_state::{Key, KeyAction, Period, TopTable, ViewState};

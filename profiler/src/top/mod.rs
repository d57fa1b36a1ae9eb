//! The live view: what of the reports of a run's last stretches is on screen, and what keys do.
//!
//! ```text
//! a stretch's bytes ──Analyst──▶ Picture (Figures of the window, Totals since start)
//!                                   │
//!                      keys ──▶ View ├──▶ Tables (rows: filtered, sorted) ──▶ draw
//! ```
//!
//! Nothing here has a clock or does I/O: the terminal, the keyboard and the files are the binary's.

mod analyst;
mod chain;
mod draw;
mod figures;
mod order;
mod paint;
mod rows;
mod selection;
mod tables;
mod totals;
mod view;
mod words;

pub use analyst::{Analyst, Header, NoPicture, Picture, Since, Standing};
pub use draw::draw;
pub use figures::{Account, Blocking, Culprit, Figures, Leaf, ThreadKey, WaitKey, Waited};
pub use paint::Paint;
pub use rows::{Figure, Rows};
pub use totals::Totals;
pub use view::{Deed, Key, Pane, Span, View};

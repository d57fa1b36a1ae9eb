//! The figures of the live view: what the reports of a run's last stretches say, and their sums since
//! the start. How they are laid out on a terminal is the profiler's.

mod analyst;
mod figures;
mod rows;
mod totals;

pub use analyst::{Analyst, Header, NoPicture, Picture, Since, Standing};
pub use figures::{Account, Blocking, Culprit, Figures, Leaf, ThreadKey, Time, WaitKey, Waited};
pub use rows::{Figure, Rows};
pub use totals::Totals;

//! Blamed time as a flame graph: laid out, searched and zoomed by inferno, dressed here.

mod differential;
mod draw;
mod dress;
mod header;
mod hover;
mod palette;
mod single;

pub use differential::write as write_diff;
pub use single::write;

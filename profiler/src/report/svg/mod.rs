//! Blamed time as a flame graph: laid out, searched and zoomed by inferno, dressed here.

mod draw;
mod dress;
mod header;
mod hover;
mod palette;
mod single;

pub use single::write;

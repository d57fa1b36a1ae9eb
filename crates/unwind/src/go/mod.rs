//! Go's own table of its functions: their names, files and lines, and how their frames are found.

pub mod functions;
pub mod table;
pub(crate) mod unwind_rule;

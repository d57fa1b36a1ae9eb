//! What an address is a part of.

use std::sync::Arc;

/// A function that a frame is in, and where in its source the frame is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// Its name, as those who wrote it write it.
    pub name: String,
    /// The file that it is written in, as its compiler or interpreter calls it; shared by all the
    /// functions in it. None if that is not known.
    pub file: Option<Arc<str>>,
    /// The line that was at hand, counted from 1; of code that a JIT made, the one that the function
    /// begins at. None if that is not known.
    pub line: Option<u32>,
}

impl Function {
    /// One of which only the name is known.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), file: None, line: None }
    }
}

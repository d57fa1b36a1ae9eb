//! Where lines end: after each entry of a list, and nowhere inside of it.
//!
//! ```text
//! {
//!  "waits": [
//!   {"tid":7, …, "stack_id":0, …, "blame": [
//!     {"kind":"work", …},
//!     {"kind":"timer", …}]}
//!  ],
//! ```
//!
//! Tools that work by the line find an entry at once, and there is no indentation of a dozen levels, which
//! was almost half of all bytes.

use std::io::{self, Write};

use serde_json::ser::Formatter;

/// An array or an object that is being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Array,
    Object,
}

/// Begins a line for each entry.
#[derive(Default)]
pub(super) struct EntryPerLine {
    /// How many arrays and objects are open.
    depth: usize,
}

impl EntryPerLine {
    /// Whether each element of a container at this depth has a line of its own: the report's keys and
    /// their keys, the entries of its lists, and the entries of lists in those.
    fn has_lines(&self, container: Container) -> bool {
        match container {
            Container::Object => self.depth <= 2,
            Container::Array => self.depth == 2 || self.depth == 4,
        }
    }

    fn begin_element<W: ?Sized + Write>(
        &self,
        container: Container,
        is_first: bool,
        out: &mut W,
    ) -> io::Result<()> {
        if !is_first {
            out.write_all(b",")?;
        }
        if self.has_lines(container) {
            out.write_all(b"\n")?;
            for _ in 0..self.depth {
                out.write_all(b" ")?;
            }
        }
        Ok(())
    }
}

impl Formatter for EntryPerLine {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth = self.depth.saturating_sub(1);
        out.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        self.begin_element(Container::Array, is_first, out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth = self.depth.saturating_sub(1);
        out.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        self.begin_element(Container::Object, is_first, out)
    }
}

//! A recording as bytes: an [Arrow IPC stream](https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc)
//! with a row for each second or so, in which every table is a column of lists of rows
//! (`docs/format.md`).
//!
//! ```text
//!           slice | until_ns | … | waits      | stacks | … | checksums
//! message 1     0 |    1.0 s |   | [ {…} {…} ]| [ {…} ]|   | [ {waits, 0x…} … ]
//! message 2     1 |    2.0 s |   | [ {…} ]    | [ ]    |   | …
//! ```
//!
//! It grows at its end alone, and each row can be read without those before it: what is cut off or
//! damaged costs no more than itself.

mod assemble;
mod checksum;
pub mod code;
pub mod column;
mod encoder;
mod framing;
mod reader;
mod shape;
mod size;
mod slice;
mod tables;
mod write;

use std::{collections::BTreeSet, io};

pub use assemble::{Assembly, read};
pub use encoder::{END, Encoder};
pub use framing::Source;
pub use reader::Slices;
pub use size::count_fitting_names;
pub use slice::{Slice, schema};
pub use tables::{LossRow, loss_rows};
use thiserror::Error;
pub use write::write;

/// Where the schema's metadata says which version of the format this is.
const FORMAT_KEY: &str = "offwake.recording";
/// The version that is written. Columns may be added to it; anything else makes a new version.
const FORMAT_VERSION: u32 = 1;

/// What is wrong with a recording, apart from which it could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// It has no end: whoever wrote it was ended, or still writes.
    pub cut_off: bool,
    /// Its schema was broken; this version's own did.
    pub schema_missing: bool,
    /// Bytes between the messages that could be found.
    pub bytes_skipped: u64,
    /// What was recorded and how is not in it.
    pub meta_missing: bool,
    /// Slices of which not even the number could be read.
    pub slices_damaged: u64,
    /// Slices that are not there at all, by the numbers of the others.
    pub slices_missing: u64,
    /// Tables of single slices whose content is not what was written.
    pub tables_damaged: u64,
    /// Tables that are in none of the slices.
    pub tables_missing: BTreeSet<&'static str>,
    /// Rows that hold what can't be.
    pub rows_unreadable: u64,
}

/// Why a recording can't be read at all.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The bytes can't be had.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No bytes.
    #[error("it is empty")]
    Empty,
    /// Something else.
    #[error("it is no offwake recording")]
    NotARecording,
    /// From the future.
    #[error(
        "it has version {version} of the format, and this offwake knows {FORMAT_VERSION}: use a newer one"
    )]
    Newer {
        /// Its version.
        version: u32,
    },
    /// A recording, but none of its slices is whole.
    #[error("it is an offwake recording, but no records in it are whole: {0}")]
    NothingWhole(String),
    /// More than may be held in memory.
    #[error(
        "its records take more than {limit} bytes of memory: raise --max-memory (they take {needed} up to where reading stopped)"
    )]
    TooLarge {
        /// What may be held.
        limit: usize,
        /// What was held when reading stopped.
        needed: usize,
    },
}

/// Why a table can't be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
enum TableError {
    /// A table lacks a column.
    #[error("there is no column {0}")]
    NoColumn(&'static str),
    /// A column holds something else.
    #[error("the column {0} has another type")]
    ColumnType(&'static str),
}

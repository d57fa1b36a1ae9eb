//! Addresses into names.
//!
//! While recording, every user address is turned at once into a file and an offset in it, and the
//! file is held open. What is new is drained again and again, to be written down. Names are looked
//! up at the end, from the held files: a process that has ended, a deleted binary and a container's
//! file are then no different from any other.
//!
//! ```text
//!  address_spaces              frame_table                   naming
//!  address -> (file, offset)   (file, offset) -> FrameId     FrameId -> functions
//!        |                           |                             |
//!  /proc/PID/maps, map_files   new modules, frames, stacks   the held file, read by offwake-parser:
//!                                                            blazesym, perf maps, Go's table
//! ```
//!
//! [`crate::stacks`] puts them together. Imports go from right to left only. Only `naming` names
//! blazesym.

pub(crate) mod address_spaces;
pub(crate) mod clock;
pub(crate) mod frame_table;
pub(crate) mod name_limit;
pub(crate) mod naming;
pub(crate) mod python;
pub(crate) mod tags;

pub use address_spaces::{CodeEpochs, LookupTime};
pub use naming::{
    DebugDirectories, Debuginfod, Detail, Fetched, NameSources, NamingQueue, NamingRequest,
    NoServers, RecordedIn, ResolvedNames, Resymbolized, receive_names, resymbolize, serve,
};
pub use python::{PythonProgram, PythonThread};
pub use tags::TagProgram;

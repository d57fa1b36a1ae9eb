//! offwake: a system-wide off-CPU and wakeup profiler.
//!
//! One direction, each arrow a named type, nothing flows back:
//!
//! ```text
//! kernel programs --records--> Recording --> Timeline --> Blame --> Report --> .svg .folded .json
//! ```
//!
//! Everything after [`recording`] is pure: the same recording gives the same bytes.

pub mod blame;
mod calendar;
pub mod capture;
mod cgroup2;
pub mod containers;
pub mod export;
pub mod files;
mod go_table;
mod interrupts;
pub mod kernel;
mod little_endian;
pub mod parser;
pub mod perfetto;
pub mod privileges;
pub mod processes;
pub mod recognition;
pub mod recording;
pub mod report;
mod search;
pub mod spans;
pub mod symbols;
pub mod target;
mod text;
pub mod timeline;
pub mod top;
pub mod units;
pub mod unwind;

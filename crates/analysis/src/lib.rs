//! What a recording says: from records to timelines, from timelines to blame, from blame to reports and
//! to files for other tools.
//!
//! ```text
//! Recording --> Timeline --> Blame --> Report --> .svg .folded .json .html
//!                              |
//!                              +--> spans, perfetto, export
//! ```
//!
//! Everything here is pure: values in, values out, and bytes only to a writer that the caller gives.
//! The same recording gives the same bytes on every machine, so that golden files can test every output,
//! and a report can be made anew, years later, from a recording alone. To keep it so, this crate does not
//! depend on anything that knows a kernel, a terminal or an asynchronous runtime, and its `clippy.toml`
//! forbids files, clocks, the environment, threads, processes and the standard streams.

pub mod analysis;
pub mod blame;
mod container_labels;
pub mod export;
pub mod filter;
pub mod findings;
pub mod formats;
pub mod frames;
pub mod label;
pub mod markers;
pub mod perfetto;
mod quotas;
pub mod report;
pub mod requests;
mod search;
pub mod selection;
pub mod spans;
pub mod tags;
pub mod text;
pub mod timeline;
pub mod top;
mod wait_sums;
pub mod waited_on_entry;
pub mod words;

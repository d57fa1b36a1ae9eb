//! From frames to the names of their functions: debug information, symbol tables, perf maps, Go's
//! own tables, debuginfod servers.
//!
//! Files of others are read by a process without rights:
//!
//! ```text
//! client: offwake                       server: offwake-parser
//!   files, addresses ── Request ──▶       elf_names, go, perf_map
//!   debug files      ◀── Reply ───        build ids whose debug files it wants; names
//! ```

mod client;
mod debug_files;
mod debuginfod;
mod demangle;
mod detail;
pub(crate) mod elf_names;
mod go;
pub(crate) mod hostile;
pub(crate) mod kernel;
mod mapping_symbols;
pub(crate) mod messages;
pub(crate) mod names;
pub(crate) mod open_file;
mod perf_map;
mod queue;
mod request;
mod resymbolize;
mod reverse_lines;
mod rust_paths;
mod script_names;
mod server;
mod sources;

pub use client::receive_names;
pub use debug_files::DebugDirectories;
pub use debuginfod::{Debuginfod, Fetched, NoServers};
pub use detail::Detail;
pub use queue::NamingQueue;
pub use request::{NamingRequest, ResolvedNames};
pub use resymbolize::{RecordedIn, Resymbolized, resymbolize};
pub use server::serve;
pub use sources::NameSources;

//! Reads the memory and the files of other processes in a process of its own, which can be given up.
//!
//! ```text
//! client: offwake                               server: offwake-reader
//!   what to read    ── Request, a descriptor ──▶  reads, opens
//!   goes on without ◀── Reply, a descriptor ───   or never answers: a page of a FUSE file, a dead
//!                                                 server, a process that holds its mmap_lock
//! ```
//!
//! A thread that waits for such a page can't be killed, and holds every descriptor of its process for
//! as long: what offwake has attached would stay attached. The reader holds no BPF descriptor. If it
//! does not answer it is left behind, another one is started, and what it was asked about is not
//! asked again.
//!
//! As soon as something is attached (`use_processes`) each thread has its own reader, which is started
//! with its first question. Before, and in tests and reports, each thread reads by itself.

mod client;
mod messages;
mod server;
mod slow;
#[cfg(test)]
mod tests;
mod unanswered;

pub(crate) use client::{
    add_diagnostics, copy_file, describe, find_goroutine_labels, find_named_mapping,
    find_probe_points, find_tls_symbols, forget_process, list_directories, open_below,
    open_descriptor, open_held, open_mapped, open_memory, open_pagemap, open_path,
    open_path_itself, read_entry, read_mappings, read_memory, read_pages, read_resident, start,
    use_process, use_processes,
};
pub(crate) use messages::{FileStat, MappedLine, Mappings, PAGE};
pub use server::serve;
pub use unanswered::describe_unanswered;
pub(crate) use unanswered::{list_unanswered, read_path};

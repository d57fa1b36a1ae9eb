//! offwake: a system-wide off-CPU and wakeup profiler.
//!
//! One direction, each arrow a named type, nothing flows back:
//!
//! ```text
//! kernel programs --records--> Recording --> Timeline --> Blame --> Report --> .svg .folded .json
//! ```
//!
//! Everything after the [recording](offwake_recording) is pure: the same recording gives the same bytes.

mod awaited_children;
mod awaited_threads;
pub mod capture;
mod cgroup2;
pub mod containers;
pub mod decode;
mod descriptor_search;
mod file_locks;
pub mod files;
mod filesystems;
mod fuse_servers;
#[doc(hidden)]
pub mod fuzzing;
mod interrupts;
pub mod kernel;
mod lock_owners;
pub mod marker_probes;
pub mod own_threads;
pub mod parser;
mod pipe_holders;
mod polled_files;
pub mod privileges;
mod proc_files;
pub mod processes;
pub mod reader_process;
mod reader_thread;
mod resident_memory;
mod scheduling;
pub mod stacks;
pub mod symbols;
pub mod target;
mod thread_call;
pub mod top;
pub mod unwinder_process;
pub mod writer_process;

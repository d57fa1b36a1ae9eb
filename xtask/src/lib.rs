//! What the tasks of `cargo xtask` and the benchmarks both need: running other programs, building
//! both halves and the programs of the tests, installing packages, and being root.
//!
//! The benchmarks (`bench/`) are a package of their own that depends on this library, so that
//! `cargo xtask` compiles without them.

pub mod apt;
pub mod build;
pub mod command;
pub mod kernel_half;
pub mod markdown_table;
pub mod packages;
pub mod process_tree;
pub mod python;
pub mod root;
pub mod signal;
pub mod source_digest;
mod toolchain;
pub mod workloads;
pub mod workspace;

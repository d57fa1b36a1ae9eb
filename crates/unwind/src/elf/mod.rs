//! What is read of ELF files here: headers, where code is, build ids, parts of functions, the
//! sections that stacks are unwound by, variables of threads, labels of goroutines, and where
//! functions and probes are. Nothing in a file is believed.

pub mod build_id;
pub mod function_parts;
mod function_returns;
pub mod goroutine_labels;
pub mod headers;
pub mod layout;
pub mod probe_points;
pub mod tls_symbol;
pub(crate) mod unwind_sections;

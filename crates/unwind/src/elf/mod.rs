//! What is read of ELF files here: headers, where code is, build ids, parts of functions, the
//! sections that stacks are unwound by, and variables of threads. Nothing in a file is believed.

pub mod build_id;
pub mod function_parts;
pub mod headers;
pub mod layout;
pub mod tls_symbol;
pub(crate) mod unwind_sections;

//! What is read of ELF files here: headers, where code is, build ids, parts of functions, and the
//! sections that stacks are unwound by. Nothing in a file is believed.

pub mod build_id;
pub mod function_parts;
pub mod headers;
pub mod layout;
pub(crate) mod unwind_sections;

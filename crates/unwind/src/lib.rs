//! From the registers of a thread and a copy of the top of its stack to the frames of that stack,
//! and the readers of ELF files and of Go's function tables that this needs.
//!
//! ```text
//!           CodeMapping                    RuleCache
//! address -------------> CodeLocation -------------------> UnwindRule --> the caller's address, sp, registers
//!    ^                                |                  ^                       |
//!    |                                +------------------+                       |
//!    |     ModuleCache: .eh_frame, .gopclntab or .debug_frame                    |
//!    |     InstructionDecoder: the instructions, where there is none of these    |
//!    +---------------------------------------------------------------------------+
//! ```
//!
//! A rule says where the caller's registers are relative to the callee's, not where anything is in
//! memory, so each rule is worked out once for all processes that have mapped the module.
//!
//! The crate reads nothing but the files that [`ModuleFiles`] hands it: no `/proc`, no paths, no
//! clock. Files and stacks come from other processes and are hostile: every size is limited, and
//! nothing that they contain makes the unwinder panic or run for long.
//!
//! Only 64-bit x86-64 programs are unwound. Code for any other machine is recognised by its ELF
//! header and ends the stack with [`UnwindEnd::OtherMachine`], because registers have other numbers
//! there.
//!
//! This is the only crate that names gimli and iced-x86. It does not use an unwinder that is made
//! of gimli already: [framehop] follows the frame pointer wherever unwind data has nothing to say
//! or can't be read, and does not report that. What can't be unwound has to be known here, because
//! a frame that is guessed wrong blames the wrong function.
//!
//! [framehop]: https://github.com/mstange/framehop/blob/v0.16.0/src/unwinder.rs

// The tests of this crate share a file with those of the profiler, which knows the crate by its
// name.
#[cfg(test)]
extern crate self as offwake_unwind;

mod eh_frame_hdr;
pub mod elf;
mod expression;
mod frame_entries;
mod frame_pointer;
pub mod go;
mod instructions;
mod little_endian;
mod location;
mod mapping;
mod module_cache;
mod module_tables;
mod rule;
mod rule_cache;
mod signal_trampoline;
mod stack;
mod stack_copy;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod unwinder;

pub use mapping::{CodeBacking, CodeMapping, FileContent, ModuleFiles, find_mapping};
pub use stack::{MAX_FRAMES, UnwindEnd, UnwoundFrame, UnwoundStack};
pub use stack_copy::{MissingPages, PAGE, Registers, StackCopy};
pub use unwinder::{Method, Unwinder};

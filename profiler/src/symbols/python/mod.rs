//! The frames of CPython's interpreter, 3.9 to 3.14, without any cooperation of the process.
//!
//! A thread that waits in Python has one function of C on its native stack wherever Python runs,
//! `_PyEval_EvalFrameDefault`, and beside it a list of the frames that it evaluates. The kernel
//! half walks that list at the moment that the wait begins ([`profiler_ebpf::python`]); what is
//! here finds where it begins for each thread, names what was captured, and puts the two stacks
//! into one.
//!
//! ```text
//!  file of a module ──> Image ──┐
//!  the process's memory ────────┴─> Interpreter ──> thread_states, layout ──> the kernel half
//!                                        │                                         │
//!                  CodeNames <── frames (Captured) <───────────────────────────────┘
//!                                        └──> merge with the native stack
//! ```
//!
//! Who calls it: `stacks/processor.rs` for each stack, `symbols/address_spaces/` when a process maps
//! a file that may be the interpreter. `kernel/user_stacks.rs` tells the kernel half which threads run
//! Python, `profiler-ebpf/src/programs/python.rs` walks their frames, and `decode/stack_copy.rs` reads
//! what it found.
//!
//! What can go wrong, and what bounds it: a process can write anything into its own memory, so
//! every list and string has a limit, and a name is what the process says it is. Code objects are
//! read some time after the frames were captured. A frame keeps its code alive, but when the wait
//! is over the frame can be gone by then, and its code, if nothing else refers to it, and another
//! code object can be where it was. It must then be a code object at that very address, with an
//! instruction at that very place, to be taken for the one before.

mod code;
mod debug_offsets;
pub(crate) mod hostile;
mod image;
mod interpreter;
mod lines;
pub(crate) mod locks;
pub(crate) mod memory;
mod merge;
mod objects;
mod offsets;
mod own_storage;
mod processes;
#[cfg(test)]
mod tests;
pub(crate) mod threads;
mod version;
mod walk;

pub(crate) use interpreter::Interpreter;
pub(crate) use processes::{MODULE, MergedFrame, PythonProcesses, find_known_interpreter};
pub use processes::{PythonProgram, PythonThread};

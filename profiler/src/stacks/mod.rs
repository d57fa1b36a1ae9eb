//! The owner of all stacks: copies of user stacks and walked addresses go in, stacks of the
//! recording and updates of the kernel half's cache come out.
//!
//! ```text
//!  UserStackCopy ──▶ StackProcessor::process_copies ──▶ UnwoundCopy: frames, end, CacheUpdate
//!                    │  address spaces: what the process had mapped
//!                    │  unwinder_process: frames
//!                    │  Python frames
//!                    │  frame table ──▶ StackProcessor::drain_new, for the next slice
//!                    └  stack cache
//! ```

mod processor;
mod sleeping_threads;
mod stack_cache;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::symbols::LookupTime;
pub use processor::{ResolvedStacks, StackProcessor, UnnamedStacks, UnwoundCopy};
pub use stack_cache::{CacheCheck, CacheUpdate, StackCache, StackCode};

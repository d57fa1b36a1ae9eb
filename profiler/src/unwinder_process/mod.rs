//! Unwinding in a process without rights: what it reads, programs and stacks, others made.
//!
//! ```text
//! client: offwake                          server: offwake-unwind
//!   mappings, stack copies ── Request ──▶    offwake_unwind::Unwinder
//!   opens files            ◀── Reply ───     asks for a module's file, sends the frames
//! ```

mod client;
mod messages;
mod server;
#[cfg(test)]
mod tests;

pub use client::{UnwindRequest, UnwinderClient, is_same_code, receive_stacks};
pub use server::serve;

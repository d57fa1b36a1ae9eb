//! The kernel half, as `cargo xtask build` left it for the build script to embed.

use super::KernelError;

include!(concat!(env!("OUT_DIR"), "/kernel_object.rs"));

/// Whether this binary carries its kernel half. One from a plain `cargo build` may not.
#[must_use]
pub fn is_embedded() -> bool {
    KERNEL_OBJECT.is_some()
}

pub(super) fn bytes() -> Result<&'static [u8], KernelError> {
    KERNEL_OBJECT.ok_or(KernelError::NotEmbedded)
}

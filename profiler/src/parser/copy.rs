//! Copies of what others could still change.

use std::{
    fs::File,
    io::{self, Read},
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// A copy in memory that nobody can change any more, and how many bytes it has.
pub(crate) fn sealed_copy(mut from: impl Read) -> io::Result<(File, u64)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("module", flags)?);
    let length = io::copy(&mut from, &mut file)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals)?;
    Ok((file, length))
}

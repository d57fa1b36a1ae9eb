//! The memory of another process, as far as it is in memory: reading it takes no page fault, which
//! that process itself might have to serve (`userfaultfd`, FUSE).

use std::{io, os::fd::OwnedFd};

use offwake_recording::units::Tgid;

use crate::{reader_process, symbols::python::memory::Memory};

/// A process's memory and what it knows of each page.
pub(crate) struct ResidentMemory {
    tgid: Tgid,
    memory: OwnedFd,
    pagemap: OwnedFd,
}

impl ResidentMemory {
    /// # Errors
    ///
    /// When the process is gone, or is none of those that we may read.
    pub(crate) fn open(tgid: Tgid) -> io::Result<Self> {
        let pagemap = reader_process::open_pagemap(tgid)?;
        Ok(Self { tgid, memory: reader_process::open_memory(tgid)?, pagemap })
    }
}

impl Memory for ResidentMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let Self { tgid, memory, pagemap } = self;
        let bytes =
            reader_process::read_resident(*tgid, memory, pagemap, address, into.len()).ok()?;
        (bytes.len() == into.len()).then(|| into.copy_from_slice(&bytes))
    }
}

//! The memory of another process, as far as it is in memory: reading it takes no page fault, which
//! that process itself might have to serve (`userfaultfd`, FUSE).

use std::{fs::File, io, os::unix::fs::FileExt as _};

use offwake_recording::units::Tgid;

use crate::symbols::python::memory::{Memory, ProcessMemory};

/// The size of a page on the smallest machine: an entry of `pagemap` covers one of the system's own.
const LEAST_PAGE: u64 = 4096;
/// The bit of an entry that says that the page is in memory
/// ([pagemap.rst](https://github.com/torvalds/linux/blob/v6.12/Documentation/admin-guide/mm/pagemap.rst)).
const PRESENT: u64 = 1 << 63;

/// A process's memory and what it knows of each page.
pub(crate) struct ResidentMemory {
    memory: ProcessMemory,
    pagemap: File,
    page: u64,
}

impl ResidentMemory {
    /// # Errors
    ///
    /// When the process is gone, or is none of those that we may read.
    pub(crate) fn open(tgid: Tgid) -> io::Result<Self> {
        let page = (rustix::param::page_size() as u64).max(LEAST_PAGE);
        let pagemap = File::open(format!("/proc/{tgid}/pagemap"))?;
        Ok(Self { memory: ProcessMemory::open(tgid)?, pagemap, page })
    }

    fn is_present(&self, page: u64) -> bool {
        let mut entry = [0; 8];
        let read = page.checked_mul(8).map(|at| self.pagemap.read_exact_at(&mut entry, at));
        matches!(read, Some(Ok(()))) && u64::from_le_bytes(entry) & PRESENT != 0
    }
}

impl Memory for ResidentMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let last = address.checked_add((into.len() as u64).checked_sub(1)?)?;
        let mut pages = address / self.page..=last / self.page;
        pages.all(|page| self.is_present(page)).then(|| self.memory.read(address, into))?
    }
}

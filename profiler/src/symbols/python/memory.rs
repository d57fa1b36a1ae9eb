//! The memory of another process.

use std::{cell::RefCell, collections::HashMap, io, os::fd::OwnedFd};

use offwake_recording::units::Tgid;

use crate::reader_process::{self, PAGE};

/// The most pages of a process that are kept at a time.
const MAX_PAGES: usize = 4096;

/// Memory that can be read by address.
pub(crate) trait Memory {
    /// Fills `into` with what is at `address`; none if any of it can't be read.
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()>;

    /// The eight bytes at `address`.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The four bytes at `address`.
    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }
}

/// The memory of a process, held: when the process runs another program, or ends, there is nothing
/// more to be read here, rather than what is in its place.
pub(crate) struct ProcessMemory {
    tgid: Tgid,
    file: OwnedFd,
}

impl ProcessMemory {
    /// # Errors
    ///
    /// When the process is gone, or is none of those that we may read.
    pub(crate) fn open(tgid: Tgid) -> io::Result<Self> {
        Ok(Self { tgid, file: reader_process::open_memory(tgid)? })
    }

    /// Reads up to the first page that can't be read.
    pub(crate) fn read_prefix(&self, address: u64, length: usize) -> Vec<u8> {
        reader_process::read_memory(self.tgid, &self.file, address, length)
    }

    /// Makes each page be read only once, for as long as what is returned lives.
    pub(crate) fn cache_pages(&self) -> CachedMemory<'_> {
        CachedMemory { memory: self, pages: RefCell::default() }
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let bytes = self.read_prefix(address, into.len());
        (bytes.len() == into.len()).then(|| into.copy_from_slice(&bytes))
    }
}

/// Memory whose pages are read once. Objects lie close to each other, and each question to the process
/// that reads takes as long as many reads.
pub(crate) struct CachedMemory<'a> {
    memory: &'a ProcessMemory,
    pages: RefCell<HashMap<u64, Option<Box<[u8]>>>>,
}

impl CachedMemory<'_> {
    /// Reads the pages with these addresses at once.
    pub(crate) fn prefetch(&self, addresses: impl Iterator<Item = u64>) {
        self.fetch(addresses.map(|address| address / PAGE as u64));
    }

    fn fetch(&self, pages: impl Iterator<Item = u64>) {
        let mut known = self.pages.borrow_mut();
        let mut wanted: Vec<u64> = pages.filter(|page| !known.contains_key(page)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return;
        }
        if known.len().saturating_add(wanted.len()) > MAX_PAGES {
            known.clear();
        }
        let ProcessMemory { tgid, file } = self.memory;
        let read = reader_process::read_pages(*tgid, file, &wanted);
        known.extend(wanted.into_iter().zip(read));
    }
}

impl Memory for CachedMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let Some(last) = (into.len() as u64).checked_sub(1) else { return Some(()) };
        let page = PAGE as u64;
        let last = address.checked_add(last)?;
        self.fetch(address / page..=last / page);
        let pages = self.pages.borrow();
        let mut at = address;
        let mut rest = into;
        while !rest.is_empty() {
            let bytes = pages.get(&(at / page))?.as_ref()?.get((at % page) as usize..)?;
            let (now, later) = rest.split_at_mut_checked(bytes.len().min(rest.len()))?;
            now.copy_from_slice(bytes.get(..now.len())?);
            at += now.len() as u64;
            rest = later;
        }
        Some(())
    }
}

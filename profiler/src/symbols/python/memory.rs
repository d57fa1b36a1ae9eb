//! The memory of another process.

use std::{fs::File, io, os::unix::fs::FileExt};

use offwake_recording::units::Tgid;

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
pub(crate) struct ProcessMemory(File);

impl ProcessMemory {
    /// # Errors
    ///
    /// When the process is gone, or is none of those that we may read.
    pub(crate) fn open(tgid: Tgid) -> io::Result<Self> {
        Ok(Self(File::open(format!("/proc/{tgid}/mem"))?))
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        self.0.read_exact_at(into, address).ok()
    }
}

//! How much each process reads from block devices, and writes to them.

use crate::record::COMM_LEN;

/// How many pairs of a process and a device are kept. Of more, those are forgotten that have not used
/// their device for longest.
pub const MAX_USERS: usize = 4096;

/// What a process has read from one device and written to it since the programs were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DiskUse {
    /// Bytes of reads that the process submitted.
    pub read_bytes: u64,
    /// Bytes of writes that the process itself submitted: with `O_DIRECT`, or as it had the kernel write
    /// back what is in the page cache.
    pub submitted_bytes: u64,
    /// Bytes that it made dirty in the page cache, which the kernel writes back later.
    pub dirtied_bytes: u64,
    /// The thread's name when it first used the device.
    pub comm: [u8; COMM_LEN],
}

/// What one CPU has counted since it last added to the process's [`DiskUse`]: most pages that become dirty
/// one after the other on a CPU do so by the same process, on the same filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DirtySlot {
    /// The address of the filesystem's superblock; 0 if there is none.
    pub superblock: u64,
    /// The process and the device: [`key`].
    pub key: u64,
    /// Bytes made dirty there, to be added.
    pub bytes: u64,
}

/// Returns the key of a process and a device, by the kernel's own number of it.
#[must_use]
#[inline(always)]
pub fn key(tgid: u32, device: u32) -> u64 {
    (tgid as u64) << 32 | device as u64
}

/// Returns the process and the device of a key.
#[must_use]
pub fn parts(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

const _: () = {
    assert!(size_of::<DiskUse>() == 40);
    assert!(size_of::<DirtySlot>() == 24);
};

//! How much each process read from block devices, and wrote to them.

use crate::units::Tgid;

/// What one process read from one block device and wrote to it while the window was open.
///
/// A device above others counts by itself: who reads from `dm-0` reads from `sda` as well, and has a
/// row for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskUse {
    /// The process.
    pub tgid: Tgid,
    /// The name of one of its threads.
    pub comm: String,
    /// The kernel's number of the device, as in [`crate::Filesystem::device`].
    pub device: u32,
    /// The kernel's name of the device: `sda3`. Empty if it has none: of a filesystem on several.
    pub block_device: String,
    /// The whole disks below that device, sorted, with commas. Empty if they could not be told.
    pub disks: String,
    /// Bytes of the reads that it submitted.
    pub read_bytes: u64,
    /// Bytes of the writes that it submitted itself: with `O_DIRECT`, or in `fsync` and the like.
    pub submitted_bytes: u64,
    /// Bytes that it made dirty in the page cache, which the kernel writes back later.
    pub dirtied_bytes: u64,
}

impl DiskUse {
    /// Returns how many bytes the process wrote, at least. What it made dirty it may have submitted
    /// itself as well.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.submitted_bytes.max(self.dirtied_bytes)
    }

    /// Returns the whole disks that the device lies on; none if they are not known.
    pub fn disks(&self) -> impl Iterator<Item = &str> {
        self.disks.split(',').filter(|name| !name.is_empty())
    }
}

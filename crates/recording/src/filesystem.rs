//! Filesystems on block devices and of file servers, as a recording's end found them mounted.

/// A mounted filesystem whose files are on a block device, and the disks below that; or on a file server.
///
/// ```text
/// files on /srv ── device 8:3 ── sda3 (a partition) ── sda
/// files on /img ── device 7:0 ── loop0 ── /srv/image, a file on sda3 ── sda
/// files on /mnt ── device 0:52 ── files.example:/export
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// Device of its superblock, as in [`crate::FileId`].
    pub device: u32,
    /// What kind it is: `ext4`.
    pub kind: String,
    /// Where it is mounted: the shortest path of its root, if it is mounted several times.
    pub mount_point: String,
    /// The kernel's name of the block device that it is on: `sda3`. Of a filesystem above others
    /// (overlayfs) the one that those are on; empty if they are on several.
    pub block_device: String,
    /// The whole disks below that device, sorted, with commas: `sda`, `nvme0n1,nvme1n1`. Empty if they
    /// could not be told.
    pub disks: String,
    /// The server that has its files, and what it is called there, as it was mounted: `files.example:/export`.
    /// Empty if it is on a block device.
    pub server: String,
}

impl Filesystem {
    /// Returns whether a server has its files, and no disk of this machine.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        !self.server.is_empty()
    }

    /// Returns the whole disks that it lies on; none if they are not known.
    pub fn disks(&self) -> impl Iterator<Item = &str> {
        self.disks.split(',').filter(|name| !name.is_empty())
    }

    /// Returns whether it is known to share a disk with another one.
    #[must_use]
    pub fn shares_disk_with(&self, other: &Self) -> bool {
        self.disks().any(|disk| other.disks().any(|its| its == disk))
    }
}

//! The limits of cgroups on what their processes read from block devices and write to them.

use crate::units::{Nanos, Tgid};

/// How much and how often a process's cgroup may read from a block device and write to it, and what
/// the kernel counted of it while the window was open. A row for each process under the limit.
///
/// `io.max` and `io.stat` of v2, where a cgroup above the process's own may set the limit
/// (<https://github.com/torvalds/linux/blob/v6.18/Documentation/admin-guide/cgroup-v2.rst>);
/// `blkio.throttle.*` of v1, where the process's own does
/// (<https://github.com/torvalds/linux/blob/v6.18/Documentation/admin-guide/cgroup-v1/blkio-controller.rst>).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoLimit {
    /// The process.
    pub tgid: Tgid,
    /// The path of the cgroup from the root of its hierarchy, with a leading slash.
    pub path: String,
    /// The kernel's number of the device, as in [`crate::Filesystem::device`]. It is a whole disk, or
    /// a device that is made of others.
    pub device: u32,
    /// The kernel's name of the device: `sda`. Empty if it has none any more.
    pub block_device: String,
    /// What the cgroup may do in a second; 0 where it has no limit.
    pub per_second: IoAmounts,
    /// What it did, all its processes together.
    pub used: IoAmounts,
    /// The time in which it did that.
    pub counted_for: Nanos,
    /// For how much of that time each limit was used up, as far as readings in between tell. None in recordings from
    /// before there were any.
    pub used_up_for: Option<UsedUpTimes>,
    /// What the device did meanwhile, for whomever. None if that is not known.
    pub device_requests: Option<DeviceRequests>,
}

impl IoLimit {
    /// A limit counts as used up between two readings if at least this part of what it allows was used. The kernel
    /// gives it out in slices, and rounds down: who reads one block at a time, as often as it may, loses up to a fifth
    /// (<https://github.com/torvalds/linux/blob/v6.12/block/blk-throttle.c>).
    pub const USED_UP: f64 = 0.6;
}

/// For how long each limit of a cgroup was used up; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedUpTimes {
    /// The limit on bytes that are read.
    pub read_bytes: Nanos,
    /// The limit on bytes that are written.
    pub written_bytes: Nanos,
    /// The limit on reads.
    pub reads: Nanos,
    /// The limit on writes.
    pub writes: Nanos,
}

/// The requests that a block device has completed, and the time from when it got each, all added up. What a limit holds
/// back is no request yet
/// (<https://github.com/torvalds/linux/blob/v6.12/Documentation/block/stat.rst>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequests {
    /// How many reads.
    pub reads: u64,
    /// The time that reads took, all added up.
    pub read_time: Nanos,
    /// How many writes.
    pub writes: u64,
    /// The time that writes took, all added up.
    pub write_time: Nanos,
}

/// Reads and writes, by bytes and by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoAmounts {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// How many reads.
    pub reads: u64,
    /// How many writes.
    pub writes: u64,
}

//! CPU quotas of cgroups, and when they kept threads from running.

use crate::units::{CgroupId, Nanos, Tgid, Tid, Timestamp};

/// A stretch in which a thread could have run, and a CPU quota kept it from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// When it began.
    pub from: Timestamp,
    /// The first moment after it: the thread waited for a CPU again, or the window closed.
    pub until: Timestamp,
    /// The cgroup whose quota was used up, in the hierarchy that has the cpu controller. 0 if it is
    /// not known.
    pub cgroup: CgroupId,
}

/// The CPU quota of a cgroup, and how the kernel's own count of it stood at two moments.
///
/// `cpu.max` and `cpu.stat` of v2, `cpu.cfs_quota_us`, `cpu.cfs_period_us` and `cpu.stat` of v1:
/// <https://github.com/torvalds/linux/blob/v6.18/Documentation/scheduler/sched-bwc.rst>.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// The cgroup: the inode number of its directory in the hierarchy that has the cpu controller.
    pub cgroup: CgroupId,
    /// Its path from that hierarchy's root, with a leading slash.
    pub path: String,
    /// The CPU time that its threads may use in each period, all together.
    pub quota: Nanos,
    /// The length of a period.
    pub period: Nanos,
    /// The count as the window opened, or as the cgroup was first seen.
    pub first: QuotaCount,
    /// The count when it was last read: after the window had closed, if the cgroup still was there.
    pub last: QuotaCount,
}

/// What the kernel has counted of a cgroup's quota: `cpu.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaCount {
    /// When it was read.
    pub at: Timestamp,
    /// Periods in which its threads wanted to run (`nr_periods`).
    pub periods: u64,
    /// Those of them in which the quota was used up (`nr_throttled`).
    pub throttled_periods: u64,
    /// How long its queues were throttled, added up over CPUs (`throttled_usec`, in v1
    /// `throttled_time`).
    pub throttled: Nanos,
}

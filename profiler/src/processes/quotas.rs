//! The CPU quotas of cgroups, and what the kernel counts of them.
//!
//! ```text
//!  observe_thread:   /proc/TID/cgroup                  --> the cgroup and those above it
//!  observe_throttle: a file handle, else the same      --> the cgroup that the kernel half names
//!                    cpu.max or cpu.cfs_*_us, cpu.stat --> CpuQuota
//! ```

use std::collections::{BTreeMap, HashSet};

use offwake_recording::{
    CpuQuota, QuotaCount,
    units::{CgroupId, Nanos, Tid},
};

use super::{
    LIMIT,
    cgroup_paths::{CgroupDirectory, CgroupHierarchy},
    proc_files::{self, Controllers},
};
use crate::{cgroup2, kernel::now};

/// Bytes of a file of a cgroup that are read: `cpu.stat` of v2 has some 300.
const MAX_FILE: usize = 4096;

/// Finds out which quotas cgroups have, and how the kernel's count of each stands.
pub struct Quotas {
    /// The hierarchy that has the cpu controller, and how its line in `/proc/PID/cgroup` begins.
    hierarchy: Option<(CgroupHierarchy, Controllers)>,
    /// The paths that were looked at; those above them were as well.
    seen: HashSet<Vec<u8>>,
    known: BTreeMap<CgroupId, CpuQuota>,
    new: HashSet<CgroupId>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self::new()
    }
}

impl Quotas {
    /// Has found nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let hierarchy = match cgroup2::v1_mount_point_with("cpu") {
            Some(mount) => CgroupHierarchy::at(mount).map(|found| (found, Controllers::Cpu)),
            None => CgroupHierarchy::open().map(|found| (found, Controllers::Unified)),
        };
        Self { hierarchy, seen: HashSet::new(), known: BTreeMap::new(), new: HashSet::new() }
    }

    /// Reads the quotas that a thread is under, if nobody has been seen in its cgroup before.
    pub fn observe_thread(&mut self, tid: Tid) {
        let Some((_, controllers)) = &self.hierarchy else { return };
        if let Some(path) = proc_files::read_cgroup_path_of(tid.0, *controllers) {
            self.observe_path(&path);
        }
    }

    /// Reads the quota that has just been used up by `tid`, if it is not known.
    pub fn observe_throttle(&mut self, cgroup: CgroupId, tid: Tid) {
        if self.known.contains_key(&cgroup) {
            return;
        }
        let Some((hierarchy, _)) = &self.hierarchy else { return };
        match hierarchy.find_path_by_handle(cgroup) {
            Some(path) => self.read_quota(&path),
            // Without the right to open a cgroup by its id, the thread may say it.
            None => self.observe_thread(tid),
        }
    }

    /// Reads the quotas of a cgroup and of those above it.
    fn observe_path(&mut self, path: &[u8]) {
        let mut path = path;
        while !matches!(path, b"" | b"/") && self.seen.len() < LIMIT {
            if !self.seen.insert(path.to_vec()) {
                break;
            }
            self.read_quota(path);
            path = path.iter().rposition(|&byte| byte == b'/').map_or(&[], |end| &path[..end]);
        }
    }

    fn read_quota(&mut self, path: &[u8]) {
        let Some((hierarchy, _)) = &self.hierarchy else { return };
        let Some(directory) = hierarchy.open_path(path) else { return };
        let (Some(id), Some((quota, period))) = (directory.id(), read_limit(&directory)) else {
            return;
        };
        let Some(count) = read_count(&directory) else { return };
        let path = String::from_utf8_lossy(path).into_owned();
        let quota = CpuQuota { cgroup: id, path, quota, period, first: count, last: count };
        self.known.entry(id).or_insert(quota);
        self.new.insert(id);
    }

    /// Reads how every count stands now, and takes that for the first time that it was read.
    pub fn count_from_now(&mut self) {
        self.read_again();
        for quota in self.known.values_mut() {
            quota.first = quota.last;
        }
    }

    /// Reads how every count stands now.
    pub fn read_again(&mut self) {
        let Some((hierarchy, _)) = &self.hierarchy else { return };
        for (id, quota) in &mut self.known {
            // A cgroup of the same name may have come in place of this one.
            let directory = hierarchy.open_path(quota.path.as_bytes());
            let directory = directory.filter(|directory| directory.id() == Some(*id));
            if let Some(count) = directory.as_ref().and_then(read_count) {
                quota.last = count;
                self.new.insert(*id);
            }
        }
    }

    /// What was found or read again since the last time.
    pub fn take_new(&mut self) -> Vec<CpuQuota> {
        let new = std::mem::take(&mut self.new);
        self.known.values().filter(|quota| new.contains(&quota.cgroup)).cloned().collect()
    }
}

/// Reads a cgroup's quota and its period; none if it has no quota.
fn read_limit(directory: &CgroupDirectory) -> Option<(Nanos, Nanos)> {
    let read = |name| directory.read(name, MAX_FILE);
    match read("cpu.max") {
        Some(both) => parse_limit(&both),
        None => {
            let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
            parse_limit(&[quota, b" ".to_vec(), period].concat())
        }
    }
}

fn read_count(directory: &CgroupDirectory) -> Option<QuotaCount> {
    let at = now();
    let count = parse_count(&directory.read("cpu.stat", MAX_FILE)?)?;
    Some(QuotaCount { at, ..count })
}

/// Parses a quota and its period in microseconds: `20000 100000`. No quota is `max`, in v1 `-1`.
fn parse_limit(text: &[u8]) -> Option<(Nanos, Nanos)> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let mut next = || words.next()?.parse::<u64>().ok()?.checked_mul(1000).map(Nanos);
    let (quota, period) = (next()?, next()?);
    (period > Nanos(0)).then_some((quota, period))
}

/// Parses `cpu.stat`: v2 has microseconds, v1 nanoseconds. None if it says nothing of quotas.
fn parse_count(text: &[u8]) -> Option<QuotaCount> {
    let text = std::str::from_utf8(text).ok()?;
    let number = |wanted: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(' ')?;
            (name == wanted).then(|| value.trim().parse::<u64>().ok())?
        })
    };
    let throttled = match number("throttled_usec") {
        Some(microseconds) => microseconds.checked_mul(1000)?,
        None => number("throttled_time")?,
    };
    Some(QuotaCount {
        periods: number("nr_periods")?,
        throttled_periods: number("nr_throttled")?,
        throttled: Nanos(throttled),
        ..QuotaCount::default()
    })
}

/// Parses any bytes as each of a cgroup's files, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    let _limit = parse_limit(bytes);
    let _count = parse_count(bytes);
}

#[cfg(test)]
mod tests {
    use super::{parse_count, parse_limit};
    use offwake_recording::{QuotaCount, units::Nanos};

    #[test]
    fn a_limit_has_a_quota_and_a_period() {
        let limit = Some((Nanos(20_000_000), Nanos(100_000_000)));
        assert_eq!(parse_limit(b"20000 100000\n"), limit);
        assert_eq!(parse_limit(b"20000\n 100000\n"), limit);
        for none in
            ["max 100000\n", "-1\n 100000\n", "", "20000", "20000 0", "99999999999999999999 1"]
        {
            assert_eq!(parse_limit(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn both_versions_count_the_same() {
        let count = QuotaCount {
            periods: 13,
            throttled_periods: 4,
            throttled: Nanos(812_000),
            ..QuotaCount::default()
        };
        let v2 = b"usage_usec 17\nnr_periods 13\nnr_throttled 4\nthrottled_usec 812\nnr_bursts 0\n";
        assert_eq!(parse_count(v2), Some(count));
        let v1 = b"nr_periods 13\nnr_throttled 4\nthrottled_time 812000\n";
        assert_eq!(parse_count(v1), Some(count));
        // The root of v2, and a cgroup without the controller.
        for none in ["usage_usec 17\nuser_usec 3\n", "", "nr_periods 1\nnr_throttled 1\n", "\u{0}"]
        {
            assert_eq!(parse_count(none.as_bytes()), None, "{none:?}");
        }
    }
}

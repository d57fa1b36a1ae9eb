//! The limits of cgroups on reading from block devices and writing to them, and what the kernel counts
//! under each.
//!
//! ```text
//!  observe_process: /proc/TGID/cgroup                       --> the cgroup and, in v2, those above it
//!                   io.max, or blkio.throttle.*_device      --> the limits
//!                   io.stat, or blkio.throttle.io_service*  --> what was read and written so far
//!                   /sys/dev/block/MAJ:MIN/stat             --> what the device did so far, for whomever
//! ```
//!
//! The second of these is read in between as well: sums do not tell a burst.

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use offwake_recording::{
    DeviceRequests, IoAmounts, IoLimit,
    units::{CgroupId, Nanos, Tgid, Timestamp},
};

use super::{
    LIMIT,
    cgroup_paths::{CgroupDirectory, CgroupHierarchy},
    device_requests::RequestCounts,
    proc_files::{self, Controllers},
    used_up::UsedUp,
};
use crate::{cgroup2, kernel::now};

/// Bytes of a file of a cgroup that are read. `io.stat` has some 100 for each device.
const MAX_FILE: usize = 64 << 10;
/// How many cgroups with limits are remembered.
const MAX_LIMITED: usize = 1024;
/// Of how many cgroups it is remembered which limits count for them. Others are read each time.
const MAX_CACHED: usize = 4096;
/// How often what is counted is read in between.
const READING_INTERVAL: Duration = Duration::from_millis(500);
/// With so many cgroups that this takes its time, it is read so much more rarely: 1 % of the time goes to it.
const REST_AFTER_READING: u32 = 100;

/// Which limits a cgroup's files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// `blkio.throttle.*`: a limit counts for the cgroup alone, not for those below it
    /// ([`throtl_pd_init()`](https://github.com/torvalds/linux/blob/v6.12/block/blk-throttle.c#L363)).
    V1,
    /// `io.max`: a limit counts for the cgroups below as well, all together.
    V2,
}

/// Finds the I/O limits that processes are under, and how far each was used.
pub struct IoLimits {
    hierarchy: Option<(CgroupHierarchy, Version)>,
    cgroups: Vec<LimitedCgroup>,
    /// For each path that was seen, the limited cgroups, by place in `cgroups`.
    by_path: HashMap<Vec<u8>, Vec<usize>>,
    processes: BTreeSet<(Tgid, usize)>,
    max_processes: usize,
    missed: u64,
    /// When what is counted is read in between; never again, once the window is closed.
    next_reading: Option<Instant>,
}

/// A cgroup that has limits.
struct LimitedCgroup {
    id: CgroupId,
    path: Vec<u8>,
    devices: Vec<LimitedDevice>,
    first_at: Timestamp,
    /// None until it was read again.
    last_at: Option<Timestamp>,
}

struct LimitedDevice {
    device: u32,
    per_second: IoAmounts,
    first: IoAmounts,
    last: IoAmounts,
    used_up: UsedUp,
    first_requests: Option<RequestCounts>,
    last_requests: Option<RequestCounts>,
}

impl Default for IoLimits {
    fn default() -> Self {
        Self::new()
    }
}

impl IoLimits {
    /// Has found nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let hierarchy = match cgroup2::v1_mount_point_with("blkio") {
            Some(mount) => CgroupHierarchy::at(mount).map(|found| (found, Version::V1)),
            None => CgroupHierarchy::open().map(|found| (found, Version::V2)),
        };
        Self {
            hierarchy,
            cgroups: Vec::new(),
            by_path: HashMap::new(),
            processes: BTreeSet::new(),
            max_processes: LIMIT,
            missed: 0,
            next_reading: Some(Instant::now() + READING_INTERVAL),
        }
    }

    /// Finds the limits that a process is under.
    pub fn observe_process(&mut self, tgid: Tgid) {
        let Some((_, version)) = &self.hierarchy else { return };
        let controllers = match version {
            Version::V1 => Controllers::BlockIo,
            Version::V2 => Controllers::Unified,
        };
        let Some(path) = proc_files::read_cgroup_path_of(tgid.0, controllers) else { return };
        for index in self.find_limited(&path) {
            self.add_process(tgid, index);
        }
    }

    fn add_process(&mut self, tgid: Tgid, index: usize) {
        if self.processes.len() < self.max_processes {
            self.processes.insert((tgid, index));
        } else if !self.processes.contains(&(tgid, index)) {
            self.missed += 1;
        }
    }

    /// Returns the places of the limited cgroups that count for a cgroup.
    fn find_limited(&mut self, path: &[u8]) -> Vec<usize> {
        if let Some(known) = self.by_path.get(path) {
            return known.clone();
        }
        let Some((_, version)) = &self.hierarchy else { return Vec::new() };
        let found: Vec<usize> = list_paths(path, *version)
            .filter_map(|path| {
                let known = self.cgroups.iter().position(|cgroup| cgroup.path == path);
                known.or_else(|| self.read_limited(path))
            })
            .collect();
        if self.by_path.len() < MAX_CACHED {
            self.by_path.insert(path.to_vec(), found.clone());
        }
        found
    }

    /// Reads the limits of one cgroup, and what was counted so far. None if it has no limit.
    fn read_limited(&mut self, path: &[u8]) -> Option<usize> {
        let (hierarchy, version) = self.hierarchy.as_ref()?;
        let directory = hierarchy.open_path(path)?;
        let limits = read_limits(&directory, *version);
        if limits.is_empty() {
            return None;
        }
        if self.cgroups.len() == MAX_LIMITED {
            self.missed += 1;
            return None;
        }
        let (id, first_at) = (directory.id()?, now());
        let counts = read_counts(&directory, *version)?;
        let devices = limits.into_iter().map(|(device, per_second)| {
            let first = counts.get(&device).copied().unwrap_or_default();
            let requests = RequestCounts::read(device);
            LimitedDevice {
                device,
                per_second,
                first,
                last: first,
                used_up: UsedUp::begin(first_at, first),
                first_requests: requests,
                last_requests: requests,
            }
        });
        self.cgroups.push(LimitedCgroup {
            id,
            path: path.to_vec(),
            devices: devices.collect(),
            first_at,
            last_at: None,
        });
        Some(self.cgroups.len() - 1)
    }

    /// Takes what is counted now for the beginning.
    pub fn count_from_now(&mut self) {
        self.read_again();
        for cgroup in &mut self.cgroups {
            if let Some(last_at) = cgroup.last_at.take() {
                cgroup.first_at = last_at;
                for device in &mut cgroup.devices {
                    device.first = device.last;
                    device.first_requests = device.last_requests;
                    device.used_up = UsedUp::begin(last_at, device.last);
                }
            }
        }
        self.next_reading = Some(Instant::now() + READING_INTERVAL);
    }

    /// Reads in between what is counted, if it is time to.
    pub fn read_if_due(&mut self) {
        let begun = Instant::now();
        if self.cgroups.is_empty() || self.next_reading.is_none_or(|next| begun < next) {
            return;
        }
        let Some((hierarchy, version)) = &self.hierarchy else { return };
        for cgroup in &mut self.cgroups {
            let directory = hierarchy.open_path(&cgroup.path);
            let directory = directory.filter(|it| it.id() == Some(cgroup.id));
            let counts = directory.and_then(|directory| read_counts(&directory, *version));
            if let Some(counts) = counts {
                cgroup.count_use(now(), &counts);
            }
        }
        let rest = begun.elapsed().saturating_mul(REST_AFTER_READING);
        self.next_reading = Some(Instant::now() + rest.max(READING_INTERVAL));
    }

    /// Reads what is counted now. A limit that has changed meanwhile counts no more: how much was
    /// allowed, nobody knows.
    pub fn read_again(&mut self) {
        self.next_reading = None;
        let Some((hierarchy, version)) = &self.hierarchy else { return };
        for cgroup in &mut self.cgroups {
            // A cgroup of the same name may have come in place of this one.
            let directory = hierarchy.open_path(&cgroup.path);
            let Some(directory) = directory.filter(|it| it.id() == Some(cgroup.id)) else {
                continue;
            };
            let Some(counts) = read_counts(&directory, *version) else { continue };
            let last_at = now();
            cgroup.last_at = Some(last_at);
            cgroup.count_use(last_at, &counts);
            let limits = read_limits(&directory, *version);
            cgroup.devices.retain_mut(|device| {
                device.last = counts.get(&device.device).copied().unwrap_or(device.first);
                device.last_requests = RequestCounts::read(device.device);
                limits.get(&device.device) == Some(&device.per_second)
            });
        }
    }

    /// Returns the limits of all processes that were seen, and how many could not be kept. The devices
    /// have no names yet.
    #[must_use]
    pub fn finish(self) -> (Vec<IoLimit>, u64) {
        let rows = self.processes.iter().flat_map(|&(tgid, index)| {
            let cgroup = &self.cgroups[index];
            let counted_for = cgroup.last_at.map(|last_at| last_at.since(cgroup.first_at));
            let counted_for = counted_for.unwrap_or_default();
            cgroup.devices.iter().map(move |device| IoLimit {
                tgid,
                path: String::from_utf8_lossy(&cgroup.path).into_owned(),
                device: device.device,
                block_device: String::new(),
                per_second: device.per_second,
                used: subtract(device.last, device.first),
                counted_for,
                used_up_for: Some(device.used_up.times()),
                device_requests: device.count_requests(counted_for),
            })
        });
        (rows.collect(), self.missed)
    }
}

impl LimitedCgroup {
    /// Adds what was used since the last reading.
    fn count_use(&mut self, at: Timestamp, counts: &ByDevice) {
        for device in &mut self.devices {
            let counts = counts.get(&device.device).copied().unwrap_or(device.first);
            device.used_up.add(at, counts, device.per_second);
        }
    }
}

impl LimitedDevice {
    /// Returns what the device did in the time between the first reading and the last.
    fn count_requests(&self, counted_for: Nanos) -> Option<DeviceRequests> {
        self.last_requests?.since(self.first_requests?, counted_for)
    }
}

/// Returns the paths of the cgroups whose limits count for a cgroup; never the root's, which has none.
fn list_paths(path: &[u8], version: Version) -> impl Iterator<Item = &[u8]> {
    let all = std::iter::successors(Some(path), |path| {
        path.iter().rposition(|&byte| byte == b'/').map(|end| &path[..end])
    });
    let count = match version {
        Version::V1 => 1,
        Version::V2 => usize::MAX,
    };
    all.take_while(|path| !matches!(*path, b"" | b"/")).take(count)
}

fn subtract(last: IoAmounts, first: IoAmounts) -> IoAmounts {
    IoAmounts {
        read_bytes: last.read_bytes.saturating_sub(first.read_bytes),
        written_bytes: last.written_bytes.saturating_sub(first.written_bytes),
        reads: last.reads.saturating_sub(first.reads),
        writes: last.writes.saturating_sub(first.writes),
    }
}

/// Amounts by the kernel's number of the device.
type ByDevice = HashMap<u32, IoAmounts>;

fn read_limits(directory: &CgroupDirectory, version: Version) -> ByDevice {
    let read = |name: &str| directory.read(name, MAX_FILE).unwrap_or_default();
    match version {
        Version::V2 => parse_v2(&read("io.max"), ["rbps", "wbps", "riops", "wiops"]),
        Version::V1 => {
            let files = ["read_bps", "write_bps", "read_iops", "write_iops"];
            let [read_bytes, written_bytes, reads, writes] =
                files.map(|file| parse_v1(&read(&format!("blkio.throttle.{file}_device")), None));
            join([read_bytes, written_bytes, reads, writes])
        }
    }
}

fn read_counts(directory: &CgroupDirectory, version: Version) -> Option<ByDevice> {
    let read = |name: &str| directory.read(name, MAX_FILE);
    match version {
        Version::V2 => Some(parse_v2(&read("io.stat")?, ["rbytes", "wbytes", "rios", "wios"])),
        Version::V1 => {
            let bytes = read("blkio.throttle.io_service_bytes")?;
            let times = read("blkio.throttle.io_serviced")?;
            let parse = |text: &[u8], kind| parse_v1(text, Some(kind));
            Some(join([
                parse(&bytes, "Read"),
                parse(&bytes, "Write"),
                parse(&times, "Read"),
                parse(&times, "Write"),
            ]))
        }
    }
}

/// Joins bytes read, bytes written, reads and writes, each by device.
fn join(all: [HashMap<u32, u64>; 4]) -> ByDevice {
    let mut joined = ByDevice::new();
    for (n, amounts) in all.into_iter().enumerate() {
        for (device, amount) in amounts {
            *field(joined.entry(device).or_default(), n) = amount;
        }
    }
    joined
}

fn field(amounts: &mut IoAmounts, n: usize) -> &mut u64 {
    match n {
        0 => &mut amounts.read_bytes,
        1 => &mut amounts.written_bytes,
        2 => &mut amounts.reads,
        _ => &mut amounts.writes,
    }
}

/// Parses `io.max` or `io.stat`: `8:0 rbps=1048576 wbps=max riops=max wiops=max`. `names` are those of
/// bytes read, bytes written, reads and writes.
fn parse_v2(text: &[u8], names: [&str; 4]) -> ByDevice {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let device = cgroup2::parse_device_number(words.next()?)?;
        let mut amounts = IoAmounts::default();
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            if let Some(n) = names.iter().position(|&known| known == name) {
                // No limit is `max`.
                *field(&mut amounts, n) = value.parse().unwrap_or(0);
            }
        }
        Some((device, amounts))
    });
    lines.filter(|(_, amounts)| *amounts != IoAmounts::default()).collect()
}

/// Parses a file of v1: `8:0 1048576`, or with a kind `8:0 Read 1048576`.
fn parse_v1(text: &[u8], kind: Option<&str>) -> HashMap<u32, u64> {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let device = cgroup2::parse_device_number(words.next()?)?;
        match kind {
            Some(kind) if words.next()? != kind => None,
            _ => Some((device, words.next()?.parse().ok()?)),
        }
    });
    lines.filter(|&(_, amount)| amount > 0).collect()
}

/// Parses any bytes as each of a cgroup's files, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    let _limits = parse_v2(bytes, ["rbps", "wbps", "riops", "wiops"]);
    let _limits = parse_v1(bytes, None);
    let _counts = parse_v1(bytes, Some("Read"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use offwake_recording::{
        IoAmounts,
        units::{CgroupId, Tgid, Timestamp},
    };

    use super::{
        ByDevice, IoLimits, LimitedCgroup, LimitedDevice, UsedUp, Version, join, list_paths,
        parse_v1, parse_v2,
    };

    const DISK: u32 = 8 << 20;

    #[test]
    fn limits_of_both_versions_are_the_same() {
        let limits = IoAmounts { read_bytes: 1_048_576, writes: 120, ..IoAmounts::default() };
        let expected = ByDevice::from([(DISK + 16, limits)]);
        let v2 = b"8:16 rbps=1048576 wbps=max riops=max wiops=120\n";
        assert_eq!(parse_v2(v2, ["rbps", "wbps", "riops", "wiops"]), expected);
        let [none, bytes, writes] =
            ["", "8:16 1048576\n", "8:16 120\n"].map(|text| parse_v1(text.as_bytes(), None));
        assert_eq!(join([bytes, none.clone(), none, writes]), expected);
    }

    #[test]
    fn counts_of_both_versions_are_the_same() {
        let counts = IoAmounts { read_bytes: 4096, written_bytes: 512, reads: 2, writes: 1 };
        let expected = ByDevice::from([(DISK, counts)]);
        let v2 = b"254:1 \n8:0 rbytes=4096 wbytes=512 rios=2 wios=1 dbytes=7 dios=7\n";
        assert_eq!(parse_v2(v2, ["rbytes", "wbytes", "rios", "wios"]), expected);
        let bytes = b"8:0 Read 4096\n8:0 Write 512\n8:0 Sync 4608\n8:0 Total 4608\nTotal 4608\n";
        let times = b"8:0 Read 2\n8:0 Write 1\n8:0 Total 3\nTotal 3\n";
        let parse = |text: &[u8], kind| parse_v1(text, Some(kind));
        let all = [
            parse(bytes, "Read"),
            parse(bytes, "Write"),
            parse(times, "Read"),
            parse(times, "Write"),
        ];
        assert_eq!(join(all), expected);
    }

    #[test]
    fn what_is_no_limit_is_none() {
        for none in
            ["8:0 rbps=max wbps=max riops=max wiops=max\n", "8:0\n", "x rbps=1\n", "8 rbps=1", "\0"]
        {
            let limits = parse_v2(none.as_bytes(), ["rbps", "wbps", "riops", "wiops"]);
            assert_eq!(limits, ByDevice::new(), "{none}");
        }
        for none in ["8:0 0\n", "8:0 -1\n", "8:0\n", "Total 0\n", "9999:99999999999 1"] {
            assert!(parse_v1(none.as_bytes(), None).is_empty(), "{none}");
        }
    }

    #[test]
    fn limits_of_v2_count_for_what_is_below_and_those_of_v1_do_not() {
        let list = |path: &'static str, version| -> Vec<_> {
            list_paths(path.as_bytes(), version).map(|it| str::from_utf8(it).unwrap()).collect()
        };
        assert_eq!(list("/a/b/c", Version::V2), ["/a/b/c", "/a/b", "/a"]);
        assert_eq!(list("/a/b/c", Version::V1), ["/a/b/c"]);
        assert!(list("/", Version::V2).is_empty() && list("/", Version::V1).is_empty());
    }

    #[test]
    fn limits_beyond_their_number_are_counted() {
        let amounts = |reads| IoAmounts { reads, ..IoAmounts::default() };
        let device = LimitedDevice {
            device: DISK,
            per_second: amounts(7),
            first: amounts(10),
            last: amounts(17),
            used_up: UsedUp::begin(Timestamp(5), amounts(10)),
            first_requests: None,
            last_requests: None,
        };
        let cgroup = LimitedCgroup {
            id: CgroupId(1),
            path: b"/shop".to_vec(),
            devices: vec![device],
            first_at: Timestamp(5),
            last_at: Some(Timestamp(25)),
        };
        let mut limits = IoLimits { cgroups: vec![cgroup], max_processes: 2, ..IoLimits::new() };
        for process in [4, 5, 6, 5] {
            limits.add_process(Tgid(process), 0);
        }
        let (rows, missed) = limits.finish();
        assert_eq!(missed, 1);
        let processes: BTreeSet<_> = rows.iter().map(|row| row.tgid.0).collect();
        assert_eq!(processes, BTreeSet::from([4, 5]));
        assert!(rows.iter().all(|row| row.used == amounts(7) && row.counted_for.0 == 20));
    }
}

//! Which I/O limit of a cgroup kept programs from using a disk.
//!
//! A limit keeps what it holds back from the disk. So two things tell that from a slow disk: how far the limit was used,
//! and how long the disk's own requests took. They are those of all processes, so that the disk itself was never waited
//! for longer than that.
//!
//! ```text
//! may read 25 times/s, 60 of 75 read in 3 s; waits for 2.9 s
//!     all reads took the disk 0.1 s      held back by the limit, for 2.8 s at least
//!     all reads took the disk 2.9 s      the disk is slow: the limit is told
//! may read 25 times/s, 50 of 150 read in 6 s, all in 2 s; waits for 1.9 s; took the disk 0.1 s
//!                                        held back by the limit, which was used up for 2 s
//! may read 25 times/s, 50 of 150 read in 6 s, now and then; waits for 0.3 s
//!                                        not held back: it wanted no more
//! ```

use std::collections::BTreeSet;

use offwake_recording::{
    DiskUse, Filesystem, IoLimit, Recording,
    units::{Nanos, Tgid, Timestamp},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::text;

use super::limited_waits::{Direction, WaitedTimes};

/// Who is held back waits for at least this part of the window, or of the time in which the limit was used up.
const MIN_WAIT: f64 = 0.5;
/// If the disk's own requests took no longer than this part of the time that was waited, most of that is nothing that
/// the disk took. Then a limit is the cause that was used as far as [`IoLimit::USED_UP`].
const MAX_IN_DEVICE: f64 = 0.5;
/// If nobody knows how long they took, a limit is the cause if this part of what it allows was used. What is counted
/// comes in pieces of up to some megabytes, and the first or the last may be missing.
const USED_UP_UNPROVEN: f64 = 0.8;
/// If the cgroup's own requests took longer, it may have been the disk all the time. Only where this part was used, a
/// faster disk could hardly have done more.
const USED_UP_AT_BUSY_DEVICE: f64 = 0.95;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IoLimitUnit {
    /// Bytes that are read.
    ReadBytes,
    /// Bytes that are written.
    WrittenBytes,
    /// Reads, whatever their size.
    Reads,
    /// Writes, whatever their size.
    Writes,
}

/// The I/O limit of a cgroup that threads are under as they use a disk. If there are several, the one
/// that was used most.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FindingIoLimit {
    /// The cgroup that has the limit.
    pub cgroup: String,
    /// The kernel's name of the device that it is for: `sda`.
    pub device: String,
    /// What it counts.
    pub unit: IoLimitUnit,
    /// How much of that is allowed in a second.
    pub per_second: u64,
    /// How much of what was allowed in the window was used, by all processes of the cgroup: about 1 if it was used
    /// up.
    pub used_share: f64,
    /// How much was used of what it counts, by all processes of the cgroup.
    pub used: u64,
    /// For how long it was used up, by readings of the kernel's counts each half second or so; null if not known.
    pub used_up_ns: Option<Nanos>,
    /// How long the device's own requests of that direction took, of all processes, added up; null if not known.
    pub device_ns: Option<Nanos>,
    /// The time in which all of that was counted.
    pub counted_ns: Nanos,
    /// Whether it held these threads back.
    pub is_cause: bool,
}

/// How far one limit of a cgroup was used.
struct LimitUse<'l> {
    limit: &'l IoLimit,
    unit: IoLimitUnit,
    allowed: u64,
    used: u64,
    used_up_for: Option<Nanos>,
}

impl FindingIoLimit {
    /// Finds the limit for the disk of a filesystem that all these processes are under. `waited` is when
    /// their threads waited for that disk.
    ///
    /// If the filesystem is not known, as with a page fault, it is a limit for a disk beside which these
    /// processes used no other. A worker of the kernel submits what was held back, so that it is not counted as
    /// theirs: what they used beside it would be.
    pub(super) fn find(
        recording: &Recording,
        filesystem: Option<&Filesystem>,
        processes: &BTreeSet<Tgid>,
        waited: &WaitedTimes,
    ) -> Option<Self> {
        let is_for_all = |limit: &IoLimit| {
            let is_same =
                |other: &&IoLimit| other.path == limit.path && other.device == limit.device;
            let under = recording.io_limits.iter().filter(is_same).map(|other| other.tgid);
            processes.is_subset(&under.collect())
        };
        (recording.io_limits.iter())
            .filter(|limit| processes.first() == Some(&limit.tgid))
            .filter(|limit| match filesystem {
                Some(filesystem) => is_on_disk(limit, filesystem),
                None => is_only_disk(recording, limit, processes),
            })
            .filter(|limit| is_for_all(limit))
            .flat_map(|limit| {
                let covers = filesystem.is_none_or(|filesystem| covers(limit, filesystem));
                LimitUse::list(limit).map(move |used| used.judge(recording, waited, covers))
            })
            .max_by(|one, other| {
                let rank = |found: &Self| (found.is_cause, found.used_share);
                let ((is_cause, share), (other_is, other_share)) = (rank(one), rank(other));
                is_cause.cmp(&other_is).then(share.total_cmp(&other_share))
            })
    }

    /// Returns what who is held back does: `waits at its I/O limit (cgroup /shop may read 10.5 MB/s from
    /// sda)`.
    pub(super) fn describe_wait(&self) -> String {
        format!("waits at its I/O limit ({})", self.describe())
    }

    /// Returns how far it was used: `read 29 MB of 30 MB allowed (97%); reads took the disk 310 ms in all`, or `cgroup
    /// /shop may read 10.5 MB/s from sda, 35% used` if the wait itself does not name the limit.
    pub(super) fn describe_use(&self) -> String {
        let percent = format!("{:.0}%", self.used_share * 100.0);
        let used = match self.is_cause {
            true => {
                let verb = match self.unit.direction() {
                    Direction::Read => "read",
                    Direction::Write => "wrote",
                };
                let allowed = self.per_second as f64 * self.counted_ns.0 as f64 / 1e9;
                let amounts = match self.unit {
                    IoLimitUnit::ReadBytes | IoLimitUnit::WrittenBytes => {
                        let [used, allowed] = [self.used, allowed as u64].map(text::data_size);
                        format!("{used} of {allowed}")
                    }
                    IoLimitUnit::Reads | IoLimitUnit::Writes => {
                        format!("{} of {allowed:.0} times", self.used)
                    }
                };
                let burst = self.used_up_ns.filter(|_| self.used_share < IoLimit::USED_UP);
                let burst = burst.map(|time| format!("used up for {time}: ")).unwrap_or_default();
                format!("{burst}{verb} {amounts} allowed ({percent})")
            }
            false => format!("{}, {percent} used", self.describe()),
        };
        match self.device_ns.filter(|_| self.is_cause || self.used_share >= IoLimit::USED_UP) {
            Some(time) => format!("{used}; {} took the disk {time} in all", self.unit.requests()),
            None => used,
        }
    }

    fn describe(&self) -> String {
        let amount = match self.unit {
            IoLimitUnit::ReadBytes | IoLimitUnit::WrittenBytes => {
                format!("{}/s", text::data_size(self.per_second))
            }
            IoLimitUnit::Reads | IoLimitUnit::Writes => format!("{} times/s", self.per_second),
        };
        let (verb, preposition) = match self.unit.direction() {
            Direction::Read => ("read", "from"),
            Direction::Write => ("write", "to"),
        };
        let device = match self.device.as_str() {
            "" => "a disk".to_owned(),
            name => text::terminal(name),
        };
        let cgroup = text::terminal(&self.cgroup);
        format!("cgroup {cgroup} may {verb} {amount} {preposition} {device}")
    }
}

impl IoLimitUnit {
    fn direction(self) -> Direction {
        match self {
            Self::ReadBytes | Self::Reads => Direction::Read,
            Self::WrittenBytes | Self::Writes => Direction::Write,
        }
    }

    /// Returns what a disk's requests of its direction are called.
    fn requests(self) -> &'static str {
        match self.direction() {
            Direction::Read => "reads",
            Direction::Write => "writes",
        }
    }
}

impl<'l> LimitUse<'l> {
    /// Lists what a cgroup may do with a device, and how far it did.
    fn list(limit: &'l IoLimit) -> impl Iterator<Item = Self> {
        let IoLimit { per_second, used, used_up_for, .. } = limit;
        let times = used_up_for.as_ref();
        let all = [
            (
                IoLimitUnit::ReadBytes,
                (per_second.read_bytes, used.read_bytes),
                times.map(|times| times.read_bytes),
            ),
            (
                IoLimitUnit::WrittenBytes,
                (per_second.written_bytes, used.written_bytes),
                times.map(|times| times.written_bytes),
            ),
            (IoLimitUnit::Reads, (per_second.reads, used.reads), times.map(|times| times.reads)),
            (
                IoLimitUnit::Writes,
                (per_second.writes, used.writes),
                times.map(|times| times.writes),
            ),
        ];
        let is_limit = |&(_, (allowed, _), _): &(_, (u64, _), _)| allowed > 0;
        (all.into_iter().filter(is_limit)).filter(|_| limit.counted_for > Nanos(0)).map(
            move |(unit, (allowed, used), used_up_for)| Self {
                limit,
                unit,
                allowed,
                used,
                used_up_for,
            },
        )
    }

    /// Decides whether the limit held threads back that waited for its device. `covers` is whether they can
    /// have waited for no other one.
    fn judge(self, recording: &Recording, waited: &WaitedTimes, covers: bool) -> FindingIoLimit {
        let Self { limit, unit, allowed, used, used_up_for } = self;
        let used_share = used as f64 / (allowed as f64 * limit.counted_for.0 as f64 / 1e9);
        let device_time = device_time(limit, unit.direction());
        let window = recording.meta.window;
        // From before the counts were read for the first time, nobody knows what the disk did.
        let begin = Timestamp(window.end.0.saturating_sub(limit.counted_for.0));
        let time = waited.since(begin.max(window.start));
        let is_part = |part: Nanos, of: Nanos, least: f64| part.0 as f64 >= of.0 as f64 * least;
        let is_long = is_part(time, window.length(), MIN_WAIT);
        let in_device = match covers {
            true => locate_waits(limit, unit.direction(), waited.direction, time),
            false => Whereabouts::Unknown,
        };
        let is_used_up = match in_device {
            Whereabouts::MostlyBefore => {
                let is_burst = used_up_for
                    .is_some_and(|used_up| used_up > Nanos(0) && is_part(used_up, time, MIN_WAIT));
                is_burst || is_long && used_share >= IoLimit::USED_UP
            }
            Whereabouts::Unknown => is_long && used_share >= USED_UP_UNPROVEN,
            Whereabouts::ProbablyInDevice => is_long && used_share >= USED_UP_AT_BUSY_DEVICE,
        };
        let is_that_direction = waited.direction.is_none_or(|known| known == unit.direction());
        FindingIoLimit {
            cgroup: limit.path.clone(),
            device: limit.block_device.clone(),
            unit,
            per_second: allowed,
            used_share,
            used,
            used_up_ns: used_up_for,
            device_ns: device_time,
            counted_ns: limit.counted_for,
            is_cause: is_used_up && is_that_direction && time > Nanos(0),
        }
    }
}

/// Where threads were held up that waited for a device, as far as its own requests tell.
enum Whereabouts {
    /// Before it, for most of the time.
    MostlyBefore,
    /// In it, for most of the time, if each request took as long as those of all do.
    ProbablyInDevice,
    /// Nobody knows; or others were in it for most of the time.
    Unknown,
}

/// Returns where threads were held up that waited for so long for a limit's device. What may have been a wait for the
/// other direction is held against the requests of both.
fn locate_waits(
    limit: &IoLimit,
    direction: Direction,
    waited_for: Option<Direction>,
    waited: Nanos,
) -> Whereabouts {
    let (Some(time), Some(done)) = (device_time(limit, direction), limit.device_requests) else {
        return Whereabouts::Unknown;
    };
    let (own, all, of_other) = match direction {
        Direction::Read => (limit.used.reads, done.reads, done.write_time),
        Direction::Write => (limit.used.writes, done.writes, done.read_time),
    };
    let of_other = if waited_for.is_none() { of_other } else { Nanos(0) };
    let own_time = time.0 as f64 * (own as f64 / all as f64).min(1.0);
    let most = waited.0 as f64 * MAX_IN_DEVICE;
    if time.0.saturating_add(of_other.0) as f64 <= most {
        Whereabouts::MostlyBefore
    } else if own_time > most {
        Whereabouts::ProbablyInDevice
    } else {
        Whereabouts::Unknown
    }
}

/// Returns how long the device's own requests of one direction took. None if that is not known: it counts none, as
/// with a 0 in `queue/iostats`, or did none.
fn device_time(limit: &IoLimit, direction: Direction) -> Option<Nanos> {
    let done = limit.device_requests?;
    let (count, time) = match direction {
        Direction::Read => (done.reads, done.read_time),
        Direction::Write => (done.writes, done.write_time),
    };
    (count > 0).then_some(time)
}

/// Whether all that a filesystem has to do goes through the device of a limit: of several disks, another one may be
/// waited for.
fn covers(limit: &IoLimit, filesystem: &Filesystem) -> bool {
    let is_it = |name: &str| name == limit.block_device && !name.is_empty();
    limit.device == filesystem.device
        || is_it(&filesystem.block_device)
        || filesystem.disks().all(is_it)
}

/// Whether processes used no other disk than the one that a limit is for.
fn is_only_disk(recording: &Recording, limit: &IoLimit, processes: &BTreeSet<Tgid>) -> bool {
    let is_other = |used: &DiskUse| {
        used.device != limit.device && used.disks().all(|disk| disk != limit.block_device)
    };
    let mut uses = recording.disk_uses.iter().filter(|used| processes.contains(&used.tgid));
    !uses.any(is_other)
}

/// Whether a limit counts for what is done with a filesystem: it is for its device, or for the disk below.
fn is_on_disk(limit: &IoLimit, filesystem: &Filesystem) -> bool {
    let name = limit.block_device.as_str();
    limit.device == filesystem.device
        || !name.is_empty()
            && (name == filesystem.block_device || filesystem.disks().any(|disk| disk == name))
}

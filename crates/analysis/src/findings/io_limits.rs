//! Which I/O limit of a cgroup kept programs from using a disk.
//!
//! ```text
//! may read 10 MB/s, window 6 s, 58 MB read, waits for 5.8 s   held back by the limit
//! may read 10 MB/s, window 6 s, 20 MB read, waits for 5.8 s   the disk is slow: the limit is told
//! may read 10 MB/s, window 6 s, 50 MB read, waits for 0.3 s   not held back: it wanted no more
//! ```

use std::collections::BTreeSet;

use offwake_recording::{
    DiskUse, Filesystem, IoAmounts, IoLimit, Recording,
    units::{Nanos, Tgid},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::text;

/// A limit is used up if this part of what it allows was used. What is counted comes in pieces of up to
/// some megabytes, and the first or the last may be missing.
const USED_UP: f64 = 0.8;
/// Whoever is held back waits for at least this part of the window.
const MIN_WAIT: f64 = 0.5;

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
    /// Whether it held these threads back: it was used up, and they waited for most of the window.
    pub is_cause: bool,
}

impl FindingIoLimit {
    /// Finds the limit for the disk of a filesystem that all these processes are under. `waited` is how long
    /// their threads waited for that disk.
    ///
    /// If the filesystem is not known, as with a page fault, it is a limit for a disk beside which these
    /// processes used no other. A worker of the kernel submits what was held back, so that it is not counted as
    /// theirs: what they used beside it would be.
    pub(super) fn find(
        recording: &Recording,
        filesystem: Option<&Filesystem>,
        processes: &BTreeSet<Tgid>,
        waited: Nanos,
    ) -> Option<Self> {
        let is_for_all = |limit: &IoLimit| {
            let is_same =
                |other: &&IoLimit| other.path == limit.path && other.device == limit.device;
            let under = recording.io_limits.iter().filter(is_same).map(|other| other.tgid);
            processes.is_subset(&under.collect())
        };
        let window = recording.meta.window.length();
        let has_waited = waited.0 as f64 >= window.0 as f64 * MIN_WAIT;
        (recording.io_limits.iter())
            .filter(|limit| processes.first() == Some(&limit.tgid))
            .filter(|limit| match filesystem {
                Some(filesystem) => is_on_disk(limit, filesystem),
                None => is_only_disk(recording, limit, processes),
            })
            .filter(|limit| is_for_all(limit))
            .filter_map(Self::most_used)
            .max_by(|one, other| one.used_share.total_cmp(&other.used_share))
            .map(|found| Self { is_cause: has_waited && found.used_share >= USED_UP, ..found })
    }

    /// Returns what was used most of what a cgroup may do with a device.
    fn most_used(limit: &IoLimit) -> Option<Self> {
        let seconds = limit.counted_for.0 as f64 / 1e9;
        let share_of = |(unit, (allowed, used)): (IoLimitUnit, (u64, u64))| {
            (allowed > 0 && seconds > 0.0).then(|| Self {
                cgroup: limit.path.clone(),
                device: limit.block_device.clone(),
                unit,
                per_second: allowed,
                used_share: used as f64 / (allowed as f64 * seconds),
                is_cause: false,
            })
        };
        let both = |amount: fn(&IoAmounts) -> u64| (amount(&limit.per_second), amount(&limit.used));
        let units = [
            (IoLimitUnit::ReadBytes, both(|amounts| amounts.read_bytes)),
            (IoLimitUnit::WrittenBytes, both(|amounts| amounts.written_bytes)),
            (IoLimitUnit::Reads, both(|amounts| amounts.reads)),
            (IoLimitUnit::Writes, both(|amounts| amounts.writes)),
        ];
        let shares = units.into_iter().filter_map(share_of);
        shares.max_by(|one, other| one.used_share.total_cmp(&other.used_share))
    }

    /// Returns what who is held back does: `waits at its I/O limit (cgroup /shop may read 10.5 MB/s from
    /// sda)`.
    pub(super) fn describe_wait(&self) -> String {
        format!("waits at its I/O limit ({})", self.describe())
    }

    /// Returns how far it was used: `97% of the limit used`, or `cgroup /shop may read 10.5 MB/s from sda, 35%
    /// used` if the wait itself does not name the limit.
    pub(super) fn describe_use(&self) -> String {
        let used = format!("{:.0}%", self.used_share * 100.0);
        match self.is_cause {
            true => format!("{used} of the limit used"),
            false => format!("{}, {used} used", self.describe()),
        }
    }

    fn describe(&self) -> String {
        let amount = match self.unit {
            IoLimitUnit::ReadBytes | IoLimitUnit::WrittenBytes => {
                format!("{}/s", text::data_size(self.per_second))
            }
            IoLimitUnit::Reads | IoLimitUnit::Writes => format!("{} times/s", self.per_second),
        };
        let (verb, preposition) = match self.unit {
            IoLimitUnit::ReadBytes | IoLimitUnit::Reads => ("read", "from"),
            IoLimitUnit::WrittenBytes | IoLimitUnit::Writes => ("write", "to"),
        };
        let device = match self.device.as_str() {
            "" => "a disk".to_owned(),
            name => text::terminal(name),
        };
        let cgroup = text::terminal(&self.cgroup);
        format!("cgroup {cgroup} may {verb} {amount} {preposition} {device}")
    }
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

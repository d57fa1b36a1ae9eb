//! When threads under I/O limits waited for disks, and for what.
//!
//! ```text
//! one thread       ▆▆▆▆  ▆▆▆▆           how long they waited: 3 s of these 4 s, although both together
//! another one         ▆▆▆▆▆▆            waited for 4 s
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexMap;
use offwake_recording::{
    Syscall, Wait,
    units::{Nanos, Tgid, Timestamp},
};

use crate::{
    blame::{
        Blame,
        cause::{Cause, syscalls},
    },
    label::Label,
    timeline::{ThreadIndex, WaitIndex},
};

use super::{
    kernel_waits::KernelWait,
    meaning::{Meanings, SleepMeaning},
};

/// Syscalls that want data, and those that want it to be on the disk. Others may wait for either: who
/// writes to the page cache may have to read first.
const READS: &[&str] = &["read", "pread64", "readv", "preadv", "preadv2"];
const WRITES: &[&str] = &["fsync", "fdatasync", "sync", "syncfs", "msync", "sync_file_range"];

/// What a disk is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// What tells the waits of a finding from others of its threads.
#[derive(PartialEq, Eq, Hash)]
struct Meaning {
    cause: Cause,
    label: Option<Label>,
    kernel: Option<KernelWait>,
    filesystem: Option<u32>,
}

impl Meaning {
    fn from_sleep(slept: &SleepMeaning) -> Self {
        Self {
            cause: slept.cause,
            label: slept.label.clone(),
            kernel: slept.kernel,
            filesystem: slept.filesystem,
        }
    }
}

/// From when to when a thread waited, and for what if that is known.
#[derive(Clone, Copy)]
struct LimitedWait {
    from: Timestamp,
    to: Timestamp,
    direction: Option<Direction>,
}

/// The waits for disks of all processes that are under I/O limits.
pub(super) struct LimitedWaits {
    by_meaning: IndexMap<Meaning, BTreeMap<ThreadIndex, Vec<LimitedWait>>>,
}

impl LimitedWaits {
    /// Finds them.
    pub(super) fn find(blame: &Blame<'_>, meanings: &mut Meanings<'_>) -> Self {
        let recording = blame.recording();
        let limited: BTreeSet<Tgid> = recording.io_limits.iter().map(|limit| limit.tgid).collect();
        let rows = if limited.is_empty() { &[] } else { recording.waits.rows() };
        let mut by_meaning: IndexMap<Meaning, BTreeMap<ThreadIndex, Vec<LimitedWait>>> =
            IndexMap::new();
        // Waits are many, and their patterns few.
        let mut by_pattern: HashMap<usize, Option<(usize, Option<Direction>)>> = HashMap::new();
        for (row, n) in rows.iter().zip(0..) {
            let index = WaitIndex(n);
            let known = by_pattern.entry(row.pattern.index()).or_insert_with(|| {
                let is_limited = limited.contains(&recording.waits.waiter(row).tgid);
                (is_limited && may_be_for_disk(blame.cause(index))).then(|| {
                    let meaning = Meaning::from_sleep(&meanings.wait(blame, index, None));
                    let wait = recording.waits.get(n as usize);
                    let entry = by_meaning.entry(meaning);
                    let place = entry.index();
                    entry.or_default();
                    (place, wait.as_ref().and_then(find_direction))
                })
            });
            let Some((meaning, direction)) = *known else { continue };
            let Some(place) = blame.timeline().blocked_interval(index) else { continue };
            if let Some((_, by_thread)) = by_meaning.get_index_mut(meaning) {
                let wait = LimitedWait { from: place.from, to: place.to, direction };
                by_thread.entry(place.thread).or_default().push(wait);
            }
        }
        Self { by_meaning }
    }

    /// Returns those of some threads that mean this; all of these threads if it is not known what they mean.
    pub(super) fn select<'t>(
        &self,
        slept: Option<&SleepMeaning>,
        threads: impl Iterator<Item = &'t ThreadIndex> + Clone,
    ) -> WaitedTimes {
        let meaning = slept.map(Meaning::from_sleep);
        let by_thread = (self.by_meaning.iter())
            .filter(|(known, _)| meaning.as_ref().is_none_or(|meaning| *known == meaning));
        let waits = by_thread
            .flat_map(|(_, by_thread)| threads.clone().filter_map(|it| by_thread.get(it)))
            .flatten()
            .copied();
        WaitedTimes::join(waits.collect())
    }
}

fn may_be_for_disk(cause: Cause) -> bool {
    matches!(cause, Cause::Disk | Cause::PageFault | Cause::Memory | Cause::IoUring)
}

fn find_direction(wait: &Wait) -> Option<Direction> {
    let name = wait.syscall.as_ref().and_then(|call: &Syscall| syscalls::name(call))?;
    if READS.contains(&name) {
        Some(Direction::Read)
    } else if WRITES.contains(&name) {
        Some(Direction::Write)
    } else {
        None
    }
}

/// The times in which any of some threads waited for a disk.
#[derive(Default)]
pub(super) struct WaitedTimes {
    /// In order, without overlap.
    times: Vec<(Timestamp, Timestamp)>,
    /// What they all waited for, if that is known of all.
    pub(super) direction: Option<Direction>,
}

impl WaitedTimes {
    fn join(mut waits: Vec<LimitedWait>) -> Self {
        waits.sort_by_key(|wait| (wait.from, wait.to));
        let direction = waits.first().and_then(|wait| wait.direction);
        let direction = direction.filter(|_| waits.iter().all(|it| it.direction == direction));
        let mut times: Vec<(Timestamp, Timestamp)> = Vec::new();
        for LimitedWait { from, to, .. } in waits {
            match times.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => times.push((from, to)),
            }
        }
        Self { times, direction }
    }

    /// Returns how long any of them waited, from some moment on.
    pub(super) fn since(&self, begin: Timestamp) -> Nanos {
        let lengths = self.times.iter().map(|&(from, to)| to.max(begin).since(from.max(begin)));
        lengths.sum()
    }
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::{Nanos, Timestamp};

    use super::{Direction, LimitedWait, WaitedTimes};

    fn join(waits: &[(u64, u64, Option<Direction>)]) -> WaitedTimes {
        let waits = waits.iter().map(|&(from, to, direction)| LimitedWait {
            from: Timestamp(from),
            to: Timestamp(to),
            direction,
        });
        WaitedTimes::join(waits.collect())
    }

    #[test]
    fn time_in_which_several_wait_counts_once() {
        let read = Some(Direction::Read);
        let waited = join(&[(30, 60, read), (0, 20, read), (10, 40, read), (70, 80, read)]);
        assert_eq!(waited.since(Timestamp(0)), Nanos(70));
        assert_eq!(waited.since(Timestamp(50)), Nanos(20));
        assert_eq!(waited.since(Timestamp(90)), Nanos(0));
        assert_eq!(waited.direction, read);
    }

    #[test]
    fn what_they_waited_for_is_known_only_if_it_is_known_of_all() {
        let (read, write) = (Some(Direction::Read), Some(Direction::Write));
        for other in [write, None] {
            assert_eq!(join(&[(0, 1, read), (2, 3, other)]).direction, None);
            assert_eq!(join(&[(0, 1, other), (2, 3, read)]).direction, None);
        }
        assert_eq!(join(&[]).direction, None);
    }
}

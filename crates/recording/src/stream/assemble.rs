//! A recording's slices → the recording.

use std::collections::{BTreeMap, HashSet};

use super::{Damage, ReadError, Slice, Slices, Source};
use crate::{
    ClosedBy, End, FrameId, Function, Meta, Recording, SummedWaits, Window, same_stacks,
    units::{Nanos, Tid, Timestamp},
};

/// Reads a recording, as much of it as is whole, into at most about `max_memory` bytes.
///
/// # Errors
///
/// If nothing of it can be used, or it takes more memory.
pub fn read<S: Source + Sync + ?Sized>(
    source: &S,
    max_memory: usize,
) -> Result<Recording, ReadError> {
    if source.size()? == 0 {
        return Err(ReadError::Empty);
    }
    let mut slices = Slices::new(source, max_memory)?;
    let mut assembly = Assembly::default();
    let mut next = slices.next_whole()?;
    while let Some(slice) = next {
        let waits = slice.waits.len();
        let before = assembly.recording.waits.memory();
        // The next slice is read and unpacked while this one is added.
        let (read, ()) = rayon::join(|| slices.next_whole(), || assembly.add(slice));
        slices.waits_packed(waits, assembly.recording.waits.memory() - before);
        next = read?;
    }
    let damage = slices.damage().clone();
    if assembly.numbers.is_empty() {
        return Err(match damage.slices_damaged {
            0 if slices.has_schema() => ReadError::NothingWhole("it ends before them".to_owned()),
            0 => ReadError::NotARecording,
            damaged => ReadError::NothingWhole(format!("{damaged} slices are damaged")),
        });
    }
    Ok(assembly.finish(damage))
}

/// A recording in the making: its slices, one after another.
#[derive(Default)]
pub struct Assembly {
    recording: Recording,
    names: BTreeMap<FrameId, Vec<Function>>,
    numbers: HashSet<u64>,
    /// Of the slice with the highest number.
    newest: Option<(u64, Timestamp, Nanos)>,
    meta: Option<(u64, Meta)>,
}

impl Assembly {
    /// Adds a slice. One that is in it already, by its number, is left out.
    pub fn add(&mut self, slice: Slice) {
        // Twice the same slice: two copies of a recording, one behind the other.
        if !self.numbers.insert(slice.number) {
            return;
        }
        let recording = &mut self.recording;
        if self.newest.is_none_or(|(number, ..)| number < slice.number) {
            self.newest = Some((slice.number, slice.until, slice.own_cpu));
            recording.loss = slice.loss;
            recording.profiler_cost = slice.profiler_cost;
        }
        if let Some(meta) = slice.meta
            && self.meta.as_ref().is_none_or(|(number, _)| *number < slice.number)
        {
            self.meta = Some((slice.number, meta));
        }
        recording.clocks.push(slice.clocks);
        recording.waits.extend(&slice.waits);
        recording.preemptions.extend(slice.preemptions);
        recording.summed.extend(slice.summed);
        recording.throttles.extend(slice.throttles);
        recording.samples.extend(slice.samples);
        recording.thread_events.extend(slice.thread_events);
        recording.exits.extend(slice.exits);
        recording.stacks.stacks.extend(slice.stacks);
        recording.stacks.frames.extend(slice.frames);
        recording.stacks.modules.extend(slice.modules);
        self.names.extend(slice.names);
        recording.processes.extend(slice.processes);
        recording.cgroups.extend(slice.cgroups.into_iter().map(|cgroup| (cgroup.id, cgroup)));
        recording.files.files.extend(slice.files);
        let interrupts = slice.interrupts.into_iter().map(|info| (info.number, info));
        recording.interrupts.extend(interrupts);
        recording.file_locks.extend(slice.file_locks);
        recording.fuse_servers.extend(slice.fuse_servers);
        recording.lock_owners.extend(slice.lock_owners);
        recording.pipe_holders.extend(slice.pipe_holders);
        recording.stopped_threads.extend(slice.stopped_threads);
        recording.disk_uses.extend(slice.disk_uses);
        recording.io_limits.extend(slice.io_limits);
        recording.awaited_children.extend(slice.awaited_children);
        recording.markers.extend(slice.markers);
        recording.file_lock_events.extend(slice.file_lock_events);
        recording.detail.extend(slice.detail);
        recording.tag_sets.extend(slice.tag_sets.into_iter().map(|set| (set.id, set)));
        recording.tag_changes.extend(slice.tag_changes);
        recording.tag_names.extend(slice.tag_names);
        let filesystems = slice.filesystems.into_iter().map(|known| (known.device, known));
        recording.filesystems.extend(filesystems);
        let quotas = slice.quotas.into_iter().map(|quota| (quota.cgroup, quota));
        recording.quotas.extend(quotas);
    }

    /// The recording, with what was wrong with where it came from.
    #[must_use]
    pub fn finish(self, mut damage: Damage) -> Recording {
        let Self { mut recording, names, numbers, newest, meta, .. } = self;
        let first = numbers.iter().min().copied().unwrap_or(0);
        let last = numbers.iter().max().copied().unwrap_or(0);
        damage.slices_missing =
            (last - first).saturating_add(1).saturating_sub(numbers.len() as u64);
        recording.meta = meta.map(|(_, meta)| meta).unwrap_or_default();
        damage.meta_missing = recording.meta == Meta::default();
        recording.clocks.sort_by_key(|clocks| clocks.monotonic);
        if damage.meta_missing {
            let start = recording.clocks.first().map_or(Timestamp(0), |clocks| clocks.monotonic);
            recording.meta.window = Window { start, end: start };
            recording.meta.closed_by = ClosedBy::CutOff;
        }
        if let (ClosedBy::CutOff, Some((_, until, own_cpu))) = (recording.meta.closed_by, newest) {
            recording.meta.window.end = until.max(recording.meta.window.start);
            recording.meta.own_cpu = own_cpu;
        }
        recording.damage = damage;
        for (id, functions) in names {
            if let Some(frame) = recording.stacks.frames.get_mut(&id) {
                frame.functions = functions;
            }
        }
        recording.stacks.trim_tracing_frames();
        same_stacks::merge(&mut recording);
        drop_doubles(&mut recording);
        recording.sort();
        recording
    }
}

/// The closing survey sends a wait that is still open; if the thread comes back while the survey is
/// under way, the same wait is sent once more, whole. The window has closed by then, and both say
/// the same of what lies inside; the open one is the one whose number the survey has counted.
fn drop_doubles(recording: &mut Recording) {
    let mut open: HashSet<(Tid, Timestamp)> = HashSet::new();
    let mut is_open = |tid, off, end| {
        if end == End::StillOff {
            open.insert((tid, off));
        }
    };
    let waits = &recording.waits;
    for row in waits.rows() {
        is_open(waits.waiter(row).tid, row.off, row.end());
    }
    for preemption in &recording.preemptions {
        is_open(preemption.tid, preemption.off, preemption.end);
    }
    let is_single = |tid, off, end| end == End::StillOff || !open.contains(&(tid, off));
    recording.waits.retain(|row, waiter| is_single(waiter.tid, row.off, row.end()));
    recording.preemptions.retain(|p| is_single(p.tid, p.off, p.end));
    drop_double_sums(&mut recording.summed);
}

/// The same of short waits that were summed up: of two that begin at the same moment, the shorter one is the
/// copy that the survey made.
fn drop_double_sums(summed: &mut Vec<SummedWaits>) {
    summed.sort_by_key(|sum| (sum.tid, sum.from, sum.seq));
    summed.dedup_by_key(|sum| (sum.tid, sum.from));
}

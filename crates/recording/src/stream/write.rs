//! A recording in memory → its bytes.

use std::io::{self, Write};

use super::{END, Encoder, Slice, size::count_fitting_names, tables::Named};
use crate::Recording;

/// Rows of a table that go into one slice.
const ROWS: usize = 16_384;

/// Writes a recording that [`super::read`] reads back, whole. What was wrong with the file that it
/// came from is not wrong with the new one.
///
/// # Errors
///
/// If it can't be written.
pub fn write(recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    let mut encoder = Encoder::new().map_err(io::Error::other)?;
    out.write_all(encoder.header())?;
    let slices = slices(recording);
    let last = slices.len().saturating_sub(1);
    for (number, mut slice) in slices.into_iter().enumerate() {
        slice.number = number as u64;
        slice.until = recording.meta.window.end;
        slice.own_cpu = recording.meta.own_cpu;
        slice.loss = recording.loss.clone();
        slice.profiler_cost = recording.profiler_cost;
        slice.meta = (number == 0 || number == last).then(|| recording.meta.clone());
        out.write_all(&encoder.encode(&slice).map_err(io::Error::other)?)?;
    }
    out.write_all(&END)
}

fn slices(recording: &Recording) -> Vec<Slice> {
    let Recording { waits, preemptions, samples, thread_events, exits, stacks, .. } = recording;
    let named = stacks.frames.iter().filter(|(_, frame)| !frame.functions.is_empty());
    let names: Vec<_> = named.map(|(id, frame)| (*id, frame.functions.clone())).collect();
    let frames = stacks.frames.iter().map(|(id, frame)| {
        let mut frame = frame.clone();
        frame.functions.clear();
        (*id, frame)
    });
    let frames: Vec<_> = frames.collect();
    let modules: Vec<_> = stacks.modules.iter().map(|(id, m)| (*id, m.clone())).collect();
    let all_stacks: Vec<_> = stacks.stacks.iter().map(|(id, s)| (*id, s.clone())).collect();
    let files: Vec<_> = recording.files.files.iter().map(|(id, f)| (*id, f.clone())).collect();
    let cgroups: Vec<_> = recording.cgroups.values().cloned().collect();
    let interrupts: Vec<_> = recording.interrupts.values().cloned().collect();
    let quotas: Vec<_> = recording.quotas.values().cloned().collect();
    let tag_sets: Vec<_> = recording.tag_sets.values().cloned().collect();
    let filesystems: Vec<_> = recording.filesystems.values().cloned().collect();

    let mut slices = vec![Slice::default(); recording.clocks.len().max(1)];
    for (slice, clocks) in slices.iter_mut().zip(&recording.clocks) {
        slice.clocks = *clocks;
    }
    let waits: Vec<_> = waits.iter().collect();
    spread(&mut slices, &waits, |slice| &mut slice.waits);
    spread(&mut slices, preemptions, |slice| &mut slice.preemptions);
    spread(&mut slices, &recording.throttles, |slice| &mut slice.throttles);
    spread(&mut slices, samples, |slice| &mut slice.samples);
    spread(&mut slices, thread_events, |slice| &mut slice.thread_events);
    spread(&mut slices, exits, |slice| &mut slice.exits);
    spread(&mut slices, &all_stacks, |slice| &mut slice.stacks);
    spread(&mut slices, &frames, |slice| &mut slice.frames);
    spread(&mut slices, &modules, |slice| &mut slice.modules);
    spread_names(&mut slices, &names);
    spread(&mut slices, &recording.processes, |slice| &mut slice.processes);
    spread(&mut slices, &cgroups, |slice| &mut slice.cgroups);
    spread(&mut slices, &files, |slice| &mut slice.files);
    spread(&mut slices, &interrupts, |slice| &mut slice.interrupts);
    spread(&mut slices, &recording.file_locks, |slice| &mut slice.file_locks);
    spread(&mut slices, &recording.fuse_servers, |slice| &mut slice.fuse_servers);
    spread(&mut slices, &recording.disk_uses, |slice| &mut slice.disk_uses);
    spread(&mut slices, &recording.io_limits, |slice| &mut slice.io_limits);
    spread(&mut slices, &filesystems, |slice| &mut slice.filesystems);
    spread(&mut slices, &recording.lock_owners, |slice| &mut slice.lock_owners);
    spread(&mut slices, &recording.pipe_holders, |slice| &mut slice.pipe_holders);
    spread(&mut slices, &recording.stopped_threads, |slice| &mut slice.stopped_threads);
    spread(&mut slices, &recording.awaited_children, |slice| &mut slice.awaited_children);
    spread(&mut slices, &recording.detail, |slice| &mut slice.detail);
    spread(&mut slices, &recording.markers, |slice| &mut slice.markers);
    spread(&mut slices, &recording.file_lock_events, |slice| &mut slice.file_lock_events);
    spread(&mut slices, &recording.summed, |slice| &mut slice.summed);
    spread(&mut slices, &tag_sets, |slice| &mut slice.tag_sets);
    spread(&mut slices, &recording.tag_changes, |slice| &mut slice.tag_changes);
    spread(&mut slices, &recording.tag_names, |slice| &mut slice.tag_names);
    spread(&mut slices, &quotas, |slice| &mut slice.quotas);
    slices
}

/// Shares rows out over the slices, [`ROWS`] to each; more slices are added if they are too few,
/// with the clocks of the last.
fn spread<T: Clone>(slices: &mut Vec<Slice>, rows: &[T], of: fn(&mut Slice) -> &mut Vec<T>) {
    for (index, rows) in rows.chunks(ROWS).enumerate() {
        of(slice_at(slices, index)).extend_from_slice(rows);
    }
}

/// Shares names out over the slices, as many to each as go into one.
fn spread_names(slices: &mut Vec<Slice>, mut names: &[Named]) {
    let mut index = 0;
    while !names.is_empty() {
        let (fitting, rest) = names.split_at(count_fitting_names(names).min(ROWS));
        slice_at(slices, index).names.extend_from_slice(fitting);
        names = rest;
        index += 1;
    }
}

/// The slice at `index`, which is added if it is the next one.
fn slice_at(slices: &mut Vec<Slice>, index: usize) -> &mut Slice {
    if index >= slices.len() {
        let clocks = slices.last().map(|slice| slice.clocks).unwrap_or_default();
        slices.push(Slice { clocks, ..Slice::default() });
    }
    let last = slices.len() - 1;
    &mut slices[index.min(last)]
}

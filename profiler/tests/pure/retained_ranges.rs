//! A stretch that a flight recorder kept says what the whole recording says of that time.

use std::collections::BTreeMap;

use offwake::capture::{
    EncodedSlice, OpenRecords, SliceSummary, SnapshotEnd,
    flight_recorder::{FrameTables, RetainedSlices, Retention},
};
use offwake_analysis::timeline::{Interval, State, Timeline, WaitIndex};
use offwake_recording::{
    ClosedBy, End, LossTotals, Meta, Phase, ProfilerCost, Recording, ThreadEventReason, Window,
    stream::{self, Encoder, Slice},
    units::{Nanos, Timestamp},
};
use proptest::prelude::*;

use crate::{
    draw::{self, TICK, at, drawn, live, recording, ticks},
    properties::{LENGTH, TIDS, World, world},
};

const MEMORY: usize = 1 << 30;

/// When a record comes out of the rings.
fn comes(end: End, on: Timestamp) -> Timestamp {
    // What is open comes with the survey alone.
    if end == End::StillOff { Timestamp(u64::MAX) } else { on }
}

/// Cuts a recording at these ticks, as the store does.
pub fn slices(whole: &Recording, cuts: &[usize]) -> Vec<Slice> {
    let mut slices = Vec::new();
    let mut from = Timestamp(0);
    for (number, &cut) in cuts.iter().enumerate() {
        let until = at(cut);
        let is_in = |when: Timestamp| from <= when && when < until;
        let mut slice = Slice { number: number as u64, until, ..Slice::default() };
        slice.clocks.monotonic = until;
        slice.own_cpu = Nanos(cut as u64);
        slice.loss.counters.insert("wake_unmatched".to_owned(), cut as u64 + 1);
        slice.waits.extend(whole.waits.iter().filter(|w| is_in(comes(w.end, w.on))));
        slice
            .preemptions
            .extend(whole.preemptions.iter().filter(|p| is_in(comes(p.end, p.on))).cloned());
        slice.thread_events.extend(
            (whole.thread_events.iter())
                .filter(|s| s.reason != ThreadEventReason::Closing && is_in(s.at))
                .cloned(),
        );
        slice.exits.extend(whole.exits.iter().filter(|exit| is_in(exit.at)).cloned());
        slice.meta = (number == 0).then(|| whole.meta.clone());
        slices.push(slice);
        from = until;
    }
    slices
}

/// What a survey finds at the end of a recording.
fn open(whole: &Recording) -> OpenRecords {
    let closing = |s: &&offwake_recording::ThreadEvent| s.reason == ThreadEventReason::Closing;
    OpenRecords {
        waits: whole.waits.iter().filter(|w| w.end == End::StillOff).collect(),
        preemptions: whole.preemptions.iter().filter(|p| p.end == End::StillOff).cloned().collect(),
        summed: Vec::new(),
        thread_events: whole.thread_events.iter().filter(closing).cloned().collect(),
        file_locks: whole.file_locks.clone(),
        fuse_servers: whole.fuse_servers.clone(),
        lock_owners: whole.lock_owners.clone(),
        pipe_holders: whole.pipe_holders.clone(),
        stopped_threads: whole.stopped_threads.clone(),
        disk_uses: whole.disk_uses.clone(),
        io_limits: whole.io_limits.clone(),
        awaited_children: whole.awaited_children.clone(),
        filesystems: whole.filesystems.values().cloned().collect(),
    }
}

pub fn append(kept: &mut RetainedSlices, encoder: &mut Encoder, slice: &Slice) {
    let bytes = encoder.encode(slice).unwrap();
    let records = slice.waits.len() as u64;
    kept.append(
        EncodedSlice { bytes, summary: SliceSummary { until: slice.until, records } },
        slice,
    );
}

pub fn stretch(whole: &Recording, next_number: u64) -> SnapshotEnd {
    let window = whole.meta.window;
    let mut loss = LossTotals::default();
    loss.counters.insert("wake_unmatched".to_owned(), 1_000);
    SnapshotEnd {
        meta: Meta { closed_by: ClosedBy::Snapshot, ..whole.meta.clone() },
        open: open(whole),
        loss,
        profiler_cost: ProfilerCost::default(),
        own_cpu: Nanos(1_000),
        clocks: offwake_recording::Clocks { monotonic: window.end, ..Default::default() },
        next_number,
    }
}

fn written(kept: &RetainedSlices, stretch: SnapshotEnd) -> Recording {
    let mut bytes = Vec::new();
    kept.snapshot(stretch).write(&FrameTables::default(), &mut bytes).unwrap();
    let read = stream::read(&bytes[..], MEMORY).unwrap();
    assert_eq!(read.damage, stream::Damage::default());
    read
}

/// What the timeline says of each thread between two ticks.
fn lives(recording: &Recording, from: usize, to: usize) -> BTreeMap<u32, String> {
    let timeline = Timeline::build(recording);
    let start = recording.meta.window.start;
    let offset = (start.0 - at(0).0) / TICK;
    TIDS.iter()
        .map(|&tid| {
            let line = drawn(recording, &timeline, tid);
            let (from, to) = (from - offset as usize, to - offset as usize);
            (tid, line[from..to.min(line.len())].to_owned())
        })
        .collect()
}

/// How long each wait was blocked, by waiting thread and number of its record.
fn blocked(recording: &Recording, window: Window) -> BTreeMap<(u32, u32), Nanos> {
    let timeline = Timeline::build(recording);
    let mut blocked = BTreeMap::<_, Nanos>::new();
    for Interval { from, to, state } in
        timeline.threads.iter().flat_map(|thread| thread.track.iter())
    {
        let (from, to) = window.clip(from, to);
        if let State::Blocked(WaitIndex(n)) = state
            && from < to
        {
            let wait = recording.waits.get(n as usize).expect("a wait");
            *blocked.entry((wait.tid.0, wait.seq)).or_default() += to.since(from);
        }
    }
    blocked
}

/// A recording of the first `length` ticks of these lives.
pub fn until(world: &World, length: usize) -> Recording {
    let mut recording = recording(length);
    for (n, (&tid, life)) in TIDS.iter().zip(&world.lives).enumerate() {
        let life = &life[..length];
        if !life.trim().is_empty() {
            live(&mut recording, tid, life, TIDS[(n + 1) % TIDS.len()]);
        }
    }
    recording.sort();
    recording
}

pub fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::btree_set(1..LENGTH, 1..12).prop_map(|cuts| cuts.into_iter().collect())
}

/// Each snapshot, taken after the cut with the same place in `taken`, against the whole recording.
fn check(world: &World, cuts: &[usize], keep: u64, taken: &[bool]) -> Result<(), TestCaseError> {
    let mut kept = RetainedSlices::new(Retention::Time(ticks(keep)), MEMORY);
    let mut encoder = Encoder::new().unwrap();
    // Nothing that comes later changes what a slice holds, but for what was open at the end.
    let mut cuts = cuts.to_vec();
    cuts.push(LENGTH + 1);
    let slices = slices(&until(world, LENGTH), &cuts);
    for (n, slice) in slices.iter().enumerate() {
        append(&mut kept, &mut encoder, slice);
        let is_last = n + 1 == slices.len();
        if !is_last && !taken[n % taken.len()] {
            continue;
        }
        let length = if is_last { LENGTH } else { cuts[n] };
        let whole = until(world, length);
        let part = written(&kept, stretch(&whole, slice.number + 1));
        let window = part.meta.window;
        prop_assert_eq!(window.end, at(length));
        let from = ((window.start.0 - at(0).0) / TICK) as usize;
        prop_assert!(
            // The last slice goes one tick beyond the end.
            length - from + 1 >= (keep as usize).min(length),
            "{} ticks kept",
            length - from
        );
        prop_assert_eq!(lives(&part, from, length), lives(&whole, from, length));
        prop_assert_eq!(blocked(&part, window), blocked(&whole, window));
        prop_assert!(part.meta.own_cpu.0 + from as u64 >= 999);
        let unmatched = part.loss.counters["wake_unmatched"];
        prop_assert_eq!(unmatched, if from == 0 { 1_000 } else { 999 - from as u64 });
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_kept_stretch_is_the_whole_clipped_to_it(
        world in world(), cuts in cuts(), keep in 1..40_u64,
        taken in prop::collection::vec(prop::bool::weighted(0.3), 8),
    ) {
        check(&world, &cuts, keep, &taken)?;
    }

    #[test]
    fn so_it_is_when_memory_is_short(world in world(), cuts in cuts()) {
        let mut kept = RetainedSlices::new(Retention::Time(ticks(1_000)), 0);
        let mut encoder = Encoder::new().unwrap();
        let whole = until(&world, LENGTH);
        let slices = slices(&whole, &[&cuts[..], &[LENGTH + 1]].concat());
        for slice in &slices {
            append(&mut kept, &mut encoder, slice);
        }
        let part = written(&kept, stretch(&whole, slices.len() as u64));
        let window = part.meta.window;
        let from = ((window.start.0 - at(0).0) / TICK) as usize;
        prop_assert_eq!(from, *cuts.last().unwrap());
        prop_assert_eq!(lives(&part, from, LENGTH), lives(&whole, from, LENGTH));
        prop_assert_eq!(blocked(&part, window), blocked(&whole, window));
        prop_assert_eq!(part.loss.counters["kept_shortened"], cuts.len() as u64);
    }
}

/// A wait that is open in one snapshot ends with the same number in the next.
#[test]
fn snapshots_in_a_row_do_not_disturb_each_other() {
    let life = "##....................##..";
    let mut kept = RetainedSlices::new(Retention::Time(ticks(4)), MEMORY);
    let mut encoder = Encoder::new().unwrap();
    let cuts: Vec<usize> = (1..life.len()).collect();
    let whole = |length: usize| {
        let mut recording = recording(length);
        live(&mut recording, 7, &life[..length], 8);
        recording
    };
    for slice in slices(&whole(life.len()), &cuts) {
        append(&mut kept, &mut encoder, &slice);
        let length = slice.number as usize + 1;
        let part = written(&kept, stretch(&whole(length), slice.number + 1));
        let timeline = Timeline::build(&part);
        let from = ((part.meta.window.start.0 - at(0).0) / TICK) as usize;
        assert_eq!(draw::drawn(&part, &timeline, 7), life[from..length]);
        let open = part.thread_events.iter().find(|s| s.phase == Phase::Blocked);
        assert!(open.is_none_or(|thread_event| thread_event.reason == ThreadEventReason::Closing));
    }
}

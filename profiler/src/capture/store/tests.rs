//! A sink that takes only so much, at every size.

use std::{
    io,
    sync::mpsc,
    time::{Duration, Instant},
};

use offwake_recording::{
    AddressKind, AddressSpace, Begin, ClosedBy, End, Frame, FrameId, Function, HalfCounts,
    LossTotals, Meta, NewStacks, ProfilerCost, Recording, Stack, StackCounts, StackEnd, StackRef,
    TaskState, ThreadKind, Wait, Window, stream,
    units::{CgroupId, Cpu, Nanos, StackId, Tgid, Tid, Timestamp},
};
use proptest::prelude::*;

use crate::own_threads::OwnThread;

use super::{
    super::{
        CaptureError, Captured,
        memory_sink::{AssemblingSink, MemorySink},
        sink::RemovedSlice,
    },
    Control, LookupResults, NewSlice, OpenRecords, RecordBatch, RecordingEnd, RecordingStart, Sink,
    Store, StoreMessage,
};

/// Takes so many bytes and no more.
struct Limited {
    memory: MemorySink,
    limit: usize,
}

impl Limited {
    fn room_for(&self, bytes: usize) -> io::Result<()> {
        let fits = self.memory.bytes.len() + bytes <= self.limit;
        if fits { Ok(()) } else { Err(io::Error::from(io::ErrorKind::StorageFull)) }
    }
}

impl Sink for Limited {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        self.room_for(header.len())?;
        self.memory.begin(header)
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        self.room_for(slice.encode()?.bytes.len())?;
        self.memory.append(slice)
    }

    fn remove_last(&mut self) -> io::Result<Option<RemovedSlice>> {
        self.memory.remove_last()
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.room_for(mark.len())?;
        self.memory.end(mark)
    }
}

const SLICES: u64 = 20;
const WAITS_IN_A_SLICE: u64 = 50;
const STACK: StackId = StackId(7);

fn wait(number: u64) -> Wait {
    Wait {
        tid: Tid(7),
        tgid: Tgid(7),
        kind: ThreadKind::User,
        in_target: true,
        seq: number as u32 + 1,
        begin: Begin::Seen,
        end: End::Seen,
        off: Timestamp(1000 + number * 20),
        on: Timestamp(1010 + number * 20),
        migrated: None,
        off_cpu: Cpu(0),
        on_cpu: Cpu(0),
        state: TaskState(1),
        syscall: None,
        timeout: None,
        file: None,
        polled_fd: None,
        polled_events: None,
        cgroup: CgroupId(1),
        user_stack: StackRef::Id(STACK),
        kernel_stack: StackRef::NotTaken,
        wake: None,
    }
}

/// Stacks that were taken before the window opened, and in each slice since then.
const TAKEN_BEFORE: u64 = 33_000;
const TAKEN_IN_A_SLICE: u64 = 7;
/// Kinds of stacks that are distrusted from before on.
const DISTRUSTED: u64 = 2;

fn stacks_taken(taken: u64) -> StackCounts {
    let user = HalfCounts { taken, ..HalfCounts::default() };
    StackCounts { user, distrusted: DISTRUSTED, ..StackCounts::default() }
}

fn records(slice: u64) -> RecordBatch {
    let numbers = slice * WAITS_IN_A_SLICE..(slice + 1) * WAITS_IN_A_SLICE;
    RecordBatch {
        until: Timestamp(1000 + numbers.end * 20),
        waits: numbers.map(wait).collect(),
        profiler_cost: ProfilerCost {
            stacks: stacks_taken(TAKEN_BEFORE + (slice + 1) * TAKEN_IN_A_SLICE),
            ..ProfilerCost::default()
        },
        ..RecordBatch::default()
    }
}

fn results() -> LookupResults {
    let frame = Frame {
        address: 0x10,
        kind: AddressKind::Instruction,
        module: None,
        module_offset: None,
        functions: Vec::new(),
    };
    let stack = Stack {
        space: AddressSpace::Process(Tgid(7)),
        frames: vec![FrameId(1)],
        end: StackEnd::Unknown,
    };
    let stacks = vec![(STACK, stack)];
    let stacks = NewStacks { stacks, frames: vec![(FrameId(1), frame)], ..NewStacks::default() };
    LookupResults { stacks, ..LookupResults::default() }
}

/// Records twenty slices into a sink of this size, and says what it has and whether it failed.
fn recorded(limit: usize) -> (Limited, bool) {
    recorded_into(Limited { memory: MemorySink::default(), limit })
}

fn recorded_into<S: Sink>(sink: S) -> (S, bool) {
    let written = all_but_the_end(sink).close(end());
    (written.sink, written.failed.is_some())
}

/// What ends the recording: the last slice, and a name.
fn end() -> RecordingEnd {
    let last = records(SLICES - 1);
    RecordingEnd {
        closed_at: last.until,
        records: Some(last),
        open: OpenRecords::default(),
        results: Some(LookupResults::default()),
        names: vec![(FrameId(1), vec![Function::named("main")])],
        own_cpu: Nanos(0),
        closed_by: ClosedBy::Signal,
    }
}

/// A store that has had all slices but the last.
fn all_but_the_end<S: Sink>(sink: S) -> Store<S> {
    let (messages, to_store) = std::sync::mpsc::sync_channel(100);
    let window = Window { start: Timestamp(1000), end: Timestamp(1000) };
    let meta = Meta { window, closed_by: ClosedBy::CutOff, ..Meta::default() };
    let start = RecordingStart {
        meta,
        losses: LossTotals::default(),
        profiler_cost: ProfilerCost {
            stacks: stacks_taken(TAKEN_BEFORE),
            ..ProfilerCost::default()
        },
        own_cpu: Nanos(0),
    };
    messages.send(StoreMessage::Start(Box::new(start))).unwrap();
    messages.send(StoreMessage::LookupResults(Box::new(results()))).unwrap();
    for slice in 0..SLICES - 1 {
        messages.send(StoreMessage::Records(Box::new(records(slice)))).unwrap();
    }
    drop(messages);
    let store = Store::new(sink, Box::new(|_stacks| {})).unwrap();
    store.run(&to_store, &Control::default())
}

fn read(sink: &Limited) -> Recording {
    stream::read(&sink.memory.bytes[..], usize::MAX).unwrap()
}

#[test]
fn what_has_room_is_whole() {
    let (sink, failed) = recorded(usize::MAX);
    let recording = read(&sink);
    assert!(!failed && recording.damage == stream::Damage::default());
    assert_eq!(recording.waits.len() as u64, SLICES * WAITS_IN_A_SLICE);
    assert_eq!(recording.meta.closed_by, ClosedBy::Signal);
    assert_eq!(recording.stacks.frames[&FrameId(1)].functions, [Function::named("main")]);
}

#[test]
fn stacks_are_counted_from_the_windows_opening_on() {
    let (sink, _) = recorded(usize::MAX);
    let counted = read(&sink).profiler_cost.stacks;
    assert_eq!(counted.user.taken, SLICES * TAKEN_IN_A_SLICE);
    assert_eq!(counted.distrusted, DISTRUSTED);
}

#[test]
fn a_recording_put_together_as_it_comes_is_what_its_bytes_say() {
    let (sink, failed) = recorded_into(AssemblingSink::with_bytes());
    let (mut recording, bytes) = sink.finish();
    let mut read = stream::read(&bytes.unwrap()[..], usize::MAX).unwrap();
    let waits = (std::mem::take(&mut recording.waits), std::mem::take(&mut read.waits));
    assert!(!failed && waits.0 == waits.1 && !waits.0.is_empty());
    assert_eq!(format!("{recording:?}"), format!("{read:?}"));
    let (sink, failed) = recorded_into(AssemblingSink::default());
    assert!(!failed && matches!(sink.finish(), (same, None) if same.waits == waits.0));
}

/// Names of 100 MiB, as of C++ templates, of functions that are inlined into each other.
#[test]
fn names_are_spread_over_slices_that_can_be_read() {
    const FRAMES: u32 = 100;
    let path: std::sync::Arc<str> = "p".repeat(4096).into();
    let functions = |frame: u32| -> Vec<Function> {
        let name = |number: u32| format!("{:04000}", frame * 1000 + number);
        let named = |number| Function {
            file: Some(std::sync::Arc::clone(&path)),
            line: Some(1),
            ..Function::named(name(number))
        };
        (0..129).map(named).collect()
    };
    let names: Vec<_> = (1..=FRAMES).map(|id| (FrameId(id), functions(id))).collect();
    let written = all_but_the_end(MemorySink::default()).close(RecordingEnd { names, ..end() });
    assert!(written.failed.is_none(), "{:?}", written.failed);
    let mut slices = stream::Slices::new(&written.sink.bytes[..], usize::MAX).unwrap();
    let (mut found, mut with_names) = (0, 0);
    while let Some(slice) = slices.next_whole().unwrap() {
        found += slice.names.len();
        with_names += u32::from(!slice.names.is_empty());
    }
    assert_eq!(slices.damage(), &stream::Damage::default());
    assert_eq!(found, FRAMES as usize);
    assert!(with_names > 1, "{with_names} slice");
}

/// Panics once, at this slice.
struct Panicking {
    memory: MemorySink,
    slices_left: Option<u64>,
}

impl Sink for Panicking {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        self.memory.begin(header)
    }

    fn append(&mut self, slice: NewSlice<'_>) -> io::Result<()> {
        match &mut self.slices_left {
            Some(0) => {
                self.slices_left = None;
                panic!("a mistake");
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.memory.append(slice)
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.memory.end(mark)
    }
}

/// A recording of so many slices of records that nothing but a mistake of our own has ended.
fn check_broken_off(bytes: &[u8], slices: u64) {
    let recording = stream::read(bytes, usize::MAX).unwrap();
    assert_eq!(recording.damage, stream::Damage::default());
    assert_eq!(recording.meta.closed_by, ClosedBy::Failed);
    assert_eq!(recording.waits.len() as u64, slices * WAITS_IN_A_SLICE);
    // Nothing is said of the time from which records are missing.
    let end = Timestamp(1000 + slices * WAITS_IN_A_SLICE * 20);
    assert_eq!(recording.meta.window.end, end);
}

#[test]
fn a_store_that_panics_keeps_what_it_had_stored() {
    // The first slice comes with the window's opening, and has no records yet.
    let sink = Panicking { memory: MemorySink::default(), slices_left: Some(6) };
    let written = all_but_the_end(sink).close(end());
    assert!(written.failed.is_some_and(|error| error.to_string().contains("offwake-store failed")));
    check_broken_off(&written.sink.memory.bytes, 5);
}

#[test]
fn without_the_last_records_the_window_ends_before_them() {
    let end = RecordingEnd { records: None, closed_by: ClosedBy::Failed, ..end() };
    let written = all_but_the_end(MemorySink::default()).close(end);
    assert!(written.failed.is_none());
    check_broken_off(&written.sink.bytes, SLICES - 1);
    let recording = stream::read(&written.sink.bytes[..], usize::MAX).unwrap();
    assert_eq!(recording.stacks.frames[&FrameId(1)].functions, [Function::named("main")]);
    assert_eq!(recording.profiler_cost.stacks.user.taken, (SLICES - 1) * TAKEN_IN_A_SLICE);
}

#[test]
fn a_look_up_thread_that_has_died_costs_names_alone() {
    let last = records(SLICES - 1);
    let captured = Captured {
        closed_at: last.until,
        rest: Some(last),
        open: OpenRecords::default(),
        lookup: std::thread::spawn(|| panic!("a mistake")),
        to_store: std::sync::mpsc::sync_channel(1).0,
        store: std::thread::spawn(|| all_but_the_end(MemorySink::default())),
        own_cpu: Nanos(0),
        closed_by: ClosedBy::Duration,
        broken: None,
        given_up_at: Instant::now() + Duration::from_secs(60),
    };
    let written = captured.finish().unwrap();
    assert!(matches!(written.broken, Some(CaptureError::Thread(OwnThread::LookUp))), "{written:?}");
    check_broken_off(&written.sink.bytes, SLICES);
    let recording = stream::read(&written.sink.bytes[..], usize::MAX).unwrap();
    assert!(recording.stacks.stacks.contains_key(&STACK));
    assert!(recording.stacks.frames[&FrameId(1)].functions.is_empty());
}

#[test]
fn a_look_up_thread_that_never_ends_is_given_up_and_costs_names_alone() {
    let last = records(SLICES - 1);
    let (to_store, messages) = mpsc::sync_channel(1);
    let (end, wait) = mpsc::channel::<()>();
    let still_sends = to_store.clone();
    let captured = Captured {
        closed_at: last.until,
        rest: Some(last),
        open: OpenRecords::default(),
        lookup: std::thread::spawn(move || {
            drop((wait.recv(), still_sends));
            panic!("nobody waits for this")
        }),
        to_store,
        store: std::thread::spawn(move || {
            let store = all_but_the_end(MemorySink::default());
            store.run(&messages, &Control::new(Nanos(0)))
        }),
        own_cpu: Nanos(0),
        closed_by: ClosedBy::Duration,
        broken: None,
        given_up_at: Instant::now() + Duration::from_secs(60),
    };
    let written = captured.finish_within(Duration::from_millis(20)).unwrap();
    drop(end);
    assert!(matches!(written.broken, Some(CaptureError::Thread(OwnThread::LookUp))), "{written:?}");
    check_broken_off(&written.sink.bytes, SLICES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// From room for the header, the first slice and the last on.
    #[test]
    fn whatever_the_room_names_are_in_and_every_wait_is_counted(room in 0.2..1.0_f64) {
        let (whole, _) = recorded(usize::MAX);
        let limit = (whole.memory.bytes.len() as f64 * room) as usize;
        let (sink, failed) = recorded(limit);
        prop_assert!(failed && sink.memory.bytes.len() <= limit);
        let recording = read(&sink);
        let damage = stream::Damage { cut_off: recording.damage.cut_off, ..Default::default() };
        prop_assert_eq!(&recording.damage, &damage);
        prop_assert_eq!(&recording.stacks.frames[&FrameId(1)].functions, &[Function::named("main")]);
        prop_assert_eq!(recording.meta.closed_by, ClosedBy::DiskFull);
        let unwritten = recording.loss.counters["records_unwritten"];
        let read = recording.waits.len() as u64;
        prop_assert_eq!(read + unwritten, SLICES * WAITS_IN_A_SLICE);
        // The window ends where the records do.
        let end = recording.waits.iter().map(|wait| wait.seq).max().unwrap_or(0);
        prop_assert_eq!(u64::from(end), read);
        prop_assert_eq!(recording.meta.window.end, Timestamp(1000 + read * 20));
    }
}

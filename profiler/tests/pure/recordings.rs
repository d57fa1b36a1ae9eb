//! Recordings as bytes: what is written comes back, and what is broken is never taken for whole.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashSet},
    io,
    sync::Arc,
};

use offwake::{
    recording::{
        AddressKind, AddressSpace, Begin, BuildId, CgroupInfo, Clocks, ClosedBy, ContainerId,
        ContainerNames, DeviceKind, End, FileId, FileKind, Frame, FrameId, Function, InterruptInfo,
        Meta, Module, ModuleId, OpenFile, PeerProcess, Phase, PodName, Preemption, ProcessInfo,
        Recording, Sample, Scope, Segment, Sighting, SightingReason, SocketEnd, SocketRole, Stack,
        StackEnd, StackMode, StackRef, Syscall, SyscallTable, SystemVector, TaskState, ThreadExit,
        ThreadKind, ThreadRef, Wait, Wake, WakeContext, Window,
        stream::{self, Damage, Encoder, ReadError, Slice, Source},
    },
    units::{CgroupId, Cpu, Nanos, StackId, Tgid, Tid, Timestamp},
};
use proptest::{prelude::*, sample::select};

const MEMORY: usize = 1 << 30;

fn kind() -> impl Strategy<Value = ThreadKind> {
    select(vec![ThreadKind::User, ThreadKind::User32, ThreadKind::Kernel])
}

fn begin() -> impl Strategy<Value = Begin> {
    select(vec![Begin::Seen, Begin::BeforeWindow, Begin::Newborn])
}

/// Not the one that makes a wait that is there twice.
fn end() -> impl Strategy<Value = End> {
    select(vec![End::Seen, End::Missed])
}

fn stack_ref() -> impl Strategy<Value = StackRef> {
    prop_oneof![
        Just(StackRef::NotTaken),
        Just(StackRef::Failed),
        (1..u64::MAX).prop_map(|id| StackRef::Id(StackId(id))),
    ]
}

fn syscall() -> impl Strategy<Value = Option<Syscall>> {
    let table = select(vec![SyscallTable::Native, SyscallTable::Compat]);
    prop::option::of(
        (table, any::<u32>(), any::<[u64; 6]>()).prop_map(|(table, number, args)| Syscall {
            table,
            number,
            args,
        }),
    )
}

fn context() -> impl Strategy<Value = WakeContext> {
    prop_oneof![
        Just(WakeContext::Task),
        any::<u16>().prop_map(WakeContext::Softirq),
        any::<u16>().prop_map(WakeContext::Hardirq),
        Just(WakeContext::Hrtimer),
        select(vec![
            SystemVector::Unknown,
            SystemVector::LocalTimer,
            SystemVector::CallFunction,
            SystemVector::IrqWork,
            SystemVector::Idle,
        ])
        .prop_map(WakeContext::System),
    ]
}

fn file_id() -> impl Strategy<Value = FileId> {
    let kind = select(vec![
        FileKind::Socket,
        FileKind::Pipe,
        FileKind::Regular,
        FileKind::Character,
        FileKind::Block,
        FileKind::Directory,
        FileKind::Anonymous,
    ]);
    (any::<u32>(), any::<u64>(), kind).prop_map(|(device, inode, kind)| FileId {
        device,
        inode,
        kind,
    })
}

prop_compose! {
    fn wake()(
        at in any::<u64>(), context in context(), cpu in any::<u16>(), tid in any::<u32>(),
        tgid in any::<u32>(), current_kind in kind(), current_seq in any::<Option<u32>>(), syscall in syscall(),
        file in prop::option::of(file_id()),
        user_stack in stack_ref(), kernel_stack in stack_ref(),
    ) -> Wake {
        Wake {
            at: Timestamp(at), context, cpu: Cpu(cpu),
            current: ThreadRef { tid: Tid(tid), tgid: Tgid(tgid) },
            current_kind, current_seq, syscall, file, user_stack, kernel_stack,
        }
    }
}

prop_compose! {
    fn wait()(
        (tid, tgid, seq, state) in any::<(u32, u32, u32, u32)>(),
        (off, on, cgroup, migrated) in any::<(u64, u64, u64, Option<u64>)>(),
        (off_cpu, on_cpu, in_target) in any::<(u16, u16, bool)>(),
        kind in kind(), begin in begin(), end in end(), syscall in syscall(),
        timeout in prop::option::of(any::<u64>()), file in prop::option::of(file_id()),
        user_stack in stack_ref(), kernel_stack in stack_ref(), wake in prop::option::of(wake()),
    ) -> Wait {
        Wait {
            tid: Tid(tid), tgid: Tgid(tgid), kind, in_target, seq, begin, end,
            off: Timestamp(off), on: Timestamp(on), migrated: migrated.map(Timestamp),
            off_cpu: Cpu(off_cpu), on_cpu: Cpu(on_cpu),
            state: TaskState(state), syscall, timeout: timeout.map(Nanos), file,
            cgroup: CgroupId(cgroup), user_stack, kernel_stack, wake,
        }
    }
}

prop_compose! {
    fn preemption()(
        (tid, tgid, seq, next) in any::<(u32, u32, u32, u32)>(),
        (off, on, migrated) in any::<(u64, u64, Option<u64>)>(),
        (off_cpu, on_cpu, in_target) in any::<(u16, u16, bool)>(),
        kind in kind(), begin in begin(), end in end(),
    ) -> Preemption {
        Preemption {
            tid: Tid(tid), tgid: Tgid(tgid), kind, in_target, seq, begin, end,
            off: Timestamp(off), on: Timestamp(on), migrated: migrated.map(Timestamp),
            off_cpu: Cpu(off_cpu), on_cpu: Cpu(on_cpu),
            next: Tid(next),
        }
    }
}

prop_compose! {
    fn sighting()(
        (tid, tgid, parent, seq) in any::<(u32, u32, u32, u32)>(),
        (at, created, cgroup, in_target) in any::<(u64, u64, u64, bool)>(),
        kind in kind(), comm in ".{0,16}",
        reason in select(vec![
            SightingReason::Opening, SightingReason::Seen, SightingReason::Fork,
            SightingReason::Exec, SightingReason::Rename, SightingReason::Closing,
            SightingReason::Mistaken,
        ]),
        phase in select(vec![Phase::Unknown, Phase::OnCpu, Phase::Runnable, Phase::Blocked]),
    ) -> Sighting {
        Sighting {
            at: Timestamp(at), reason, tid: Tid(tid), tgid: Tgid(tgid), parent: Tgid(parent), kind,
            in_target, phase, seq, created: Timestamp(created), cgroup: CgroupId(cgroup), comm,
        }
    }
}

prop_compose! {
    fn exit()(
        (tid, tgid, seq, status) in any::<(u32, u32, u32, u32)>(),
        (at, in_target) in any::<(u64, bool)>(),
    ) -> ThreadExit {
        let (tid, tgid) = (Tid(tid), Tgid(tgid));
        ThreadExit { at: Timestamp(at), tid, tgid, in_target, seq, status }
    }
}

prop_compose! {
    fn sample()(
        (at, cpu, tid, tgid) in any::<(u64, u16, u32, u32)>(), seq in any::<Option<u32>>(),
        user_stack in stack_ref(), kernel_stack in stack_ref(),
    ) -> Sample {
        let (tid, tgid) = (Tid(tid), Tgid(tgid));
        Sample { at: Timestamp(at), cpu: Cpu(cpu), tid, tgid, seq, user_stack, kernel_stack }
    }
}

fn stack() -> impl Strategy<Value = (StackId, Stack)> {
    let frames = prop::collection::vec(any::<u32>().prop_map(FrameId), 0..9);
    let end = select(vec![StackEnd::Unknown, StackEnd::EntryPoint, StackEnd::NoUnwindInfo]);
    (1..u64::MAX, prop::option::of(1..u32::MAX), frames, end).prop_map(|(id, tgid, frames, end)| {
        let space = tgid.map_or(AddressSpace::Kernel, |tgid| AddressSpace::Process(Tgid(tgid)));
        (StackId(id), Stack { space, frames, end })
    })
}

prop_compose! {
    fn function()(
        name in "[a-z<> ]{0,20}",
        file in prop::option::of("/[a-c]{1,2}\\.c"), line in prop::option::of(1..=u32::MAX),
    ) -> Function {
        Function { name, file: file.map(Arc::from), line }
    }
}

prop_compose! {
    fn frame()(
        (id, address) in any::<(u32, u64)>(),
        kind in select(vec![AddressKind::Instruction, AddressKind::Return]),
        module in prop::option::of(any::<u32>()), module_offset in prop::option::of(any::<u64>()),
        functions in prop::collection::vec(function(), 0..3),
    ) -> (FrameId, Frame) {
        (FrameId(id), Frame { address, kind, module: module.map(ModuleId), module_offset, functions })
    }
}

fn module() -> impl Strategy<Value = (ModuleId, Module)> {
    let build_id = prop::option::of(prop::collection::vec(any::<u8>(), 1..=64));
    let segment = any::<(u64, u64, u64)>().prop_map(|(offset, address, size)| Segment {
        offset,
        address,
        size,
    });
    let segments = prop::collection::vec(segment, 0..4);
    (any::<u32>(), ".{0,30}", build_id, segments).prop_map(|(id, path, build_id, segments)| {
        let build_id = build_id.and_then(|bytes| BuildId::new(&bytes));
        (ModuleId(id), Module { path, build_id, segments })
    })
}

fn open_file() -> impl Strategy<Value = OpenFile> {
    let peer =
        (any::<u32>(), ".{0,16}").prop_map(|(tgid, comm)| PeerProcess { tgid: Tgid(tgid), comm });
    let role = prop::option::of(select(vec![SocketRole::Serving, SocketRole::Asking]));
    prop_oneof![
        ".{0,30}".prop_map(OpenFile::Named),
        ("[a-z]{1,8}", ".{0,20}", ".{0,20}", role, prop::collection::vec(peer, 0..3)).prop_map(
            |(protocol, local, remote, role, peers)| {
                OpenFile::Socket(SocketEnd { protocol, local, remote, role, peers })
            }
        ),
    ]
}

prop_compose! {
    fn process()(
        (tgid, at) in any::<(u32, u64)>(), parent in prop::option::of(any::<u32>()),
        executable in prop::option::of(".{0,20}"), arguments in prop::collection::vec(".{0,9}", 0..4),
        cgroup in prop::option::of("/.{0,9}"), pid_in_container in prop::option::of(any::<u32>()),
        uid in prop::option::of(any::<u32>()),
    ) -> ProcessInfo {
        ProcessInfo {
            tgid: Tgid(tgid), at: Timestamp(at), parent: parent.map(Tgid), executable, arguments,
            cgroup, pid_in_container, uid,
        }
    }
}

fn interrupt() -> impl Strategy<Value = InterruptInfo> {
    let device = prop::option::of(select(vec![DeviceKind::Storage, DeviceKind::Other]));
    (any::<u16>(), device, ".{0,9}").prop_map(|(number, device, handlers)| InterruptInfo {
        number,
        device,
        handlers,
    })
}

fn cgroup() -> impl Strategy<Value = CgroupInfo> {
    let path = prop_oneof!["(/[a-z]{1,5}){1,3}", "/docker/[0-9a-f]{64}"];
    let text = || prop::option::of(".{0,9}");
    let pod = prop::option::of((".{0,9}", ".{0,9}"));
    let elsewhere = prop::option::of("[0-9a-f]{64}");
    (any::<u64>(), path, text(), text(), pod, elsewhere).prop_map(
        |(id, path, name, image, pod, elsewhere)| {
            let pod = pod.map(|(namespace, name)| PodName { namespace, name });
            let names = ContainerNames { name, image, pod };
            let cgroup = CgroupInfo::new(CgroupId(id), path);
            match cgroup.container.clone().or_else(|| ContainerId::new(&elsewhere?)) {
                Some(container) => cgroup.named(container, names),
                None => CgroupInfo { names, ..cgroup },
            }
        },
    )
}

prop_compose! {
    fn meta()(
        (start, length, own_cpu) in (any::<u32>(), any::<u32>(), any::<u64>()),
        sample_hz in any::<u32>(), profiler in prop::option::of(any::<u32>()),
        (target, kernel, host) in (".{1,9}", ".{0,9}", ".{0,9}"),
        (boot_id, version, options) in (".{0,9}", ".{0,9}", ".{0,9}"),
        scope in select(vec![Scope::Machine, Scope::Target]),
        stacks in select(vec![StackMode::Exact, StackMode::Off]),
        closed_by in select(vec![
            ClosedBy::Duration, ClosedBy::Signal, ClosedBy::Command, ClosedBy::Memory,
            ClosedBy::DiskFull, ClosedBy::Snapshot,
        ]),
    ) -> Meta {
        let start = Timestamp(start.into());
        Meta {
            window: Window { start, end: start + Nanos(length.into()) }, target, scope, stacks,
            sample_hz, options, kernel, host, boot_id, own_cpu: Nanos(own_cpu), version, closed_by,
            profiler: profiler.map(Tgid),
        }
    }
}

fn clocks() -> impl Strategy<Value = Clocks> {
    any::<(u64, i64, u64)>().prop_map(|(monotonic, realtime_ns, boottime_ns)| Clocks {
        monotonic: Timestamp(monotonic),
        realtime_ns,
        boottime_ns,
    })
}

prop_compose! {
    pub fn recording()(
        meta in meta(),
        waits in prop::collection::vec(wait(), 0..20),
        preemptions in prop::collection::vec(preemption(), 0..8),
        samples in prop::collection::vec(sample(), 0..8),
        sightings in prop::collection::vec(sighting(), 0..8),
        exits in prop::collection::vec(exit(), 0..4),
        stacks in prop::collection::btree_map(1..u64::MAX, stack(), 0..6),
        frames in prop::collection::btree_map(any::<u32>(), frame(), 0..6),
        modules in prop::collection::btree_map(any::<u32>(), module(), 0..4),
        files in prop::collection::btree_map(file_id(), open_file(), 0..4),
        processes in prop::collection::vec(process(), 0..4),
        cgroups in prop::collection::btree_map(any::<u64>(), cgroup(), 0..4),
        interrupts in prop::collection::vec(interrupt(), 0..4),
        clocks in prop::collection::vec(clocks(), 1..4),
        counters in prop::collection::btree_map("[a-z_]{1,12}", 1..u64::MAX, 0..4),
        (records, lost_stacks, undecodable, over_memory) in any::<(u64, u64, u64, u64)>(),
        ring_full in prop::option::of(any::<(u64, u64)>()),
    ) -> Recording {
        let mut recording = Recording {
            meta, waits: waits.into_iter().collect(), preemptions, samples, sightings, exits, processes, clocks,
            cgroups: cgroups.into_values().map(|cgroup| (cgroup.id, cgroup)).collect(),
            interrupts: interrupts.into_iter().map(|info| (info.number, info)).collect(),
            ..Recording::default()
        };
        recording.stacks.stacks = stacks.into_values().collect();
        recording.stacks.frames = frames.into_values().collect();
        recording.stacks.modules = modules.into_values().collect();
        recording.files.files = files;
        recording.loss.counters = counters;
        recording.loss.records = records;
        recording.loss.stacks = lost_stacks;
        recording.loss.undecodable = undecodable;
        recording.loss.over_memory = over_memory;
        recording.loss.ring_full = ring_full.map(|(a, b)| (Timestamp(a), Timestamp(b)));
        recording.clocks.sort_by_key(|clocks| clocks.monotonic);
        recording.sort();
        recording
    }
}

fn bytes_of(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream::write(recording, &mut bytes).unwrap();
    bytes
}

/// Whether nothing in `read` was not in `whole`.
fn is_part(read: &Recording, whole: &Recording) -> bool {
    fn within<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
        part.iter().all(|row| whole.contains(row))
    }
    let frames: BTreeMap<_, _> = (whole.stacks.frames.iter())
        .map(|(id, frame)| (*id, Frame { functions: Vec::new(), ..frame.clone() }))
        .collect();
    // They lie in the same order.
    let mut rest = whole.waits.iter();
    read.waits.iter().all(|wait| rest.any(|other| other == wait))
        && within(&read.preemptions, &whole.preemptions)
        && within(&read.samples, &whole.samples)
        && within(&read.sightings, &whole.sightings)
        && within(&read.exits, &whole.exits)
        && within(&read.processes, &whole.processes)
        && read.stacks.stacks.iter().all(|(id, s)| whole.stacks.stacks.get(id) == Some(s))
        && read.stacks.modules.iter().all(|(id, m)| whole.stacks.modules.get(id) == Some(m))
        && read
            .stacks
            .frames
            .iter()
            .all(|(id, frame)| [whole.stacks.frames.get(id), frames.get(id)].contains(&Some(frame)))
        && read.files.files.iter().all(|(id, file)| whole.files.files.get(id) == Some(file))
        && read.cgroups.iter().all(|(id, c)| whole.cgroups.get(id) == Some(c))
        && read.interrupts.iter().all(|(n, info)| whole.interrupts.get(n) == Some(info))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_comes_back(recording in recording()) {
        let read = stream::read(&bytes_of(&recording)[..], MEMORY).unwrap();
        prop_assert_eq!(&read.damage, &Damage::default());
        prop_assert_eq!(format!("{read:?}"), format!("{recording:?}"));
    }

    #[test]
    fn a_cut_recording_is_what_came_before_the_cut(recording in recording(), cut in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&recording);
        let cut = cut.index(bytes.len());
        match stream::read(&bytes[..cut], MEMORY) {
            Ok(read) => {
                prop_assert!(is_part(&read, &recording));
                prop_assert!(read.damage.cut_off);
            }
            Err(ReadError::Empty) => prop_assert_eq!(cut, 0),
            Err(ReadError::NotARecording | ReadError::NothingWhole(_)) => {}
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn a_flipped_bit_never_changes_what_is_read(
        recording in recording(), place in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let mut bytes = bytes_of(&recording);
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        match stream::read(&bytes[..], MEMORY) {
            Ok(read) => prop_assert!(is_part(&read, &recording)),
            Err(ReadError::NotARecording | ReadError::NothingWhole(_) | ReadError::Newer { .. }) => {}
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn rubbish_is_no_recording(bytes in prop::collection::vec(any::<u8>(), 1..4096)) {
        let read = stream::read(&bytes[..], MEMORY);
        prop_assert!(matches!(read, Err(ReadError::NotARecording)), "{:?}", read.map(|_| ()));
    }
}

/// Many waits, a slice for each second.
fn long() -> Recording {
    let mut recording = crate::draw::recording(1_000);
    for n in 0..50_000_u64 {
        let (off, on) = (Timestamp(n * 1000), Timestamp(n * 1000 + 500));
        recording.waits.push(&crate::draw::wait(7, n as u32 + 1, off, on));
    }
    recording.clocks = vec![Clocks::default()];
    recording.sort();
    recording
}

#[test]
fn a_broken_slice_costs_itself_alone() {
    let recording = long();
    let mut bytes = bytes_of(&recording);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let read = stream::read(&bytes[..], MEMORY).unwrap();
    assert!(!read.damage.cut_off);
    let damage = &read.damage;
    assert_eq!(damage.slices_damaged + damage.tables_damaged, 1, "{damage:?}");
    assert_eq!(read.waits.len(), 50_000 - 16_384);
    assert!(is_part(&read, &Recording { waits: recording.waits.clone(), ..recording }));
}

#[test]
fn a_slice_that_is_gone_is_missed() {
    let recording = long();
    let bytes = bytes_of(&recording);
    let starts: Vec<usize> = message_starts(&bytes);
    // The schema, four slices of waits.
    assert_eq!(starts.len(), 5);
    let without = [&bytes[..starts[2]], &bytes[starts[3]..]].concat();
    let read = stream::read(&without[..], MEMORY).unwrap();
    assert_eq!(read.damage.slices_missing, 1);
    assert_eq!(read.waits.len(), 50_000 - 16_384);
    let seqs: HashSet<u32> = read.waits.iter().map(|wait| wait.seq).collect();
    assert!(seqs.contains(&1) && seqs.contains(&50_000) && !seqs.contains(&20_000));
}

fn message_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while bytes[at..] != stream::END {
        starts.push(at);
        let metadata = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let next = (at + 8 + metadata..bytes.len())
            .step_by(8)
            .find(|&n| bytes[n..].starts_with(&[0xff; 4]) && bytes[n + 6..n + 8] == [0, 0])
            .unwrap();
        at = next;
    }
    starts
}

#[test]
fn a_broken_schema_is_made_up_for() {
    let recording = long();
    let bytes = bytes_of(&recording);
    let first_slice = message_starts(&bytes)[1];
    for broken in [&bytes[first_slice..], &[&[0; 64], &bytes[first_slice..]].concat()[..]] {
        let read = stream::read(broken, MEMORY).unwrap();
        assert!(read.damage.schema_missing);
        assert_eq!(read.waits, recording.waits);
    }
}

#[test]
fn a_column_with_a_broken_name_is_not_taken_for_one_that_came_later() {
    let mut bytes = bytes_of(&long());
    let name = b"waker_seq";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at] ^= 1;
    let read = stream::read(&bytes[..], MEMORY).unwrap();
    // Every slice has the table.
    assert_eq!((read.damage.tables_damaged, read.waits.len()), (4, 0));
}

#[test]
fn memory_is_limited() {
    let bytes = bytes_of(&long());
    let error = stream::read(&bytes[..], 1 << 20).unwrap_err();
    assert!(matches!(error, ReadError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("--max-memory"));
}

#[test]
fn a_newer_format_is_named() {
    let bytes = bytes_of(&long());
    let key = b"offwake.recording";
    let key_at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    // The value is a string of its own nearby: a length, then "1".
    let mut newer = bytes.clone();
    let range = key_at.saturating_sub(64)..key_at + 64;
    let value = range.clone().find(|&n| newer[n..n + 6] == [1, 0, 0, 0, b'1', 0]).unwrap();
    newer[value + 4] = b'2';
    let error = stream::read(&newer[..], MEMORY).unwrap_err();
    assert!(matches!(error, ReadError::Newer { version: 2 }), "{error}");
    assert!(error.to_string().contains("newer"));
}

/// A recording of these slices.
fn of_slices(slices: &[Slice]) -> Vec<u8> {
    let mut encoder = Encoder::new().unwrap();
    let mut bytes = encoder.header().to_vec();
    for slice in slices {
        bytes.extend(encoder.encode(slice).unwrap());
    }
    bytes.extend(stream::END);
    bytes
}

#[test]
fn a_window_that_ends_before_it_begins_is_not_believed() {
    let window = Window { start: Timestamp(9), end: Timestamp(8) };
    let meta = Some(Meta { window, target: "pid 7".to_owned(), ..Meta::default() });
    let read = stream::read(&of_slices(&[Slice { meta, ..Slice::default() }])[..], MEMORY).unwrap();
    assert_eq!((read.damage.rows_unreadable, read.damage.meta_missing), (1, true));
    assert!(read.meta.window.start <= read.meta.window.end);
}

#[test]
fn a_recording_without_slices_is_one_all_the_same() {
    let bytes = of_slices(&[]);
    for bytes in [&bytes[..], &bytes[..bytes.len() - 8]] {
        let error = stream::read(bytes, MEMORY).unwrap_err();
        assert!(matches!(error, ReadError::NothingWhole(_)), "{error}");
    }
}

#[test]
fn what_no_kernel_and_no_linker_writes_is_not_read() {
    let stack = |frames: usize| Stack {
        space: AddressSpace::Kernel,
        frames: vec![FrameId(1); frames],
        end: StackEnd::Unknown,
    };
    let name = |id, functions| (FrameId(id), functions);
    let slice = Slice {
        stacks: vec![(StackId(1), stack(640)), (StackId(2), stack(1_000_000))],
        names: vec![
            name(1, vec![Function::named("a".repeat(4096))]),
            name(2, vec![Function::named("a".repeat(1_000_000))]),
            name(3, vec![Function::named("a"); 10_000]),
        ],
        ..Slice::default()
    };
    let read = stream::read(&of_slices(&[slice])[..], MEMORY).unwrap();
    assert_eq!(read.damage.rows_unreadable, 3);
    assert_eq!(read.stacks.stacks.len(), 1);
}

/// A few KiB that unpack to much more than that: texts of nothing, each a text in memory.
#[test]
fn memory_is_limited_before_it_is_taken() {
    let process = ProcessInfo {
        tgid: Tgid(1),
        at: Timestamp(0),
        parent: None,
        executable: None,
        arguments: vec![String::new(); 4_000_000],
        cgroup: None,
        pid_in_container: None,
        uid: None,
    };
    let slice = Slice { processes: vec![process], ..Slice::default() };
    let bytes = of_slices(std::slice::from_ref(&slice));
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    let needed = |limit| match stream::read(&bytes[..], limit) {
        Err(ReadError::TooLarge { needed, .. }) => needed,
        other => panic!("{:?}", other.map(|_| ())),
    };
    // The columns alone are too large, then the rows that would be made of them.
    assert!((16_000_000..32_000_000).contains(&needed(1 << 20)));
    assert!(needed(64 << 20) > 96_000_000);
    // Slices that are there twice are thrown away, but not for nothing.
    let many = of_slices(&vec![slice; 4]);
    assert!(matches!(stream::read(&many[..], 256 << 20), Err(ReadError::TooLarge { .. })));
    stream::read(&bytes[..], 256 << 20).unwrap();
}

/// A file that claims at every eighth byte that a message begins there, and counts what is read.
struct Claims {
    read: Cell<u64>,
    size: u64,
}

impl Source for Claims {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read.set(self.read.get() + into.len() as u64);
        let claim = [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0];
        for (n, byte) in into.iter_mut().enumerate() {
            *byte = claim[(offset as usize + n) % claim.len()];
        }
        Ok(())
    }
}

#[test]
fn a_search_comes_to_an_end() {
    let source = Claims { read: Cell::new(0), size: 32 << 20 };
    let error = stream::read(&source, MEMORY).unwrap_err();
    assert!(matches!(error, ReadError::NotARecording), "{error}");
    assert!(source.read.get() < 1 << 30, "{} bytes read", source.read.get());
}

/// A null column has a length, and no bytes: two thousand million of them fit into a line.
#[test]
fn columns_of_other_kinds_are_not_read() {
    use std::{collections::HashMap, sync::Arc};

    use arrow_array::{NullArray, RecordBatch};
    use arrow_ipc::writer::StreamWriter;
    use arrow_schema::{DataType, Field, Schema};

    let about = HashMap::from([("offwake.recording".to_owned(), "1".to_owned())]);
    let schema =
        Arc::new(Schema::new_with_metadata(vec![Field::new("slice", DataType::Null, true)], about));
    let rows = Arc::new(NullArray::new(2_000_000_000));
    let batch = RecordBatch::try_new(schema.clone(), vec![rows]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    writer.write(&batch).unwrap();
    let error = stream::read(&writer.into_inner().unwrap()[..], MEMORY).unwrap_err();
    assert!(matches!(error, ReadError::NothingWhole(_)), "{error}");
}

#[test]
fn slices_with_any_numbers_are_counted() {
    let slice = |number| Slice { number, ..Slice::default() };
    for (numbers, missing) in
        [([0, u64::MAX], u64::MAX - 2), ([7, 9], 1), ([u64::MAX - 1, u64::MAX], 0)]
    {
        let read = stream::read(&of_slices(&numbers.map(slice))[..], MEMORY).unwrap();
        assert_eq!(read.damage.slices_missing, missing);
    }
}

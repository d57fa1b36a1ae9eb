//! Recordings of any content, for what has to hold of each.

use std::sync::Arc;

use offwake_recording::{
    AddressKind, AddressSpace, AwaitedChild, AwaitedFileLock, Begin, BuildId, CgroupInfo, Clocks,
    ClosedBy, ContainerId, ContainerNames, CpuQuota, DetailStep, DetailStretch, DeviceKind,
    DeviceRequests, DiskUse, End, FileId, FileKind, FileLockEvent, FileLockEventKind, Filesystem,
    Frame, FrameId, Function, FuseServer, InterruptInfo, IoAmounts, IoLimit, LockKind, LockOwner,
    Marker, MarkerKind, Meta, Module, ModuleId, OpenFile, PeerProcess, Phase, PipeEnds, PipeHolder,
    PodName, PollEvents, Preemption, ProcessInfo, QuotaCount, ReadyFile, Recording, Sample, Scope,
    Segment, SocketEnd, SocketRole, SpanId, Stack, StackEnd, StackMode, StackRef, StopOrigin,
    StoppedThread, SummedWaits, Syscall, SyscallTable, SystemVector, TagChange, TagName, TagSet,
    TagSetId, TaskState, ThreadEvent, ThreadEventReason, ThreadExit, ThreadKind, ThreadRef,
    Throttle, TraceId, Unanswered, UnansweredKind, UsedUpTimes, Wait, Wake, WakeContext, Window,
    units::{CgroupId, Cpu, Nanos, StackId, Tgid, Tid, Timestamp},
};
use proptest::{prelude::*, sample::select};
use strum::VariantArray as _;

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
        Just(WakeContext::TimerSignal),
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
        file in prop::option::of(file_id()), ready in prop::option::of((any::<u32>(), file_id())),
        user_stack in stack_ref(), kernel_stack in stack_ref(),
    ) -> Wake {
        Wake {
            at: Timestamp(at), context, cpu: Cpu(cpu),
            current: ThreadRef { tid: Tid(tid), tgid: Tgid(tgid) },
            current_kind, current_seq, syscall, file,
            ready: ready.map(|(descriptor, file)| ReadyFile { descriptor, file }),
            user_stack, kernel_stack,
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
        polled_fd in any::<Option<u32>>(), polled_events in any::<Option<u16>>(),
        user_stack in stack_ref(), kernel_stack in stack_ref(), wake in prop::option::of(wake()),
    ) -> Wait {
        Wait {
            tid: Tid(tid), tgid: Tgid(tgid), kind, in_target, seq, begin, end,
            off: Timestamp(off), on: Timestamp(on), migrated: migrated.map(Timestamp),
            off_cpu: Cpu(off_cpu), on_cpu: Cpu(on_cpu),
            state: TaskState(state), syscall, timeout: timeout.map(Nanos), file,
            polled_fd, polled_events: polled_events.map(PollEvents),
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
    fn thread_event()(
        (tid, tgid, parent, seq) in any::<(u32, u32, u32, u32)>(),
        (at, created, cgroup, in_target) in any::<(u64, u64, u64, bool)>(),
        old_tid in any::<Option<u32>>(),
        kind in kind(), comm in ".{0,16}",
        reason in select(vec![
            ThreadEventReason::Opening, ThreadEventReason::Seen, ThreadEventReason::Fork,
            ThreadEventReason::Exec, ThreadEventReason::Rename, ThreadEventReason::Closing,
            ThreadEventReason::Mistaken,
        ]),
        phase in select(vec![Phase::Unknown, Phase::OnCpu, Phase::Runnable, Phase::Blocked]),
    ) -> ThreadEvent {
        ThreadEvent {
            at: Timestamp(at), reason, tid: Tid(tid), old_tid: old_tid.map(Tid), tgid: Tgid(tgid),
            parent: Tgid(parent), kind, in_target, phase, seq, created: Timestamp(created), cgroup: CgroupId(cgroup), comm,
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

fn lock_owner() -> impl Strategy<Value = LockOwner> {
    let kind = select(vec![
        LockKind::Mutex,
        LockKind::RobustMutex,
        LockKind::PiLock,
        LockKind::Rwlock,
        LockKind::ThreadEnd,
        LockKind::PythonLock,
        LockKind::JavaMonitor,
    ]);
    (any::<(u32, u64, u32, u32)>(), kind, ".{0,16}").prop_map(
        |((waiter, futex, tid, tgid), kind, owner_comm)| LockOwner {
            waiter: Tid(waiter),
            futex,
            kind,
            owner: ThreadRef { tid: Tid(tid), tgid: Tgid(tgid) },
            owner_comm,
        },
    )
}

fn file_lock() -> impl Strategy<Value = AwaitedFileLock> {
    let holder =
        (any::<u32>(), ".{0,16}").prop_map(|(tgid, comm)| PeerProcess { tgid: Tgid(tgid), comm });
    let waiter = prop::option::of(any::<u32>());
    (any::<u32>(), any::<u64>(), waiter, prop::option::of(holder)).prop_map(
        |(device, inode, waiter, holder)| AwaitedFileLock {
            device,
            inode,
            waiter: waiter.map(Tgid),
            holder,
        },
    )
}

fn pipe_holder() -> impl Strategy<Value = PipeHolder> {
    let ends =
        select(vec![PipeEnds::Reading, PipeEnds::Writing, PipeEnds::Both, PipeEnds::NotSeen]);
    (any::<(u32, u64, u32)>(), ".{0,16}", ends).prop_map(|((device, inode, tgid), comm, ends)| {
        PipeHolder { device, inode, holder: PeerProcess { tgid: Tgid(tgid), comm }, ends }
    })
}

fn marker() -> impl Strategy<Value = Marker> {
    let kind = select(vec![MarkerKind::Begin, MarkerKind::End, MarkerKind::Instant]);
    (any::<(u32, u32)>(), 0..1_u64 << 62, kind, ".{0,9}", ".{0,16}").prop_map(
        |((tid, tgid), at, kind, track, name)| Marker {
            at: Timestamp(at),
            tid: Tid(tid),
            tgid: Tgid(tgid),
            kind,
            track: track.into(),
            name: name.into(),
        },
    )
}

fn file_lock_event() -> impl Strategy<Value = FileLockEvent> {
    let kind = select(FileLockEventKind::VARIANTS.to_vec());
    let holder = prop::option::of(any::<u32>());
    (any::<(u32, u32, u32, u64)>(), 0..1_u64 << 62, kind, holder).prop_map(
        |((tid, tgid, device, inode), at, kind, holder)| FileLockEvent {
            at: Timestamp(at),
            tid: Tid(tid),
            tgid: Tgid(tgid),
            kind,
            holder: holder.map(Tgid),
            device,
            inode,
        },
    )
}

fn disk_use() -> impl Strategy<Value = DiskUse> {
    (any::<(u32, u32, u64, u64, u64)>(), ".{0,16}", "[a-z]{0,5}", "[a-z,]{0,9}").prop_map(
        |(
            (tgid, device, read_bytes, submitted_bytes, dirtied_bytes),
            comm,
            block_device,
            disks,
        )| DiskUse {
            tgid: Tgid(tgid),
            comm,
            device,
            block_device,
            disks,
            read_bytes,
            submitted_bytes,
            dirtied_bytes,
        },
    )
}

fn io_limit() -> impl Strategy<Value = IoLimit> {
    let amounts = || {
        any::<(u64, u64, u64, u64)>().prop_map(|(read_bytes, written_bytes, reads, writes)| {
            IoAmounts { read_bytes, written_bytes, reads, writes }
        })
    };
    let times = || any::<(u64, u64, u64, u64)>();
    let used_up_for =
        prop::option::of(times().prop_map(|(read_bytes, written_bytes, reads, writes)| {
            let [read_bytes, written_bytes, reads, writes] =
                [read_bytes, written_bytes, reads, writes].map(|time| Nanos(time >> 1));
            UsedUpTimes { read_bytes, written_bytes, reads, writes }
        }));
    let device_requests =
        prop::option::of(times().prop_map(|(reads, read_time, writes, write_time)| {
            let [read_time, write_time] = [read_time, write_time].map(|time| Nanos(time >> 1));
            DeviceRequests { reads, read_time, writes, write_time }
        }));
    (
        any::<(u32, u32, u64)>(),
        "/.{0,16}",
        "[a-z]{0,5}",
        (amounts(), amounts()),
        (used_up_for, device_requests),
    )
        .prop_map(
            |(
                (tgid, device, counted),
                path,
                block_device,
                (per_second, used),
                (used_up_for, device_requests),
            )| IoLimit {
                tgid: Tgid(tgid),
                path,
                device,
                block_device,
                per_second,
                used,
                counted_for: Nanos(counted >> 1),
                used_up_for,
                device_requests,
            },
        )
}

fn tag_set() -> impl Strategy<Value = TagSet> {
    let trace = prop::option::of(any::<[u8; 16]>());
    let span = prop::option::of(any::<[u8; 8]>());
    let attributes = prop::collection::vec((any::<u8>(), ".{0,9}"), 0..3);
    let labels = prop::collection::vec((".{0,9}", ".{0,9}"), 0..3);
    (any::<(u64, u32)>(), trace, span, attributes, labels).prop_map(
        |((id, tgid), trace, span, attributes, labels)| TagSet {
            id: TagSetId(id),
            tgid: Tgid(tgid),
            trace: trace.map(TraceId),
            span: span.map(SpanId),
            attributes,
            labels,
        },
    )
}

fn tag_change() -> impl Strategy<Value = TagChange> {
    let options = (prop::option::of(any::<u64>()), prop::option::of(any::<u64>()));
    (any::<(u32, u32, u64)>(), options).prop_map(|((tid, tgid, at), (since, set))| TagChange {
        tid: Tid(tid),
        tgid: Tgid(tgid),
        at: Timestamp(at),
        since: since.map(Timestamp),
        set: set.map(TagSetId),
    })
}

fn tag_name() -> impl Strategy<Value = TagName> {
    (any::<(u32, u8)>(), ".{0,9}").prop_map(|((tgid, key), name)| TagName {
        tgid: Tgid(tgid),
        key,
        name,
    })
}

fn awaited_child() -> impl Strategy<Value = AwaitedChild> {
    any::<(u32, u32)>()
        .prop_map(|(waiter, child)| AwaitedChild { waiter: Tid(waiter), child: Tgid(child) })
}

fn stopped_thread() -> impl Strategy<Value = StoppedThread> {
    let tracer = (any::<u32>(), ".{0,16}")
        .prop_map(|(tgid, comm)| StopOrigin::Tracer(PeerProcess { tgid: Tgid(tgid), comm }));
    let origin = prop_oneof![
        tracer,
        "/.{0,9}".prop_map(StopOrigin::FrozenCgroup),
        "/.{0,9}".prop_map(StopOrigin::FrozenAsleep),
    ];
    (any::<u32>(), origin).prop_map(|(tid, origin)| StoppedThread { tid: Tid(tid), origin })
}

fn unanswered() -> impl Strategy<Value = Unanswered> {
    let kind = select(vec![UnansweredKind::File, UnansweredKind::Memory, UnansweredKind::Other]);
    (kind, ".{0,9}", prop::option::of(any::<u32>()), any::<u64>()).prop_map(
        |(kind, place, tgid, count)| Unanswered { kind, place, tgid: tgid.map(Tgid), count },
    )
}

fn fuse_server() -> impl Strategy<Value = FuseServer> {
    let number = || prop::option::of(any::<u32>());
    (number(), number(), any::<u32>(), ".{0,16}").prop_map(|(device, unanswered, tgid, comm)| {
        FuseServer { device, unanswered, server: PeerProcess { tgid: Tgid(tgid), comm } }
    })
}

fn filesystem() -> impl Strategy<Value = Filesystem> {
    let names = ("[a-z]{0,4}", "[a-z,]{0,9}", ".{0,9}");
    (any::<u32>(), "[a-z]{1,6}", ".{0,9}", names).prop_map(
        |(device, kind, mount_point, (block_device, disks, server))| Filesystem {
            device,
            kind,
            mount_point,
            block_device,
            disks,
            server,
        },
    )
}

fn interrupt() -> impl Strategy<Value = InterruptInfo> {
    let device = prop::option::of(select(vec![DeviceKind::Storage, DeviceKind::Other]));
    (any::<u16>(), device, ".{0,9}").prop_map(|(number, device, handlers)| InterruptInfo {
        number,
        device,
        handlers,
    })
}

fn throttle() -> impl Strategy<Value = Throttle> {
    any::<(u32, u32, u64, u64, u64)>().prop_map(|(tid, tgid, from, until, cgroup)| Throttle {
        tid: Tid(tid),
        tgid: Tgid(tgid),
        from: Timestamp(from),
        until: Timestamp(until),
        cgroup: CgroupId(cgroup),
    })
}

fn detail() -> impl Strategy<Value = DetailStretch> {
    let times = (any::<(u64, u64)>(), any::<(u64, u64, u64)>());
    let options = (prop::option::of(any::<u64>()), prop::option::of(any::<u64>()));
    let step = select(DetailStep::VARIANTS);
    (times, step, options).prop_map(
        |(((from, until), (kernel, own, cpu)), step, (least, limit))| DetailStretch {
            from: Timestamp(from),
            until: Timestamp(until),
            step,
            threshold: least.map(Nanos),
            kernel_cost: Nanos(kernel),
            own_cost: Nanos(own),
            cpu_time: Nanos(cpu),
            limit: limit.map(Nanos),
        },
    )
}

fn summed() -> impl Strategy<Value = SummedWaits> {
    let times = any::<(u64, u64, u64, u64, u64)>();
    let numbers = any::<(u32, u32, u32, u32, u32)>();
    (numbers, times, any::<(u16, u16, bool)>(), kind()).prop_map(
        |(numbers, times, (off_cpu, on_cpu, in_target), kind)| SummedWaits {
            tid: Tid(numbers.0),
            tgid: Tgid(numbers.1),
            kind,
            in_target,
            seq: numbers.2,
            waits: numbers.3,
            preemptions: numbers.4,
            from: Timestamp(times.0),
            until: Timestamp(times.1),
            off_cpu: Cpu(off_cpu),
            on_cpu: Cpu(on_cpu),
            blocked: Nanos(times.2),
            runnable: Nanos(times.3),
            longest: Nanos(times.4),
        },
    )
}

fn quota() -> impl Strategy<Value = CpuQuota> {
    let count = || {
        any::<(u64, u64, u64, u64)>().prop_map(|(at, periods, throttled_periods, throttled)| {
            QuotaCount {
                at: Timestamp(at),
                periods,
                throttled_periods,
                throttled: Nanos(throttled),
            }
        })
    };
    (any::<(u64, u64, u64)>(), ".{0,9}", count(), count()).prop_map(
        |((cgroup, quota, period), path, first, last)| CpuQuota {
            cgroup: CgroupId(cgroup),
            path,
            quota: Nanos(quota),
            period: Nanos(period),
            first,
            last,
        },
    )
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
            ClosedBy::DiskFull, ClosedBy::Snapshot, ClosedBy::Failed,
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
        thread_events in prop::collection::vec(thread_event(), 0..8),
        exits in prop::collection::vec(exit(), 0..4),
        stacks in prop::collection::btree_map(1..u64::MAX, stack(), 0..6),
        frames in prop::collection::btree_map(any::<u32>(), frame(), 0..6),
        modules in prop::collection::btree_map(any::<u32>(), module(), 0..4),
        files in prop::collection::btree_map(file_id(), open_file(), 0..4),
        processes in prop::collection::vec(process(), 0..4),
        cgroups in prop::collection::btree_map(any::<u64>(), cgroup(), 0..4),
        interrupts in prop::collection::vec(interrupt(), 0..4),
        (
            file_locks, fuse_servers, lock_owners, filesystems,
            pipe_holders, stopped_threads, awaited_children,
        ) in (
            prop::collection::vec(file_lock(), 0..3),
            prop::collection::vec(fuse_server(), 0..3),
            prop::collection::vec(lock_owner(), 0..3),
            prop::collection::vec(filesystem(), 0..3),
            prop::collection::vec(pipe_holder(), 0..3),
            prop::collection::vec(stopped_thread(), 0..3),
            prop::collection::vec(awaited_child(), 0..3),
        ),
        throttles in prop::collection::vec(throttle(), 0..4),
        file_lock_events in prop::collection::vec(file_lock_event(), 0..3),
        quotas in prop::collection::vec(quota(), 0..3),
        (detail, summed, disk_uses, io_limits, markers, tag_sets, tag_changes, tag_names) in (
            prop::collection::vec(detail(), 0..3),
            prop::collection::vec(summed(), 0..3),
            prop::collection::vec(disk_use(), 0..3),
            prop::collection::vec(io_limit(), 0..3),
            prop::collection::vec(marker(), 0..4),
            prop::collection::vec(tag_set(), 0..3),
            prop::collection::vec(tag_change(), 0..3),
            prop::collection::vec(tag_name(), 0..3),
        ),
        clocks in prop::collection::vec(clocks(), 1..4),
        counters in prop::collection::btree_map("[a-z_]{1,12}", 1..u64::MAX, 0..4),
        (records, lost_stacks, undecodable, over_memory) in any::<(u64, u64, u64, u64)>(),
        ring_full in prop::option::of(any::<(u64, u64)>()),
        unanswered in prop::collection::vec(unanswered(), 0..3),
    ) -> Recording {
        let mut recording = Recording {
            meta, waits: waits.into_iter().collect(), preemptions, throttles, samples, thread_events, exits, processes, clocks,
            cgroups: cgroups.into_values().map(|cgroup| (cgroup.id, cgroup)).collect(),
            quotas: quotas.into_iter().map(|quota| (quota.cgroup, quota)).collect(),
            interrupts: interrupts.into_iter().map(|info| (info.number, info)).collect(),
            file_locks,
            file_lock_events,
            fuse_servers,
            lock_owners,
            pipe_holders,
            stopped_threads,
            awaited_children,
            detail,
            summed,
            disk_uses,
            io_limits,
            markers,
            tag_sets: tag_sets.into_iter().map(|set| (set.id, set)).collect(),
            tag_changes,
            tag_names,
            filesystems: filesystems.into_iter().map(|known| (known.device, known)).collect(),
            ..Recording::default()
        };
        recording.stacks.stacks = stacks.into_values().collect();
        recording.stacks.frames = frames.into_values().collect();
        recording.stacks.modules = modules.into_values().collect();
        recording.files.files = files;
        recording.loss.counters = counters;
        recording.loss.unanswered = unanswered;
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

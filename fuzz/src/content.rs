//! Slices of any content: whatever can be written can be in a file.
//!
//! Ids come from small ranges, so that records meet each other; times lie close together, and now
//! and then at an end of what a number can hold.

use std::sync::Arc;

use arbitrary::{Arbitrary, Result, Unstructured};
use offwake_recording::{
    AddressKind, AddressSpace, AwaitedChild, AwaitedFileLock, Begin, BuildId, CgroupInfo, Clocks,
    ClosedBy, CpuQuota, DetailStep, DetailStretch, DeviceKind, DeviceRequests, DiskUse, End,
    FileId, FileKind, FileLockEvent, FileLockEventKind, Filesystem, Frame, FrameId, Function,
    FuseServer, InterruptInfo, IoAmounts, IoLimit, LockKind, LockOwner, Marker, MarkerKind, Meta,
    Module, ModuleId, OpenFile, PeerProcess, Phase, PipeEnds, PipeHolder, PollEvents, Preemption,
    ProcessInfo, QuotaCount, ReadyFile, Sample, Scope, Segment, SocketEnd, SocketRole, SpanId,
    Stack, StackEnd, StackMode, StackRef, StopOrigin, StoppedThread, SummedWaits, Syscall,
    SyscallTable, SystemVector, TagChange, TagName, TagSet, TagSetId, TaskState, ThreadEvent,
    ThreadEventReason, ThreadExit, ThreadKind, ThreadRef, Throttle, TraceId, Unanswered,
    UnansweredKind, UsedUpTimes, Wait, Wake, WakeContext, Window,
    stream::Slice,
    units::{CgroupId, Cpu, Nanos, StackId, Tgid, Tid, Timestamp},
};

type Bytes<'a, 'b> = &'a mut Unstructured<'b>;

/// Slices in any order, with any numbers: one at least.
///
/// # Errors
///
/// If the bytes are too few.
pub fn slices(u: Bytes) -> Result<Vec<Slice>> {
    let mut slices = vec![slice(u)?];
    slices.extend(many(u, 3, slice)?);
    Ok(slices)
}

fn slice(u: Bytes) -> Result<Slice> {
    let mut slice = Slice {
        number: any_or(u, |u| u.int_in_range(0..=4))?,
        until: time(u)?,
        clocks: Clocks { monotonic: time(u)?, realtime_ns: any(u)?, boottime_ns: any(u)? },
        own_cpu: Nanos(any(u)?),
        meta: maybe(u, meta)?,
        waits: many(u, 24, wait)?,
        preemptions: many(u, 12, preemption)?,
        samples: many(u, 4, sample)?,
        thread_events: many(u, 12, thread_event)?,
        exits: many(u, 4, exit)?,
        stacks: many(u, 6, stack)?,
        frames: many(u, 8, frame)?,
        modules: many(u, 3, module)?,
        names: many(u, 8, |u| Ok((FrameId(small(u)?), many(u, 4, function)?)))?,
        processes: many(u, 3, process)?,
        cgroups: many(u, 2, |u| Ok(CgroupInfo::new(CgroupId(small(u)?.into()), text(u)?)))?,
        files: many(u, 4, |u| Ok((file_id(u)?, open_file(u)?)))?,
        interrupts: many(u, 2, interrupt)?,
        file_locks: many(u, 2, file_lock)?,
        throttles: many(u, 8, throttle)?,
        quotas: many(u, 2, quota)?,
        fuse_servers: many(u, 2, fuse_server)?,
        lock_owners: many(u, 2, lock_owner)?,
        filesystems: many(u, 2, filesystem)?,
        pipe_holders: many(u, 2, pipe_holder)?,
        stopped_threads: many(u, 2, stopped_thread)?,
        awaited_children: many(u, 2, |u| {
            Ok(AwaitedChild { waiter: Tid(small(u)?), child: Tgid(small(u)?) })
        })?,
        detail: many(u, 3, detail)?,
        summed: many(u, 8, summed)?,
        disk_uses: many(u, 3, disk_use)?,
        io_limits: many(u, 3, io_limit)?,
        markers: many(u, 8, marker)?,
        file_lock_events: many(u, 6, file_lock_event)?,
        tag_sets: many(u, 3, tag_set)?,
        tag_changes: many(u, 8, tag_change)?,
        tag_names: many(u, 2, |u| {
            Ok(TagName { tgid: Tgid(small(u)?), key: any(u)?, name: text(u)? })
        })?,
        ..Slice::default()
    };
    for _ in 0..u.int_in_range(0..=2)? {
        slice.loss.counters.insert(text(u)?, any(u)?);
    }
    slice.loss.records = any(u)?;
    slice.loss.stacks = any(u)?;
    slice.loss.undecodable = any(u)?;
    slice.loss.over_memory = any(u)?;
    slice.loss.unanswered = many(u, 2, unanswered)?;
    slice.loss.ring_full = maybe(u, |u| Ok((time(u)?, time(u)?)))?;
    Ok(slice)
}

fn marker(u: Bytes) -> Result<Marker> {
    Ok(Marker {
        at: time(u)?,
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        kind: choose(u, &[MarkerKind::Begin, MarkerKind::End, MarkerKind::Instant])?,
        track: choose(u, &["A", "B"])?.into(),
        name: text(u)?.into(),
    })
}

fn filesystem(u: Bytes) -> Result<Filesystem> {
    Ok(Filesystem {
        device: small(u)?,
        kind: text(u)?,
        mount_point: text(u)?,
        block_device: text(u)?,
        disks: text(u)?,
        server: text(u)?,
    })
}

fn interrupt(u: Bytes) -> Result<InterruptInfo> {
    let device = maybe(u, |u| choose(u, &[DeviceKind::Storage, DeviceKind::Other]))?;
    Ok(InterruptInfo { number: interrupt_number(u)?, device, handlers: text(u)? })
}

fn lock_owner(u: Bytes) -> Result<LockOwner> {
    Ok(LockOwner {
        waiter: Tid(small(u)?),
        futex: any_or(u, |u| Ok(small(u)?.into()))?,
        kind: choose(u, &[LockKind::Mutex, LockKind::Rwlock, LockKind::ThreadEnd])?,
        owner: ThreadRef { tid: Tid(small(u)?), tgid: Tgid(small(u)?) },
        owner_comm: text(u)?,
    })
}

fn file_lock(u: Bytes) -> Result<AwaitedFileLock> {
    let holder = |u: Bytes| Ok(PeerProcess { tgid: Tgid(small(u)?), comm: text(u)? });
    Ok(AwaitedFileLock {
        device: u32::from(any::<bool>(u)?),
        inode: any_or(u, |u| Ok(small(u)?.into()))?,
        waiter: maybe(u, |u| Ok(Tgid(small(u)?)))?,
        holder: maybe(u, holder)?,
    })
}

fn file_lock_event(u: Bytes) -> Result<FileLockEvent> {
    Ok(FileLockEvent {
        at: time(u)?,
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        kind: choose(
            u,
            &[FileLockEventKind::Refused, FileLockEventKind::Released, FileLockEventKind::Acquired],
        )?,
        holder: maybe(u, |u| Ok(Tgid(small(u)?)))?,
        device: u32::from(any::<bool>(u)?),
        inode: u64::from(any::<bool>(u)?),
    })
}

fn pipe_holder(u: Bytes) -> Result<PipeHolder> {
    Ok(PipeHolder {
        device: u32::from(any::<bool>(u)?),
        inode: any_or(u, |u| Ok(small(u)?.into()))?,
        holder: PeerProcess { tgid: Tgid(small(u)?), comm: text(u)? },
        ends: choose(
            u,
            &[PipeEnds::Reading, PipeEnds::Writing, PipeEnds::Both, PipeEnds::NotSeen],
        )?,
    })
}

fn stopped_thread(u: Bytes) -> Result<StoppedThread> {
    let tracer = |u: Bytes| Ok(PeerProcess { tgid: Tgid(small(u)?), comm: text(u)? });
    let origin = match any::<u8>(u)? % 3 {
        0 => StopOrigin::Tracer(tracer(u)?),
        1 => StopOrigin::FrozenAsleep(text(u)?),
        _ => StopOrigin::FrozenCgroup(text(u)?),
    };
    Ok(StoppedThread { tid: Tid(small(u)?), origin })
}

fn disk_use(u: Bytes) -> Result<DiskUse> {
    Ok(DiskUse {
        tgid: Tgid(small(u)?),
        comm: text(u)?,
        device: small(u)?,
        block_device: text(u)?,
        disks: text(u)?,
        read_bytes: any(u)?,
        submitted_bytes: any(u)?,
        dirtied_bytes: any(u)?,
    })
}

fn io_limit(u: Bytes) -> Result<IoLimit> {
    let amounts = |u: Bytes| -> Result<IoAmounts> {
        Ok(IoAmounts {
            read_bytes: any(u)?,
            written_bytes: any(u)?,
            reads: any(u)?,
            writes: any(u)?,
        })
    };
    Ok(IoLimit {
        tgid: Tgid(small(u)?),
        path: text(u)?,
        device: small(u)?,
        block_device: text(u)?,
        per_second: amounts(u)?,
        used: amounts(u)?,
        counted_for: Nanos(any(u)?),
        used_up_for: maybe(u, |u| {
            Ok(UsedUpTimes {
                read_bytes: Nanos(any(u)?),
                written_bytes: Nanos(any(u)?),
                reads: Nanos(any(u)?),
                writes: Nanos(any(u)?),
            })
        })?,
        device_requests: maybe(u, |u| {
            Ok(DeviceRequests {
                reads: any(u)?,
                read_time: Nanos(any(u)?),
                writes: any(u)?,
                write_time: Nanos(any(u)?),
            })
        })?,
    })
}

fn tag_set(u: Bytes) -> Result<TagSet> {
    Ok(TagSet {
        id: TagSetId(small(u)?.into()),
        tgid: Tgid(small(u)?),
        trace: maybe(u, |u| Ok(TraceId(any(u)?)))?,
        span: maybe(u, |u| Ok(SpanId(any(u)?)))?,
        attributes: many(u, 2, |u| Ok((any(u)?, text(u)?)))?,
        labels: many(u, 2, |u| Ok((text(u)?, text(u)?)))?,
    })
}

fn tag_change(u: Bytes) -> Result<TagChange> {
    Ok(TagChange {
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        at: time(u)?,
        since: maybe(u, time)?,
        set: maybe(u, |u| Ok(TagSetId(small(u)?.into())))?,
    })
}

fn unanswered(u: Bytes) -> Result<Unanswered> {
    Ok(Unanswered {
        kind: choose(u, &[UnansweredKind::File, UnansweredKind::Memory, UnansweredKind::Other])?,
        place: text(u)?,
        tgid: maybe(u, |u| Ok(Tgid(small(u)?)))?,
        count: any(u)?,
    })
}

fn fuse_server(u: Bytes) -> Result<FuseServer> {
    Ok(FuseServer {
        device: maybe(u, small)?,
        unanswered: maybe(u, small)?,
        server: PeerProcess { tgid: Tgid(small(u)?), comm: text(u)? },
    })
}

fn throttle(u: Bytes) -> Result<Throttle> {
    Ok(Throttle {
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        from: time(u)?,
        until: time(u)?,
        cgroup: CgroupId(small(u)?.into()),
    })
}

fn detail(u: Bytes) -> Result<DetailStretch> {
    Ok(DetailStretch {
        from: time(u)?,
        until: time(u)?,
        step: choose(u, &[DetailStep::Full, DetailStep::FewerWakerStacks, DetailStep::NoStacks])?,
        threshold: maybe(u, small)?.map(|threshold| Nanos(threshold.into())),
        kernel_cost: Nanos(small(u)?.into()),
        own_cost: Nanos(small(u)?.into()),
        cpu_time: Nanos(small(u)?.into()),
        limit: maybe(u, small)?.map(|limit| Nanos(limit.into())),
    })
}

fn summed(u: Bytes) -> Result<SummedWaits> {
    let from = time(u)?;
    Ok(SummedWaits {
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        kind: kind(u)?,
        in_target: often(u)?,
        seq: any_or(u, small)?,
        waits: any_or(u, small)?,
        preemptions: any_or(u, small)?,
        from,
        until: after(u, from)?,
        off_cpu: Cpu(any(u)?),
        on_cpu: Cpu(any(u)?),
        blocked: Nanos(any(u)?),
        runnable: Nanos(any(u)?),
        longest: Nanos(any(u)?),
    })
}

fn quota(u: Bytes) -> Result<CpuQuota> {
    let count = |u: Bytes| -> Result<QuotaCount> {
        Ok(QuotaCount {
            at: time(u)?,
            periods: any(u)?,
            throttled_periods: any(u)?,
            throttled: Nanos(any(u)?),
        })
    };
    Ok(CpuQuota {
        cgroup: CgroupId(small(u)?.into()),
        path: text(u)?,
        quota: Nanos(any(u)?),
        period: Nanos(any(u)?),
        first: count(u)?,
        last: count(u)?,
    })
}

fn interrupt_number(u: Bytes) -> Result<u16> {
    any_or(u, |u| u.int_in_range(0..=3))
}

fn meta(u: Bytes) -> Result<Meta> {
    Ok(Meta {
        window: Window { start: time(u)?, end: time(u)? },
        target: text(u)?,
        scope: choose(u, &[Scope::Machine, Scope::Target])?,
        stacks: choose(u, &[StackMode::Exact, StackMode::Cached, StackMode::Off])?,
        sample_hz: any(u)?,
        options: text(u)?,
        kernel: text(u)?,
        host: text(u)?,
        boot_id: text(u)?,
        own_cpu: Nanos(any(u)?),
        version: text(u)?,
        closed_by: choose(u, &[ClosedBy::Duration, ClosedBy::Memory, ClosedBy::CutOff])?,
        profiler: maybe(u, |u| Ok(Tgid(small(u)?)))?,
    })
}

fn wait(u: Bytes) -> Result<Wait> {
    let off = time(u)?;
    Ok(Wait {
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        kind: kind(u)?,
        in_target: often(u)?,
        seq: any_or(u, small)?,
        begin: begin(u)?,
        end: end(u)?,
        off,
        on: after(u, off)?,
        migrated: maybe(u, |u| after(u, off))?,
        off_cpu: Cpu(any(u)?),
        on_cpu: Cpu(any(u)?),
        state: TaskState(any(u)?),
        syscall: maybe(u, syscall)?,
        timeout: maybe(u, |u| Ok(Nanos(any(u)?)))?,
        file: maybe(u, file_id)?,
        polled_fd: maybe(u, any)?,
        polled_events: maybe(u, |u| Ok(PollEvents(any(u)?)))?,
        cgroup: CgroupId(small(u)?.into()),
        user_stack: stack_ref(u)?,
        kernel_stack: stack_ref(u)?,
        wake: maybe(u, |u| wake(u, off))?,
    })
}

fn wake(u: Bytes, off: Timestamp) -> Result<Wake> {
    Ok(Wake {
        at: after(u, off)?,
        context: context(u)?,
        cpu: Cpu(any(u)?),
        current: ThreadRef { tid: Tid(small(u)?), tgid: Tgid(small(u)?) },
        current_kind: kind(u)?,
        current_seq: maybe(u, |u| any_or(u, small))?,
        syscall: maybe(u, syscall)?,
        file: maybe(u, file_id)?,
        ready: maybe(u, |u| Ok(ReadyFile { descriptor: any(u)?, file: file_id(u)? }))?,
        user_stack: stack_ref(u)?,
        kernel_stack: stack_ref(u)?,
    })
}

fn preemption(u: Bytes) -> Result<Preemption> {
    let off = time(u)?;
    Ok(Preemption {
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        kind: kind(u)?,
        in_target: often(u)?,
        seq: any_or(u, small)?,
        begin: begin(u)?,
        end: end(u)?,
        off,
        on: after(u, off)?,
        migrated: maybe(u, |u| after(u, off))?,
        off_cpu: Cpu(any(u)?),
        on_cpu: Cpu(any(u)?),
        next: Tid(small(u)?),
    })
}

fn sample(u: Bytes) -> Result<Sample> {
    Ok(Sample {
        at: time(u)?,
        cpu: Cpu(any(u)?),
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        seq: maybe(u, |u| any_or(u, small))?,
        user_stack: stack_ref(u)?,
        kernel_stack: stack_ref(u)?,
    })
}

fn thread_event(u: Bytes) -> Result<ThreadEvent> {
    use ThreadEventReason::{Closing, Exec, Fork, Opening, Rename, Seen};
    Ok(ThreadEvent {
        at: time(u)?,
        reason: choose(u, &[Opening, Seen, Fork, Exec, Rename, Closing])?,
        tid: Tid(small(u)?),
        old_tid: maybe(u, |u| Ok(Tid(small(u)?)))?,
        tgid: Tgid(small(u)?),
        parent: Tgid(small(u)?),
        kind: kind(u)?,
        in_target: often(u)?,
        phase: choose(u, &[Phase::Unknown, Phase::OnCpu, Phase::Runnable, Phase::Blocked])?,
        seq: any_or(u, small)?,
        created: time(u)?,
        cgroup: CgroupId(small(u)?.into()),
        comm: text(u)?,
    })
}

fn exit(u: Bytes) -> Result<ThreadExit> {
    Ok(ThreadExit {
        at: time(u)?,
        tid: Tid(small(u)?),
        tgid: Tgid(small(u)?),
        in_target: often(u)?,
        seq: any_or(u, small)?,
        status: any(u)?,
    })
}

fn stack(u: Bytes) -> Result<(StackId, Stack)> {
    let space = choose(u, &[AddressSpace::Kernel, AddressSpace::Process(Tgid(1))])?;
    let mut frames = many(u, 8, |u| Ok(FrameId(small(u)?)))?;
    if u.ratio(1, 32)? {
        frames = frames.repeat(4096);
    }
    let ends = [StackEnd::Unknown, StackEnd::EntryPoint, StackEnd::CopyTooShort, StackEnd::TooDeep];
    let end = choose(u, &ends)?;
    Ok((StackId(any_or(u, |u| Ok(small(u)?.into()))?), Stack { space, frames, end }))
}

fn frame(u: Bytes) -> Result<(FrameId, Frame)> {
    let frame = Frame {
        address: any(u)?,
        kind: choose(u, &[AddressKind::Instruction, AddressKind::Return])?,
        module: maybe(u, |u| Ok(ModuleId(small(u)?)))?,
        module_offset: maybe(u, any)?,
        functions: Vec::new(),
    };
    Ok((FrameId(small(u)?), frame))
}

fn module(u: Bytes) -> Result<(ModuleId, Module)> {
    let build_id = maybe(u, any::<[u8; 20]>)?.and_then(|bytes| BuildId::new(&bytes));
    let segments =
        many(u, 3, |u| Ok(Segment { offset: any(u)?, address: any(u)?, size: any(u)? }))?;
    Ok((ModuleId(small(u)?), Module { path: text(u)?, build_id, segments }))
}

fn process(u: Bytes) -> Result<ProcessInfo> {
    Ok(ProcessInfo {
        tgid: Tgid(small(u)?),
        at: time(u)?,
        parent: maybe(u, |u| Ok(Tgid(small(u)?)))?,
        executable: maybe(u, text)?,
        arguments: many(u, 3, text)?,
        cgroup: maybe(u, text)?,
        pid_in_container: maybe(u, any)?,
        uid: maybe(u, any)?,
    })
}

fn open_file(u: Bytes) -> Result<OpenFile> {
    if u.arbitrary()? {
        return Ok(OpenFile::Named(text(u)?));
    }
    let address = ["127.0.0.1:80", "192.0.2.1:80", "0.0.0.0:0", "[::1]:1", ""];
    Ok(OpenFile::Socket(SocketEnd {
        protocol: any_or(u, |u| Ok(choose(u, &["tcp", "unix"])?.to_owned()))?,
        local: any_or(u, |u| Ok(choose(u, &address)?.to_owned()))?,
        remote: any_or(u, |u| Ok(choose(u, &address)?.to_owned()))?,
        role: maybe(u, |u| choose(u, &[SocketRole::Serving, SocketRole::Asking]))?,
        peers: many(u, 3, |u| Ok(PeerProcess { tgid: Tgid(small(u)?), comm: text(u)? }))?,
    }))
}

fn syscall(u: Bytes) -> Result<Syscall> {
    Ok(Syscall {
        table: choose(u, &[SyscallTable::Native, SyscallTable::Compat])?,
        number: any_or(u, |u| u.int_in_range(0..=450))?,
        args: any(u)?,
    })
}

fn context(u: Bytes) -> Result<WakeContext> {
    use SystemVector::{CallFunction, Idle, IrqWork, LocalTimer, Unknown};
    Ok(match u.int_in_range(0..=7)? {
        0 => WakeContext::Softirq(any_or(u, |u| u.int_in_range(0..=9))?),
        1 => WakeContext::Hardirq(interrupt_number(u)?),
        2 => WakeContext::Hrtimer,
        7 => WakeContext::TimerSignal,
        3 => WakeContext::System(choose(u, &[Unknown, LocalTimer, CallFunction, IrqWork, Idle])?),
        _ => WakeContext::Task,
    })
}

fn file_id(u: Bytes) -> Result<FileId> {
    use FileKind::{Anonymous, Block, Character, Directory, Pipe, Regular, Socket};
    Ok(FileId {
        device: u32::from(any::<bool>(u)?),
        inode: any_or(u, |u| Ok(small(u)?.into()))?,
        kind: choose(u, &[Socket, Pipe, Regular, Character, Block, Directory, Anonymous])?,
    })
}

fn stack_ref(u: Bytes) -> Result<StackRef> {
    Ok(match u.int_in_range(0..=3)? {
        0 => StackRef::NotTaken,
        1 => StackRef::Failed,
        // 0 is no id.
        _ => StackRef::Id(StackId(any_or(u, |u| Ok(u64::from(small(u)?)))?.max(1))),
    })
}

fn kind(u: Bytes) -> Result<ThreadKind> {
    choose(u, &[ThreadKind::User, ThreadKind::User32, ThreadKind::Kernel])
}

fn begin(u: Bytes) -> Result<Begin> {
    choose(u, &[Begin::Seen, Begin::Seen, Begin::BeforeWindow, Begin::Newborn])
}

fn end(u: Bytes) -> Result<End> {
    choose(u, &[End::Seen, End::Seen, End::StillOff, End::Missed])
}

/// A moment: close to the others, or at an end of time.
fn time(u: Bytes) -> Result<Timestamp> {
    Ok(Timestamp(match u.int_in_range(0..=15)? {
        0 => any(u)?,
        1 => choose(u, &[0, 1, u64::MAX, u64::MAX - 1, i64::MAX as u64, i64::MAX as u64 + 1])?,
        _ => 1_000_000 + u64::from(any::<u8>(u)?) * 50_000,
    }))
}

/// A moment somewhat later, most of the time.
fn after(u: Bytes, moment: Timestamp) -> Result<Timestamp> {
    if u.ratio(1, 8)? { time(u) } else { Ok(moment + Nanos(u64::from(any::<u8>(u)?) * 20_000)) }
}

fn function(u: Bytes) -> Result<Function> {
    Ok(Function {
        name: function_name(u)?,
        // Nothing and 0 stand for what is not known.
        file: maybe(u, text)?.filter(|file| !file.is_empty()).map(Arc::from),
        line: maybe(u, any)?.filter(|line| *line > 0),
    })
}

/// One that a stack is read by, or any.
fn function_name(u: Bytes) -> Result<String> {
    const KNOWN: &[&str] = &[
        "handle_softirqs",
        "__local_bh_enable_ip",
        "__dev_queue_xmit",
        "process_backlog",
        "napi_gro_receive",
        "bpf_prog_1",
        "futex_wait",
        "schedule",
        "do_exit",
        "io_schedule",
        "folio_wait_bit_common",
        "ep_poll",
        "pipe_read",
    ];
    any_or(u, |u| Ok(choose(u, KNOWN)?.to_owned()))
}

fn text(u: Bytes) -> Result<String> {
    let text: String = any(u)?;
    Ok(match u.int_in_range(0..=31)? {
        0 => text.repeat(1000),
        1 => format!("\u{1b}[2J;</text>\n\0{text}"),
        _ => text,
    })
}

fn often(u: Bytes) -> Result<bool> {
    u.ratio(7, 8)
}

fn small(u: Bytes) -> Result<u32> {
    u.int_in_range(0..=7)
}

fn any<'b, T: Arbitrary<'b>>(u: &mut Unstructured<'b>) -> Result<T> {
    u.arbitrary()
}

/// What `usual` gives, or now and then anything at all.
fn any_or<'b, T: Arbitrary<'b>>(
    u: &mut Unstructured<'b>,
    usual: impl FnOnce(&mut Unstructured<'b>) -> Result<T>,
) -> Result<T> {
    if u.ratio(1, 8)? { u.arbitrary() } else { usual(u) }
}

fn choose<T: Clone>(u: Bytes, values: &[T]) -> Result<T> {
    u.choose(values).cloned()
}

fn maybe<'b, T>(
    u: &mut Unstructured<'b>,
    make: impl FnOnce(&mut Unstructured<'b>) -> Result<T>,
) -> Result<Option<T>> {
    if u.arbitrary()? { make(u).map(Some) } else { Ok(None) }
}

fn many<'b, T>(
    u: &mut Unstructured<'b>,
    most: usize,
    make: impl Fn(&mut Unstructured<'b>) -> Result<T>,
) -> Result<Vec<T>> {
    (0..u.int_in_range(0..=most)?).map(|_| make(u)).collect()
}

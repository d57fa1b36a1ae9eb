//! Decodes the records of the kernel half, as bytes of its rings, to the types of a recording.

mod file_lock;
mod marker;
mod stack_copy;
mod tags;

use offwake_recording::units::{CgroupId, Cpu, Nanos, StackId, Tgid, Tid, Timestamp};
use offwake_recording::{
    AddressSpace, Begin, End, FileId, FileKind, FileLockEvent, Marker, Phase, PollEvents,
    Preemption, ReadyFile, Sample, StackRef, SummedWaits, Syscall, SyscallTable, SystemVector,
    TagChange, TagSet, TaskState, ThreadEvent, ThreadEventReason, ThreadExit, ThreadKind,
    ThreadRef, Throttle, Wait, Wake, WakeContext,
};
use profiler_ebpf::file_lock::FileLockRecord;
use profiler_ebpf::marker::MarkerRecord;
use profiler_ebpf::record::{
    COMM_LEN, ExitRecord, Inode, NO_SEQ, NO_STACK, NO_TIMEOUT, PreemptionRecord, RecordHeader,
    SampleRecord, StackRecord, SummedRecord, Syscall as RawSyscall, ThreadRecord, ThrottleRecord,
    WaitRecord, Wake as RawWake, hrtimer_vector, kind, phase, summed_flags, system_vector,
    thread_event, thread_flags, wait_flags, wake_context, wake_flags,
};
use thiserror::Error;

pub use stack_copy::{
    CallSiteKey, CodeEpoch, CopyPurpose, CopySize, FoundBy, PythonStack, UserStackCopy,
    decode_stack_copy,
};

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are waits: a box would be an allocation for each"
)]
pub enum Record {
    /// A wait.
    Wait(Wait),
    /// A preemption.
    Preemption(Preemption),
    /// Short waits that were summed up.
    Summed(SummedWaits, SumEnd),
    /// A stretch in which a CPU quota kept a thread from running.
    Throttle(Throttle),
    /// The frames of a stack, before the first record that refers to it.
    Stack(NewStack),
    /// Who a thread is.
    ThreadEvent(ThreadEvent),
    /// The end of a thread.
    Exit(ThreadExit),
    /// A sample of what a CPU was doing.
    Sample(Sample),
    /// What a program marked in its own code.
    Marker(Marker),
    /// A lock on a file was refused, or given back.
    FileLock(FileLockEvent),
    /// A marker whose text says nothing: it is empty, no text, or has control characters.
    RefusedMarker,
    /// What a thread says that it is doing. None if that is of a form that can't be.
    TagSet(Option<TagSet>),
    /// A thread does something else now.
    TagChange(TagChange),
}

/// Whether short waits that were summed up may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumEnd {
    /// What the thread does next is recorded by itself.
    Closed,
    /// It was copied as the window closed, or for a snapshot: the thread may have gone on with it.
    Open,
}

/// A stack as the kernel half sends it: addresses, leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStack {
    /// The id that other records refer to it by.
    pub id: StackId,
    /// When it was walked.
    pub walked: Timestamp,
    /// The address space that the addresses belong to.
    pub space: AddressSpace,
    /// The addresses of the frames.
    pub addresses: Vec<u64>,
}

/// The reason that a record can't be decoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    /// The record has fewer bytes than its kind needs.
    #[error("a record of kind {kind} has {len} bytes, {expected} were expected")]
    Length {
        /// The record's kind.
        kind: u16,
        /// How many bytes there are.
        len: usize,
        /// How many bytes there should be.
        expected: usize,
    },
    /// The record is shorter than a header.
    #[error("a record of {0} bytes has no header")]
    NoHeader(usize),
    /// The kind is unknown.
    #[error("a record of unknown kind {0}")]
    Kind(u16),
    /// A field has a value that it can't have.
    #[error("a record of kind {kind} has {value} for its {field}")]
    Value {
        /// The record's kind.
        kind: u16,
        /// The field's name.
        field: &'static str,
        /// The value.
        value: u64,
    },
}

/// Marks the record types: plain integers without padding, valid whatever the bytes.
///
/// # Safety
///
/// The type must be `repr(C)`, without padding, and every bit pattern must be a value of it.
unsafe trait Plain: Copy {}

// SAFETY: profiler-ebpf asserts their sizes to be the sums of their integer fields.
unsafe impl Plain for RecordHeader {}
// SAFETY: as above.
unsafe impl Plain for WaitRecord {}
// SAFETY: as above.
unsafe impl Plain for PreemptionRecord {}
// SAFETY: as above.
unsafe impl Plain for SummedRecord {}
// SAFETY: as above.
unsafe impl Plain for ThrottleRecord {}
// SAFETY: as above.
unsafe impl Plain for ThreadRecord {}
// SAFETY: as above.
unsafe impl Plain for ExitRecord {}
// SAFETY: as above.
unsafe impl Plain for SampleRecord {}
// SAFETY: as above.
unsafe impl Plain for MarkerRecord {}
// SAFETY: as above.
unsafe impl Plain for FileLockRecord {}

fn read_plain<T: Plain>(kind: u16, bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() < size_of::<T>() {
        return Err(DecodeError::Length { kind, len: bytes.len(), expected: size_of::<T>() });
    }
    // SAFETY: there are enough bytes, and any bytes are a value of a `Plain` type.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Decodes one record.
///
/// # Errors
///
/// If the bytes are not one whole record of a known kind.
pub fn decode(bytes: &[u8]) -> Result<Record, DecodeError> {
    let header: RecordHeader =
        read_plain(0, bytes).map_err(|_short| DecodeError::NoHeader(bytes.len()))?;
    match header.kind {
        kind::WAIT => decode_wait(&read_plain(kind::WAIT, bytes)?).map(Record::Wait),
        kind::PREEMPTION => {
            Ok(Record::Preemption(decode_preemption(&read_plain(kind::PREEMPTION, bytes)?)))
        }
        kind::THROTTLE => {
            Ok(Record::Throttle(decode_throttle(&read_plain(kind::THROTTLE, bytes)?)))
        }
        kind::SUMMED => {
            let (summed, end) = decode_summed(&read_plain(kind::SUMMED, bytes)?);
            Ok(Record::Summed(summed, end))
        }
        kind::STACK => decode_stack(bytes).map(Record::Stack),
        kind::THREAD => Ok(Record::ThreadEvent(decode_thread(&read_plain(kind::THREAD, bytes)?)?)),
        kind::EXIT => Ok(Record::Exit(decode_exit(&read_plain(kind::EXIT, bytes)?))),
        kind::SAMPLE => {
            Ok(Record::Sample(decode_sample(&read_plain(kind::SAMPLE, bytes)?, header.cpu)))
        }
        kind::FILE_LOCK => {
            file_lock::decode_file_lock(&read_plain(kind::FILE_LOCK, bytes)?).map(Record::FileLock)
        }
        kind::MARKER => marker::decode_marker(&read_plain(kind::MARKER, bytes)?),
        kind::TAG_SET => tags::decode_set(bytes).map(Record::TagSet),
        kind::LABEL_SET => tags::decode_labels(bytes).map(Record::TagSet),
        kind::TAG_CHANGE => {
            Ok(Record::TagChange(tags::decode_change(&read_plain(kind::TAG_CHANGE, bytes)?)))
        }
        other => Err(DecodeError::Kind(other)),
    }
}

fn decode_wait(raw: &WaitRecord) -> Result<Wait, DecodeError> {
    let flags = raw.wait_flags;
    Ok(Wait {
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        kind: thread_kind(raw.syscall.thread_flags),
        in_target: raw.syscall.thread_flags & thread_flags::TARGET != 0,
        seq: raw.seq,
        begin: wait_begin(flags),
        end: wait_end(flags),
        off: Timestamp(raw.off_ns),
        on: Timestamp(raw.on_ns),
        migrated: migration_time(raw.migrated_ns),
        off_cpu: low_cpu(raw.cpus),
        on_cpu: high_cpu(raw.cpus),
        state: TaskState(raw.state),
        syscall: decode_syscall(&raw.syscall),
        timeout: (raw.timeout_ns != NO_TIMEOUT).then_some(Nanos(raw.timeout_ns)),
        file: (flags & (wait_flags::HAS_FILE | wait_flags::POLLS_ONE_FILE) != 0)
            .then(|| decode_file(raw.file))
            .transpose()?,
        polled_fd: (flags & wait_flags::POLLS_ONE_FILE != 0).then_some(raw.polled_fd),
        polled_events: (flags & wait_flags::POLLS_ONE_FILE != 0)
            .then_some(PollEvents(raw.polled_events as u16)),
        cgroup: CgroupId(raw.cgroup),
        user_stack: stack_ref(raw.user_stack, flags & wait_flags::USER_STACK_FAILED),
        kernel_stack: stack_ref(raw.kernel_stack, flags & wait_flags::KERNEL_STACK_FAILED),
        wake: decode_wake(&raw.wake, raw.polled_fd)?,
    })
}

/// Decodes a wake. `ready_fd` is the descriptor of what made an `epoll` ready, if the wake says that it
/// did.
fn decode_wake(raw: &RawWake, ready_fd: u32) -> Result<Option<Wake>, DecodeError> {
    if raw.ns == 0 {
        return Ok(None);
    }
    let invalid =
        |field, value: u16| DecodeError::Value { kind: kind::WAIT, field, value: u64::from(value) };
    let context = match raw.context {
        wake_context::TASK => WakeContext::Task,
        wake_context::SOFTIRQ => WakeContext::Softirq(raw.vector),
        wake_context::HARDIRQ => WakeContext::Hardirq(raw.vector),
        wake_context::HRTIMER => match raw.vector {
            hrtimer_vector::SIGNAL => WakeContext::TimerSignal,
            _ => WakeContext::Hrtimer,
        },
        wake_context::SYSTEM => WakeContext::System(match raw.vector {
            system_vector::UNKNOWN => SystemVector::Unknown,
            system_vector::LOCAL_TIMER => SystemVector::LocalTimer,
            system_vector::CALL_FUNCTION => SystemVector::CallFunction,
            system_vector::IRQ_WORK => SystemVector::IrqWork,
            system_vector::IDLE => SystemVector::Idle,
            other => return Err(invalid("wake vector", other)),
        }),
        other => return Err(invalid("wake context", other)),
    };
    Ok(Some(Wake {
        at: Timestamp(raw.ns),
        context,
        cpu: low_cpu(raw.cpu),
        current: ThreadRef { tid: Tid(raw.tid), tgid: Tgid(raw.tgid) },
        current_kind: thread_kind(raw.syscall.thread_flags),
        current_seq: known_seq(raw.current_seq),
        syscall: decode_syscall(&raw.syscall),
        file: (raw.flags & wake_flags::HAS_FILE != 0).then(|| decode_file(raw.file)).transpose()?,
        ready: (raw.flags & wake_flags::READY_FILE != 0)
            .then(|| decode_file(raw.file))
            .transpose()?
            .map(|file| ReadyFile { descriptor: ready_fd, file }),
        user_stack: stack_ref(raw.user_stack, raw.flags & wake_flags::USER_STACK_FAILED),
        kernel_stack: stack_ref(raw.kernel_stack, raw.flags & wake_flags::KERNEL_STACK_FAILED),
    }))
}

fn decode_file(raw: Inode) -> Result<FileId, DecodeError> {
    /// The file type's bits of `st_mode`, as in `include/uapi/linux/stat.h`.
    const S_IFMT: u32 = 0o170_000;
    let kind = match raw.mode & S_IFMT {
        0o140_000 => FileKind::Socket,
        0o010_000 => FileKind::Pipe,
        0o100_000 => FileKind::Regular,
        0o020_000 => FileKind::Character,
        0o060_000 => FileKind::Block,
        0o040_000 => FileKind::Directory,
        0 => FileKind::Anonymous,
        _ => {
            return Err(DecodeError::Value {
                kind: kind::WAIT,
                field: "file mode",
                value: u64::from(raw.mode),
            });
        }
    };
    Ok(FileId { device: raw.device, inode: raw.number, kind })
}

fn decode_preemption(raw: &PreemptionRecord) -> Preemption {
    Preemption {
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        kind: thread_kind(raw.thread_flags),
        in_target: raw.thread_flags & thread_flags::TARGET != 0,
        seq: raw.seq,
        begin: wait_begin(raw.wait_flags),
        end: wait_end(raw.wait_flags),
        off: Timestamp(raw.off_ns),
        on: Timestamp(raw.on_ns),
        migrated: migration_time(raw.migrated_ns),
        off_cpu: low_cpu(raw.cpus),
        on_cpu: high_cpu(raw.cpus),
        next: Tid(raw.next_tid),
    }
}

fn decode_summed(raw: &SummedRecord) -> (SummedWaits, SumEnd) {
    let summed = SummedWaits {
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        kind: thread_kind(raw.thread_flags),
        in_target: raw.thread_flags & thread_flags::TARGET != 0,
        seq: raw.seq,
        waits: raw.waits,
        preemptions: raw.preemptions,
        from: Timestamp(raw.from_ns),
        until: Timestamp(raw.until_ns),
        off_cpu: low_cpu(raw.cpus),
        on_cpu: high_cpu(raw.cpus),
        blocked: Nanos(raw.blocked_ns),
        runnable: Nanos(raw.runnable_ns),
        longest: Nanos(raw.longest_ns),
    };
    let end = if raw.flags & summed_flags::OPEN != 0 { SumEnd::Open } else { SumEnd::Closed };
    (summed, end)
}

fn decode_throttle(raw: &ThrottleRecord) -> Throttle {
    Throttle {
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        from: Timestamp(raw.from_ns),
        until: Timestamp(raw.until_ns),
        cgroup: CgroupId(raw.cgroup),
    }
}

fn decode_stack(bytes: &[u8]) -> Result<NewStack, DecodeError> {
    let too_short =
        |expected| DecodeError::Length { kind: kind::STACK, len: bytes.len(), expected };
    let word = |offset: usize| -> Option<u64> {
        let bytes = bytes.get(offset..offset + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let half = |offset: usize| -> Option<u32> {
        let bytes = bytes.get(offset..offset + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let fixed = StackRecord::len_for_depth(0);
    let (Some(id), Some(walked), Some(tgid), Some(depth)) = (
        word(std::mem::offset_of!(StackRecord, id)),
        word(std::mem::offset_of!(StackRecord, ns)),
        half(std::mem::offset_of!(StackRecord, tgid)),
        half(std::mem::offset_of!(StackRecord, depth)),
    ) else {
        return Err(too_short(fixed));
    };
    let frames = bytes.get(fixed..).unwrap_or_default();
    let depth = depth as usize;
    if frames.len() / 8 < depth {
        return Err(too_short(fixed.saturating_add(depth.saturating_mul(8))));
    }
    let space = if tgid == 0 { AddressSpace::Kernel } else { AddressSpace::Process(Tgid(tgid)) };
    let addresses = (0..depth).filter_map(|frame| word(fixed + frame * 8)).collect();
    Ok(NewStack { id: StackId(id), walked: Timestamp(walked), space, addresses })
}

fn decode_thread(raw: &ThreadRecord) -> Result<ThreadEvent, DecodeError> {
    let invalid =
        |field, value: u32| DecodeError::Value { kind: kind::THREAD, field, value: value.into() };
    let reason = match raw.event {
        thread_event::OPENING => ThreadEventReason::Opening,
        thread_event::FIRST_RECORD => ThreadEventReason::Seen,
        thread_event::FORK => ThreadEventReason::Fork,
        thread_event::EXEC => ThreadEventReason::Exec,
        thread_event::RENAME => ThreadEventReason::Rename,
        thread_event::CLOSING => ThreadEventReason::Closing,
        thread_event::STACKS_DISTRUSTED => ThreadEventReason::Mistaken,
        other => return Err(invalid("event", other)),
    };
    let phase = match raw.phase {
        phase::UNKNOWN => Phase::Unknown,
        phase::ON_CPU => Phase::OnCpu,
        phase::RUNNABLE => Phase::Runnable,
        phase::BLOCKED => Phase::Blocked,
        other => return Err(invalid("phase", other)),
    };
    let has_old_tid = raw.event == thread_event::EXEC && ![0, raw.tid].contains(&raw.old_tid);
    Ok(ThreadEvent {
        at: Timestamp(raw.ns),
        reason,
        tid: Tid(raw.tid),
        old_tid: has_old_tid.then_some(Tid(raw.old_tid)),
        tgid: Tgid(raw.tgid),
        parent: Tgid(raw.parent_tgid),
        kind: thread_kind(raw.thread_flags),
        in_target: raw.thread_flags & thread_flags::TARGET != 0,
        phase,
        seq: raw.seq,
        created: Timestamp(raw.start_ns),
        cgroup: CgroupId(raw.cgroup),
        comm: decode_comm(&raw.comm),
    })
}

/// Decodes a thread's name, which ends at the first NUL.
pub(crate) fn decode_comm(bytes: &[u8; COMM_LEN]) -> String {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn decode_exit(raw: &ExitRecord) -> ThreadExit {
    ThreadExit {
        at: Timestamp(raw.ns),
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        in_target: raw.thread_flags & thread_flags::TARGET != 0,
        seq: raw.seq,
        status: raw.exit_code,
    }
}

fn decode_sample(raw: &SampleRecord, cpu: u16) -> Sample {
    Sample {
        at: Timestamp(raw.ns),
        cpu: Cpu(cpu),
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        seq: known_seq(raw.seq),
        user_stack: stack_ref(raw.user_stack, 0),
        kernel_stack: stack_ref(raw.kernel_stack, 0),
    }
}

fn thread_kind(flags: u32) -> ThreadKind {
    if flags & thread_flags::KERNEL != 0 {
        ThreadKind::Kernel
    } else if flags & thread_flags::COMPAT != 0 {
        ThreadKind::User32
    } else {
        ThreadKind::User
    }
}

fn wait_begin(flags: u32) -> Begin {
    if flags & wait_flags::BEFORE_WINDOW != 0 {
        Begin::BeforeWindow
    } else if flags & wait_flags::NEWBORN != 0 {
        Begin::Newborn
    } else {
        Begin::Seen
    }
}

fn wait_end(flags: u32) -> End {
    if flags & wait_flags::STILL_OFF != 0 {
        End::StillOff
    } else if flags & wait_flags::SWITCH_IN_MISSED != 0 {
        End::Missed
    } else {
        End::Seen
    }
}

fn decode_syscall(raw: &RawSyscall) -> Option<Syscall> {
    let number = u32::try_from(raw.number).ok()?;
    let table = if raw.thread_flags & thread_flags::COMPAT != 0 {
        SyscallTable::Compat
    } else {
        SyscallTable::Native
    };
    Some(Syscall { table, number, args: raw.args })
}

fn migration_time(ns: u64) -> Option<Timestamp> {
    (ns != 0).then_some(Timestamp(ns))
}

fn known_seq(seq: u32) -> Option<u32> {
    (seq != NO_SEQ).then_some(seq)
}

fn stack_ref(id: u64, failed: u32) -> StackRef {
    match (id, failed) {
        (NO_STACK, 0) => StackRef::NotTaken,
        (NO_STACK, _) => StackRef::Failed,
        (id, _) => StackRef::Id(StackId(id)),
    }
}

/// The CPU in the lower half of two.
fn low_cpu(cpus: u32) -> Cpu {
    Cpu((cpus & 0xffff) as u16)
}

/// The CPU in the upper half of two.
fn high_cpu(cpus: u32) -> Cpu {
    Cpu((cpus >> 16) as u16)
}

#[cfg(test)]
mod tests;

use profiler_ebpf::record::Syscall as RawSyscall;
use proptest::prelude::*;

use super::*;

fn bytes_of<T: Plain>(record: &T) -> Vec<u8> {
    let pointer = std::ptr::from_ref(record).cast::<u8>();
    // SAFETY: a plain type has no padding, so all of its bytes are there to read.
    unsafe { std::slice::from_raw_parts(pointer, size_of::<T>()) }.to_vec()
}

fn a_wait() -> WaitRecord {
    WaitRecord {
        header: RecordHeader { kind: kind::WAIT, cpu: 1, len: size_of::<WaitRecord>() as u32 },
        tid: 11,
        tgid: 10,
        seq: 3,
        wait_flags: wait_flags::HAS_FILE,
        off_ns: 100,
        on_ns: 300,
        migrated_ns: 0,
        state: 1,
        cpus: 1 | 7 << 16,
        syscall: RawSyscall {
            number: 45,
            thread_flags: thread_flags::TARGET,
            args: [4, 0, 0, 0, 0, 0],
        },
        timeout_ns: NO_TIMEOUT,
        file: Inode { number: 777, mode: 0o140_777, device: 8 },
        polled_fd: 0,
        polled_events: 0,
        cgroup: 5,
        user_stack: 42,
        kernel_stack: NO_STACK,
        wake: RawWake {
            ns: 250,
            tid: 21,
            tgid: 20,
            context: wake_context::TASK,
            vector: 0,
            cpu: 1,
            flags: wake_flags::HAS_FILE,
            current_seq: 9,
            syscall: RawSyscall { number: -1, ..RawSyscall::default() },
            file: Inode { number: 778, mode: 0o010_600, device: 9 },
            user_stack: NO_STACK,
            kernel_stack: 43,
        },
    }
}

fn decoded(record: &WaitRecord) -> Wait {
    match decode(&bytes_of(record)).unwrap() {
        Record::Wait(wait) => wait,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wait_comes_through_whole() {
    let wait = decoded(&a_wait());
    assert_eq!((wait.tid, wait.tgid, wait.seq), (Tid(11), Tgid(10), 3));
    assert_eq!((wait.off, wait.on), (Timestamp(100), Timestamp(300)));
    assert_eq!((wait.off_cpu, wait.on_cpu), (Cpu(1), Cpu(7)));
    assert!(wait.in_target);
    assert_eq!(wait.file, Some(FileId { device: 8, inode: 777, kind: FileKind::Socket }));
    assert_eq!(wait.user_stack, StackRef::Id(StackId(42)));
    assert_eq!(wait.kernel_stack, StackRef::NotTaken);
    let wake = wait.wake.unwrap();
    assert_eq!(wake.context, WakeContext::Task);
    assert_eq!(wake.current, ThreadRef { tid: Tid(21), tgid: Tgid(20) });
    assert_eq!(wake.current_seq, Some(9));
    assert_eq!(wake.syscall, None);
    assert_eq!(wake.file, Some(FileId { device: 9, inode: 778, kind: FileKind::Pipe }));
}

#[test]
fn a_syscall_without_a_file_names_none() {
    let mut record = a_wait();
    record.wake.flags = 0;
    assert_eq!(decoded(&record).wake.unwrap().file, None);
    record.wait_flags = 0;
    assert_eq!(decoded(&record).file, None);
}

#[test]
fn a_poll_of_one_file_names_it_and_its_descriptor() {
    let mut record = a_wait();
    assert_eq!(decoded(&record).polled_fd, None);
    record.wait_flags = wait_flags::POLLS_ONE_FILE;
    record.polled_fd = 6;
    record.polled_events = 4;
    let wait = decoded(&record);
    assert_eq!((wait.polled_fd, wait.polled_events), (Some(6), Some(PollEvents(4))));
    assert_eq!(wait.file, Some(FileId { device: 8, inode: 777, kind: FileKind::Socket }));
}

#[test]
fn what_made_an_epoll_ready_is_no_file_of_the_waker() {
    let mut record = a_wait();
    assert_eq!(decoded(&record).wake.unwrap().ready, None);
    record.wake.flags = wake_flags::READY_FILE;
    record.polled_fd = 6;
    let wait = decoded(&record);
    let wake = wait.wake.unwrap();
    let file = FileId { device: 9, inode: 778, kind: FileKind::Pipe };
    assert_eq!(wake.ready, Some(ReadyFile { descriptor: 6, file }));
    assert_eq!((wake.file, wait.polled_fd), (None, None));
}

#[test]
fn a_thread_that_was_not_moved_has_no_time_for_it() {
    let mut wait = a_wait();
    assert_eq!(decoded(&wait).migrated, None);
    wait.migrated_ns = 260;
    assert_eq!(decoded(&wait).migrated, Some(Timestamp(260)));

    let mut preemption = PreemptionRecord {
        header: RecordHeader {
            kind: kind::PREEMPTION,
            cpu: 1,
            len: size_of::<PreemptionRecord>() as u32,
        },
        ..PreemptionRecord::default()
    };
    let migrated = |record: &PreemptionRecord| match decode(&bytes_of(record)).unwrap() {
        Record::Preemption(preemption) => preemption.migrated,
        other => panic!("{other:?}"),
    };
    assert_eq!(migrated(&preemption), None);
    preemption.migrated_ns = 260;
    assert_eq!(migrated(&preemption), Some(Timestamp(260)));
}

#[test]
fn nobody_seen_is_no_wake() {
    let mut record = a_wait();
    record.wake.ns = 0;
    assert_eq!(decoded(&record).wake, None);
}

#[test]
fn a_failed_stack_is_not_one_that_was_not_asked_for() {
    let mut record = a_wait();
    record.wait_flags |= wait_flags::KERNEL_STACK_FAILED;
    assert_eq!(decoded(&record).kernel_stack, StackRef::Failed);
    let wake = |record: &WaitRecord| decoded(record).wake.unwrap();
    assert_eq!(wake(&record).user_stack, StackRef::NotTaken);
    record.wake.flags |= wake_flags::USER_STACK_FAILED;
    assert_eq!(wake(&record).user_stack, StackRef::Failed);
}

#[test]
fn a_thread_with_no_records_yet_is_not_one_that_nobody_counts() {
    let mut record = SampleRecord {
        header: RecordHeader { kind: kind::SAMPLE, cpu: 1, len: size_of::<SampleRecord>() as u32 },
        ..SampleRecord::default()
    };
    let seq = |record: &SampleRecord| match decode(&bytes_of(record)).unwrap() {
        Record::Sample(sample) => sample.seq,
        other => panic!("{other:?}"),
    };
    assert_eq!(seq(&record), Some(0));
    record.seq = NO_SEQ;
    assert_eq!(seq(&record), None);
}

#[test]
fn nonsense_is_an_error() {
    let mut record = a_wait();
    record.wake.context = 99;
    assert!(matches!(decode(&bytes_of(&record)), Err(DecodeError::Value { .. })));
    let mut record = a_wait();
    record.wake.file.mode = 0o150_000;
    assert!(matches!(decode(&bytes_of(&record)), Err(DecodeError::Value { .. })));
    assert_eq!(decode(&[1, 2]), Err(DecodeError::NoHeader(2)));
    assert_eq!(decode(&[0xff, 0xff, 0, 0, 8, 0, 0, 0]), Err(DecodeError::Kind(0xffff)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..1200),
                              kind in 0_u16..=kind::LABEL_SET + 1) {
        if let Some(first) = bytes.first_mut() {
            *first = kind as u8;
        }
        if let Some(second) = bytes.get_mut(1) {
            *second = 0;
        }
        let _either = decode(&bytes);
    }
}

#[test]
fn summed_waits_come_through_whole() {
    let record = |flags| SummedRecord {
        header: RecordHeader { kind: kind::SUMMED, cpu: 1, len: size_of::<SummedRecord>() as u32 },
        tid: 11,
        tgid: 10,
        seq: 9,
        thread_flags: thread_flags::TARGET,
        waits: 4,
        preemptions: 2,
        cpus: 1 | 7 << 16,
        flags,
        from_ns: 100,
        until_ns: 900,
        blocked_ns: 300,
        runnable_ns: 50,
        longest_ns: 120,
    };
    let summed = SummedWaits {
        tid: Tid(11),
        tgid: Tgid(10),
        kind: ThreadKind::User,
        in_target: true,
        seq: 9,
        waits: 4,
        preemptions: 2,
        from: Timestamp(100),
        until: Timestamp(900),
        off_cpu: Cpu(1),
        on_cpu: Cpu(7),
        blocked: Nanos(300),
        runnable: Nanos(50),
        longest: Nanos(120),
    };
    // The sixth in a row is number 9.
    assert_eq!(summed.first_seq(), Some(4));
    let bytes = bytes_of(&record(0));
    assert_eq!(decode(&bytes), Ok(Record::Summed(summed, SumEnd::Closed)));
    let open = bytes_of(&record(summed_flags::OPEN));
    assert_eq!(decode(&open), Ok(Record::Summed(summed, SumEnd::Open)));
    assert!(decode(&bytes[..bytes.len() - 1]).is_err());
}

#[test]
fn a_throttle_comes_through_whole() {
    let record = ThrottleRecord {
        header: RecordHeader {
            kind: kind::THROTTLE,
            cpu: 1,
            len: size_of::<ThrottleRecord>() as u32,
        },
        tid: 11,
        tgid: 10,
        thread_flags: thread_flags::TARGET,
        reserved: 0,
        from_ns: 100,
        until_ns: 300,
        cgroup: 5,
    };
    let bytes = bytes_of(&record);
    let throttle = Throttle {
        tid: Tid(11),
        tgid: Tgid(10),
        from: Timestamp(100),
        until: Timestamp(300),
        cgroup: CgroupId(5),
    };
    assert_eq!(decode(&bytes), Ok(Record::Throttle(throttle)));
    assert!(decode(&bytes[..bytes.len() - 1]).is_err());
}

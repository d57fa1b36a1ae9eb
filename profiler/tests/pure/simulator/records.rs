//! The simulator's events as the records of a recording: the one place that knows their fields.

use offwake_recording::{
    Begin, DeviceKind, End, FileId, FileKind, InterruptInfo, Preemption, Recording, StackRef,
    TaskState, ThreadEvent, ThreadEventReason, ThreadExit, ThreadRef, Throttle, Wait, Wake,
    WakeContext,
    units::{CgroupId, Cpu, Tgid, Tid, Timestamp},
};

use super::{
    START,
    history::{Futex, Queue, WakeSource},
    program::Outside,
};
use crate::{
    draw,
    fixtures::{self, CLOCK_NANOSLEEP, FUTEX, READ, RECVFROM, syscall},
};

const WRITE: u32 = 1;
const SENDTO: u32 = 44;
const EXIT: u32 = 60;
const IO_URING_ENTER: u32 = 426;

const FUTEX_WAIT: u64 = 0;
const FUTEX_WAKE: u64 = 1;
const FUTEX_PRIVATE: u64 = 128;

const NET_RX_SOFTIRQ: u16 = 3;
const RCU_SOFTIRQ: u16 = 9;
const DEVICE_IRQ: u16 = 24;
const DISK_IRQ: u16 = 25;

const INTERRUPTIBLE: TaskState = TaskState(1);

/// What a thread waits for, as its syscall shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    Outside(Outside),
    Futex { futex: Futex, expected: u64 },
    ThreadEnd { futex: Futex, expected: u64 },
    Channel(usize),
}

/// A thread as the kernel numbers it.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub tid: Tid,
    pub tgid: Tgid,
    pub created: Timestamp,
}

/// When and where a thread left a CPU.
#[derive(Clone, Copy, Debug)]
pub struct SwitchOut {
    pub begin: Begin,
    pub at: u64,
    pub cpu: usize,
}

/// When and where a thread came back to a CPU.
#[derive(Clone, Copy, Debug)]
pub struct SwitchIn {
    pub end: End,
    pub at: u64,
    pub queue: Queue,
}

/// A wake as it is made.
#[derive(Clone, Copy, Debug)]
pub struct Waking {
    pub at: u64,
    pub cpu: usize,
    pub by: WakeSource,
    /// The thread that is current on that CPU; the idle task if there is none.
    pub current: Option<ThreadRef>,
}

/// The files and stacks that a machine's records refer to.
#[derive(Clone, Copy, Debug)]
pub struct FilesAndStacks {
    remote: FileId,
    inside_send: StackRef,
}

impl FilesAndStacks {
    pub fn new(recording: &mut Recording) -> Self {
        let remote = fixtures::tcp(recording, 900, "10.0.0.1:40000", "10.0.0.2:80");
        for channel in (0..).filter(|&n| kind_of(n) == Kind::Loopback).take(4) {
            let inode = inode_of(channel);
            fixtures::tcp(recording, inode, "127.0.0.1:40000", "127.0.0.1:80");
        }
        let device = Some(DeviceKind::Storage);
        let disk = InterruptInfo { number: DISK_IRQ, device, handlers: "nvme0q1".to_owned() };
        recording.interrupts.insert(DISK_IRQ, disk);
        let inside_send = fixtures::kernel(
            recording,
            &[
                "__wake_up_sync_key",
                "sock_def_readable",
                "tcp_v4_rcv",
                "process_backlog",
                "net_rx_action",
                "handle_softirqs",
                "do_softirq.part.0",
                "__local_bh_enable_ip",
                "__dev_queue_xmit",
                "tcp_sendmsg",
            ],
        );
        Self { remote, inside_send }
    }

    pub fn wake(&self, waking: Waking, what: Option<WaitFor>) -> Wake {
        let idle = ThreadRef { tid: Tid(0), tgid: Tgid(0) };
        let mut wake = draw::wake_by(0, time(waking.at));
        wake.current = waking.current.unwrap_or(idle);
        wake.cpu = Cpu(waking.cpu as u16);
        match waking.by {
            WakeSource::Outside(outside) => wake.context = context(outside),
            WakeSource::Thread(_) => match what {
                Some(WaitFor::Futex { futex, .. }) => {
                    let op = FUTEX_WAKE | private(futex);
                    wake.syscall = syscall(FUTEX, [futex.address, op, 1, 0, 0, 0]);
                }
                Some(WaitFor::ThreadEnd { .. }) => wake.syscall = syscall(EXIT, [0; 6]),
                Some(WaitFor::Channel(n)) if kind_of(n) == Kind::Pipe => {
                    wake.syscall = syscall(WRITE, [descriptor(n), 1, 1, 0, 0, 0]);
                }
                Some(WaitFor::Channel(n)) => {
                    wake.syscall = syscall(SENDTO, [descriptor(n), 1, 1, 0, 0, 0]);
                    if kind_of(n) == Kind::Loopback {
                        wake.context = WakeContext::Softirq(NET_RX_SOFTIRQ);
                        wake.kernel_stack = self.inside_send;
                    }
                }
                Some(WaitFor::Outside(_)) | None => {}
            },
        }
        wake
    }

    /// A time off the CPU that was a wait; a newborn's first, if it was for nothing.
    pub fn wait(
        &self,
        name: Name,
        seq: u32,
        (left, back): (SwitchOut, SwitchIn),
        what: Option<WaitFor>,
        wake: Option<Wake>,
    ) -> Wait {
        let mut wait = draw::wait(name.tid.0, seq, time(left.at), time(back.at));
        wait.tgid = name.tgid;
        (wait.begin, wait.end) = (left.begin, back.end);
        wait.off_cpu = Cpu(left.cpu as u16);
        wait.on_cpu = Cpu(back.queue.cpu as u16);
        wait.migrated = back.queue.moved.map(time);
        wait.wake = wake;
        match what {
            None => wait.state = TaskState(0),
            Some(WaitFor::Futex { futex, expected } | WaitFor::ThreadEnd { futex, expected }) => {
                let op = FUTEX_WAIT | private(futex);
                wait.syscall = syscall(FUTEX, [futex.address, op, expected, 0, 0, 0]);
            }
            Some(WaitFor::Channel(n)) => {
                let is_pipe = kind_of(n) == Kind::Pipe;
                let number = if is_pipe { READ } else { RECVFROM };
                let kind = if is_pipe { FileKind::Pipe } else { FileKind::Socket };
                wait.syscall = syscall(number, [descriptor(n), 1, 1, 0, 0, 0]);
                wait.file = Some(fixtures::file(kind, inode_of(n)));
            }
            Some(WaitFor::Outside(Outside::Disk)) => {
                wait.syscall = syscall(IO_URING_ENTER, [4, 1, 1, 1, 0, 0]);
                wait.state = INTERRUPTIBLE;
            }
            Some(WaitFor::Outside(Outside::Network)) => {
                wait.syscall = syscall(RECVFROM, [5, 1, 1, 0, 0, 0]);
                wait.file = Some(self.remote);
            }
            Some(WaitFor::Outside(Outside::Timer)) => {
                wait.syscall = syscall(CLOCK_NANOSLEEP, [1, 0, 1, 0, 0, 0]);
                wait.state = INTERRUPTIBLE;
            }
            Some(WaitFor::Outside(Outside::Device | Outside::Interrupt | Outside::Unseen)) => {
                wait.syscall = syscall(READ, [6, 1, 1, 0, 0, 0]);
                wait.file = Some(fixtures::file(FileKind::Character, 700));
            }
        }
        wait
    }
}

/// A time off the CPU of a thread that could have gone on.
pub fn preemption(
    name: Name,
    seq: u32,
    (left, back): (SwitchOut, SwitchIn),
    next: Tid,
) -> Preemption {
    let mut preemption = draw::preemption(name.tid.0, seq, time(left.at), time(back.at));
    preemption.tgid = name.tgid;
    (preemption.begin, preemption.end) = (left.begin, back.end);
    preemption.off_cpu = Cpu(left.cpu as u16);
    preemption.on_cpu = Cpu(back.queue.cpu as u16);
    preemption.migrated = back.queue.moved.map(time);
    preemption.next = next;
    preemption
}

/// A stretch in which the quota of a thread's cgroup kept it from running.
pub fn throttle(name: Name, from: u64, until: u64) -> Throttle {
    Throttle {
        tid: name.tid,
        tgid: name.tgid,
        from: time(from),
        until: time(until),
        cgroup: CgroupId(u64::from(name.tgid.0)),
    }
}

pub fn thread_event(name: Name, reason: ThreadEventReason, at: u64) -> ThreadEvent {
    let thread_event = draw::thread_event(name.tid.0, reason, time(at), name.created);
    ThreadEvent { tgid: name.tgid, ..thread_event }
}

pub fn exit(name: Name, at: u64, seq: u32) -> ThreadExit {
    let Name { tid, tgid, .. } = name;
    ThreadExit { at: time(at), tid, tgid, in_target: false, seq, status: 0 }
}

/// A recording's waits.
pub fn waits(recording: &Recording) -> Vec<Wait> {
    recording.waits.iter().collect()
}

/// Gives a recording other waits.
pub fn put_waits(recording: &mut Recording, waits: Vec<Wait>) {
    recording.waits = waits.into_iter().collect();
}

/// The recording's time of a machine's.
pub fn time(at: u64) -> Timestamp {
    Timestamp(START + at)
}

fn context(outside: Outside) -> WakeContext {
    match outside {
        Outside::Timer => WakeContext::Hrtimer,
        Outside::Disk => WakeContext::Hardirq(DISK_IRQ),
        Outside::Network => WakeContext::Softirq(NET_RX_SOFTIRQ),
        Outside::Device => WakeContext::Hardirq(DEVICE_IRQ),
        Outside::Interrupt | Outside::Unseen => WakeContext::Softirq(RCU_SOFTIRQ),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pipe,
    Unix,
    Loopback,
}

fn kind_of(channel: usize) -> Kind {
    [Kind::Pipe, Kind::Unix, Kind::Loopback][channel % 3]
}

fn inode_of(channel: usize) -> u64 {
    500 + channel as u64
}

fn descriptor(channel: usize) -> u64 {
    10 + channel as u64
}

fn private(futex: Futex) -> u64 {
    if futex.process.is_some() { FUTEX_PRIVATE } else { 0 }
}

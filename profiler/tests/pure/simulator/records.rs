//! The simulator's events as the records of a recording: the one place that knows their fields.

use offwake_recording::{
    Begin, DeviceKind, End, FileId, FileKind, InterruptInfo, OpenFile, Preemption, Recording,
    SocketRole, StackRef, TaskState, ThreadEvent, ThreadEventReason, ThreadExit, ThreadRef,
    Throttle, Wait, Wake, WakeContext,
    units::{CgroupId, Cpu, Nanos, Tgid, Tid, Timestamp},
};

use super::{
    ProcessId, START, ThreadId,
    history::{Futex, Queue, WakeSource},
    machine::MOST_THREADS,
    program::{Outside, UPSTREAMS},
};
use crate::{
    draw,
    fixtures::{self, CLOCK_NANOSLEEP, FUTEX, READ, RECVFROM, syscall},
};

const WRITE: u32 = 1;
const SENDTO: u32 = 44;
const EXIT: u32 = 60;
const IO_URING_ENTER: u32 = 426;
const EPOLL_PWAIT2: u32 = 441;

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
    Futex {
        futex: Futex,
        expected: u64,
    },
    ThreadEnd {
        futex: Futex,
        expected: u64,
    },
    Channel(usize),
    /// Whatever comes to the event loop.
    Poll {
        timeout: Option<u64>,
    },
    /// The next job of a pool's, in the loop of its workers.
    Job {
        futex: Futex,
        expected: u64,
    },
    /// The event loop's answer to this client.
    Answer(ThreadId),
    /// What the event loop asks this server.
    Asked(usize),
}

/// The socket that something is sent through: one of a connection's ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    FromClient(ThreadId),
    ToClient(ThreadId),
    FromUpstream(usize),
    ToUpstream(usize),
}

impl Through {
    fn file(self) -> FileId {
        let inode = match self {
            Self::FromClient(client) => 2_000 + client.0,
            Self::ToClient(client) => 3_000 + client.0,
            Self::FromUpstream(n) => 4_000 + n,
            Self::ToUpstream(n) => 5_000 + n,
        };
        fixtures::file(FileKind::Socket, inode as u64)
    }

    /// Makes both ends of a connection known.
    fn connect(recording: &mut Recording, asking: Self, serving: Self, port: u16) {
        let ports = (40_000 + asking.file().inode, port);
        let (one, other) = (format!("127.0.0.1:{}", ports.0), format!("127.0.0.1:{}", ports.1));
        for (end, local, remote, role) in [
            (asking, &one, &other, SocketRole::Asking),
            (serving, &other, &one, SocketRole::Serving),
        ] {
            let id = fixtures::tcp(recording, end.file().inode, local, remote);
            if let Some(OpenFile::Socket(socket)) = recording.files.files.get_mut(&id) {
                socket.role = Some(role);
            }
        }
    }
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
    /// The socket that it came through.
    pub through: Option<Through>,
}

/// The files and stacks that a machine's records refer to.
#[derive(Clone, Copy, Debug)]
pub struct FilesAndStacks {
    remote: FileId,
    inside_send: StackRef,
    worker_loop: StackRef,
}

impl FilesAndStacks {
    pub fn new(recording: &mut Recording) -> Self {
        let remote = fixtures::tcp(recording, 900, "10.0.0.1:40000", "10.0.0.2:80");
        for channel in (0..).filter(|&n| kind_of(n) == Kind::Loopback).take(4) {
            let inode = inode_of(channel);
            fixtures::tcp(recording, inode, "127.0.0.1:40000", "127.0.0.1:80");
        }
        for n in 0..MOST_THREADS {
            let (asking, serving) = (ThreadId(n), ThreadId(n));
            let ends = (Through::FromClient(asking), Through::ToClient(serving));
            Through::connect(recording, ends.0, ends.1, 81);
            let ends = (Through::ToUpstream(n), Through::FromUpstream(n));
            Through::connect(recording, ends.0, ends.1, 90 + (n % UPSTREAMS) as u16);
        }
        let device = Some(DeviceKind::Storage);
        let disk = InterruptInfo { number: DISK_IRQ, device, handlers: "nvme0q1".to_owned() };
        recording.interrupts.insert(DISK_IRQ, disk);
        let inside_send = fixtures::packet_over(
            recording,
            &["do_softirq.part.0", "__local_bh_enable_ip", "__dev_queue_xmit", "tcp_sendmsg"],
        );
        let frames = ["libc.so.6 pthread_cond_wait", "app ngx_thread_pool_cycle"];
        let worker_loop = fixtures::user(recording, ProcessId(0).tgid().0, &frames);
        Self { remote, inside_send, worker_loop }
    }

    pub fn wake(&self, waking: Waking, what: Option<WaitFor>) -> Wake {
        let idle = ThreadRef { tid: Tid(0), tgid: Tgid(0) };
        let mut wake = draw::wake_by(0, time(waking.at));
        wake.current = waking.current.unwrap_or(idle);
        wake.cpu = Cpu(waking.cpu as u16);
        match waking.by {
            WakeSource::Outside(outside) => wake.context = context(outside),
            WakeSource::Thread(_) => match what {
                Some(WaitFor::Futex { futex, .. } | WaitFor::Job { futex, .. }) => {
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
                Some(WaitFor::Poll { .. } | WaitFor::Answer(_) | WaitFor::Asked(_)) => {
                    wake.syscall = syscall(SENDTO, [8, 1, 1, 0, 0, 0]);
                    wake.file = waking.through.map(Through::file);
                    wake.context = WakeContext::Softirq(NET_RX_SOFTIRQ);
                    wake.kernel_stack = self.inside_send;
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
            Some(
                WaitFor::Futex { futex, expected }
                | WaitFor::ThreadEnd { futex, expected }
                | WaitFor::Job { futex, expected },
            ) => {
                if matches!(what, Some(WaitFor::Job { .. })) {
                    wait.user_stack = self.worker_loop;
                }
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
            Some(WaitFor::Poll { timeout }) => {
                wait.syscall = syscall(EPOLL_PWAIT2, [5, 1, 16, 1, 0, 0]);
                wait.timeout = timeout.map(Nanos);
            }
            Some(WaitFor::Answer(client)) => {
                wait.syscall = syscall(RECVFROM, [8, 1, 1, 0, 0, 0]);
                wait.file = Some(Through::FromClient(client).file());
            }
            Some(WaitFor::Asked(n)) => {
                wait.syscall = syscall(RECVFROM, [8, 1, 1, 0, 0, 0]);
                wait.file = Some(Through::FromUpstream(n).file());
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

/// Makes everything take so many times as long: a machine's times are nanoseconds, and what is told by how
/// long things take would all look alike.
pub fn stretch(recording: &mut Recording, times: u64) {
    let longer = |at: &mut Timestamp| {
        at.0 = START + at.0.saturating_sub(START) * times;
    };
    let mut all = waits(recording);
    for wait in &mut all {
        [&mut wait.off, &mut wait.on].into_iter().for_each(longer);
        wait.migrated.iter_mut().for_each(longer);
        wait.wake.iter_mut().for_each(|wake| longer(&mut wake.at));
        wait.timeout.iter_mut().for_each(|timeout| timeout.0 *= times);
    }
    put_waits(recording, all);
    for preemption in &mut recording.preemptions {
        [&mut preemption.off, &mut preemption.on].into_iter().for_each(longer);
        preemption.migrated.iter_mut().for_each(longer);
    }
    for throttle in &mut recording.throttles {
        [&mut throttle.from, &mut throttle.until].into_iter().for_each(longer);
    }
    recording.thread_events.iter_mut().for_each(|event| longer(&mut event.at));
    recording.exits.iter_mut().for_each(|exit| longer(&mut exit.at));
    let window = &mut recording.meta.window;
    [&mut window.start, &mut window.end].into_iter().for_each(longer);
    recording.sort();
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

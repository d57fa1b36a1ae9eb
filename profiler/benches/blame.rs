//! Records → timeline → blame → report, or requests, timed on a service of many small requests. One run, one
//! line of JSON; `cargo xtask bench blame` and `bench requests` run it for several sizes.
//!
//! ```text
//! client  ##|..................................|##     10 us a character, about
//! server  ..|##|...........................|##|...
//! db      .....|##|....... disk ......|##|........
//! watcher .................................... a second at a time
//! ```

use std::{
    env, fs,
    process::ExitCode,
    time::{Duration, Instant},
};

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    report::Report,
    requests::RequestAnalysis,
    timeline::Timeline,
};
use offwake_recording::{
    AddressKind, AddressSpace, Begin, ClosedBy, End, Frame, FrameId, Function, Meta, Phase,
    Preemption, Recording, Stack, StackEnd, StackRef, Syscall, SyscallTable, TaskState,
    ThreadEvent, ThreadEventReason, ThreadKind, ThreadRef, Wait, Wake, WakeContext, Window,
    units::{CgroupId, Cpu, StackId, Tgid, Tid, Timestamp},
};
use rustix::time::{ClockId, clock_gettime};

/// Services side by side.
const SERVICES: u32 = 16;
const ROLES: [Role; 4] = [Role::Client, Role::Server, Role::Db, Role::Watcher];
/// Nanoseconds from one request of a service to its next.
const REQUEST: u64 = 100_000;
const WATCH: u64 = 1_000_000_000;
const START: u64 = 1_000_000;
/// Waits of a service for each request: client, server twice, db twice.
const WAITS: u64 = 5;

/// Who does what in a service.
#[derive(Clone, Copy)]
enum Role {
    Client,
    Server,
    Db,
    Watcher,
}

fn main() -> ExitCode {
    // `cargo bench` adds its own.
    let waits = env::args().skip(1).find_map(|argument| argument.parse::<u64>().ok());
    let Some(waits) = waits else {
        eprintln!("usage: blame WAITS [requests]");
        return ExitCode::from(2);
    };
    let finds_requests = env::args().any(|argument| argument == "requests");
    let recording = recording(waits);
    let held = memory("VmRSS");
    let cpu_before = clock_gettime(ClockId::ProcessCPUTime);
    let begun = Instant::now();
    let timeline = Timeline::build(&recording);
    let laid = begun.elapsed();
    let blame = Blame::new(&recording, &timeline, ChainLimits::default());
    let prepared = begun.elapsed();
    let ledgers = blame.ledgers();
    let blamed = begun.elapsed();
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let peak_of_blame = memory("VmHWM");
    if finds_requests {
        print_requests(&blame, blamed);
        return ExitCode::SUCCESS;
    }
    let report = Report::new(&blame, &Filter::default());
    let reported = begun.elapsed() - blamed;
    let attributed: u64 = ledgers.iter().map(|ledger| ledger.attributed().0).sum();
    let cpu_ns =
        (cpu.tv_sec - cpu_before.tv_sec) * 1_000_000_000 + cpu.tv_nsec - cpu_before.tv_nsec;
    println!(
        "{{\"waits\":{},\"cpu_ns\":{cpu_ns},\"timeline_ns\":{},\"prepare_ns\":{},\"blame_ns\":{},\"report_ns\":{},\
         \"recording_kib\":{held},\"blame_peak_kib\":{peak_of_blame},\"peak_kib\":{},\
         \"attributed_ns\":{attributed},\"entries\":{}}}",
        recording.waits.len(),
        laid.as_nanos(),
        (prepared - laid).as_nanos(),
        (blamed - prepared).as_nanos(),
        reported.as_nanos(),
        memory("VmHWM"),
        report.waits.len(),
    );
    ExitCode::SUCCESS
}

/// Finds requests, and says how long that took after blame had taken so long.
fn print_requests(blame: &Blame<'_>, blamed: Duration) {
    let begun = Instant::now();
    let analysis = RequestAnalysis::find(blame);
    let found = begun.elapsed();
    let summary = analysis.summary();
    let listed: u64 = summary.classes.iter().map(|class| class.count).sum();
    println!(
        "{{\"requests\":{},\"blame_ns\":{},\"requests_ns\":{},\"peak_kib\":{}}}",
        listed + summary.summed_up.count,
        blamed.as_nanos(),
        found.as_nanos(),
        memory("VmHWM"),
    );
}

/// A line of `/proc/self/status`, in KiB.
fn memory(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    value.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Lives of a service, all alike but for their beginnings.
struct Service {
    number: u32,
    seqs: [u32; ROLES.len()],
}

impl Service {
    fn tid(&self, role: Role) -> Tid {
        Tid(1_000 + self.number * ROLES.len() as u32 + role as u32)
    }

    fn cpu(&self, role: Role) -> Cpu {
        Cpu((self.number * ROLES.len() as u32 + role as u32) as u16)
    }

    fn seq(&mut self, role: Role) -> u32 {
        self.seqs[role as usize] += 1;
        self.seqs[role as usize]
    }

    fn wait(&mut self, role: Role, times: [u64; 3], ended_by: Option<Role>) -> Wait {
        let [off, woken, on] = times.map(Timestamp);
        let tid = self.tid(role);
        let waker = ended_by.map_or(Tid(0), |role| self.tid(role));
        let context = if ended_by.is_some() { WakeContext::Task } else { WakeContext::Softirq(4) };
        let call = |number, first| {
            Some(Syscall {
                table: SyscallTable::Native,
                number,
                args: [first, 0x7f00, 512, 0, 0, 0],
            })
        };
        Wait {
            tid,
            tgid: Tgid(tid.0),
            kind: ThreadKind::User,
            in_target: true,
            seq: self.seq(role),
            begin: Begin::Seen,
            end: End::Seen,
            off,
            on,
            migrated: None,
            off_cpu: self.cpu(role),
            on_cpu: self.cpu(role),
            state: TaskState(1),
            syscall: call(0, u64::from(tid.0 % 7)),
            timeout: None,
            file: None,
            polled_fd: None,
            polled_events: None,
            cgroup: CgroupId(1),
            user_stack: StackRef::Id(StackId(u64::from(tid.0))),
            kernel_stack: StackRef::Id(StackId(1)),
            wake: Some(Wake {
                at: woken,
                context,
                cpu: self.cpu(role),
                current: ThreadRef { tid: waker, tgid: Tgid(waker.0) },
                current_kind: ThreadKind::User,
                current_seq: None,
                file: None,
                ready: None,
                syscall: call(1, u64::from(waker.0 % 5)),
                user_stack: StackRef::Id(StackId(u64::from(waker.0))),
                kernel_stack: StackRef::Id(StackId(2)),
            }),
        }
    }

    fn request(&mut self, at: u64, recording: &mut Recording) {
        let t = |us: u64| at + us * 1_000;
        let mut add = |wait: Wait| recording.waits.push(&wait);
        add(self.wait(Role::Client, [t(2), t(90), t(92)], Some(Role::Server)));
        add(self.wait(Role::Server, [t(21), t(80), t(82)], Some(Role::Db)));
        add(self.wait(Role::Db, [t(40), t(70), t(72)], None));
        add(self.wait(Role::Db, [t(81), t(118), t(121)], Some(Role::Server)));
        add(self.wait(Role::Server, [t(91), t(101), t(103)], Some(Role::Client)));
        if (at / REQUEST).is_multiple_of(2) {
            let (tid, cpu) = (self.tid(Role::Client), self.cpu(Role::Client));
            recording.preemptions.push(Preemption {
                tid,
                tgid: Tgid(tid.0),
                kind: ThreadKind::User,
                in_target: true,
                seq: self.seq(Role::Client),
                begin: Begin::Seen,
                end: End::Seen,
                off: Timestamp(t(94)),
                on: Timestamp(t(96)),
                migrated: None,
                off_cpu: cpu,
                on_cpu: cpu,
                next: Tid(1),
            });
        }
        if at % WATCH < REQUEST {
            let until = at + WATCH;
            let wait = self.wait(Role::Watcher, [at + 500, until, until + 400], Some(Role::Client));
            recording.waits.push(&wait);
        }
    }
}

/// About so many waits of [`SERVICES`] services.
fn recording(waits: u64) -> Recording {
    let requests = (waits / WAITS / u64::from(SERVICES)).max(1);
    let end = START + (requests + 1) * REQUEST;
    let window = Window { start: Timestamp(START), end: Timestamp(end) };
    let meta = Meta { window, closed_by: ClosedBy::Duration, ..Meta::default() };
    let mut recording = Recording { meta, ..Recording::default() };
    let mut services: Vec<Service> =
        (0..SERVICES).map(|number| Service { number, seqs: [0; ROLES.len()] }).collect();
    for service in &services {
        for role in ROLES {
            introduce(&mut recording, service.tid(role));
        }
    }
    for request in 0..requests {
        for service in &mut services {
            let at = START + request * REQUEST + u64::from(service.number) * 37;
            service.request(at, &mut recording);
        }
    }
    for service in &services {
        for role in ROLES {
            let last = ThreadEvent {
                at: Timestamp(end),
                reason: ThreadEventReason::Closing,
                seq: service.seqs[role as usize],
                ..thread_event(service.tid(role))
            };
            recording.thread_events.push(last);
        }
    }
    recording.sort();
    recording
}

fn introduce(recording: &mut Recording, tid: Tid) {
    recording.thread_events.push(thread_event(tid));
    let frame = FrameId(tid.0);
    let stacks = &mut recording.stacks;
    stacks.frames.insert(
        frame,
        Frame {
            address: u64::from(tid.0),
            kind: AddressKind::Return,
            module: None,
            module_offset: None,
            functions: vec![Function::named(format!("function{}", tid.0))],
        },
    );
    let stack = Stack {
        space: AddressSpace::Process(Tgid(tid.0)),
        frames: vec![frame; 12],
        end: StackEnd::Unknown,
    };
    stacks.stacks.insert(StackId(u64::from(tid.0)), stack);
}

/// As the window opens.
fn thread_event(tid: Tid) -> ThreadEvent {
    ThreadEvent {
        at: Timestamp(START),
        reason: ThreadEventReason::Opening,
        tid,
        old_tid: None,
        tgid: Tgid(tid.0),
        parent: Tgid(1),
        kind: ThreadKind::User,
        in_target: true,
        phase: Phase::OnCpu,
        seq: 0,
        created: Timestamp(1),
        cgroup: CgroupId(1),
        comm: format!("thread{}", tid.0),
    }
}

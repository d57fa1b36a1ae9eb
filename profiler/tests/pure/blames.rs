//! Who or what a wait is blamed on, one rule each.

use offwake_analysis::{
    blame::{Blame, BlameKind, BlamePart, ChainLimits, External, IdleState, Reason, WakeSource},
    filter::{Filter, IdleWaits},
    report::Report,
    timeline::{Timeline, WaitIndex},
};
use offwake_recording::{
    DeviceKind, FileId, FileKind, InterruptInfo, OpenFile, PeerProcess, ReadyFile, Recording,
    Scope, StackRef, SystemVector, TaskState, ThreadRef, Wait, Waits, WakeContext,
    units::{Nanos, Tgid, Tid},
};

use crate::{
    draw::{TICK, at, edit, live, lose, recording, throttle, ticks, wait, wake_by},
    fixtures::{
        CONNECT, EPOLL_WAIT, FUTEX, POLL, READ, RECVFROM, file, kernel, packet_over, syscall, tcp,
    },
};

/// The blame of thread 7's first wait in words and ticks.
pub fn first_wait(recording: &mut Recording) -> Vec<(String, u64)> {
    recording.sort();
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let index = recording.waits.iter().position(|wait| wait.tid == Tid(7)).expect("a wait");
    let index = WaitIndex(index as u32);
    let parts = blame.walker().parts(index).to_vec();
    let place = timeline.blocked_interval(index).expect("blocked");
    assert_eq!(parts.iter().map(|part| part.time).sum::<Nanos>(), place.to.since(place.from));
    (parts.iter())
        .map(|part| {
            let tid = |index| timeline.thread(index).expect("a thread").tid;
            let word = match part.kind {
                BlameKind::Work(thread) => format!("work {}", tid(thread)),
                BlameKind::CpuQueue { thread, .. } => format!("cpu_queue {}", tid(thread)),
                BlameKind::External(external) => external.name().to_owned(),
                BlameKind::Unattributed(reason) => reason.name().to_owned(),
            };
            (word, part.time.0 / TICK)
        })
        .collect()
}

/// How a wait of thread 7 divides if threads 7 and 8 lived like this; 8 wakes 7.
fn two(waiter: &str, waker: &str) -> Vec<(String, u64)> {
    let mut recording = recording(waiter.len());
    live(&mut recording, 7, waiter, 8);
    live(&mut recording, 8, waker, 9);
    first_wait(&mut recording)
}

pub fn parts(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|&(word, n)| (word.to_owned(), n)).collect()
}

#[test]
fn a_wait_divides_over_what_its_waker_did_meanwhile() {
    assert_eq!(
        two("#........r#", "###..rr####"),
        parts(&[("work 8", 4), ("cpu_queue 8", 2), ("not_recorded", 2)])
    );
    // Only while it was blocked: what the waker did after the wake is not to blame.
    assert_eq!(two("#..rrrrrr##", "###########"), parts(&[("work 8", 2)]));
}

/// Thread 8 wakes 9 at tick 2 and is off the CPU until it waits for 9, at tick 7.
fn behind_preempted(is_throttled: bool) -> Vec<(String, u64)> {
    let mut recording = recording(13);
    live(&mut recording, 7, "#..........r#", 8);
    live(&mut recording, 8, "##rrrrr....##", 9);
    live(&mut recording, 9, "..###########", 8);
    name_preemptor(&mut recording, 9);
    if is_throttled {
        throttle(&mut recording, 8, 2..4, 40);
    }
    first_wait(&mut recording)
}

#[test]
fn who_lost_its_cpu_to_the_one_that_it_waits_for_next_waits_for_that_ones_work() {
    assert_eq!(behind_preempted(false), parts(&[("work 9", 9), ("work 8", 1)]));
}

/// Thread 9 asks 6 in turn, while 8 still has no CPU.
#[test]
fn who_lost_its_cpu_waits_for_whoever_its_preemptor_waits_for() {
    let mut recording = recording(13);
    live(&mut recording, 7, "#..........r#", 8);
    live(&mut recording, 8, "##rrrrr....##", 9);
    live(&mut recording, 9, "..##...######", 6);
    live(&mut recording, 6, "....#########", 9);
    edit(&mut recording, |waits| {
        let asked = waits.iter_mut().find(|wait| wait.tid == Tid(9)).expect("9 waits");
        asked.wake = Some(wake_by(8, at(2)));
    });
    name_preemptor(&mut recording, 9);
    assert_eq!(first_wait(&mut recording), parts(&[("work 9", 6), ("work 6", 3), ("work 8", 1)]));
    // What it waits for is the first thread itself: without a CPU for that one, nothing goes on.
    let mut recording = recording_of_two_that_wait_for_each_other();
    let blame = first_wait(&mut recording);
    assert!(blame.contains(&("cpu_queue 8".to_owned(), 3)), "{blame:?}");
}

/// The ticks of one kind of blame, on whatever chains.
fn sum_ticks(blame: &[(String, u64)], what: &str) -> u64 {
    blame.iter().filter(|(word, _)| word == what).map(|(_, ticks)| ticks).sum()
}

/// Thread 8 asks 9 at tick 2, and 9 asks 6, which takes 8's CPU before 8 waits for 9.
#[test]
fn who_lost_its_cpu_to_a_third_waits_for_the_one_that_it_had_asked() {
    let behind_a_third = |asked_by: u32| {
        let mut recording = recording(13);
        live(&mut recording, 7, "#..........r#", 8);
        live(&mut recording, 8, "####rrr....##", 9);
        live(&mut recording, 9, "..##....#####", 6);
        live(&mut recording, 6, "....#########", 9);
        edit(&mut recording, |waits| {
            let asked = waits.iter_mut().find(|wait| wait.tid == Tid(9)).expect("9 waits");
            asked.wake = Some(wake_by(asked_by, at(2)));
        });
        name_preemptor(&mut recording, 6);
        first_wait(&mut recording)
    };
    let blame = behind_a_third(8);
    assert_eq!(
        (sum_ticks(&blame, "work 6"), sum_ticks(&blame, "cpu_queue 8")),
        (4, 0),
        "{blame:?}"
    );
    // Somebody else asked 9: until 8 has a CPU, 9 does nothing for it.
    let blame = behind_a_third(5);
    assert_eq!(
        (sum_ticks(&blame, "work 6"), sum_ticks(&blame, "cpu_queue 8")),
        (1, 3),
        "{blame:?}"
    );
}

/// As before, but 6 takes the CPU from 9 before that one waits for it, at tick 9, when 8 waits already.
#[test]
fn who_lost_its_cpu_waits_for_one_that_lost_its_own_to_whom_it_asked() {
    let behind_two = |asked_by: u32| {
        let mut recording = recording(13);
        live(&mut recording, 7, "#..........r#", 8);
        live(&mut recording, 8, "##rrrrr....##", 9);
        live(&mut recording, 9, "..##rrrr..###", 6);
        live(&mut recording, 6, "...##########", 9);
        let mut asks = [(Tid(9), 8, at(2)), (Tid(6), asked_by, at(3))].into_iter();
        edit(&mut recording, |waits| {
            for (tid, by, when) in asks.by_ref() {
                let asked = waits.iter_mut().find(|wait| wait.tid == tid).expect("it waits");
                asked.wake = Some(wake_by(by, when));
            }
        });
        name_preemptor(&mut recording, 6);
        first_wait(&mut recording)
    };
    let blame = behind_two(9);
    assert_eq!(
        (sum_ticks(&blame, "cpu_queue 8"), sum_ticks(&blame, "cpu_queue 9")),
        (0, 0),
        "{blame:?}"
    );
    // Somebody else asked 6: it keeps 9 from its CPU.
    let blame = behind_two(5);
    assert_eq!(
        (sum_ticks(&blame, "cpu_queue 8"), sum_ticks(&blame, "cpu_queue 9")),
        (0, 4),
        "{blame:?}"
    );
}

fn recording_of_two_that_wait_for_each_other() -> Recording {
    let mut recording = recording(13);
    live(&mut recording, 7, "#..........r#", 8);
    live(&mut recording, 8, "##rrrrr....##", 9);
    live(&mut recording, 9, "..##...######", 8);
    name_preemptor(&mut recording, 9);
    recording
}

fn name_preemptor(recording: &mut Recording, tid: u32) {
    for preemption in &mut recording.preemptions {
        preemption.next = Tid(tid);
    }
}

#[test]
fn who_lost_its_cpu_to_its_quota_was_preempted_by_nobody() {
    let expected = [("work 9", 4), ("cpu_queue 8", 3), ("throttled", 2), ("work 8", 1)];
    assert_eq!(behind_preempted(true), parts(&expected));
}

#[test]
fn a_waker_is_not_blamed_for_the_time_before_it_was_there() {
    assert_eq!(
        two("#........r#", "    rr#####"),
        parts(&[("work 8", 3), ("cpu_queue 8", 2), ("not_yet_created", 3)])
    );
}

#[test]
fn a_gap_of_the_waker_is_lost() {
    let mut recording = recording(11);
    live(&mut recording, 7, "#........r#", 8);
    live(&mut recording, 8, "##.r##.r#.#", 9);
    lose(&mut recording, 8, 2);
    // On-CPU at tick 1, blocked at 2, runnable at 3, then lost from its switch-in at 4 on.
    assert_eq!(
        first_wait(&mut recording),
        parts(&[("lost", 5), ("cpu_queue 8", 1), ("not_recorded", 1), ("work 8", 1)])
    );
}

#[test]
fn a_wait_that_began_before_the_window_is_blamed_for_its_part_inside() {
    assert_eq!(two("......r####", "###########"), parts(&[("work 8", 6)]));
}

#[test]
fn with_no_wake_the_reason_is_told() {
    assert_eq!(two("##____#####", "###########"), parts(&[("no_wakeup", 4)]));
    assert_eq!(two("____#######", "###########"), parts(&[("before_window", 4)]));
    assert_eq!(two("##.........", "###########"), parts(&[("still_blocked", 9)]));
    assert_eq!(two("...........", "###########"), parts(&[("still_blocked", 11)]));
}

#[test]
fn a_sleep_that_lasted_was_ended_by_its_timer_though_nobody_saw_it() {
    const CLOCK_NANOSLEEP: u32 = 230;
    const ABSOLUTE: u64 = 1;
    let ended_by = |number, flags, asked_for: u64| {
        let mut recording = recording(11);
        live(&mut recording, 7, "##____#####", 8);
        edit(&mut recording, |waits| {
            waits[0].syscall = syscall(number, [1, flags, 0, 0, 0, 0]);
            waits[0].timeout = Some(Nanos(asked_for));
        });
        first_wait(&mut recording)
    };
    let timer = parts(&[("timer", 4)]);
    let unknown = parts(&[("no_wakeup", 4)]);
    // The time counts from the call, a little before the thread leaves its CPU.
    assert_eq!(ended_by(CLOCK_NANOSLEEP, 0, 4 * TICK + 20_000), timer);
    assert_eq!(ended_by(CLOCK_NANOSLEEP, 0, TICK), timer);
    assert_eq!(ended_by(CLOCK_NANOSLEEP, ABSOLUTE, at(6).0), timer);
    // Something else ended it, or it was no sleep.
    assert_eq!(ended_by(CLOCK_NANOSLEEP, 0, 5 * TICK), unknown);
    assert_eq!(ended_by(CLOCK_NANOSLEEP, ABSOLUTE, at(6).0 + 1), unknown);
    assert_eq!(ended_by(READ, 0, TICK), unknown);
}

#[test]
fn a_waker_that_was_not_recorded_is_not_guessed_at() {
    let mut recording = recording(11);
    live(&mut recording, 7, "#........r#", 60);
    assert_eq!(first_wait(&mut recording), parts(&[("not_recorded", 8)]));
    // Sighted, but its waits were out of scope: it looks as if it had never left the CPU.
    live(&mut recording, 60, "###########", 9);
    assert_eq!(first_wait(&mut recording), parts(&[("work 60", 8)]));
    recording.meta.scope = Scope::Target;
    assert_eq!(first_wait(&mut recording), parts(&[("not_recorded", 8)]));
}

/// The circumstances in which a wait was ended.
struct WakeCase {
    context: WakeContext,
    current: u32,
    syscall: u32,
    file: Option<FileId>,
    stack: StackRef,
}

impl WakeCase {
    fn in_context(context: WakeContext) -> Self {
        Self { context, current: 8, syscall: READ, file: None, stack: StackRef::NotTaken }
    }

    fn ended_by(self, recording: &mut Recording) -> WakeSource {
        self.ended_by_with(recording, |_| {})
    }

    /// The same, beside other waits.
    fn ended_by_with(
        self,
        recording: &mut Recording,
        add: impl FnOnce(&mut Vec<Wait>),
    ) -> WakeSource {
        recording.waits = Waits::default();
        recording.thread_events.clear();
        live(recording, 7, "#........r#", 8);
        live(recording, 8, "###########", 9);
        edit(recording, |waits| {
            let wait = &mut waits[0];
            wait.syscall = syscall(self.syscall, [5, 1, 0, 0, 0, 0]);
            wait.file = self.file;
            let wake = wait.wake.as_mut().expect("woken");
            wake.context = self.context;
            wake.kernel_stack = self.stack;
            let (tid, tgid) = (Tid(self.current), Tgid(self.current));
            wake.current = ThreadRef { tid, tgid };
            add(waits);
        });
        recording.sort();
        let timeline = Timeline::build(recording);
        let blame = Blame::new(recording, &timeline, ChainLimits::default());
        let is_task = matches!(blame.wake_source(WaitIndex(0)), WakeSource::Task(_));
        let named = (blame.walker().parts(WaitIndex(0)).iter())
            .any(|part| matches!(part.kind, BlameKind::Work(_) | BlameKind::CpuQueue { .. }));
        assert_eq!(is_task, named);
        blame.wake_source(WaitIndex(0))
    }
}

const TASK: WakeSource = WakeSource::Task(ThreadRef { tid: Tid(8), tgid: Tgid(8) });
const LOCAL: WakeSource = WakeSource::Interrupt(Reason::LocalSoftirq);
const NOBODY: WakeSource = WakeSource::Interrupt(Reason::Interrupt);
const NET_RX: WakeContext = WakeContext::Softirq(3);

#[test]
fn an_interrupt_never_names_the_task_that_it_ran_over() {
    let mut recording = recording(11);
    let system = WakeContext::System;
    for (context, expected) in [
        (WakeContext::Task, TASK),
        (WakeContext::Softirq(0), NOBODY),
        (WakeContext::Softirq(1), WakeSource::External(External::Timer)),
        (WakeContext::Softirq(2), NOBODY),
        (NET_RX, NOBODY),
        (WakeContext::Softirq(4), WakeSource::External(External::Disk)),
        (WakeContext::Softirq(5), WakeSource::External(External::Disk)),
        (WakeContext::Softirq(6), NOBODY),
        (WakeContext::Softirq(7), NOBODY),
        (WakeContext::Softirq(8), WakeSource::External(External::Timer)),
        (WakeContext::Softirq(9), NOBODY),
        (WakeContext::Hardirq(24), WakeSource::External(External::Device)),
        (WakeContext::Hrtimer, WakeSource::External(External::Timer)),
        (system(SystemVector::LocalTimer), WakeSource::External(External::Timer)),
        (system(SystemVector::Unknown), NOBODY),
        (system(SystemVector::CallFunction), NOBODY),
        (system(SystemVector::IrqWork), NOBODY),
    ] {
        assert_eq!(WakeCase::in_context(context).ended_by(&mut recording), expected, "{context:?}");
    }
}

#[test]
fn the_idle_task_wakes_nobody() {
    let case = WakeCase { current: 0, ..WakeCase::in_context(WakeContext::Task) };
    assert_eq!(case.ended_by(&mut recording(11)), NOBODY);
}

/// A compiler was stopped by the clock's interrupt, and softirqs were left over as that ended.
#[test]
fn who_was_stopped_by_an_interrupt_has_not_woken_ksoftirqd() {
    for (under_softirqs, expected) in [
        (&["__irq_exit_rcu", "sysvec_apic_timer_interrupt"][..], NOBODY),
        (&["irq_exit", "do_IRQ", "common_interrupt"], NOBODY),
        // What a thread's own send leaves over.
        (&["do_softirq.part.0", "__local_bh_enable_ip", "__dev_queue_xmit", "tcp_sendmsg"], TASK),
    ] {
        let mut recording = recording(11);
        let leaf = ["try_to_wake_up", "wakeup_softirqd", "handle_softirqs"];
        let stack = kernel(&mut recording, &[&leaf, under_softirqs].concat());
        let case = WakeCase { stack, ..WakeCase::in_context(WakeContext::Task) };
        assert_eq!(case.ended_by(&mut recording), expected, "{under_softirqs:?}");
    }
}

#[test]
fn a_softirq_inside_a_send_is_the_senders() {
    let mut recording = recording(11);
    let local = Some(tcp(&mut recording, 5, "127.0.0.1:40000", "127.0.0.1:80"));
    let remote = Some(tcp(&mut recording, 6, "10.0.0.1:40000", "10.0.0.2:80"));
    let send = &["do_softirq.part.0", "__local_bh_enable_ip", "__dev_queue_xmit", "tcp_sendmsg"];
    let sending = packet_over(&mut recording, send);
    let irq = &["__irq_exit_rcu", "common_interrupt", "__dev_queue_xmit", "tcp_sendmsg"];
    let interrupted = packet_over(&mut recording, irq);
    let daemon = packet_over(&mut recording, &["run_ksoftirqd", "smpboot_thread_fn", "kthread"]);
    let enabling =
        packet_over(&mut recording, &["do_softirq", "__local_bh_enable_ip", "tcp_recvmsg"]);
    let network = WakeSource::External(External::Network);
    for (file, stack, expected) in [
        (local, sending, TASK),
        (local, interrupted, LOCAL),
        (local, daemon, LOCAL),
        (local, enabling, LOCAL),
        (local, StackRef::Failed, LOCAL),
        // Another machine's packet, handled while somebody here sends something.
        (remote, sending, network),
        (remote, interrupted, network),
        (remote, StackRef::NotTaken, network),
    ] {
        let case = WakeCase { syscall: RECVFROM, file, stack, ..WakeCase::in_context(NET_RX) };
        assert_eq!(case.ended_by(&mut recording), expected, "{file:?} {stack:?}");
    }
    // Whoever sends just then is the sender only if it holds the other end.
    for (holder, expected) in [(8, TASK), (9, LOCAL)] {
        let peer = PeerProcess { tgid: Tgid(holder), comm: "peer".to_owned() };
        let socket = local.and_then(|file| recording.files.files.get_mut(&file));
        let Some(OpenFile::Socket(end)) = socket else { panic!("a socket") };
        end.peers = vec![peer];
        let case = WakeCase {
            syscall: RECVFROM,
            file: local,
            stack: sending,
            ..WakeCase::in_context(NET_RX)
        };
        assert_eq!(case.ended_by(&mut recording), expected, "held by {holder}");
    }
    // Behind epoll the socket is not known: the stack alone tells.
    let driver = [
        "ep_poll_callback",
        "tcp_v4_rcv",
        "napi_gro_receive",
        "virtnet_poll",
        "net_rx_action",
        "handle_softirqs",
        "__irq_exit_rcu",
        "common_interrupt",
    ];
    let driver = kernel(&mut recording, &driver);
    for (stack, expected) in
        [(sending, TASK), (interrupted, LOCAL), (driver, network), (StackRef::NotTaken, NOBODY)]
    {
        let file = Some(file(FileKind::Anonymous, 9));
        let case = WakeCase { syscall: EPOLL_WAIT, file, stack, ..WakeCase::in_context(NET_RX) };
        assert_eq!(case.ended_by(&mut recording), expected, "{stack:?}");
    }
    // The idle task sends nothing.
    let case = WakeCase { current: 0, file: local, stack: sending, ..WakeCase::in_context(NET_RX) };
    assert_eq!(case.ended_by(&mut recording), LOCAL);
}

/// Thread 7 waits for an answer from beyond a virtual device; its socket is gone before anybody has
/// looked at it, or before anybody has looked who holds its other end.
#[test]
fn who_answers_through_short_connections_is_known_by_one_that_was_seen() {
    let mut recording = recording(11);
    let driver = [
        "sock_def_readable",
        "tcp_v4_rcv",
        "napi_gro_receive",
        "veth_xdp_rcv",
        "veth_poll",
        "net_rx_action",
        "handle_softirqs",
        "do_softirq.part.0",
        "__local_bh_enable_ip",
        "__dev_queue_xmit",
        "tcp_sendmsg",
    ];
    let sending = kernel(&mut recording, &driver);
    let network = WakeSource::External(External::Network);
    let gone = Some(file(FileKind::Socket, 4));
    let without_holder = Some(tcp(&mut recording, 5, "10.1.0.1:40000", "10.1.0.2:80"));
    let elsewhere = Some(tcp(&mut recording, 6, "10.1.0.1:40001", "10.1.0.3:80"));
    let seen = tcp(&mut recording, 7, "10.1.0.1:40002", "10.1.0.2:80");
    let ended_by = |recording: &mut Recording, file: Option<FileId>, waiter: u32| {
        let case =
            WakeCase { syscall: RECVFROM, file, stack: sending, ..WakeCase::in_context(NET_RX) };
        case.ended_by_with(recording, |waits| {
            // Another wait of that process, on a connection that was seen.
            let mut other = wait(waiter, 2, at(10), at(11));
            other.file = Some(seen);
            other.syscall = syscall(RECVFROM, [5, 1, 0, 0, 0, 0]);
            waits.push(other);
        })
    };
    // Nobody knows a local server.
    assert_eq!(ended_by(&mut recording, gone, 7), network);
    let Some(OpenFile::Socket(end)) = recording.files.files.get_mut(&seen) else { panic!() };
    end.peers = vec![PeerProcess { tgid: Tgid(8), comm: "server".to_owned() }];
    assert_eq!(ended_by(&mut recording, gone, 7), TASK);
    assert_eq!(ended_by(&mut recording, without_holder, 7), TASK);
    // Another address is another server, and other processes' connections tell nothing.
    assert_eq!(ended_by(&mut recording, elsewhere, 7), network);
    assert_eq!(ended_by(&mut recording, gone, 9), network);
    // Who is just sending is not the one that holds the other ends.
    let Some(OpenFile::Socket(end)) = recording.files.files.get_mut(&seen) else { panic!() };
    end.peers = vec![PeerProcess { tgid: Tgid(9), comm: "server".to_owned() }];
    assert_eq!(ended_by(&mut recording, gone, 7), network);
    assert_eq!(ended_by(&mut recording, without_holder, 7), LOCAL);
}

#[test]
fn a_devices_interrupt_is_what_the_wait_was_for() {
    let mut recording = recording(11);
    let remote = Some(tcp(&mut recording, 6, "10.0.0.1:40000", "10.0.0.2:80"));
    let local = Some(tcp(&mut recording, 7, "127.0.0.1:40000", "127.0.0.1:80"));
    for (syscall, file, expected) in [
        (74, Some(file(FileKind::Regular, 4)), External::Disk),
        (RECVFROM, remote, External::Network),
        (RECVFROM, local, External::Device),
    ] {
        let case = WakeCase { syscall, file, ..WakeCase::in_context(WakeContext::Hardirq(24)) };
        assert_eq!(case.ended_by(&mut recording), WakeSource::External(expected));
    }
}

#[test]
fn a_disks_interrupt_is_the_disk_whatever_the_wait_was_on() {
    const IO_URING_ENTER: u32 = 426;
    let mut recording = recording(11);
    let remote = Some(tcp(&mut recording, 6, "10.0.0.1:40000", "10.0.0.2:80"));
    let mut ended_by = |number, syscall, file| {
        let device = match number {
            45 => Some(DeviceKind::Storage),
            46 => Some(DeviceKind::Other),
            _ => None,
        };
        let info = InterruptInfo { number, device, handlers: "device".to_owned() };
        recording.interrupts.insert(number, info);
        let case = WakeCase { syscall, file, ..WakeCase::in_context(WakeContext::Hardirq(number)) };
        case.ended_by(&mut recording)
    };
    for (number, syscall, file, expected) in [
        (45, IO_URING_ENTER, None, External::Disk),
        (45, EPOLL_WAIT, None, External::Disk),
        (45, FUTEX, None, External::Disk),
        // No packet comes from a disk.
        (45, RECVFROM, remote, External::Disk),
        // What else a device is for does not say what it was just now.
        (46, 74, Some(file(FileKind::Regular, 4)), External::Disk),
        (46, RECVFROM, remote, External::Network),
        (46, IO_URING_ENTER, None, External::Device),
        (47, IO_URING_ENTER, None, External::Device),
    ] {
        let ender = ended_by(number, syscall, file);
        assert_eq!(ender, WakeSource::External(expected), "irq {number}, syscall {syscall}");
    }
}

#[test]
fn the_ledger_of_a_drawing() {
    let mut recording = recording(11);
    live(&mut recording, 7, "#........r#", 8);
    live(&mut recording, 8, "###..rr####", 9);
    recording.sort();
    let timeline = Timeline::build(&recording);
    let blame = Blame::new(&recording, &timeline, ChainLimits::default());
    let index = timeline.find_thread(Tid(7), recording.meta.window.start).expect("7");
    let ledger = blame.ledgers()[index.0 as usize];
    assert_eq!(ledger.wall, ticks(11));
    assert_eq!((ledger.on_cpu, ledger.runnable, ledger.blocked), (ticks(2), ticks(1), ticks(8)));
    assert_eq!((ledger.work, ledger.cpu_queue), (ticks(4), ticks(2)));
    assert_eq!(ledger.unattributed(), ticks(2));
}

/// Thread 7 waits twice for a lock that 8 lets go of, with so much CPU time in between; 9 has waited
/// for it before.
fn twice_for_a_lock(look: Nanos, released_by_7: bool) -> Vec<bool> {
    let mut recording = recording(20);
    live(&mut recording, 7, "##.....r#....r######", 8);
    live(&mut recording, 8, "####################", 9);
    live(&mut recording, 9, "#.##################", 8);
    live(&mut recording, 10, "##.....#############", if released_by_7 { 7 } else { 8 });
    edit(&mut recording, |waits| {
        for wait in waits.iter_mut() {
            wait.tgid = Tgid(7);
            wait.syscall = syscall(FUTEX, [0x7f01, 128, 2, 0, 0, 0]);
            if let Some(wake) = &mut wait.wake {
                wake.syscall = syscall(FUTEX, [0x7f01, 129, 1, 0, 0, 0]);
            }
        }
        let on = waits.iter().find(|wait| wait.tid == Tid(7)).expect("a wait").on;
        for wait in waits.iter_mut() {
            match (wait.tid, wait.seq, &mut wait.wake) {
                (Tid(7), 2, _) => wait.off = on + look,
                // In the middle of that time.
                (Tid(10), 1, Some(wake)) => {
                    wake.at = on + Nanos(look.0 / 2);
                    wait.on = on + look;
                }
                _ => {}
            }
        }
    });
    recording.sort();
    let timeline = Timeline::build(&recording);
    let blame = Blame::new(&recording, &timeline, ChainLimits::default());
    (recording.waits.iter().zip(0..))
        .filter(|(wait, _)| wait.tid == Tid(7))
        .map(|(_, n)| blame.is_retry(WaitIndex(n)))
        .collect()
}

#[test]
fn who_finds_a_lock_taken_and_waits_on_does_not_wait_twice() {
    assert_eq!(twice_for_a_lock(Nanos(10_000), false), [false, true]);
    // It had time to do something.
    assert_eq!(twice_for_a_lock(Nanos(10_001), false), [false, false]);
    // It had the lock, and let go of it.
    assert_eq!(twice_for_a_lock(Nanos(10_000), true), [false, false]);
}

/// Thread 7 wants a lock and does not get it: this ends its wait. Before, 6 had released the lock for
/// 10; afterwards 8 releases it for 9, whose life this is. By 11 it is known to be a lock.
fn gives_up(ended_by: WakeContext, patient: &str) -> Vec<(String, u64)> {
    let mut recording = recording(20);
    live(&mut recording, 6, "####################", 0);
    live(&mut recording, 7, "#........r##########", 8);
    live(&mut recording, 8, "####################", 0);
    live(&mut recording, 9, patient, 8);
    live(&mut recording, 10, "##..r###############", 6);
    live(&mut recording, 11, "#################.r#", 8);
    edit(&mut recording, |waits| {
        for wait in waits.iter_mut() {
            wait.tgid = Tgid(7);
            wait.syscall = syscall(FUTEX, [0x7f01, 128, 2, 0, 0, 0]);
            let wake = wait.wake.as_mut().expect("woken");
            if wait.tid == Tid(7) {
                wake.context = ended_by;
            } else {
                wake.syscall = syscall(FUTEX, [0x7f01, 129, 1, 0, 0, 0]);
            }
        }
    });
    first_wait(&mut recording)
}

#[test]
fn who_gives_a_lock_up_waited_for_who_held_it_as_far_as_that_is_proven() {
    let waits_already = "##..............r###";
    let comes_later = "##########......r###";
    for (ended_by, unproven) in
        [(WakeContext::Hrtimer, "timer"), (WakeContext::TimerSignal, "signal")]
    {
        // While 9 waited, it would have been woken by whoever released the lock before 8.
        let proven = parts(&[("work 6", 3), ("work 8", 5)]);
        assert_eq!(gives_up(ended_by, waits_already), proven);
        assert_eq!(gives_up(ended_by, comes_later), parts(&[("work 6", 3), (unproven, 5)]));
    }
}

/// Thread 7 tries for a lock in two pieces, which 6 holds at first and then 8.
#[test]
fn a_lock_that_is_tried_again_is_waited_for_by_all_who_held_it() {
    let mut recording = recording(20);
    live(&mut recording, 6, "####################", 0);
    live(&mut recording, 7, "#........#......r###", 8);
    live(&mut recording, 8, "####################", 0);
    live(&mut recording, 10, "##..r###############", 6);
    live(&mut recording, 11, "#################.r#", 8);
    edit(&mut recording, |waits| {
        let mut on = None;
        for wait in waits.iter_mut() {
            wait.tgid = Tgid(7);
            wait.syscall = syscall(FUTEX, [0x7f01, 128, 2, 0, 0, 0]);
            let wake = wait.wake.as_mut().expect("woken");
            if (wait.tid, wait.seq) == (Tid(7), 1) {
                wake.context = WakeContext::Hrtimer;
                on = Some(wait.on);
            } else {
                wake.syscall = syscall(FUTEX, [0x7f01, 129, 1, 0, 0, 0]);
            }
            if let (Tid(7), 2, Some(on)) = (wait.tid, wait.seq, on) {
                wait.off = on + Nanos(10_000);
            }
        }
    });
    assert_eq!(first_wait(&mut recording), parts(&[("work 6", 3), ("work 8", 5)]));
}

/// Thread 7 waits for 8, which waits four times for 9 meanwhile.
fn with_limits(limits: ChainLimits) -> Vec<(String, u64)> {
    let mut recording = recording(20);
    live(&mut recording, 7, "#................r##", 8);
    live(&mut recording, 8, "##.##.##.##.########", 9);
    live(&mut recording, 9, "####################", 8);
    recording.sort();
    let timeline = Timeline::build(&recording);
    let blame = Blame::new(&recording, &timeline, limits);
    let mut sums = std::collections::BTreeMap::<String, u64>::new();
    let index = recording.waits.iter().position(|wait| wait.tid == Tid(7)).expect("a wait");
    for part in blame.walker().parts(WaitIndex(index as u32)) {
        let word = match part.kind {
            BlameKind::Unattributed(reason) => reason.name(),
            _ => "known",
        };
        *sums.entry(word.to_owned()).or_default() += part.time.0 / TICK;
    }
    sums.into_iter().collect()
}

#[test]
fn what_lies_beyond_a_limit_says_so() {
    let open = ChainLimits::default();
    assert_eq!(with_limits(open), parts(&[("known", 16)]));
    assert_eq!(
        with_limits(ChainLimits { depth: 1, ..open }),
        parts(&[("depth_limit", 4), ("known", 12)])
    );
    assert_eq!(
        with_limits(ChainLimits { fan_out: 3, ..open }),
        parts(&[("fan_out_limit", 1), ("known", 15)])
    );
    // The wait's own hop is a node too.
    assert_eq!(
        with_limits(ChainLimits { nodes: 3, ..open }),
        parts(&[("known", 14), ("node_limit", 2)])
    );
}

/// How a thread waits for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsIn {
    Recv,
    /// It is known what made the `epoll` ready.
    Epoll,
    EpollOfAnything,
}

fn wait_for_socket(wait: &mut Wait, file: FileId, waits_in: WaitsIn) {
    if waits_in == WaitsIn::Recv {
        (wait.syscall, wait.file) = (syscall(RECVFROM, [5, 0, 0, 0, 0, 0]), Some(file));
        return;
    }
    let epoll = FileId { device: 1, inode: 9, kind: FileKind::Anonymous };
    (wait.syscall, wait.file) = (syscall(EPOLL_WAIT, [4, 0, 8, 0, 0, 0]), Some(epoll));
    if let Some(wake) = wait.wake.as_mut().filter(|_| waits_in == WaitsIn::Epoll) {
        wake.ready = Some(ReadyFile { descriptor: 5, file });
    }
}

#[test]
fn a_packet_that_its_sender_left_to_ksoftirqd_is_the_senders() {
    let ended_for = |holder: u32, waits_in: WaitsIn| {
        let mut recording = recording(16);
        let file = tcp(&mut recording, 5, "127.0.0.1:40000", "127.0.0.1:80");
        if let Some(OpenFile::Socket(end)) = recording.files.files.get_mut(&file) {
            end.peers = vec![PeerProcess { tgid: Tgid(holder), comm: "peer".to_owned() }];
        }
        let stack = packet_over(&mut recording, &["run_ksoftirqd", "smpboot_thread_fn", "kthread"]);
        live(&mut recording, 7, "#.........r#####", 60);
        // ksoftirqd, set to work by 8.
        live(&mut recording, 60, "......r#########", 8);
        live(&mut recording, 8, "################", 9);
        edit(&mut recording, |waits| {
            let wait = waits.iter_mut().find(|wait| wait.tid == Tid(7)).expect("a wait");
            wait_for_socket(wait, file, waits_in);
            let wake = wait.wake.as_mut().expect("woken");
            (wake.context, wake.kernel_stack) = (NET_RX, stack);
        });
        first_wait(&mut recording)
    };
    let senders = parts(&[("work 60", 3), ("cpu_queue 60", 1), ("work 8", 5)]);
    for waits_in in [WaitsIn::Recv, WaitsIn::Epoll] {
        assert_eq!(ended_for(8, waits_in), senders, "{waits_in:?}");
        assert_eq!(ended_for(9, waits_in), parts(&[("local_softirq", 9)]), "{waits_in:?}");
    }
    // Nobody knows which of its sockets the packet came to.
    assert_eq!(ended_for(8, WaitsIn::EpollOfAnything), parts(&[("local_softirq", 9)]));
}

/// Thread 8 has sent the first half of its answer, and the second, which TCP holds back until the first
/// is acknowledged. The acknowledgement is delayed, until a timer.
#[test]
fn what_tcp_held_back_until_a_timer_is_nobodys() {
    let timer =
        ["__irq_exit_rcu", "sysvec_apic_timer_interrupt", "asm_sysvec_apic_timer_interrupt"];
    let ended_in = |waits_in: WaitsIn, holder: Option<u32>, interrupt: &[&str], sender: &str| {
        let mut recording = recording(16);
        let file = tcp(&mut recording, 5, "127.0.0.1:40000", "127.0.0.1:80");
        if let Some(OpenFile::Socket(end)) = recording.files.files.get_mut(&file) {
            let peer = |tgid| PeerProcess { tgid: Tgid(tgid), comm: "peer".to_owned() };
            end.peers = holder.map(peer).into_iter().collect();
        }
        let stack = packet_over(&mut recording, interrupt);
        live(&mut recording, 7, "#.........r#####", 60);
        live(&mut recording, 8, sender, 9);
        edit(&mut recording, |waits| {
            let wait = waits.iter_mut().find(|wait| wait.tid == Tid(7)).expect("a wait");
            wait_for_socket(wait, file, waits_in);
            let wake = wait.wake.as_mut().expect("woken");
            (wake.context, wake.kernel_stack) = (NET_RX, stack);
        });
        first_wait(&mut recording)
    };
    let ended_by = |holder: Option<u32>, interrupt: &[&str], sender: &str| {
        let ended = ended_in(WaitsIn::Recv, holder, interrupt, sender);
        assert_eq!(ended_in(WaitsIn::Epoll, holder, interrupt, sender), ended);
        ended
    };
    let (held_back, unknown) = (parts(&[("tcp_timer", 9)]), parts(&[("local_softirq", 9)]));
    let (asleep, working) = ("##..............", "################");
    assert_eq!(ended_by(Some(8), &timer, asleep), held_back);
    let irq_work = ["__irq_exit_rcu", "sysvec_irq_work", "asm_sysvec_irq_work"];
    assert_eq!(ended_by(Some(8), &irq_work, asleep), held_back);
    // It may have been sent just then: the sender was on a CPU, or is not known.
    assert_eq!(ended_by(Some(8), &timer, working), unknown);
    assert_eq!(ended_by(Some(8), &timer, "##.....##......."), held_back);
    assert_eq!(ended_by(Some(8), &timer, "##......##......"), unknown);
    assert_eq!(ended_by(None, &timer, asleep), unknown);
    // Another interrupt says nothing about timers.
    assert_eq!(ended_by(Some(8), &["__irq_exit_rcu", "common_interrupt"], asleep), unknown);
    assert_eq!(ended_in(WaitsIn::EpollOfAnything, Some(8), &timer, asleep), unknown);
}

/// The kernel accepts connections itself: whoever runs as a `connect` ends at last has sent nothing.
#[test]
fn a_connect_that_lasted_until_a_timer_is_nobodys() {
    let timer = ["__irq_exit_rcu", "sysvec_apic_timer_interrupt"];
    let ended = |call: u32, waits: usize, interrupt: &[&str]| {
        let mut recording = recording(300);
        let file = tcp(&mut recording, 5, "127.0.0.1:40000", "127.0.0.1:80");
        if let Some(OpenFile::Socket(end)) = recording.files.files.get_mut(&file) {
            end.peers = vec![PeerProcess { tgid: Tgid(8), comm: "busy".to_owned() }];
        }
        let stack = packet_over(&mut recording, interrupt);
        let client = format!("#{}{}", ".".repeat(waits), "#".repeat(299 - waits));
        live(&mut recording, 7, &client, 60);
        live(&mut recording, 8, &"#".repeat(300), 9);
        edit(&mut recording, |waits| {
            let wait = waits.iter_mut().find(|wait| wait.tid == Tid(7)).expect("a wait");
            (wait.syscall, wait.file) = (syscall(call, [5, 0, 0, 0, 0, 0]), Some(file));
            let wake = wait.wake.as_mut().expect("woken");
            (wake.context, wake.kernel_stack) = (NET_RX, stack);
        });
        first_wait(&mut recording)
    };
    let of = |kind, waits| parts(&[(kind, waits)]);
    assert_eq!(ended(CONNECT, 220, &timer), of("tcp_timer", 220));
    // An answer may have come just then.
    assert_eq!(ended(RECVFROM, 220, &timer), of("local_softirq", 220));
    // No SYN is sent again that soon.
    assert_eq!(ended(CONNECT, 150, &timer), of("local_softirq", 150));
    let device = ["__irq_exit_rcu", "common_interrupt"];
    assert_eq!(ended(CONNECT, 220, &device), of("local_softirq", 220));
}

/// The stack of 6.18, and what is left of it where it is taken as the thread is woken. A wait for the
/// disk that is given up after a time is another matter.
#[test]
fn a_writer_that_is_throttled_by_the_clock_waits_for_the_disk() {
    const WRITE: u32 = 1;
    const IO_GETEVENTS: u32 = 208;
    let throttled = [
        "schedule_timeout",
        "io_schedule_timeout",
        "balance_dirty_pages",
        "balance_dirty_pages_ratelimited_flags",
        "generic_perform_write",
    ];
    for (number, functions, expected) in [
        (WRITE, &throttled[..], "disk"),
        (WRITE, &throttled[2..], "disk"),
        // A page that was written to by its mapping.
        (WRITE, &["balance_dirty_pages", "fault_dirty_shared_page", "exc_page_fault"], "disk"),
        (IO_GETEVENTS, &["schedule", "read_events", "do_io_getevents"], "timer"),
        (WRITE, &["schedule_timeout", "wait_woken", "tcp_sendmsg_locked"], "timer"),
    ] {
        for context in [WakeContext::Softirq(1), WakeContext::Hrtimer] {
            let mut recording = recording(11);
            live(&mut recording, 7, "#........r#", 8);
            live(&mut recording, 8, "###########", 9);
            let stack = kernel(&mut recording, functions);
            edit(&mut recording, |waits| {
                waits[0].syscall = syscall(number, [5, 1, 0, 0, 0, 0]);
                waits[0].kernel_stack = stack;
                waits[0].wake.as_mut().expect("woken").context = context;
            });
            assert_eq!(first_wait(&mut recording), parts(&[(expected, 8)]), "{functions:?}");
        }
    }
}

/// `alarm` and its like. A timer of the wait's own makes another context.
#[test]
fn an_alarm_that_cuts_a_wait_short_is_not_what_was_waited_for() {
    const PAUSE: u32 = 34;
    for (number, context, expected) in [
        (READ, WakeContext::TimerSignal, "signal"),
        (FUTEX, WakeContext::TimerSignal, "signal"),
        (EPOLL_WAIT, WakeContext::TimerSignal, "signal"),
        (READ, WakeContext::Hrtimer, "timer"),
        // It waited for that.
        (PAUSE, WakeContext::TimerSignal, "timer"),
    ] {
        let mut recording = recording(11);
        live(&mut recording, 7, "#........r#", 8);
        live(&mut recording, 8, "###########", 9);
        edit(&mut recording, |waits| {
            waits[0].syscall = syscall(number, [5, 1, 0, 0, 0, 0]);
            waits[0].wake.as_mut().expect("woken").context = context;
        });
        assert_eq!(first_wait(&mut recording), parts(&[(expected, 8)]), "{number} {context:?}");
    }
}

#[test]
fn a_signal_that_cuts_a_wait_short_is_not_what_was_waited_for() {
    const KILL: u32 = 62;
    const TIMEDWAIT: u32 = 128;
    let ended = |number: u32, functions: &[&str]| {
        let mut recording = recording(11);
        live(&mut recording, 7, "#........r#", 8);
        live(&mut recording, 8, "###########", 9);
        let stack = match functions {
            [] => StackRef::NotTaken,
            functions => kernel(&mut recording, functions),
        };
        edit(&mut recording, |waits| {
            waits[0].syscall = syscall(number, [5, 1, 0, 0, 0, 0]);
            let wake = waits[0].wake.as_mut().expect("woken");
            (wake.syscall, wake.kernel_stack) = (syscall(KILL, [7, 10, 0, 0, 0, 0]), stack);
        });
        first_wait(&mut recording)
    };
    let signal = ["try_to_wake_up", "signal_wake_up_state", "complete_signal.part.0"];
    // A latch: the signal's file descriptor was waited on.
    let latch = ["try_to_wake_up", "ep_poll_callback", "__wake_up_common", "__send_signal_locked"];
    assert_eq!(ended(EPOLL_WAIT, &signal), parts(&[("signal", 8)]));
    assert_eq!(ended(EPOLL_WAIT, &[]), parts(&[("signal", 8)]));
    assert_eq!(ended(EPOLL_WAIT, &latch), parts(&[("work 8", 8)]));
    assert_eq!(ended(TIMEDWAIT, &signal), parts(&[("work 8", 8)]));
}

/// How long thread 7's wait on a futex was idle, in ticks: for 8, which itself waits in `accept`.
fn idle_behind_accept(expected_value: u64) -> (u64, u64) {
    const ACCEPT: u32 = 43;
    let mut recording = recording(11);
    live(&mut recording, 7, "#........r#", 8);
    live(&mut recording, 8, "##.....####", 9);
    live(&mut recording, 9, "###########", 8);
    edit(&mut recording, |waits| {
        for wait in waits.iter_mut() {
            wait.syscall = match wait.tid {
                Tid(7) => syscall(FUTEX, [0x7f01, 128, expected_value, 0, 0, 0]),
                _ => syscall(ACCEPT, [3, 0, 0, 0, 0, 0]),
            };
        }
    });
    recording.sort();
    let timeline = Timeline::build(&recording);
    let blame = Blame::new(&recording, &timeline, ChainLimits::default());
    let index = recording.waits.iter().position(|wait| wait.tid == Tid(7)).expect("a wait");
    let is_idle = |part: &&BlamePart| part.idle_state == IdleState::Idle;
    let parts = blame.walker().parts(WaitIndex(index as u32)).to_vec();
    let idle: Nanos = parts.iter().filter(is_idle).map(|part| part.time).sum();
    let hidden = Report::new(&blame, &Filter { idle: IdleWaits::Hidden, ..Filter::default() });
    let of_7 = hidden.waits.iter().filter(|wait| wait.tid == Tid(7)).count();
    assert!(!hidden.waits.iter().any(|wait| wait.tid == Tid(8)), "an accept is hidden");
    let ledger = hidden.threads.iter().find(|thread| thread.tid == Tid(8)).expect("8");
    assert_eq!(ledger.ledger.blocked_ns, ticks(5), "the ledger keeps it");
    (idle.0 / TICK, of_7 as u64)
}

#[test]
fn a_pool_is_as_idle_as_its_feeder_and_who_waits_for_a_lock_is_not() {
    assert_eq!(idle_behind_accept(0), (5, 0));
    assert_eq!(idle_behind_accept(2), (0, 1));
}

/// Thread 8 is stopped while it serves thread 7; thread 9 sends `SIGCONT`, and has worked on something
/// else until then.
#[test]
fn who_has_a_stopped_thread_go_on_did_not_stop_it() {
    const STOPPED: u32 = 4;
    const TRACED: u32 = 8;
    let blame = |state| {
        let mut recording = recording(16);
        live(&mut recording, 7, "#...........###", 8);
        live(&mut recording, 8, "###......######", 9);
        live(&mut recording, 9, "###############", 9);
        edit(&mut recording, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(8)) {
                wait.state = TaskState(state);
            }
        });
        first_wait(&mut recording)
    };
    assert_eq!(blame(STOPPED), parts(&[("work 8", 5), ("stopped", 6)]));
    // A tracer has go on what it has stopped, and anybody else ends a sleep.
    let by_other = parts(&[("work 8", 5), ("work 9", 6)]);
    assert_eq!((blame(TRACED), blame(1)), (by_other.clone(), by_other));
}

/// Thread 7 waits in `call` and catches `SIGCHLD`, until thread 8, whose parent is `parent`, wakes it with these
/// functions on its kernel stack.
fn ended_by_signal_of_8(call: u32, parent: u32, functions: &[&str]) -> Vec<(String, u64)> {
    let mut recording = recording(11);
    live(&mut recording, 7, "#........r#", 8);
    live(&mut recording, 8, "###########", 9);
    let stack = kernel(&mut recording, functions);
    edit(&mut recording, |waits| {
        waits[0].syscall = syscall(call, [5, 2, 0, 0, 0, 0]);
        waits[0].wake.as_mut().expect("woken").kernel_stack = stack;
    });
    for event in recording.thread_events.iter_mut().filter(|event| event.tid == Tid(8)) {
        event.parent = Tgid(parent);
    }
    first_wait(&mut recording)
}

/// Make waits for a token of its jobserver and for its children at once.
#[test]
fn a_poll_that_the_end_of_a_child_cuts_short_waited_for_that_child() {
    const PSELECT6: u32 = 270;
    const EXITS: &[&str] = &[
        "try_to_wake_up",
        "signal_wake_up_state",
        "complete_signal",
        "__send_signal_locked",
        "do_notify_parent",
        "exit_notify",
        "do_exit",
    ];
    let child = parts(&[("work 8", 8)]);
    let signal = parts(&[("signal", 8)]);
    for call in [PSELECT6, POLL, EPOLL_WAIT] {
        assert_eq!(ended_by_signal_of_8(call, 7, EXITS), child, "{call}");
        // Its parent is another process: one that it inherits children from may be told of their ends by it.
        assert_eq!(ended_by_signal_of_8(call, 9, EXITS), signal, "{call}");
    }
    // It was stopped, or sent a signal as any other process may.
    let stops = ["complete_signal", "__send_signal_locked", "do_notify_parent_cldstop"];
    assert_eq!(ended_by_signal_of_8(PSELECT6, 7, &stops), signal);
    let kills = ["complete_signal", "__send_signal_locked", "kill_pid_info", "__x64_sys_kill"];
    assert_eq!(ended_by_signal_of_8(PSELECT6, 7, &kills), signal);
    // A read waits for what it reads, and may go on by itself after the signal.
    assert_eq!(ended_by_signal_of_8(READ, 7, EXITS), signal);
    // It ends, but not by that: it closes the pipe that was polled, say.
    let closes = ["try_to_wake_up", "__wake_up_common", "pipe_release", "__fput", "do_exit"];
    assert_eq!(ended_by_signal_of_8(EPOLL_WAIT, 7, &closes), child);
}

#[test]
fn a_poll_of_one_file_does_not_wait_for_children() {
    let mut recording = recording(11);
    live(&mut recording, 7, "#........r#", 8);
    live(&mut recording, 8, "###########", 9);
    let exits = kernel(&mut recording, &["complete_signal", "do_notify_parent", "do_exit"]);
    edit(&mut recording, |waits| {
        waits[0].syscall = syscall(POLL, [5, 1, 0, 0, 0, 0]);
        waits[0].wake.as_mut().expect("woken").kernel_stack = exits;
    });
    for event in recording.thread_events.iter_mut().filter(|event| event.tid == Tid(8)) {
        event.parent = Tgid(7);
    }
    assert_eq!(first_wait(&mut recording), parts(&[("signal", 8)]));
}

/// A child of the waiter's ends while it waits, but a timer ends the wait.
#[test]
fn a_poll_that_its_timeout_ends_did_not_wait_for_a_child_that_ended_before() {
    let mut recording = recording(11);
    live(&mut recording, 7, "#........r#", 8);
    live(&mut recording, 8, "####       ", 9);
    edit(&mut recording, |waits| {
        waits[0].syscall = syscall(EPOLL_WAIT, [5, 2, 0, 0, 0, 0]);
        waits[0].wake.as_mut().expect("woken").context = WakeContext::Hrtimer;
    });
    for event in recording.thread_events.iter_mut().filter(|event| event.tid == Tid(8)) {
        event.parent = Tgid(7);
    }
    assert_eq!(first_wait(&mut recording), parts(&[("timer", 8)]));
}

/// Whether thread 7's wait on this socket is one for its next request, as a server's is.
fn is_idle_on(recording: &mut Recording, socket: FileId) -> bool {
    live(recording, 7, "#.......##", 8);
    live(recording, 8, "..######..", 0);
    edit(recording, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(7)) {
            (wait.syscall, wait.file) = (syscall(RECVFROM, [5; 6]), Some(socket));
        }
    });
    recording.sort();
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let index = recording.waits.iter().position(|wait| wait.tid == Tid(7)).expect("a wait");
    blame.own_idle_state(WaitIndex(index as u32)) == IdleState::Idle
}

#[test]
fn a_port_that_both_ends_of_one_connection_have_is_not_listened_on() {
    // The client's port is in the addresses of both ends, which differ: they are translated.
    let mut r = recording(10);
    let client = tcp(&mut r, 5, "172.18.0.2:40000", "10.96.0.1:80");
    tcp(&mut r, 6, "172.18.0.3:8000", "172.18.0.2:40000");
    assert!(!is_idle_on(&mut r, client));
    // Two connections to the same port lead to a server, whichever end is seen.
    let mut r = recording(10);
    let server = tcp(&mut r, 5, "172.18.0.3:8000", "172.18.0.2:40000");
    tcp(&mut r, 6, "172.18.0.3:8000", "172.18.0.2:40001");
    assert!(is_idle_on(&mut r, server));
}

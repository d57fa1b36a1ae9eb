//! A sender without room whose wake was made by no thread: a timer of TCP's acknowledged what the reader had
//! made room for.

use offwake_recording::{
    FileId, FileKind, OpenFile, PeerProcess, Recording, SystemVector, Wait, WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    blames::{first_wait, parts},
    draw::{edit, live, recording},
    fixtures::{POLL, RECVFROM, file, kernel, syscall, tcp},
};

const SENDTO: u32 = 44;
const NET_RX: WakeContext = WakeContext::Softirq(3);
const DELIVERED: [&str; 5] = [
    "sk_stream_write_space",
    "tcp_check_space",
    "process_backlog",
    "net_rx_action",
    "handle_softirqs",
];
const OVER_TIMER: [&str; 2] = ["__irq_exit_rcu", "sysvec_apic_timer_interrupt"];
const IN_SOFTIRQD: [&str; 2] = ["run_ksoftirqd", "smpboot_thread_fn"];

/// The time in which the sender 7 waits is from the second tick to the tenth.
const SENDER: &str = "#.........r#####";
/// Sleeps, reads in the seventh tick, and sleeps on.
const SLEEPER: &str = "#.....#.........";

/// A sender, its end of a connection, and the reader at the other end, which a timer wakes.
struct Case {
    recording: Recording,
    sends_to: FileId,
    reads_from: FileId,
}

impl Case {
    fn new(reader: &str, interrupted: &[&str]) -> Self {
        let mut r = recording(16);
        let sends_to = tcp(&mut r, 5, "127.0.0.1:40000", "127.0.0.1:80");
        let reads_from = tcp(&mut r, 6, "127.0.0.1:80", "127.0.0.1:40000");
        let stack: Vec<_> = DELIVERED.iter().chain(interrupted).copied().collect();
        let stack = kernel(&mut r, &stack);
        live(&mut r, 7, SENDER, 60);
        live(&mut r, 8, reader, 9);
        live(&mut r, 60, "##......r#######", 9);
        let mut case = Self { recording: r, sends_to, reads_from };
        case.held_by(&[8]);
        case.change(7, |wait| {
            (wait.syscall, wait.file) = (syscall(SENDTO, [5, 0, 0, 0, 0, 0]), Some(sends_to));
            let wake = wait.wake.as_mut().expect("woken");
            (wake.context, wake.kernel_stack) = (NET_RX, stack);
        });
        for tid in [8, 60] {
            case.change(tid, |wait| {
                if let Some(wake) = &mut wait.wake {
                    wake.context = match tid {
                        60 => WakeContext::System(SystemVector::Idle),
                        _ => WakeContext::Hrtimer,
                    };
                }
            });
        }
        case
    }

    fn held_by(&mut self, processes: &[u32]) {
        let Some(OpenFile::Socket(end)) = self.recording.files.files.get_mut(&self.sends_to) else {
            unreachable!()
        };
        let peer = |&tgid: &u32| PeerProcess { tgid: Tgid(tgid), comm: "reader".to_owned() };
        end.peers = processes.iter().map(peer).collect();
    }

    fn change(&mut self, tid: u32, change: impl Fn(&mut Wait)) {
        edit(&mut self.recording, |waits| {
            waits.iter_mut().filter(|wait| wait.tid == Tid(tid)).for_each(change);
        });
    }

    /// What the sender's wait is blamed on.
    fn blame(mut self) -> Vec<(String, u64)> {
        first_wait(&mut self.recording)
    }
}

#[test]
fn until_the_reader_last_ran_the_sender_waits_for_it_and_then_for_tcp() {
    for interrupted in [OVER_TIMER, IN_SOFTIRQD] {
        let blamed = Case::new(SLEEPER, &interrupted).blame();
        assert_eq!(blamed, parts(&[("work 8", 1), ("timer", 5), ("tcp_timer", 3)]));
        // It may have made the wake just then itself.
        let blamed = Case::new("#.....#..#......", &interrupted).blame();
        assert_eq!(blamed, parts(&[("work 8", 2), ("timer", 7)]));
    }
    let blamed = Case::new(SLEEPER, &["__irq_exit_rcu", "common_interrupt"]).blame();
    assert_eq!(blamed, parts(&[("work 8", 1), ("timer", 5), ("local_softirq", 3)]));
}

#[test]
fn who_did_not_come_to_a_cpu_meanwhile_made_no_room() {
    let blamed = Case::new("#...............", &OVER_TIMER).blame();
    assert_eq!(blamed, parts(&[("tcp_timer", 9)]));
    // Nobody knows when it read last, or whether it did.
    let blamed = Case::new("################", &OVER_TIMER).blame();
    assert_eq!(blamed, parts(&[("local_softirq", 9)]));
}

/// The reader has read all that there was: TCP alone has not said so yet.
#[test]
fn a_reader_that_waits_for_data_is_not_waited_for() {
    let waits_in = |call: u32, file: fn(&Case) -> Option<FileId>| {
        let mut case = Case::new(SLEEPER, &OVER_TIMER);
        let file = file(&case);
        case.change(8, |wait| {
            wait.syscall = syscall(call, [4, 1, 0, 0, 0, 0]);
            wait.file = file;
        });
        case.blame()
    };
    let of_tcp = parts(&[("tcp_timer", 9)]);
    assert_eq!(waits_in(RECVFROM, |case| Some(case.reads_from)), of_tcp);
    assert_eq!(waits_in(RECVFROM, |_| Some(file(FileKind::Socket, 9))), of_tcp);
    // Of any of several files.
    assert_eq!(waits_in(POLL, |_| None), of_tcp);
    // At another connection: it might have read meanwhile.
    let mut case = Case::new(SLEEPER, &OVER_TIMER);
    let other = tcp(&mut case.recording, 7, "127.0.0.1:80", "127.0.0.1:50000");
    case.change(8, |wait| {
        (wait.syscall, wait.file) = (syscall(RECVFROM, [4, 0, 0, 0, 0, 0]), Some(other));
    });
    assert_eq!(case.blame(), parts(&[("work 8", 1), ("timer", 5), ("tcp_timer", 3)]));
}

#[test]
fn a_reader_is_named_only_if_it_is_the_only_one_and_the_sender_waits_for_room() {
    let of_tcp = parts(&[("tcp_timer", 9)]);
    let mut reads = Case::new(SLEEPER, &OVER_TIMER);
    let sends_to = reads.sends_to;
    reads.change(7, |wait| {
        (wait.syscall, wait.file) = (syscall(RECVFROM, [5, 0, 0, 0, 0, 0]), Some(sends_to));
    });
    assert_eq!(reads.blame(), of_tcp);

    let mut shared = Case::new(SLEEPER, &OVER_TIMER);
    live(&mut shared.recording, 10, "#...............", 9);
    shared.held_by(&[8, 10]);
    assert_eq!(shared.blame(), of_tcp);

    let mut of_two_threads = Case::new(SLEEPER, &OVER_TIMER);
    live(&mut of_two_threads.recording, 10, "#...............", 9);
    of_two_threads.change(10, |wait| wait.tgid = Tgid(8));
    let events = &mut of_two_threads.recording.thread_events;
    events.iter_mut().filter(|event| event.tid == Tid(10)).for_each(|event| event.tgid = Tgid(8));
    assert_eq!(of_two_threads.blame(), of_tcp);

    // Of one that nobody saw, it is not even known whether it ran.
    let mut unseen = Case::new(SLEEPER, &OVER_TIMER);
    unseen.held_by(&[11]);
    assert_eq!(unseen.blame(), parts(&[("local_softirq", 9)]));
}

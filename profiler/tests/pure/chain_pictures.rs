//! The pictures of `docs/blame.md`, drawn.

use offwake_recording::{
    Recording, Wait, WakeContext,
    units::{Cpu, Tgid, Tid},
};

use crate::{
    chains_api::{ALL_HOPS, blame},
    draw::{TICK, live, lose, recording},
    fixtures::{FUTEX, syscall},
    simulator::{self, Leaf},
};

const DISK: WakeContext = WakeContext::Softirq(4);
const PRIVATE: u64 = 128;
const FUTEX_WAKE: u64 = 1;
/// What a waiter expects in the word of a contended lock.
const CONTENDED: u64 = 2;

struct Picture(Recording);

impl Picture {
    /// Threads of one process that lived like this, each on a CPU of its own.
    fn new(lives: &[(u32, &str)]) -> Self {
        let length = lives.first().expect("a life").1.len();
        let mut recording = recording(length);
        for &(tid, life) in lives {
            live(&mut recording, tid, life, 0);
        }
        let mut picture = Self(recording);
        for &(tid, _) in lives {
            picture.runs_on(tid, tid as u16);
        }
        picture
    }

    fn with_waits(&mut self, change: impl Fn(&mut Wait)) {
        let mut waits = simulator::waits(&self.0);
        waits.iter_mut().for_each(change);
        simulator::put_waits(&mut self.0, waits);
    }

    fn runs_on(&mut self, tid: u32, cpu: u16) {
        let cpu = Cpu(cpu);
        self.with_waits(|wait| {
            wait.tgid = Tgid(7);
            if wait.tid == Tid(tid) {
                (wait.off_cpu, wait.on_cpu) = (cpu, cpu);
            }
        });
        for preemption in self.0.preemptions.iter_mut().filter(|p| p.tid == Tid(tid)) {
            (preemption.off_cpu, preemption.on_cpu) = (cpu, cpu);
            preemption.tgid = Tgid(7);
        }
        for thread_event in &mut self.0.thread_events {
            thread_event.tgid = Tgid(7);
        }
    }

    /// Thread `waker` ends wait `seq` of thread `tid`.
    fn woken_by(mut self, tid: u32, seq: u32, waker: u32) -> Self {
        self.with_waits(|wait| {
            if (wait.tid, wait.seq) == (Tid(tid), seq) {
                let wake = wait.wake.as_mut().expect("woken");
                (wake.current.tid, wake.current.tgid) = (Tid(waker), Tgid(7));
            }
        });
        self
    }

    fn ended_by(mut self, tid: u32, seq: u32, context: WakeContext) -> Self {
        self.with_waits(|wait| {
            if (wait.tid, wait.seq) == (Tid(tid), seq) {
                wait.wake.as_mut().expect("woken").context = context;
            }
        });
        self
    }

    /// Wait `seq` of thread `tid` is on a futex of the process that all of them are in.
    fn on_futex(mut self, tid: u32, seq: u32, expected: u64) -> Self {
        self.with_waits(|wait| {
            if (wait.tid, wait.seq) == (Tid(tid), seq) {
                wait.syscall = syscall(FUTEX, [0x7000, PRIVATE, expected, 0, 0, 0]);
                let wake = wait.wake.as_mut().expect("woken");
                wake.syscall = syscall(FUTEX, [0x7000, PRIVATE | FUTEX_WAKE, 1, 0, 0, 0]);
            }
        });
        self
    }

    /// What wait `seq` of thread `tid` is blamed on, in words, hops and ticks.
    fn blame_of(&mut self, tid: u32, seq: u32) -> Vec<(String, u64)> {
        self.0.sort();
        let said = blame(&self.0, ALL_HOPS);
        let said = said.iter().find(|said| said.record == (Tid(tid), seq)).expect("the wait");
        assert_eq!(said.parts.values().sum::<u64>(), said.blocked.0);
        (said.parts.iter())
            .map(|(&(leaf, depth), ns)| {
                let word = match leaf {
                    Leaf::Work(thread) => format!("{depth}: work {thread}"),
                    Leaf::CpuQueue { thread, holder: None } => format!("{depth}: queue {thread}"),
                    Leaf::CpuQueue { thread, holder: Some(holder) } => {
                        format!("{depth}: queue {thread} behind {holder}")
                    }
                    Leaf::External(external) => format!("{depth}: {external}"),
                    Leaf::Unattributed(reason) => reason.to_owned(),
                };
                (word, ns / TICK)
            })
            .collect()
    }
}

fn parts(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|&(word, n)| (word.to_owned(), n)).collect()
}

#[test]
fn a_wait_for_a_server_is_followed_to_its_database_and_the_disk() {
    let mut picture = Picture::new(&[
        (7, "##..............####"),
        (8, "####........rr######"),
        (9, "#######...r#########"),
        // Has the server's CPU while that one waits for it.
        (10, "rrrrrrrrrrrr##rrrrrr"),
    ])
    .woken_by(7, 1, 8)
    .woken_by(8, 1, 9)
    .ended_by(9, 1, DISK);
    picture.runs_on(10, 8);
    let expected = [
        ("1: work 8", 4),
        ("2: work 9", 4),
        ("1: queue 8 behind 10", 2),
        ("2: queue 9", 1),
        ("2: disk", 3),
    ];
    assert_eq!(picture.blame_of(7, 1), parts(&expected));
}

/// Thread 10 holds the lock and gives it to 8; but 9 takes it before 8 is there.
fn handed_over(expected: u64) -> Picture {
    Picture::new(&[
        (7, "##..............####"),
        (8, "#.......r#........##"),
        (9, "#####...############"),
        (10, "####..##############"),
    ])
    .woken_by(7, 1, 9)
    .woken_by(8, 1, 10)
    .woken_by(8, 2, 7)
    .ended_by(9, 1, DISK)
    .ended_by(10, 1, DISK)
    .on_futex(7, 1, expected)
    .on_futex(8, 1, expected)
    .on_futex(8, 2, expected)
}

#[test]
fn a_lock_is_waited_for_with_whoever_held_it_then() {
    let mut picture = handed_over(CONTENDED);
    let expected = [("1: work 9", 8), ("1: work 10", 4), ("1: disk", 2)];
    assert_eq!(picture.blame_of(7, 1), parts(&expected));
    assert_eq!(picture.blame_of(8, 2), parts(&[("1: work 7", 2), ("1: work 9", 6)]));
}

#[test]
fn a_futex_that_is_no_lock_is_waited_for_with_whoever_ended_the_wait() {
    let mut picture = handed_over(1);
    assert_eq!(picture.blame_of(7, 1), parts(&[("1: work 9", 11), ("1: disk", 3)]));
}

/// Without the record of the wait that 10's release ended, nothing tells of that release, nor of when 9
/// came to hold the lock.
#[test]
fn where_a_release_may_be_lost_nobody_is_said_to_hold_the_lock() {
    let mut picture = handed_over(CONTENDED);
    lose(&mut picture.0, 8, 1);
    assert_eq!(picture.blame_of(7, 1), parts(&[("1: work 9", 6), ("lost", 8)]));
}

#[test]
fn before_a_waker_was_created_its_creator_is_waited_for() {
    let mut picture = Picture::new(&[
        (7, "#...............####"),
        (8, "####..##############"),
        (9, "      rr##..#####   "),
    ])
    .woken_by(7, 1, 9)
    .woken_by(9, 1, 8)
    .ended_by(8, 1, DISK)
    .ended_by(9, 2, DISK);
    let expected =
        [("2: work 8", 3), ("1: work 9", 6), ("1: queue 9", 2), ("1: disk", 2), ("2: disk", 2)];
    assert_eq!(picture.blame_of(7, 1), parts(&expected));
}

#[test]
fn everybody_who_waits_for_a_broadcast_waits_for_its_sender() {
    let mut picture = Picture::new(&[
        (7, "##........##########"),
        (8, "#####.....##########"),
        (9, "####..##############"),
    ])
    .woken_by(7, 1, 9)
    .woken_by(8, 1, 9)
    .ended_by(9, 1, WakeContext::Hrtimer)
    .on_futex(7, 1, 1)
    .on_futex(8, 1, 1);
    assert_eq!(picture.blame_of(7, 1), parts(&[("1: work 9", 6), ("1: timer", 2)]));
    assert_eq!(picture.blame_of(8, 1), parts(&[("1: work 9", 4), ("1: timer", 1)]));
}

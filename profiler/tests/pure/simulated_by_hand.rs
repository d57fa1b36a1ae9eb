//! Runs of the simulator whose truth was computed by hand.

use crate::{
    chains_api::ALL_HOPS,
    simulator::{
        self, Leaf, Migration, Op, Outside, ProcessId, Reading, Scenario, ThreadId, ThreadPlan,
        Truth,
    },
};

/// A machine without chance: each step that does not compute takes 2 ns, and so does an idle CPU to
/// hear of a woken thread.
fn scripted(cpus: usize, programs: Vec<(usize, Vec<Op>)>, child: Vec<Op>) -> Truth {
    let threads = (programs.into_iter())
        .map(|(cpu, program)| ThreadPlan { process: ProcessId(0), cpu, program, repeats: false })
        .collect();
    let run = simulator::run(&Scenario {
        cpus,
        threads,
        children: vec![child],
        slice: 1_000,
        chances: vec![1],
        migration: Migration::Off,
        attached: 0,
        window: (0, 200),
        quotas: Vec::new(),
        has_pool: false,
    });
    run.truth
}

fn parts_of(truth: &Truth, thread: usize, seq: u32) -> Vec<((Leaf, u16), u64)> {
    let record = (ThreadId(thread).tid(), seq);
    truth.blame(record, ALL_HOPS, Reading::Strict).into_iter().collect()
}

fn work(thread: usize) -> Leaf {
    Leaf::Work(ThreadId(thread).tid())
}

fn queue(thread: usize) -> Leaf {
    Leaf::CpuQueue { thread: ThreadId(thread).tid(), holder: None }
}

const FOR_LONG: Op = Op::Await(Outside::Timer, 1_000);

#[test]
fn the_truth_of_a_request() {
    let client = vec![Op::Compute(10), Op::Send(0), Op::Receive(1), FOR_LONG];
    let server = vec![
        Op::Receive(0),
        Op::Compute(20),
        Op::Await(Outside::Disk, 15),
        Op::Compute(5),
        Op::Send(1),
        FOR_LONG,
    ];
    let truth = scripted(2, vec![(0, client), (1, server)], vec![]);
    // Blocked from 16 to 66; the server worked from 16 to 40, was woken at 55, and ran from 57 on.
    let expected = vec![((work(1), 1), 33), ((queue(1), 1), 2), ((Leaf::External("disk"), 1), 15)];
    assert_eq!(parts_of(&truth, 0, 2), expected);
}

#[test]
fn the_truth_of_a_lock_that_is_taken_while_the_woken_waiter_is_on_its_way() {
    let first = vec![
        Op::Lock(0),
        Op::Await(Outside::Timer, 10),
        Op::Compute(20),
        Op::Unlock(0),
        // Keeps the CPU from the one that it woke.
        Op::Compute(30),
        FOR_LONG,
    ];
    let woken = vec![Op::Lock(0), Op::Unlock(0), FOR_LONG];
    let waiter = vec![Op::Compute(8), Op::Lock(0), Op::Unlock(0), FOR_LONG];
    let barger = vec![Op::Compute(42), Op::Lock(0), Op::Compute(50), Op::Unlock(0), FOR_LONG];
    let programs = vec![(0, first), (0, woken), (1, waiter), (2, barger)];
    let truth = scripted(3, programs, vec![]);
    // Blocked from 12 to 98; released at 42 by the first, who slept until 16 and was back at 18.
    let timer = Leaf::External("timer");
    let expected =
        vec![((work(0), 1), 24), ((work(3), 1), 56), ((queue(0), 1), 2), ((timer, 1), 4)];
    assert_eq!(parts_of(&truth, 2, 2), expected);
    // The woken one found it taken at 76; the waiter had it from 102 to 104.
    let expected = vec![((work(2), 1), 4), ((work(3), 1), 22), ((queue(2), 1), 2)];
    assert_eq!(parts_of(&truth, 1, 3), expected);
}

#[test]
fn the_truth_of_a_wait_for_a_thread_that_was_created_meanwhile() {
    let creator = vec![Op::Compute(10), Op::Create(0), Op::Start, Op::Compute(50), FOR_LONG];
    let waiter = vec![Op::Receive(0), FOR_LONG];
    let child = vec![Op::Compute(5), Op::Send(0)];
    let truth = scripted(2, vec![(0, creator), (1, waiter)], child);
    // Blocked from 4 to 25; created at 14, let run at 16, on a CPU at 18.
    let expected = vec![((work(0), 2), 10), ((work(2), 1), 7), ((queue(2), 1), 4)];
    assert_eq!(parts_of(&truth, 1, 2), expected);
}

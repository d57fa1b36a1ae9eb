//! Blame against the truth of simulated event loops and pools: whoever a request has nothing to do with is
//! not blamed for its time.

use std::collections::{BTreeMap, BTreeSet};

use offwake_analysis::{
    blame::{Blame, BlameKind, ChainLimits, External, Reason},
    timeline::{Timeline, WaitIndex},
};
use offwake_recording::{
    Recording,
    units::{Nanos, Tid, Timestamp},
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use crate::simulator::{self, Activity, Errand, Migration, Request, Run, Scenario, ThreadId, loss};

/// How long a nanosecond of the machine's takes in the recording: a step some 50 us.
const STRETCH: u64 = 20_000;

/// A part of a wait's blame.
struct Part {
    hops: Vec<Tid>,
    kind: BlameKind,
    time: Nanos,
}

/// The parts of a client's waits for answers, with the request of each.
fn blame_requests(run: &Run, recording: &Recording) -> Vec<(Request, Nanos, Vec<Part>)> {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let mut walker = blame.walker();
    let mut requests = Vec::new();
    for (wait, n) in recording.waits.iter().zip(0..) {
        let Some(request) = find_request(run, (wait.tid, wait.seq)) else { continue };
        let index = WaitIndex(n);
        let place = timeline.blocked_interval(index);
        let blocked = place.map_or(Nanos(0), |place| place.to.since(place.from));
        let found = walker.parts(index).to_vec();
        let parts = found.into_iter().map(|part| {
            let hops = walker.chains().hops(part.chain);
            let tid = |hop: &offwake_analysis::blame::Hop| {
                timeline.thread(hop.thread.thread).expect("a thread of the timeline").tid
            };
            Part { hops: hops.iter().map(tid).collect(), kind: part.kind, time: part.time }
        });
        requests.push((request, blocked, parts.collect()));
    }
    requests
}

/// The request whose answer a recorded wait is for.
fn find_request(run: &Run, record: (Tid, u32)) -> Option<Request> {
    let wait = run.truth.wait(record)?;
    let thread = ThreadId::from_tid(record.0);
    let mut spans = run.truth.history.lives[thread.0].spans();
    let (from, to, _) = spans.find(|&(_, _, activity)| activity == Activity::Blocked(wait))?;
    let of_it = |request: &&Request| {
        request.client == thread
            && request.asked <= from
            && request.answered.is_none_or(|answered| answered >= from && answered <= to)
    };
    let answered = |request: &&Request| of_it(request) && request.answered.is_some();
    run.requests.iter().find(answered).or_else(|| run.requests.iter().find(of_it)).cloned()
}

/// Checks that no other client is named, nor any worker that had nothing to do with a job.
fn check(run: &Run, recording: &Recording) -> Result<(), TestCaseError> {
    let clients: BTreeSet<Tid> = run.requests.iter().map(|request| request.client.tid()).collect();
    for (request, blocked, parts) in blame_requests(run, recording) {
        let sum: u64 = parts.iter().map(|part| part.time.0).sum();
        prop_assert_eq!(sum, blocked.0);
        // A worker that was on its way to another client's job may take this one.
        let in_queue = match (request.errand, request.taken) {
            (Errand::Pool, Some(taken)) => (taken - request.asked) * STRETCH,
            (Errand::Pool, None) => u64::MAX,
            _ => 0,
        };
        let others = |part: &&Part| match request.errand {
            Errand::Pool => is_innocent(&request, part) && request.answered.is_some(),
            _ => part.hops.iter().any(|tid| clients.contains(tid)),
        };
        let of_others: u64 = parts.iter().filter(others).map(|part| part.time.0).sum();
        prop_assert!(
            of_others <= in_queue,
            "{:?}, {:?} is blamed for {}:\n{}",
            request,
            parts.iter().find(others).map(|part| (part.kind, &part.hops)),
            of_others,
            describe(recording)
        );
        let is_loops_timer =
            |part: &Part| part.kind == BlameKind::External(External::Timer) && part.hops.len() <= 1;
        if request.errand != Errand::Pool && parts.iter().any(is_loops_timer) {
            // Nothing tells for whom a loop had set a timer.
            let has_timer = |request: &Request| matches!(request.errand, Errand::Timer(_));
            prop_assert!(run.requests.iter().any(has_timer), "{:?} has no timer", request);
        }
    }
    Ok(())
}

/// Returns whether a part leads through a thread that a request has nothing to do with.
fn is_innocent(request: &Request, part: &Part) -> bool {
    let threads = request.served_by.iter().chain(&request.asked_in_its_slice).copied();
    let involved: BTreeSet<Tid> = threads.map(ThreadId::tid).collect();
    part.hops.iter().any(|tid| !involved.contains(tid))
}

/// Tells what happened, in units of the machine's time.
fn describe(recording: &Recording) -> String {
    let time = |at: Timestamp| (at.0.saturating_sub(simulator::START)) / STRETCH;
    let mut lines: Vec<(u64, String)> = Vec::new();
    for wait in simulator::waits(recording) {
        let wake = wait.wake.map(|wake| (time(wake.at), wake.current.tid.0, wake.file));
        let text = format!(
            "{} slept {}..{} on {:?}, woken {wake:?}",
            wait.tid.0,
            time(wait.off),
            time(wait.on),
            wait.file.map(|file| file.inode)
        );
        lines.push((time(wait.off), text));
    }
    for preemption in &recording.preemptions {
        let (off, on) = (time(preemption.off), time(preemption.on));
        lines.push((
            off,
            format!("{} off {off}..{on}, next {}", preemption.tid.0, preemption.next.0),
        ));
    }
    lines.sort();
    lines.into_iter().map(|(_, text)| text + "\n").collect()
}

fn name(kind: BlameKind) -> &'static str {
    match kind {
        BlameKind::Work(_) => "work",
        BlameKind::CpuQueue { .. } => "cpu_queue",
        BlameKind::External(external) => external.name(),
        BlameKind::Unattributed(reason) => reason.name(),
    }
}

fn run(scenario: &Scenario) -> Run {
    let mut run = simulator::run(scenario);
    simulator::stretch(&mut run.recording, STRETCH);
    run
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_other_client_is_blamed_for_a_request_to_a_loop(scenario in simulator::loops()) {
        let run = run(&scenario);
        check(&run, &run.recording)?;
    }

    #[test]
    fn whatever_is_lost_no_other_client_is_blamed_for_a_request_to_a_loop(
        scenario in simulator::loops(), loss in loss(),
    ) {
        let run = run(&scenario);
        check(&run, &loss.apply(&run.recording))?;
    }

    #[test]
    fn no_other_client_is_blamed_for_a_request_to_threads_that_share_a_loop(
        scenario in simulator::shared_loops(),
    ) {
        let run = run(&scenario);
        check(&run, &run.recording)?;
    }

    #[test]
    fn whatever_is_lost_no_other_client_is_blamed_for_a_request_to_threads_that_share_a_loop(
        scenario in simulator::shared_loops(), loss in loss(),
    ) {
        let run = run(&scenario);
        check(&run, &loss.apply(&run.recording))?;
    }

    #[test]
    fn whatever_is_lost_no_other_client_is_blamed_for_a_request_to_a_loop_that_asks_nobody(
        scenario in simulator::loops_of_their_own(), loss in loss(),
    ) {
        let run = run(&scenario);
        check(&run, &loss.apply(&run.recording))?;
    }

    #[test]
    fn nobody_else_is_blamed_for_a_job_of_a_pool(scenario in simulator::pools()) {
        let run = run(&scenario);
        check(&run, &run.recording)?;
    }

    #[test]
    fn whatever_is_lost_nobody_else_is_blamed_for_a_job_of_a_pool(
        scenario in simulator::pools(), loss in loss(),
    ) {
        let run = run(&scenario);
        check(&run, &loss.apply(&run.recording))?;
    }
}

/// Checks that no walk counts more waits than there are, which it would if it came to one twice.
fn check_fan_out(recording: &Recording) -> Result<(), TestCaseError> {
    let timeline = Timeline::build(recording);
    let fan_out = u32::try_from(recording.waits.len()).expect("few");
    let limits = ChainLimits { fan_out, ..ChainLimits::default() };
    let blame = Blame::new(recording, &timeline, limits);
    let mut walker = blame.walker();
    for n in 0..fan_out {
        let parts = walker.parts(WaitIndex(n));
        let limited = |kind| kind == BlameKind::Unattributed(Reason::FanOutLimit);
        prop_assert!(parts.iter().all(|part| !limited(part.kind)), "wait {n} of {fan_out}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_walk_comes_to_a_wait_twice(
        machine in simulator::scenario(Migration::On), looping in simulator::loops(),
        pool in simulator::pools(), loss in loss(),
    ) {
        for scenario in [machine, looping, pool] {
            let run = run(&scenario);
            check_fan_out(&run.recording)?;
            check_fan_out(&loss.apply(&run.recording))?;
        }
    }
}

/// How the time of requests divides.
#[derive(Debug, Default)]
struct Times {
    all: u64,
    /// What leads through a server that was not asked, or through another client.
    of_innocents: u64,
    by_kind: BTreeMap<&'static str, u64>,
}

impl Times {
    fn add(&mut self, run: &Run, recording: &Recording) {
        for (request, _, parts) in blame_requests(run, recording) {
            for part in parts.iter().filter(|_| request.answered.is_some()) {
                *self.by_kind.entry(name(part.kind)).or_default() += part.time.0;
                self.all += part.time.0;
                self.of_innocents += if is_innocent(&request, part) { part.time.0 } else { 0 };
            }
        }
    }
}

fn times_of(
    scenarios: &impl Strategy<Value = Scenario>,
    lost: &mut dyn FnMut(Recording) -> Recording,
) -> Times {
    let mut runner = TestRunner::deterministic();
    let mut times = Times::default();
    for _ in 0..400 {
        let run = run(&scenarios.new_tree(&mut runner).unwrap().current());
        times.add(&run, &lost(run.recording.clone()));
    }
    // A simulator in which nothing happens would prove nothing.
    for expected in ["work", "cpu_queue", "timer", "network"] {
        assert!(times.by_kind.contains_key(expected), "{expected} is not in {times:?}");
    }
    times
}

/// What a loop asks a server that is busy is not seen. Then what came in between from another server may be
/// taken for it, but seldom; and little is left open.
#[test]
fn few_requests_are_blamed_on_a_server_that_was_not_asked() {
    let times = times_of(&simulator::loops(), &mut |recording| recording);
    assert!(times.of_innocents * 50 <= times.all, "{times:?}");
    assert!(times.by_kind["event_loop"] * 6 <= times.all, "too much is left open: {times:?}");
}

/// The part of all time that goes to a server that was not asked, where several threads share a loop: one in 16. It
/// was 4.8 %, and 3.3 % where records are lost. A finding, not an aim: with one thread it is below 2 %.
const OF_INNOCENTS_SHARED: u64 = 16;

/// The same where several threads share the loop, requests queue for a connection or are sent right behind each
/// other, and quotas keep the servers from running.
#[test]
fn few_requests_to_a_shared_loop_are_blamed_on_a_server_that_was_not_asked() {
    let times = times_of(&simulator::shared_loops(), &mut |recording| recording);
    assert!(times.of_innocents * OF_INNOCENTS_SHARED <= times.all, "{times:?}");
    assert!(times.by_kind.contains_key("throttled"), "no quota kept a server: {times:?}");
}

/// And whatever is lost.
#[test]
fn few_requests_are_blamed_on_a_server_that_was_not_asked_whatever_is_lost() {
    for shared in [false, true] {
        let mut runner = TestRunner::deterministic();
        let losses = loss();
        let mut lose = |recording: Recording| {
            losses.new_tree(&mut runner).unwrap().current().apply(&recording)
        };
        let (times, most) = match shared {
            false => (times_of(&simulator::loops(), &mut lose), 50),
            true => (times_of(&simulator::shared_loops(), &mut lose), OF_INNOCENTS_SHARED),
        };
        assert!(times.of_innocents * most <= times.all, "shared {shared}: {times:?}");
    }
}

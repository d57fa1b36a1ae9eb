//! Whether the simulator itself can be believed.

use std::collections::{BTreeMap, BTreeSet};

use offwake_analysis::{
    blame::{Blame, ChainLimits, Ledger, Reason},
    timeline::{Interval, State, SummedIndex, Timeline, WaitIndex},
};
use offwake_recording::{
    Recording, SummedWaits, Wait,
    units::{Nanos, Tid},
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use crate::{
    chains_api::{self, ALL_HOPS},
    simulator::{
        self, Activity, Leaf, Migration, Parts, Reading, Run, START, Sums, ThreadId, WakeSource,
        scenario,
    },
};

/// Checks that a sum of short waits is what its thread did.
fn check_sum(run: &Run, summed: &SummedWaits) -> Result<(), TestCaseError> {
    let life = &run.truth.history.lives[ThreadId::from_tid(summed.tid).0];
    let (from, to) = (summed.from.0 - START, summed.until.0 - START);
    let (mut blocked, mut runnable) = (0, 0);
    for (begin, end, was) in life.spans() {
        let inside = end.min(to).saturating_sub(begin.max(from));
        match was {
            Activity::Blocked(_) => blocked += inside,
            Activity::Runnable(_) => runnable += inside,
            _ => {}
        }
    }
    prop_assert_eq!((summed.blocked.0, summed.runnable.0), (blocked, runnable), "{:?}", summed);
    Ok(())
}

/// Checks that whatever is said of a thread is what it did; returns for how long anything is said.
fn check_states(run: &Run, recording: &Recording) -> Result<BTreeMap<Tid, u64>, TestCaseError> {
    let timeline = Timeline::build(recording);
    let waits = simulator::waits(recording);
    let mut known = BTreeMap::new();
    for thread in &timeline.threads {
        let id = ThreadId::from_tid(thread.tid);
        let life = &run.truth.history.lives[id.0];
        for Interval { from, to, state: said } in thread.track.iter() {
            if said == State::Lost {
                continue;
            }
            if let State::Summed(SummedIndex(n)) = said {
                check_sum(run, &recording.summed[n as usize])?;
                *known.entry(thread.tid).or_default() += to.since(from).0;
                continue;
            }
            *known.entry(thread.tid).or_default() += to.since(from).0;
            let (from, to) = (from.0 - START, to.0 - START);
            for (begin, end, was) in life.spans() {
                if begin.max(from) >= end.min(to) {
                    continue;
                }
                let is_so = match (said, was) {
                    (State::OnCpu, Activity::OnCpu(_))
                    | (State::Runnable(_), Activity::Runnable(_))
                    | (State::Throttled(_), Activity::Throttled) => true,
                    (State::Blocked(WaitIndex(n)), Activity::Blocked(wait)) => {
                        let record = &waits[n as usize];
                        run.truth.wait((record.tid, record.seq)) == Some(wait)
                    }
                    _ => false,
                };
                prop_assert!(is_so, "{id:?} {from}..{to} {said:?}, and {begin}..{end} {was:?}");
            }
        }
    }
    Ok(known)
}

/// The ledgers of all threads.
fn ledgers(recording: &Recording) -> Vec<(Tid, Ledger)> {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    timeline.threads.iter().map(|thread| thread.tid).zip(blame.ledgers()).collect()
}

/// What blame of one hop can know of the truth: whatever kept the waker off the CPU lies deeper, and
/// who held it is not said.
fn one_hop(parts: &Parts) -> Parts {
    let mut masked = Parts::new();
    for (&(leaf, depth), &ns) in parts {
        let leaf = match leaf {
            Leaf::CpuQueue { thread, .. } => Leaf::CpuQueue { thread, holder: None },
            Leaf::External(_) | Leaf::Unattributed(_) if depth > 0 => {
                Leaf::Unattributed("depth_limit")
            }
            leaf => leaf,
        };
        *masked.entry((leaf, depth)).or_default() += ns;
    }
    masked
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_timeline_of_a_run_is_what_happened(scenario in scenario(Migration::On)) {
        let run = simulator::run(&scenario);
        let known = check_states(&run, &run.recording)?;
        let (opens, closes) = scenario.window;
        for (n, life) in run.truth.history.lives.iter().enumerate() {
            let tid = ThreadId(n).tid();
            let lived: u64 = (life.spans())
                .map(|(from, to, _)| to.min(closes).saturating_sub(from.max(opens)))
                .sum();
            prop_assert_eq!(known.get(&tid).copied().unwrap_or(0), lived);
        }
    }

    #[test]
    fn whatever_is_lost_the_timeline_says_nothing_wrong(
        scenario in scenario(Migration::On), loss in simulator::loss(),
    ) {
        let run = simulator::run(&scenario);
        check_states(&run, &loss.apply(&run.recording))?;
    }

    /// The time blocked, on a CPU and in line for one is the same to the nanosecond.
    #[test]
    fn summing_short_waits_up_leaves_every_ledger_as_it_was(
        scenario in scenario(Migration::On), permille in 0..=1_000_usize,
        longest_break in prop_oneof![Just(u64::MAX), 1..2_000_u64],
    ) {
        let recording = simulator::run(&scenario).recording;
        let sums = Sums::of_shortest(&recording, permille, Nanos(longest_break));
        let summed = sums.apply(&recording);
        let parts = |ledger: &Ledger| {
            let Ledger { wall, on_cpu, runnable, throttled, blocked, .. } = *ledger;
            (wall, on_cpu, runnable, throttled, blocked)
        };
        let (before, after) = (ledgers(&recording), ledgers(&summed));
        for ((tid, before), (_, after)) in before.iter().zip(&after) {
            prop_assert_eq!(parts(after), parts(before), "{:?}", tid);
            let named = after.attributed() + after.external() + after.unattributed();
            prop_assert_eq!(named, after.blocked, "{:?}", tid);
        }
        let blocked: Nanos = summed.summed.iter().map(|sum| sum.blocked).sum();
        let told: Nanos =
            after.iter().map(|(_, after)| after.unattributed[Reason::ShortWaits as usize]).sum();
        prop_assert!(told >= blocked, "{:?} of {:?}", told, blocked);
    }

    #[test]
    fn the_truth_adds_up_however_far_it_is_followed(
        scenario in scenario(Migration::On), depth in 0..5_u16,
    ) {
        let truth = simulator::run(&scenario).truth;
        for record in truth.waits() {
            for depth in [depth, ALL_HOPS] {
                for reading in [Reading::Strict, Reading::Lenient] {
                    let parts = truth.blame(record, depth, reading);
                    prop_assert_eq!(parts.values().sum::<u64>(), truth.blocked(record));
                    prop_assert!(parts.keys().all(|&(_, hops)| hops <= depth));
                }
            }
        }
    }

    /// A waiter never waits for somebody who did not hold the lock, unless nobody held it just then
    /// or whoever did gave it back unseen.
    #[test]
    fn who_is_said_to_hold_a_lock_held_it(scenario in scenario(Migration::On)) {
        let history = simulator::run(&scenario).truth.history;
        for (lock, releases) in &history.releases {
            let held = history.held.get(lock).map_or(&[][..], |held| held);
            for &(at, by) in releases {
                prop_assert!(held.iter().any(|&(_, until, holder)| (until, holder) == (at, by)));
            }
            let seen: BTreeSet<_> = releases.iter().copied().collect();
            for (since, until, holder) in held {
                if seen.contains(&(*until, *holder)) {
                    let next = releases.iter().find(|(at, _)| at > since);
                    prop_assert_eq!(next, Some(&(*until, *holder)));
                }
            }
        }
    }

    #[test]
    fn one_hop_of_the_truth_is_what_one_hop_of_blame_says(scenario in scenario(Migration::On)) {
        let run = simulator::run(&scenario);
        for said in chains_api::blame(&run.recording, 1) {
            let Some(wait) = run.truth.wait(said.record) else { continue };
            if run.truth.history.waits[wait.0].lock.is_none() {
                let truth = run.truth.blame(said.record, 1, Reading::Strict);
                prop_assert_eq!(one_hop(&said.parts), one_hop(&truth), "{:?}", said.record);
            }
        }
    }
}

/// A simulator in which nothing happens would prove nothing.
#[test]
fn runs_hold_whatever_blame_has_a_rule_for() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..600 {
        let scenario = scenario(Migration::On).new_tree(&mut runner).unwrap().current();
        let run = simulator::run(&scenario);
        let early = |wait: &Wait| wait.wake.is_some_and(|wake| wake.at <= wait.off);
        if simulator::waits(&run.recording).iter().any(early) {
            seen.insert("a wake before the switch-out".to_owned());
        }
        for record in run.truth.waits() {
            let parts = run.truth.blame(record, ALL_HOPS, Reading::Strict);
            let enders = run.truth.blame(record, 1, Reading::Strict);
            if parts != run.truth.blame_by_queues(record, ALL_HOPS, Reading::Strict) {
                seen.insert("a thread that was preempted by whom it had woken".to_owned());
            }
            let holders = enders.keys().filter(|(leaf, _)| matches!(leaf, Leaf::Work(_)));
            if holders.count() > 1 {
                seen.insert("two holders of a lock".to_owned());
            }
            if waits_for_unborn(&run, record) {
                seen.insert("a waker that was created meanwhile".to_owned());
            }
            seen.extend(parts.keys().map(|&(leaf, depth)| match leaf {
                Leaf::Work(_) => format!("work, {depth} hops away"),
                Leaf::CpuQueue { holder: None, .. } => "a CPU that nobody held".to_owned(),
                Leaf::CpuQueue { holder: Some(_), .. } => "a CPU that somebody held".to_owned(),
                Leaf::External(name) | Leaf::Unattributed(name) => name.to_owned(),
            }));
        }
    }
    for expected in [
        "a wake before the switch-out",
        "two holders of a lock",
        "a thread that was preempted by whom it had woken",
        "a waker that was created meanwhile",
        "work, 1 hops away",
        "work, 2 hops away",
        "work, 3 hops away",
        "work, 4 hops away",
        "a CPU that nobody held",
        "a CPU that somebody held",
        "timer",
        "disk",
        "network",
        "device",
        "interrupt",
        "throttled",
        "no_wakeup",
        "before_window",
        "still_blocked",
    ] {
        assert!(seen.contains(expected), "{expected} is not in {seen:?}");
    }
}

fn waits_for_unborn(run: &Run, record: (Tid, u32)) -> bool {
    let history = &run.truth.history;
    let wait = run.truth.wait(record).map(|wait| (wait, &history.waits[wait.0]));
    wait.is_some_and(|(id, wait)| {
        let began =
            history.lives[wait.thread.0].spans().find(|span| span.2 == Activity::Blocked(id));
        let Some(WakeSource::Thread(waker)) = wait.wake_source else { return false };
        began.is_some_and(|(from, ..)| from < history.lives[waker.0].created)
    })
}

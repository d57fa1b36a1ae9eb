//! Blame against the truth of simulated runs, chains of waits and all.

use std::collections::{BTreeMap, BTreeSet};

use offwake_recording::{
    Begin, Recording,
    units::{Nanos, Tid},
};
use proptest::prelude::*;

use crate::{
    chains_api::{ALL_HOPS, Said, blame, by_record, check_ledgers},
    corruption::corruption,
    simulator::{self, Leaf, Migration, Parts, Reading, Run, loss, scenario},
};

const MIGRATION: Migration = Migration::On;

/// Threads of which the recording has thread events alone: that they ran is known, not on which CPU.
fn nowhere(recording: &Recording) -> Vec<Tid> {
    let waited = simulator::waits(recording).into_iter().map(|wait| wait.tid);
    let preempted = recording.preemptions.iter().map(|preemption| preemption.tid);
    let somewhere: BTreeSet<Tid> = waited.chain(preempted).collect();
    let tids = recording.thread_events.iter().map(|thread_event| thread_event.tid);
    tids.filter(|tid| !somewhere.contains(tid)).collect()
}

/// The parts without the holders of CPUs that the recording does not tell of.
fn without(nowhere: &[Tid], parts: &Parts) -> Parts {
    let mut without = Parts::new();
    for (&(leaf, depth), &ns) in parts {
        let leaf = match leaf {
            Leaf::CpuQueue { thread, holder: Some(holder) } if nowhere.contains(&holder) => {
                Leaf::CpuQueue { thread, holder: None }
            }
            leaf => leaf,
        };
        *without.entry((leaf, depth)).or_default() += ns;
    }
    without
}

/// A name that is blamed, for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Work(Tid),
    CpuQueue(Tid),
    HeldTheCpu { thread: Tid, holder: Tid },
    External(&'static str),
}

fn named(parts: &Parts) -> BTreeMap<Named, u64> {
    let mut named = BTreeMap::new();
    for (&(leaf, _), &ns) in parts {
        let mut add = |name| *named.entry(name).or_default() += ns;
        match leaf {
            Leaf::Work(thread) => add(Named::Work(thread)),
            Leaf::External(external) => add(Named::External(external)),
            Leaf::CpuQueue { thread, holder } => {
                add(Named::CpuQueue(thread));
                if let Some(holder) = holder {
                    add(Named::HeldTheCpu { thread, holder });
                }
            }
            Leaf::Unattributed(_) => {}
        }
    }
    named
}

/// Who made threads of which nobody saw when they were created, and those threads.
fn made_unseen(whole: &Recording, rest: &Recording) -> Vec<(Tid, Tid)> {
    let seen: BTreeSet<Tid> =
        rest.thread_events.iter().map(|thread_event| thread_event.tid).collect();
    let births = simulator::waits(whole).into_iter().filter(|wait| wait.begin == Begin::Newborn);
    let unseen = births.filter(|birth| !seen.contains(&birth.tid));
    unseen.filter_map(|birth| Some((birth.wake?.current.tid, birth.tid))).collect()
}

/// The most that the truth allows to be said of a name.
///
/// The time in which a thread is being built is its own wait for a CPU, held by its creator. Where
/// nobody saw when that began, it is the creator's work.
fn most(truth: &BTreeMap<Named, u64>, name: Named, made_unseen: &[(Tid, Tid)]) -> u64 {
    let of = |name| truth.get(&name).copied().unwrap_or(0);
    let made = made_unseen.iter().filter(|(creator, _)| name == Named::Work(*creator));
    of(name) + made.map(|&(_, thread)| of(Named::CpuQueue(thread))).sum::<u64>()
}

fn check_names(run: &Run, said: &Said, made_unseen: &[(Tid, Tid)]) -> Result<(), TestCaseError> {
    let readings = [Reading::Strict, Reading::Lenient, Reading::Knowing];
    let truths = readings.map(|reading| run.truth.blame(said.record, ALL_HOPS, reading));
    let by_queues =
        readings.map(|reading| run.truth.blame_by_queues(said.record, ALL_HOPS, reading));
    let truths: Vec<_> = truths.iter().chain(&by_queues).map(named).collect();
    for (name, ns) in named(&said.parts) {
        let most_of = |truths: &[BTreeMap<Named, u64>]| {
            truths.iter().map(|truth| most(truth, name, made_unseen)).max().unwrap_or(0)
        };
        let mut most = most_of(&truths);
        if let Named::CpuQueue(thread) | Named::HeldTheCpu { thread, .. } = name
            && ns > most
        {
            // What it waits for next is lost, and what those wait for who wait for it is not.
            let queued = readings
                .map(|it| named(&run.truth.blame_by_queue_of(said.record, ALL_HOPS, it, thread)));
            most = most.max(most_of(&queued));
        }
        prop_assert!(ns <= most, "{:?}: {:?} {} instead of {}", said.record, name, ns, most);
    }
    Ok(())
}

/// Checks that the parts of every wait add up to it.
fn check_sums(said: &[Said]) -> Result<(), TestCaseError> {
    for said in said {
        let sum = Nanos(said.parts.values().sum());
        prop_assert_eq!(sum, said.blocked, "{:?}", said.record);
    }
    Ok(())
}

/// What is left of the parts when they are followed for so many hops only.
fn cut(parts: &Parts, max_depth: u16) -> BTreeMap<(Leaf, Option<u16>), u64> {
    let limit = Leaf::Unattributed("depth_limit");
    let mut cut = BTreeMap::new();
    for (&(leaf, depth), &ns) in parts {
        let place =
            if depth > max_depth || leaf == limit { (limit, None) } else { (leaf, Some(depth)) };
        *cut.entry(place).or_default() += ns;
    }
    cut
}

fn check_depths(recording: &Recording) -> Result<(), TestCaseError> {
    let full = by_record(blame(recording, ALL_HOPS));
    for max_depth in 1..=3 {
        for said in blame(recording, max_depth) {
            let expected = cut(&full[&said.record].parts, max_depth);
            prop_assert_eq!(cut(&said.parts, max_depth), expected, "{:?}", said.record);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_nothing_lost_blame_is_the_truth(scenario in scenario(MIGRATION)) {
        let run = simulator::run(&scenario);
        let nowhere = nowhere(&run.recording);
        for said in blame(&run.recording, ALL_HOPS) {
            let truth = |reading| {
                without(&nowhere, &run.truth.blame(said.record, ALL_HOPS, reading))
            };
            let said_parts = without(&nowhere, &said.parts);
            if [Reading::Lenient, Reading::Strict].into_iter().any(|as_read| said_parts == truth(as_read)) {
                continue;
            }
            // A thread that takes messages of several others out of one pipe may be an event loop: of whom
            // it then waited for, less is said than is true.
            let undecided = Leaf::Unattributed("event_loop");
            prop_assert!(
                said_parts.keys().any(|&(leaf, _)| leaf == undecided),
                "{:?}: {:?} instead of {:?}", said.record, said_parts, truth(Reading::Strict)
            );
            check_names(&run, &said, &[])?;
        }
    }

    #[test]
    fn whatever_is_lost_nobody_is_blamed_for_more_than_is_true(
        scenario in scenario(MIGRATION), loss in loss(),
    ) {
        let run = simulator::run(&scenario);
        let rest = loss.apply(&run.recording);
        let said = blame(&rest, ALL_HOPS);
        check_sums(&said)?;
        let made_unseen = made_unseen(&run.recording, &rest);
        for said in &said {
            check_names(&run, said, &made_unseen)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_limit_of_depth_cuts_what_lies_deeper_and_nothing_else(
        scenario in scenario(MIGRATION), loss in loss(),
    ) {
        let run = simulator::run(&scenario);
        check_depths(&run.recording)?;
        check_depths(&loss.apply(&run.recording))?;
    }

    #[test]
    fn any_recording_adds_up_and_gives_the_same_answer_twice(
        scenario in scenario(MIGRATION), corruption in corruption(), max_depth in 1..20_u16,
    ) {
        let mut recording = simulator::run(&scenario).recording;
        corruption.apply(&mut recording);
        let said = blame(&recording, max_depth);
        check_sums(&said)?;
        check_ledgers(&recording, max_depth);
        let again = blame(&recording, max_depth);
        for (said, again) in said.iter().zip(&again) {
            prop_assert_eq!(&said.parts, &again.parts);
        }
    }
}

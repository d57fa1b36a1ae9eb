//! To a reader who adds chains up by groups, stretches that several walks have in common are walked once.
//! That changes nothing of what is said.

use std::collections::BTreeMap;

use offwake_analysis::{
    blame::{Blame, BlameKind, ChainLimits, GroupId, HopDetail, HopGroups, IdleState, SleepId},
    timeline::{NamedThread, ThreadIndex, Timeline, WaitIndex},
};
use offwake_recording::{
    Recording, Wait,
    units::{Nanos, Tid},
};
use proptest::prelude::*;

use crate::{
    draw::{TICK, edit, live, recording, ticks, wake_by},
    replay,
    simulator::{self, Migration, scenario},
};

/// Threads that do the same: all, or those that slept alike.
#[derive(Clone, Copy, Debug)]
enum Groups {
    One,
    BySleep,
}

impl Groups {
    fn group(self, sleep: SleepId) -> GroupId {
        let meaning = match self {
            Self::One => 1,
            Self::BySleep => sleep.index() as u32 + 1,
        };
        GroupId { program: 1, meaning, process: None }
    }
}

impl HopGroups for Groups {
    fn find_representative(&self, sleep: SleepId) -> SleepId {
        sleep
    }

    fn find_program_leader(&self, thread: ThreadIndex) -> ThreadIndex {
        thread
    }

    fn group_of_waiter(&self, _: WaitIndex, _: NamedThread) -> GroupId {
        self.group(SleepId::NONE)
    }

    fn has_ends_of_group(&self, _: WaitIndex) -> bool {
        true
    }

    fn group_of_hop(&self, _: NamedThread, slept: SleepId) -> Option<GroupId> {
        Some(self.group(slept))
    }
}

/// How long each kind of blame is of a wait.
type Sums = BTreeMap<(BlameKind, IdleState), Nanos>;

/// Walks every wait four times, so that all stretches are met again; returns how much of the time was known then.
fn check(
    recording: &Recording,
    groups: Groups,
    limits: ChainLimits,
) -> Result<Nanos, TestCaseError> {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, limits);
    let mut plain = blame.walker();
    let mut walker = blame.walker_with_detail(HopDetail::Groups(&groups));
    let mut known = Nanos(0);
    for _ in 0..4 {
        for wait in (0..recording.waits.len() as u32).map(WaitIndex) {
            let mut expected = Sums::new();
            for part in plain.parts(wait) {
                *expected.entry((part.kind, part.idle_state)).or_default() += part.time;
            }
            let walked = walker.walk(wait);
            let mut sums = Sums::new();
            for part in walked.parts {
                *sums.entry((part.kind, part.idle_state)).or_default() += part.time;
            }
            for part in walked.shared().flat_map(|(_, walk)| walk.parts()) {
                *sums.entry((part.kind, part.idle_state)).or_default() += part.time;
                known += part.time;
            }
            prop_assert_eq!(sums, expected, "wait {}", wait.0);
            let all: Nanos = walked.sums().map(|sum| sum.time).sum();
            let blocked = timeline.blocked_interval(wait);
            prop_assert_eq!(all, blocked.map_or(Nanos(0), |place| place.to.since(place.from)));
        }
    }
    Ok(known)
}

fn limits() -> impl Strategy<Value = ChainLimits> {
    let default = ChainLimits::default();
    prop_oneof![
        Just(default),
        (1..6_u16, 1..6_u32, 1..20_u32).prop_map(|(depth, fan_out, nodes)| ChainLimits {
            depth,
            fan_out,
            nodes
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_walked_before_is_what_would_be_walked(
        scenario in scenario(Migration::On), loss in simulator::loss(),
        groups in prop_oneof![Just(Groups::One), Just(Groups::BySleep)], limits in limits(),
    ) {
        let recording = loss.apply(&simulator::run(&scenario).recording);
        check(&recording, groups, limits)?;
    }
}

#[test]
fn recorded_programs_have_shared_walks_that_are_what_would_be_walked() {
    for (name, bytes) in replay::recordings() {
        let recording = replay::read(&bytes);
        for groups in [Groups::One, Groups::BySleep] {
            check(&recording, groups, ChainLimits::default()).expect(&name);
        }
    }
}

/// Twelve threads queue for a lock; whoever has it works, waits for thread 40, works, waits for a CPU, works.
#[test]
fn who_queues_behind_others_shares_their_walks() {
    const HELPER: u32 = 40;
    let length = 100;
    let mut recording = recording(length);
    live(&mut recording, HELPER, &"#".repeat(length), 1);
    for n in 1..=12_u32 {
        let life = format!("#{}#.#r#", ".".repeat(5 * n as usize));
        let life = format!("{life}{}", "_".repeat(length - life.len()));
        live(&mut recording, n, &life, n.saturating_sub(1).max(1));
    }
    edit(&mut recording, |waits: &mut Vec<Wait>| {
        for wait in waits.iter_mut().filter(|wait| wait.on.since(wait.off) == ticks(1)) {
            wait.wake = wait.wake.map(|wake| wake_by(HELPER, wake.at));
        }
        waits.retain(|wait| wait.tid != Tid(HELPER));
    });
    recording.sort();
    let known = check(&recording, Groups::One, ChainLimits::default()).unwrap();
    // The first of four times, those behind the third have the time of nearly all before them.
    assert!(known > Nanos(3 * 100 * TICK), "{known}");
}

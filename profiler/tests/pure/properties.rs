//! What holds for every recording, whatever was lost of it.

use std::collections::BTreeMap;

use offwake_analysis::{
    blame::{Blame, BlameKind, ChainLimits, WakeSource},
    filter::Filter,
    formats::json,
    report::Report,
    timeline::{Interval, State, Timeline, WaitIndex},
};
use offwake_recording::{
    Recording, Wait, WakeContext,
    units::{Nanos, Tid, Timestamp},
};
use proptest::prelude::*;

use crate::draw::{self, TICK, drawn, edit, live, recording};

pub const LENGTH: usize = 60;
pub const TIDS: [u32; 3] = [7, 8, 60];

/// A stretch of a life: on a CPU, blocked, waiting for one. Without a wake nobody knows when a
/// thread became runnable.
fn stretch() -> impl Strategy<Value = String> {
    (0..5_usize, 0..6_usize, 0..4_usize, prop::bool::weighted(0.8)).prop_map(
        |(on, blocked, queue, woken)| match woken {
            true => "#".repeat(on + 1) + &".".repeat(blocked) + &"r".repeat(queue),
            false => "#".repeat(on + 1) + &"_".repeat(blocked),
        },
    )
}

/// A life: it may begin inside the window, and end there.
fn life() -> impl Strategy<Value = String> {
    let born = prop_oneof![Just(0_usize), 1..20_usize];
    let dead = prop_oneof![Just(LENGTH), 25..LENGTH];
    (born, dead, "[.]{0,3}r{0,2}", prop::collection::vec(stretch(), 1..40)).prop_map(
        |(born, dead, head, stretches)| {
            // A newborn waits for a CPU first.
            let head = if born > 0 { "r".to_owned() } else { head };
            let mut life = " ".repeat(born) + &head + &stretches.concat();
            while life.len() < dead {
                life.push('#');
            }
            life.truncate(dead);
            if dead < LENGTH {
                // A thread dies on a CPU.
                life.truncate(dead - 1);
                life.push('#');
            }
            format!("{life:<LENGTH$}")
        },
    )
}

#[derive(Debug, Clone)]
pub struct World {
    pub lives: Vec<String>,
    contexts: Vec<u8>,
    /// Which records, thread events and exits are lost.
    lost: Vec<bool>,
}

pub fn world() -> impl Strategy<Value = World> {
    (
        prop::collection::vec(life(), TIDS.len()),
        prop::collection::vec(0..8_u8, 32),
        prop::collection::vec(prop::bool::weighted(0.15), 64),
    )
        .prop_map(|(lives, contexts, lost)| World { lives, contexts, lost })
}

impl World {
    pub fn full(&self) -> Recording {
        let mut recording = recording(LENGTH);
        for (n, (&tid, life)) in TIDS.iter().zip(&self.lives).enumerate() {
            live(&mut recording, tid, life, TIDS[(n + 1) % TIDS.len()]);
        }
        recording.sort();
        let contexts = self.contexts.iter().cycle();
        let change = |waits: &mut Vec<Wait>| {
            for (wait, context) in waits.iter_mut().zip(contexts) {
                if let Some(wake) = &mut wait.wake {
                    wake.context = match context {
                        // Who is not there wakes nobody.
                        _ if !self.lives_at(wake.current.tid, wake.at) => WakeContext::Hrtimer,
                        0 => WakeContext::Hrtimer,
                        1 => WakeContext::Softirq(u16::from(*context) + 3),
                        2 => WakeContext::Hardirq(24),
                        _ => WakeContext::Task,
                    };
                }
            }
        };
        edit(&mut recording, change);
        recording
    }

    /// Whether a thread is there in the tick before `at`.
    fn lives_at(&self, tid: Tid, at: Timestamp) -> bool {
        let tick = (at.since(draw::at(0)).0 / TICK) as usize;
        let lives = TIDS.iter().zip(&self.lives).find(|(other, _)| Tid(**other) == tid);
        tick > 0 && lives.is_some_and(|(_, life)| life.as_bytes()[tick - 1] != b' ')
    }

    pub fn lossy(&self) -> Recording {
        let mut recording = self.full();
        let mut lost = self.lost.iter().cycle();
        let mut keep = || !lost.next().unwrap();
        recording.waits.retain(|_, _| keep());
        recording.preemptions.retain(|_| keep());
        recording.thread_events.retain(|_| keep());
        recording.exits.retain(|_| keep());
        recording
    }
}

/// By waiting thread and number of the wait, and by the thread that is blamed.
type Named = BTreeMap<(Tid, u32, Tid), Nanos>;

/// Checks what always holds; returns what is blamed on threads.
fn check(recording: &Recording) -> Named {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let ledgers = blame.ledgers();
    let mut walker = blame.walker();
    for (n, thread) in timeline.threads.iter().enumerate() {
        let mut end = thread.from;
        for Interval { from, to, .. } in thread.track.iter() {
            assert_eq!(from, end, "a hole or an overlap");
            assert!(to > from, "an empty interval");
            end = to;
        }
        assert_eq!(end, thread.until);
        let ledger = &ledgers[n];
        assert_eq!(ledger.wall, thread.until.since(thread.from));
        assert_eq!(ledger.wall, ledger.on_cpu + ledger.runnable + ledger.blocked);
        let parts = ledger.attributed() + ledger.external() + ledger.unattributed();
        assert_eq!(ledger.blocked, parts);
    }
    let mut blocked = vec![Nanos(0); recording.waits.len()];
    for Interval { from, to, state } in
        timeline.threads.iter().flat_map(|thread| thread.track.iter())
    {
        if let State::Blocked(WaitIndex(n)) = state {
            blocked[n as usize] += to.since(from);
        }
    }
    let mut named = Named::new();
    for (n, wait) in recording.waits.iter().enumerate() {
        let index = WaitIndex(n as u32);
        let parts = walker.parts(index).to_vec();
        assert_eq!(parts.iter().map(|part| part.time).sum::<Nanos>(), blocked[n]);
        for part in parts {
            if let BlameKind::Work(thread) | BlameKind::CpuQueue { thread, .. } = part.kind {
                let blamed = timeline.thread(thread).unwrap().tid;
                *named.entry((wait.tid, wait.seq, blamed)).or_default() += part.time;
                assert_eq!(wait.wake.unwrap().context, WakeContext::Task);
                assert!(matches!(blame.wake_source(index), WakeSource::Task(_)));
            }
        }
    }
    let report = Report::new(&blame, &Filter::default());
    for wait in &report.waits {
        assert_eq!(wait.blame.iter().map(|part| part.ns).sum::<Nanos>(), wait.blocked_ns);
    }
    named
}

fn bytes(recording: &Recording) -> Vec<u8> {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let mut bytes = Vec::new();
    json::write(&Report::new(&blame, &Filter::default()), &mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_nothing_lost_every_life_is_known(world in world()) {
        let recording = world.full();
        let timeline = Timeline::build(&recording);
        for (&tid, life) in TIDS.iter().zip(&world.lives) {
            prop_assert_eq!(drawn(&recording, &timeline, tid), life.replace('_', "."));
        }
        check(&recording);
    }

    #[test]
    fn what_is_lost_is_never_guessed(world in world()) {
        let full = world.full();
        let lossy = world.lossy();
        let timeline = Timeline::build(&lossy);
        for (&tid, life) in TIDS.iter().zip(&world.lives) {
            let drawn = drawn(&lossy, &timeline, tid);
            for (said, was) in drawn.chars().zip(life.replace('_', ".").chars()) {
                let honest = said == was || said == '?' || said == ' ';
                prop_assert!(honest, "{}\n{}", drawn, life);
            }
        }
        let truth = check(&full);
        for (blamed, time) in check(&lossy) {
            let most = truth.get(&blamed).copied().unwrap_or_default();
            prop_assert!(time <= most, "{:?}: {} instead of {}", blamed, time, most);
        }
    }

    #[test]
    fn the_same_recording_gives_the_same_bytes(world in world()) {
        let recording = world.lossy();
        prop_assert_eq!(bytes(&recording), bytes(&recording));
    }
}

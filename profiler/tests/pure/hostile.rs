//! Recordings as nobody's kernel would have made them.

use offwake::{
    recording::{Begin, End, Phase, Preemption, Recording, Wait, WakeContext},
    units::{Cpu, Tgid, Tid, Timestamp},
};
use proptest::prelude::*;

use crate::simulator::{self, START, ThreadId};

/// What is done to a record.
#[derive(Clone, Copy, Debug)]
enum Prank {
    Off(Timestamp),
    On(Timestamp),
    Wake(Timestamp),
    Waker(Tid),
    Interrupt(u16),
    Owner(Tid),
    Process(Tgid),
    Seq(u32),
    Cpu(Cpu),
    Begin(Begin),
    End(End),
    FutexAddress(u64),
    Twice,
}

/// What is done to what else a recording tells.
#[derive(Clone, Copy, Debug)]
enum Rumour {
    SightedAt(Timestamp),
    Created(Timestamp),
    Phase(Phase),
    SightedSeq(u32),
    ExitAt(Timestamp),
    ExitOf(Tid),
    WindowEnd(Timestamp),
}

/// What is done, each to one of the records.
#[derive(Clone, Debug)]
pub struct Mischief {
    waits: Vec<(usize, Prank)>,
    preemptions: Vec<(usize, Prank)>,
    others: Vec<(usize, Rumour)>,
}

fn moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        8 => (0..600_u64).prop_map(|at| Timestamp(START + at)),
        1 => Just(Timestamp(0)),
        1 => Just(Timestamp(u64::MAX)),
    ]
}

/// A thread that there may be, or none, or the idle task.
fn tid() -> impl Strategy<Value = Tid> {
    prop_oneof![
        8 => (0..8_usize).prop_map(|n| ThreadId(n).tid()),
        1 => Just(Tid(0)),
        1 => Just(Tid(u32::MAX)),
    ]
}

fn prank() -> impl Strategy<Value = Prank> {
    prop_oneof![
        moment().prop_map(Prank::Off),
        moment().prop_map(Prank::On),
        moment().prop_map(Prank::Wake),
        tid().prop_map(Prank::Waker),
        tid().prop_map(Prank::Waker),
        (0..10_u16).prop_map(Prank::Interrupt),
        tid().prop_map(Prank::Owner),
        tid().prop_map(|tid| Prank::Process(Tgid(tid.0))),
        prop_oneof![0..9_u32, Just(u32::MAX)].prop_map(Prank::Seq),
        prop_oneof![0..3_u16, Just(u16::MAX)].prop_map(|cpu| Prank::Cpu(Cpu(cpu))),
        prop_oneof![Just(Begin::Seen), Just(Begin::BeforeWindow), Just(Begin::Newborn)]
            .prop_map(Prank::Begin),
        prop_oneof![Just(End::Seen), Just(End::StillOff), Just(End::Missed)].prop_map(Prank::End),
        (0..2_u64).prop_map(|n| Prank::FutexAddress(0x7000 + 64 * n)),
        Just(Prank::Twice),
    ]
}

fn rumour() -> impl Strategy<Value = Rumour> {
    let phase = prop_oneof![
        Just(Phase::Unknown),
        Just(Phase::OnCpu),
        Just(Phase::Runnable),
        Just(Phase::Blocked)
    ];
    prop_oneof![
        moment().prop_map(Rumour::SightedAt),
        moment().prop_map(Rumour::Created),
        phase.prop_map(Rumour::Phase),
        prop_oneof![0..9_u32, Just(u32::MAX)].prop_map(Rumour::SightedSeq),
        moment().prop_map(Rumour::ExitAt),
        tid().prop_map(Rumour::ExitOf),
        moment().prop_map(Rumour::WindowEnd),
    ]
}

/// From one lie to a recording of lies.
pub fn mischief() -> impl Strategy<Value = Mischief> {
    let pranks = || prop::collection::vec((any::<usize>(), prank()), 0..24);
    let rumours = prop::collection::vec((any::<usize>(), rumour()), 0..8);
    (pranks(), pranks(), rumours).prop_map(|(waits, preemptions, others)| Mischief {
        waits,
        preemptions,
        others,
    })
}

impl Mischief {
    /// Does it all to a recording, and sorts it.
    pub fn befall(&self, recording: &mut Recording) {
        let mut waits = simulator::waits(recording);
        for &(at, prank) in &self.waits {
            let len = waits.len().max(1);
            let Some(wait) = waits.get_mut(at % len) else { continue };
            play_on_wait(wait, prank);
            if let Prank::Twice = prank {
                let wait = *wait;
                waits.push(wait);
            }
        }
        simulator::put_waits(recording, waits);
        for &(at, prank) in &self.preemptions {
            let len = recording.preemptions.len().max(1);
            let Some(preemption) = recording.preemptions.get_mut(at % len) else { continue };
            play_on_preemption(preemption, prank);
            if let Prank::Twice = prank {
                let preemption = *preemption;
                recording.preemptions.push(preemption);
            }
        }
        for &(at, rumour) in &self.others {
            spread(recording, at, rumour);
        }
        recording.sort();
    }
}

fn play_on_wait(wait: &mut Wait, prank: Prank) {
    match prank {
        Prank::Off(at) => wait.off = at,
        Prank::On(at) => wait.on = at,
        Prank::Owner(tid) => wait.tid = tid,
        Prank::Process(tgid) => wait.tgid = tgid,
        Prank::Seq(seq) => wait.seq = seq,
        Prank::Cpu(cpu) => wait.on_cpu = cpu,
        Prank::Begin(begin) => wait.begin = begin,
        Prank::End(end) => wait.end = end,
        Prank::FutexAddress(address) => {
            if let Some(syscall) = &mut wait.syscall {
                syscall.args[0] = address;
            }
        }
        Prank::Wake(_) | Prank::Waker(_) | Prank::Interrupt(_) => {
            if let Some(wake) = &mut wait.wake {
                match prank {
                    Prank::Wake(at) => wake.at = at,
                    Prank::Waker(tid) => wake.current.tid = tid,
                    Prank::Interrupt(vector) => wake.context = WakeContext::Softirq(vector),
                    _ => {}
                }
            }
        }
        Prank::Twice => {}
    }
}

fn play_on_preemption(preemption: &mut Preemption, prank: Prank) {
    match prank {
        Prank::Off(at) => preemption.off = at,
        Prank::On(at) => preemption.on = at,
        Prank::Owner(tid) => preemption.tid = tid,
        Prank::Process(tgid) => preemption.tgid = tgid,
        Prank::Seq(seq) => preemption.seq = seq,
        Prank::Cpu(cpu) => preemption.on_cpu = cpu,
        Prank::Begin(begin) => preemption.begin = begin,
        Prank::End(end) => preemption.end = end,
        Prank::Waker(tid) => preemption.next = tid,
        Prank::Wake(_) | Prank::Interrupt(_) | Prank::FutexAddress(_) | Prank::Twice => {}
    }
}

fn spread(recording: &mut Recording, at: usize, rumour: Rumour) {
    let sighting = at % recording.sightings.len().max(1);
    let exit = at % recording.exits.len().max(1);
    let sighting = recording.sightings.get_mut(sighting);
    let exit = recording.exits.get_mut(exit);
    match (rumour, sighting, exit) {
        (Rumour::SightedAt(at), Some(sighting), _) => sighting.at = at,
        (Rumour::Created(at), Some(sighting), _) => sighting.created = at,
        (Rumour::Phase(phase), Some(sighting), _) => sighting.phase = phase,
        (Rumour::SightedSeq(seq), Some(sighting), _) => sighting.seq = seq,
        (Rumour::ExitAt(at), _, Some(exit)) => exit.at = at,
        (Rumour::ExitOf(tid), _, Some(exit)) => exit.tid = tid,
        (Rumour::WindowEnd(at), ..) => {
            recording.meta.window.end = at.max(recording.meta.window.start);
        }
        _ => {}
    }
}

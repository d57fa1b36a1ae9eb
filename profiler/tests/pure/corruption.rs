//! Recordings as nobody's kernel would have made them.

use offwake_recording::{
    Begin, End, Phase, Preemption, Recording, Wait, WakeContext,
    units::{Cpu, Tgid, Tid, Timestamp},
};
use proptest::prelude::*;

use crate::simulator::{self, START, ThreadId};

/// A change to a record of a wait or a preemption.
#[derive(Clone, Copy, Debug)]
enum RecordChange {
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

/// A change to something else in a recording.
#[derive(Clone, Copy, Debug)]
enum OtherChange {
    SightedAt(Timestamp),
    Created(Timestamp),
    Phase(Phase),
    SightedSeq(u32),
    ExitAt(Timestamp),
    ExitOf(Tid),
    WindowEnd(Timestamp),
}

/// Changes, each with the number of the record that it is made to.
#[derive(Clone, Debug)]
pub struct Corruption {
    waits: Vec<(usize, RecordChange)>,
    preemptions: Vec<(usize, RecordChange)>,
    others: Vec<(usize, OtherChange)>,
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

fn record_change() -> impl Strategy<Value = RecordChange> {
    prop_oneof![
        moment().prop_map(RecordChange::Off),
        moment().prop_map(RecordChange::On),
        moment().prop_map(RecordChange::Wake),
        tid().prop_map(RecordChange::Waker),
        tid().prop_map(RecordChange::Waker),
        (0..10_u16).prop_map(RecordChange::Interrupt),
        tid().prop_map(RecordChange::Owner),
        tid().prop_map(|tid| RecordChange::Process(Tgid(tid.0))),
        prop_oneof![0..9_u32, Just(u32::MAX)].prop_map(RecordChange::Seq),
        prop_oneof![0..3_u16, Just(u16::MAX)].prop_map(|cpu| RecordChange::Cpu(Cpu(cpu))),
        prop_oneof![Just(Begin::Seen), Just(Begin::BeforeWindow), Just(Begin::Newborn)]
            .prop_map(RecordChange::Begin),
        prop_oneof![Just(End::Seen), Just(End::StillOff), Just(End::Missed)]
            .prop_map(RecordChange::End),
        (0..2_u64).prop_map(|n| RecordChange::FutexAddress(0x7000 + 64 * n)),
        Just(RecordChange::Twice),
    ]
}

fn other_change() -> impl Strategy<Value = OtherChange> {
    let phase = prop_oneof![
        Just(Phase::Unknown),
        Just(Phase::OnCpu),
        Just(Phase::Runnable),
        Just(Phase::Blocked)
    ];
    prop_oneof![
        moment().prop_map(OtherChange::SightedAt),
        moment().prop_map(OtherChange::Created),
        phase.prop_map(OtherChange::Phase),
        prop_oneof![0..9_u32, Just(u32::MAX)].prop_map(OtherChange::SightedSeq),
        moment().prop_map(OtherChange::ExitAt),
        tid().prop_map(OtherChange::ExitOf),
        moment().prop_map(OtherChange::WindowEnd),
    ]
}

/// From one wrong value to a recording full of them.
pub fn corruption() -> impl Strategy<Value = Corruption> {
    let record_changes = || prop::collection::vec((any::<usize>(), record_change()), 0..24);
    let other_changes = prop::collection::vec((any::<usize>(), other_change()), 0..8);
    (record_changes(), record_changes(), other_changes)
        .prop_map(|(waits, preemptions, others)| Corruption { waits, preemptions, others })
}

impl Corruption {
    /// Applies all changes to a recording, and sorts it.
    pub fn apply(&self, recording: &mut Recording) {
        let mut waits = simulator::waits(recording);
        for &(at, record_change) in &self.waits {
            let len = waits.len().max(1);
            let Some(wait) = waits.get_mut(at % len) else { continue };
            change_wait(wait, record_change);
            if let RecordChange::Twice = record_change {
                let wait = *wait;
                waits.push(wait);
            }
        }
        simulator::put_waits(recording, waits);
        for &(at, record_change) in &self.preemptions {
            let len = recording.preemptions.len().max(1);
            let Some(preemption) = recording.preemptions.get_mut(at % len) else { continue };
            change_preemption(preemption, record_change);
            if let RecordChange::Twice = record_change {
                let preemption = *preemption;
                recording.preemptions.push(preemption);
            }
        }
        for &(at, other_change) in &self.others {
            change_other(recording, at, other_change);
        }
        recording.sort();
    }
}

fn change_wait(wait: &mut Wait, record_change: RecordChange) {
    match record_change {
        RecordChange::Off(at) => wait.off = at,
        RecordChange::On(at) => wait.on = at,
        RecordChange::Owner(tid) => wait.tid = tid,
        RecordChange::Process(tgid) => wait.tgid = tgid,
        RecordChange::Seq(seq) => wait.seq = seq,
        RecordChange::Cpu(cpu) => wait.on_cpu = cpu,
        RecordChange::Begin(begin) => wait.begin = begin,
        RecordChange::End(end) => wait.end = end,
        RecordChange::FutexAddress(address) => {
            if let Some(syscall) = &mut wait.syscall {
                syscall.args[0] = address;
            }
        }
        RecordChange::Wake(_) | RecordChange::Waker(_) | RecordChange::Interrupt(_) => {
            if let Some(wake) = &mut wait.wake {
                match record_change {
                    RecordChange::Wake(at) => wake.at = at,
                    RecordChange::Waker(tid) => wake.current.tid = tid,
                    RecordChange::Interrupt(vector) => wake.context = WakeContext::Softirq(vector),
                    _ => {}
                }
            }
        }
        RecordChange::Twice => {}
    }
}

fn change_preemption(preemption: &mut Preemption, record_change: RecordChange) {
    match record_change {
        RecordChange::Off(at) => preemption.off = at,
        RecordChange::On(at) => preemption.on = at,
        RecordChange::Owner(tid) => preemption.tid = tid,
        RecordChange::Process(tgid) => preemption.tgid = tgid,
        RecordChange::Seq(seq) => preemption.seq = seq,
        RecordChange::Cpu(cpu) => preemption.on_cpu = cpu,
        RecordChange::Begin(begin) => preemption.begin = begin,
        RecordChange::End(end) => preemption.end = end,
        RecordChange::Waker(tid) => preemption.next = tid,
        RecordChange::Wake(_)
        | RecordChange::Interrupt(_)
        | RecordChange::FutexAddress(_)
        | RecordChange::Twice => {}
    }
}

fn change_other(recording: &mut Recording, at: usize, other_change: OtherChange) {
    let thread_event = at % recording.thread_events.len().max(1);
    let exit = at % recording.exits.len().max(1);
    let thread_event = recording.thread_events.get_mut(thread_event);
    let exit = recording.exits.get_mut(exit);
    match (other_change, thread_event, exit) {
        (OtherChange::SightedAt(at), Some(thread_event), _) => thread_event.at = at,
        (OtherChange::Created(at), Some(thread_event), _) => thread_event.created = at,
        (OtherChange::Phase(phase), Some(thread_event), _) => thread_event.phase = phase,
        (OtherChange::SightedSeq(seq), Some(thread_event), _) => thread_event.seq = seq,
        (OtherChange::ExitAt(at), _, Some(exit)) => exit.at = at,
        (OtherChange::ExitOf(tid), _, Some(exit)) => exit.tid = tid,
        (OtherChange::WindowEnd(at), ..) => {
            recording.meta.window.end = at.max(recording.meta.window.start);
        }
        _ => {}
    }
}

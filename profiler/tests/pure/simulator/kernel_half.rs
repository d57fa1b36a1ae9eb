//! What the kernel half sees of a machine, and which records it makes of it: the same slot for each
//! thread, and the same transitions, as in `profiler-ebpf/src/programs`.

use std::collections::BTreeMap;

use offwake::{
    recording::{
        Begin, ClosedBy, End, Meta, Phase, Recording, Sighting, SightingReason, Wait, Wake, Window,
    },
    units::{Tid, Timestamp},
};

use super::{
    ThreadId,
    history::{Futex, Queue, WaitId},
    records::{self, Back, Left, Name, Things, WaitFor, Waking, time},
};

/// A wait record, as far as the definition of a lock asks for it.
#[derive(Clone, Copy, Debug)]
pub struct FutexRecord {
    pub futex: Futex,
    pub expected: u64,
    pub begin: Begin,
    pub off: u64,
    pub woken: Option<u64>,
}

/// What is kept of a thread between its switch-out and its switch-in.
#[derive(Clone, Debug)]
struct Slot {
    phase: Phase,
    seq: u32,
    left: Left,
    /// None for a newborn.
    wait: Option<(WaitId, WaitFor)>,
    wake: Option<Wake>,
    next: Tid,
    is_introduced: bool,
    /// It was looked at as the window closed; what comes later is not in the recording.
    is_closed: bool,
}

impl Slot {
    const NEW: Self = Self {
        phase: Phase::Unknown,
        seq: 0,
        left: Left { begin: Begin::Seen, at: 0, cpu: 0 },
        wait: None,
        wake: None,
        next: Tid(0),
        is_introduced: false,
        is_closed: false,
    };
}

/// The CPU on which the survey runs: it stands in records for the one that is not known.
const SURVEYS: usize = 0;

pub struct KernelHalf {
    attached: u64,
    /// By [`ThreadId`].
    slots: Vec<Option<Slot>>,
    names: Vec<Name>,
    things: Things,
    recording: Recording,
    waits: Vec<Wait>,
    records: Records,
}

/// What the records are of, in the machine's own terms.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// By thread and number.
    pub waits: BTreeMap<(Tid, u32), (WaitId, Edges)>,
    pub futexes: Vec<FutexRecord>,
}

/// How the beginning and the end of a wait are known.
#[derive(Clone, Copy, Debug)]
pub struct Edges {
    pub begin: Begin,
    pub end: End,
    /// When the thread came back, or was last seen off the CPU.
    pub last_seen: u64,
}

/// What became of a machine's run.
pub struct Recorded {
    pub recording: Recording,
    pub records: Records,
}

impl KernelHalf {
    pub fn new(attached: u64, (start, end): (u64, u64)) -> Self {
        let mut recording = Recording {
            meta: Meta {
                window: Window { start: time(start), end: time(end) },
                target: "all threads".to_owned(),
                closed_by: ClosedBy::Duration,
                ..Meta::default()
            },
            ..Recording::default()
        };
        let things = Things::new(&mut recording);
        Self {
            attached,
            slots: Vec::new(),
            names: Vec::new(),
            things,
            recording,
            waits: Vec::new(),
            records: Records::default(),
        }
    }

    pub fn finish(mut self) -> Recorded {
        records::put_waits(&mut self.recording, self.waits);
        self.recording.sort();
        Recorded { recording: self.recording, records: self.records }
    }

    /// There is a thread, seen or not.
    pub fn add(&mut self, name: Name) {
        self.names.push(name);
        self.slots.push(None);
    }

    pub fn forked(&mut self, child: ThreadId, now: u64) {
        if self.slot(child, now, Absent::IsMade).is_some() {
            self.introduce(child, SightingReason::Fork, Phase::Unknown, now);
        }
    }

    pub fn newborn(&mut self, child: ThreadId, cpu: usize, waking: Waking) {
        let wake = self.things.wake(waking, None);
        if let Some(slot) = self.slot(child, waking.at, Absent::IsMade) {
            slot.left = Left { begin: Begin::Newborn, at: waking.at, cpu };
            slot.wait = None;
            slot.wake = Some(wake);
            slot.phase = Phase::Blocked;
        }
    }

    pub fn blocked(
        &mut self,
        thread: ThreadId,
        now: u64,
        cpu: usize,
        (wait, what): (WaitId, WaitFor),
    ) {
        if let Some(slot) = self.slot(thread, now, Absent::IsMade) {
            slot.left = Left { begin: Begin::Seen, at: now, cpu };
            slot.wait = Some((wait, what));
            slot.phase = Phase::Blocked;
        }
    }

    pub fn preempted(&mut self, thread: ThreadId, now: u64, cpu: usize, next: ThreadId) {
        let next = self.names[next.0].tid;
        if let Some(slot) = self.slot(thread, now, Absent::IsMade) {
            slot.left = Left { begin: Begin::Seen, at: now, cpu };
            slot.next = next;
            slot.phase = Phase::Runnable;
        }
    }

    /// A wake is made; says whether it will be in the wait's record.
    pub fn waking(&mut self, thread: ThreadId, waking: Waking, what: WaitFor) -> Noted {
        let wake = self.things.wake(waking, Some(what));
        let Some(slot) = self.slot(thread, waking.at, Absent::Stays) else { return Noted::No };
        match slot.phase {
            Phase::Blocked if slot.wake.is_some_and(|wake| wake.at > time(slot.left.at)) => {
                Noted::No
            }
            Phase::Blocked | Phase::OnCpu => {
                slot.wake = Some(wake);
                Noted::Yes
            }
            Phase::Unknown | Phase::Runnable => Noted::No,
        }
    }

    /// A thread comes to a CPU; says whether a record tells of that.
    pub fn came(&mut self, thread: ThreadId, now: u64, queue: Queue) -> Noted {
        if self.slot(thread, now, Absent::Stays).is_some() {
            self.send_off_cpu(thread, now, Back { end: End::Seen, at: now, queue });
        }
        let Some(slot) = self.slot(thread, now, Absent::IsMade) else { return Noted::No };
        slot.phase = Phase::OnCpu;
        slot.wake = None;
        Noted::Yes
    }

    pub fn exited(&mut self, thread: ThreadId, now: u64) {
        let name = self.names[thread.0];
        let Some(slot) = self.slot(thread, now, Absent::Stays) else { return };
        let exit = records::exit(name, now, slot.seq);
        self.introduce_once(thread, now);
        self.recording.exits.push(exit);
        self.slots[thread.0] = None;
    }

    /// Everybody is looked at before the window opens. `stands` is what the thread is doing, and
    /// what for; says whether that was news.
    pub fn opening(
        &mut self,
        thread: ThreadId,
        now: u64,
        stands: Phase,
        what: Option<(WaitId, WaitFor)>,
    ) -> Noted {
        let Some(slot) = self.slot(thread, now, Absent::IsMade) else { return Noted::No };
        let noted = if slot.phase == Phase::Unknown { Noted::Yes } else { Noted::No };
        if noted == Noted::Yes {
            slot.phase = stands;
            slot.left = Left { begin: Begin::BeforeWindow, at: now, cpu: SURVEYS };
            slot.next = Tid(0);
            slot.wait = what;
        }
        let phase = slot.phase;
        self.introduce(thread, SightingReason::Opening, phase, now);
        noted
    }

    /// Everybody is looked at when the window has closed.
    pub fn closing(&mut self, thread: ThreadId, now: u64) {
        let Some(slot) = self.slot(thread, now, Absent::IsMade) else { return };
        let phase = slot.phase;
        let queue = Queue { cpu: SURVEYS, moved: None };
        self.send_off_cpu(thread, now, Back { end: End::StillOff, at: now, queue });
        self.introduce(thread, SightingReason::Closing, phase, now);
        if let Some(slot) = self.slot(thread, now, Absent::Stays) {
            slot.is_closed = true;
        }
    }

    fn slot(&mut self, thread: ThreadId, now: u64, absent: Absent) -> Option<&mut Slot> {
        if now < self.attached {
            return None;
        }
        let slot = &mut self.slots[thread.0];
        if absent == Absent::IsMade {
            slot.get_or_insert(Slot::NEW);
        }
        slot.as_mut().filter(|slot| !slot.is_closed)
    }

    fn send_off_cpu(&mut self, thread: ThreadId, now: u64, back: Back) {
        let name = self.names[thread.0];
        let Some(slot) = self.slot(thread, now, Absent::Stays) else { return };
        if !matches!(slot.phase, Phase::Blocked | Phase::Runnable) {
            return;
        }
        slot.seq += 1;
        let slot = slot.clone();
        if back.end == End::Seen {
            self.introduce_once(thread, now);
        }
        let times = (slot.left, back);
        if slot.phase == Phase::Runnable {
            let record = records::preemption(name, slot.seq, times, slot.next);
            return self.recording.preemptions.push(record);
        }
        let what = slot.wait.map(|(_, what)| what);
        if let Some((id, what)) = slot.wait {
            let edges = Edges { begin: slot.left.begin, end: back.end, last_seen: back.at };
            self.records.waits.insert((name.tid, slot.seq), (id, edges));
            if let WaitFor::Futex { futex, expected } = what {
                let since_start = |at: Timestamp| at.since(time(0)).0;
                let woken = slot.wake.map(|wake| since_start(wake.at));
                let (begin, off) = (slot.left.begin, slot.left.at);
                self.records.futexes.push(FutexRecord { futex, expected, begin, off, woken });
            }
        }
        self.waits.push(self.things.wait(name, slot.seq, times, what, slot.wake));
    }

    fn introduce_once(&mut self, thread: ThreadId, now: u64) {
        if self.slots[thread.0].as_ref().is_some_and(|slot| !slot.is_introduced) {
            self.introduce(thread, SightingReason::Seen, Phase::Unknown, now);
        }
    }

    fn introduce(&mut self, thread: ThreadId, reason: SightingReason, phase: Phase, now: u64) {
        let name = self.names[thread.0];
        let Some(slot) = self.slot(thread, now, Absent::Stays) else { return };
        slot.is_introduced = true;
        let seq = slot.seq;
        let sighting = records::sighting(name, reason, now);
        self.recording.sightings.push(Sighting { phase, seq, ..sighting });
    }
}

/// Whether something is in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    Yes,
    No,
}

/// What if a thread has no slot yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Stays,
    IsMade,
}

//! The kernel half of the simulated machine: which events it sees, and which records it makes of them.
//! What it keeps for each thread, and the transitions, are those of `profiler-ebpf/src/programs`.

use std::collections::BTreeMap;

use offwake_recording::{
    Begin, ClosedBy, End, Meta, Phase, Recording, ThreadEvent, ThreadEventReason, Wait, Wake,
    Window,
    units::{Tid, Timestamp},
};

use super::{
    ThreadId,
    history::{Futex, Queue, WaitId},
    records::{self, FilesAndStacks, Name, SwitchIn, SwitchOut, WaitFor, Waking, time},
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

/// What is kept for a thread between its switch-out and its switch-in.
#[derive(Clone, Debug)]
struct TaskLocal {
    phase: Phase,
    seq: u32,
    switch_out: SwitchOut,
    /// None for a thread that has not run yet.
    wait: Option<(WaitId, WaitFor)>,
    wake: Option<Wake>,
    next: Tid,
    /// Since when a CPU quota keeps the thread off the CPU, and until when it did.
    throttle: Option<(u64, Option<u64>)>,
    is_info_sent: bool,
    /// The thread was surveyed as the window closed; what comes later is not in the recording.
    is_closed: bool,
}

impl TaskLocal {
    const NEW: Self = Self {
        phase: Phase::Unknown,
        seq: 0,
        switch_out: SwitchOut { begin: Begin::Seen, at: 0, cpu: 0 },
        wait: None,
        wake: None,
        next: Tid(0),
        throttle: None,
        is_info_sent: false,
        is_closed: false,
    };
}

/// The CPU on which the survey runs: records have it in place of a CPU that is not known.
const SURVEYS: usize = 0;

pub struct KernelHalf {
    attached: u64,
    /// What is kept for each thread, by [`ThreadId`].
    locals: Vec<Option<TaskLocal>>,
    names: Vec<Name>,
    files_and_stacks: FilesAndStacks,
    recording: Recording,
    waits: Vec<Wait>,
    records: Records,
}

/// Which events of the machine the records are of.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// The waits that have records, by thread and number.
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

/// The recording of a machine's run.
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
        let files_and_stacks = FilesAndStacks::new(&mut recording);
        Self {
            attached,
            locals: Vec::new(),
            names: Vec::new(),
            files_and_stacks,
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

    /// Adds a thread to the machine, whether the kernel half sees it or not.
    pub fn add(&mut self, name: Name) {
        self.names.push(name);
        self.locals.push(None);
    }

    pub fn on_fork(&mut self, child: ThreadId, now: u64) {
        if self.find(child, now, IfAbsent::Create).is_some() {
            self.send_thread_info(child, ThreadEventReason::Fork, Phase::Unknown, now);
        }
    }

    pub fn on_wakeup_new(&mut self, child: ThreadId, cpu: usize, waking: Waking) {
        let wake = self.files_and_stacks.wake(waking, None);
        if let Some(local) = self.find(child, waking.at, IfAbsent::Create) {
            local.switch_out = SwitchOut { begin: Begin::Newborn, at: waking.at, cpu };
            local.wait = None;
            local.wake = Some(wake);
            local.phase = Phase::Blocked;
        }
    }

    pub fn on_block(
        &mut self,
        thread: ThreadId,
        now: u64,
        cpu: usize,
        (wait, what): (WaitId, WaitFor),
    ) {
        if let Some(local) = self.find(thread, now, IfAbsent::Create) {
            local.switch_out = SwitchOut { begin: Begin::Seen, at: now, cpu };
            local.wait = Some((wait, what));
            local.phase = Phase::Blocked;
        }
    }

    pub fn on_preempt(&mut self, thread: ThreadId, now: u64, cpu: usize, next: ThreadId) {
        let next = self.names[next.0].tid;
        if let Some(local) = self.find(thread, now, IfAbsent::Create) {
            local.switch_out = SwitchOut { begin: Begin::Seen, at: now, cpu };
            local.next = next;
            local.phase = Phase::Runnable;
        }
    }

    /// A CPU quota takes a thread off its CPU; `next` is none if the CPU has nothing else to do.
    pub fn on_throttle(&mut self, thread: ThreadId, now: u64, cpu: usize, next: Option<ThreadId>) {
        let next = next.map_or(Tid(0), |next| self.names[next.0].tid);
        if let Some(local) = self.find(thread, now, IfAbsent::Create) {
            local.switch_out = SwitchOut { begin: Begin::Seen, at: now, cpu };
            local.next = next;
            local.phase = Phase::Runnable;
            local.throttle = Some((now, None));
        }
    }

    /// The quota that kept a thread off the CPU is refilled.
    pub fn on_refill(&mut self, thread: ThreadId, now: u64) {
        if let Some(local) = self.find(thread, now, IfAbsent::ReturnNone)
            && let Some((_, until)) = &mut local.throttle
        {
            until.get_or_insert(now);
        }
    }

    /// A wake is made. Returns whether it will be in the wait's record.
    pub fn on_waking(&mut self, thread: ThreadId, waking: Waking, what: WaitFor) -> IsRecorded {
        let wake = self.files_and_stacks.wake(waking, Some(what));
        let Some(local) = self.find(thread, waking.at, IfAbsent::ReturnNone) else {
            return IsRecorded::No;
        };
        match local.phase {
            Phase::Blocked
                if local.wake.is_some_and(|wake| wake.at > time(local.switch_out.at)) =>
            {
                IsRecorded::No
            }
            Phase::Blocked | Phase::OnCpu => {
                local.wake = Some(wake);
                IsRecorded::Yes
            }
            Phase::Unknown | Phase::Runnable => IsRecorded::No,
        }
    }

    /// A thread comes to a CPU. Returns whether that is recorded.
    pub fn on_switch_in(&mut self, thread: ThreadId, now: u64, queue: Queue) -> IsRecorded {
        if self.find(thread, now, IfAbsent::ReturnNone).is_some() {
            self.send_off_cpu(thread, now, SwitchIn { end: End::Seen, at: now, queue });
        }
        let Some(local) = self.find(thread, now, IfAbsent::Create) else { return IsRecorded::No };
        local.phase = Phase::OnCpu;
        local.wake = None;
        local.throttle = None;
        IsRecorded::Yes
    }

    pub fn on_exit(&mut self, thread: ThreadId, now: u64) {
        let name = self.names[thread.0];
        let Some(local) = self.find(thread, now, IfAbsent::ReturnNone) else { return };
        let exit = records::exit(name, now, local.seq);
        self.send_thread_info_once(thread, now);
        self.recording.exits.push(exit);
        self.locals[thread.0] = None;
    }

    /// Surveys a thread before the window opens. `found` is what the thread is doing, `throttled` whether a
    /// quota keeps it from that, and `what` its wait. Returns whether that was not known yet.
    pub fn survey_opening(
        &mut self,
        thread: ThreadId,
        now: u64,
        (found, throttled): (Phase, bool),
        what: Option<(WaitId, WaitFor)>,
    ) -> IsRecorded {
        let Some(local) = self.find(thread, now, IfAbsent::Create) else { return IsRecorded::No };
        let is_recorded =
            if local.phase == Phase::Unknown { IsRecorded::Yes } else { IsRecorded::No };
        if is_recorded == IsRecorded::Yes {
            local.phase = found;
            local.switch_out = SwitchOut { begin: Begin::BeforeWindow, at: now, cpu: SURVEYS };
            local.next = Tid(0);
            local.wait = what;
            local.throttle = throttled.then_some((now, None));
        }
        let phase = local.phase;
        self.send_thread_info(thread, ThreadEventReason::Opening, phase, now);
        is_recorded
    }

    /// Surveys a thread when the window has closed.
    pub fn survey_closing(&mut self, thread: ThreadId, now: u64) {
        let Some(local) = self.find(thread, now, IfAbsent::Create) else { return };
        let phase = local.phase;
        let queue = Queue { cpu: SURVEYS, moved: None };
        self.send_off_cpu(thread, now, SwitchIn { end: End::StillOff, at: now, queue });
        self.send_thread_info(thread, ThreadEventReason::Closing, phase, now);
        if let Some(local) = self.find(thread, now, IfAbsent::ReturnNone) {
            local.is_closed = true;
        }
    }

    /// What is kept for a thread, while the kernel half is attached and the window has not closed.
    fn find(&mut self, thread: ThreadId, now: u64, if_absent: IfAbsent) -> Option<&mut TaskLocal> {
        if now < self.attached {
            return None;
        }
        let local = &mut self.locals[thread.0];
        if if_absent == IfAbsent::Create {
            local.get_or_insert(TaskLocal::NEW);
        }
        local.as_mut().filter(|local| !local.is_closed)
    }

    fn send_off_cpu(&mut self, thread: ThreadId, now: u64, switch_in: SwitchIn) {
        let name = self.names[thread.0];
        let Some(local) = self.find(thread, now, IfAbsent::ReturnNone) else { return };
        if !matches!(local.phase, Phase::Blocked | Phase::Runnable) {
            return;
        }
        local.seq += 1;
        let local = local.clone();
        if switch_in.end == End::Seen {
            self.send_thread_info_once(thread, now);
        }
        let times = (local.switch_out, switch_in);
        if local.phase == Phase::Runnable {
            if let Some((from, until)) = local.throttle {
                let until = until.unwrap_or(switch_in.at);
                self.recording.throttles.push(records::throttle(name, from, until));
            }
            let record = records::preemption(name, local.seq, times, local.next);
            return self.recording.preemptions.push(record);
        }
        let what = local.wait.map(|(_, what)| what);
        if let Some((id, what)) = local.wait {
            let edges = Edges {
                begin: local.switch_out.begin,
                end: switch_in.end,
                last_seen: switch_in.at,
            };
            self.records.waits.insert((name.tid, local.seq), (id, edges));
            if let WaitFor::Futex { futex, expected } = what {
                let since_start = |at: Timestamp| at.since(time(0)).0;
                let woken = local.wake.map(|wake| since_start(wake.at));
                let (begin, off) = (local.switch_out.begin, local.switch_out.at);
                self.records.futexes.push(FutexRecord { futex, expected, begin, off, woken });
            }
        }
        self.waits.push(self.files_and_stacks.wait(name, local.seq, times, what, local.wake));
    }

    fn send_thread_info_once(&mut self, thread: ThreadId, now: u64) {
        if self.locals[thread.0].as_ref().is_some_and(|local| !local.is_info_sent) {
            self.send_thread_info(thread, ThreadEventReason::Seen, Phase::Unknown, now);
        }
    }

    fn send_thread_info(
        &mut self,
        thread: ThreadId,
        reason: ThreadEventReason,
        phase: Phase,
        now: u64,
    ) {
        let name = self.names[thread.0];
        let Some(local) = self.find(thread, now, IfAbsent::ReturnNone) else { return };
        local.is_info_sent = true;
        let seq = local.seq;
        let thread_event = records::thread_event(name, reason, now);
        self.recording.thread_events.push(ThreadEvent { phase, seq, ..thread_event });
    }
}

/// Whether something is in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsRecorded {
    Yes,
    No,
}

/// What to do where nothing is kept for a thread yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfAbsent {
    ReturnNone,
    Create,
}

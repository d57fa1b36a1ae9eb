//! Time, and the events that happen in it: threads that come, wait, are woken, and go.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use offwake_recording::{Phase, ThreadRef, units::Timestamp};

use super::{
    ProcessId, Run, START, ThreadId,
    history::{Activity, Futex, History, Life, Wait, WaitId, WakeSource},
    kernel_half::{IsRecorded, KernelHalf},
    program::{Op, Outside, Scenario},
    records::{Name, WaitFor, Waking, time},
    servers::Servers,
    truth::{CONTENDED, Truth},
};

/// Threads that a machine has room for.
pub(super) const MOST_THREADS: usize = 9;
/// The CPU time that a step takes at most, if it does not compute.
pub(super) const LONGEST_STEP: u64 = 3;
/// The survey before the window, and the one after it, look at every thread within this time.
pub const SURVEY: u64 = 8;

/// Where a thread stands with its scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// The thread was made, and has not been let run yet.
    Made,
    Queued,
    OnCpu,
    /// On its way to sleep, the CPU not yet given up: a wake now comes before the switch-out.
    Falling,
    Blocked,
    /// The quota of its process keeps the thread from running.
    Throttled,
    /// The thread does its last steps.
    Exiting,
    Dead,
}

/// How a wake found a thread that was still on its way to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Early {
    No,
    Seen,
    Unseen,
}

pub(super) struct Thread {
    pub process: ProcessId,
    pub program: Vec<Op>,
    pub repeats: bool,
    /// The step that the thread is at.
    pub step: usize,
    /// CPU time until the step takes effect.
    pub remaining: u64,
    pub slice: u64,
    pub cpu: usize,
    pub moved: Option<u64>,
    pub stand: Stand,
    early: Early,
    pub wait: Option<(WaitId, WaitFor)>,
    /// Whether the thread has waited in this step already.
    pub resumed: bool,
    pub children: Vec<ThreadId>,
    pub waits_for_end: VecDeque<ThreadId>,
}

pub(super) struct CpuState {
    pub current: Option<ThreadId>,
    /// Since when the current thread's times are not yet counted.
    pub counted: u64,
    pub queue: VecDeque<ThreadId>,
    /// Events of older plans are void.
    pub plan: u64,
    /// Whether the idle CPU is about to look into its queue.
    pub is_waking: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Opening(usize),
    Closing(usize),
    /// The current thread's step or slice is over.
    Due {
        cpu: usize,
        plan: u64,
    },
    /// An idle CPU has heard that there is something to run.
    Dispatch {
        cpu: usize,
    },
    /// The n-th of the scenario's quotas is used up.
    UsedUp(usize),
    /// It is refilled.
    Refill(usize),
    /// A timer of the event loop's may be due.
    Expired,
    /// Something outside is done.
    Done {
        wait: usize,
    },
}

/// A lock, as its word has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Word {
    #[default]
    Free,
    Taken,
    /// Taken, and somebody may wait: its release wakes.
    Contended,
}

#[derive(Default)]
pub(super) struct Lock {
    pub word: Word,
    pub waiters: VecDeque<ThreadId>,
    pub held_since: Option<(u64, ThreadId)>,
    pub touched: Option<u64>,
}

#[derive(Default)]
pub(super) struct Condition {
    pub broadcasts: u64,
    pub waiters: VecDeque<ThreadId>,
}

#[derive(Default)]
pub(super) struct Channel {
    pub messages: u64,
    pub receivers: VecDeque<ThreadId>,
}

/// What becomes of the current thread after a step.
pub(super) enum After {
    Goes,
    /// The thread does the same step again, so much later.
    Again(u64),
    Sleeps(WaitFor),
    Exits,
}

pub struct Machine<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) now: u64,
    chance: usize,
    planned: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub(super) cpus: Vec<CpuState>,
    pub(super) threads: Vec<Thread>,
    pub(super) locks: BTreeMap<Futex, Lock>,
    pub(super) conditions: BTreeMap<Futex, Condition>,
    pub(super) channels: BTreeMap<usize, Channel>,
    /// How many of the quotas of a process are used up.
    pub(super) used_up: BTreeMap<ProcessId, usize>,
    pub(super) servers: Servers,
    pub(super) history: History,
    pub(super) kernel_half: KernelHalf,
}

/// Runs a machine until everybody was looked at after the window's end.
pub fn run(scenario: &Scenario) -> Run {
    let mut machine = Machine::new(scenario);
    let end = scenario.window.1 + SURVEY;
    while let Some(Reverse((at, _, event))) = machine.events.pop() {
        if at > end {
            break;
        }
        machine.now = at;
        machine.happen(event);
    }
    let recorded = machine.kernel_half.finish();
    let truth = Truth::new(machine.history, scenario.window, &recorded.records);
    Run { recording: recorded.recording, truth, requests: machine.servers.requests }
}

impl<'a> Machine<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let cpu = || CpuState {
            current: None,
            counted: 0,
            queue: VecDeque::new(),
            plan: 0,
            is_waking: false,
        };
        let mut machine = Self {
            scenario,
            now: 0,
            chance: 0,
            planned: 0,
            events: BinaryHeap::new(),
            cpus: (0..scenario.cpus).map(|_| cpu()).collect(),
            threads: Vec::new(),
            locks: BTreeMap::new(),
            conditions: BTreeMap::new(),
            channels: BTreeMap::new(),
            used_up: BTreeMap::new(),
            servers: Servers::default(),
            history: History::default(),
            kernel_half: KernelHalf::new(scenario.attached, scenario.window),
        };
        let (opens, closes) = scenario.window;
        let survey = opens.saturating_sub(scenario.attached).min(SURVEY) + 1;
        for n in 0..MOST_THREADS {
            let looked_at = scenario.attached + machine.chance(survey);
            machine.plan(looked_at, Event::Opening(n));
            let looked_at = closes + machine.chance(SURVEY);
            machine.plan(looked_at, Event::Closing(n));
        }
        for (n, quota) in scenario.quotas.iter().enumerate() {
            machine.plan(quota.used_up, Event::UsedUp(n));
            machine.plan(quota.used_up + quota.refilled_after.max(1), Event::Refill(n));
        }
        for plan in &scenario.threads {
            let program = plan.program.clone();
            let thread = machine.add(plan.process, plan.cpu, program, None);
            machine.threads[thread.0].repeats = plan.repeats;
            machine.enqueue(thread);
        }
        machine
    }

    /// A number below `n` that differs from run to run.
    pub(super) fn chance(&mut self, n: u64) -> u64 {
        let chances = &self.scenario.chances;
        self.chance += 1;
        let chance = chances.get(self.chance % chances.len().max(1)).copied().unwrap_or(0);
        u64::from(chance) % n
    }

    pub(super) fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((at, self.planned, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Opening(n) => self.opening(ThreadId(n)),
            Event::Closing(n) => {
                if self.threads.get(n).is_some_and(|thread| thread.stand != Stand::Dead) {
                    self.kernel_half.survey_closing(ThreadId(n), self.now);
                }
            }
            Event::Due { cpu, plan } if self.cpus[cpu].plan == plan => self.due(cpu),
            Event::Due { .. } => {}
            Event::Dispatch { cpu } => {
                self.cpus[cpu].is_waking = false;
                if self.cpus[cpu].current.is_none() {
                    self.switch_in_next(cpu);
                }
            }
            Event::UsedUp(n) => self.use_up(n),
            Event::Refill(n) => self.refill(n),
            Event::Expired => self.expire(),
            Event::Done { wait } => self.done(WaitId(wait)),
        }
    }

    fn opening(&mut self, thread: ThreadId) {
        let Some(state) = self.threads.get(thread.0) else { return };
        let stands = match state.stand {
            Stand::Dead => return,
            Stand::OnCpu | Stand::Falling | Stand::Exiting => Phase::OnCpu,
            Stand::Queued | Stand::Made | Stand::Throttled => Phase::Runnable,
            Stand::Blocked => Phase::Blocked,
        };
        let throttled = state.stand == Stand::Throttled;
        let found = (stands, throttled);
        let is_recorded = self.kernel_half.survey_opening(thread, self.now, found, state.wait);
        if is_recorded == IsRecorded::Yes && stands == Phase::Runnable && !throttled {
            // Whoever woke it unseen: that it is awake is seen now.
            self.history.record_runnable(thread, self.now);
        }
    }

    /// A new thread, which does not run yet.
    fn add(
        &mut self,
        process: ProcessId,
        cpu: usize,
        program: Vec<Op>,
        creator: Option<ThreadId>,
    ) -> ThreadId {
        let thread = ThreadId(self.threads.len());
        self.threads.push(Thread {
            process,
            program,
            repeats: false,
            step: 0,
            remaining: 0,
            slice: 0,
            cpu: cpu % self.scenario.cpus,
            moved: None,
            stand: Stand::Made,
            early: Early::No,
            wait: None,
            resumed: false,
            children: Vec::new(),
            waits_for_end: VecDeque::new(),
        });
        let spans = vec![(self.now, Activity::Runnable(None))];
        self.history.lives.push(Life { created: self.now, creator, died: None, spans });
        // Who is there from the beginning is older than the machine's time.
        let created = match creator {
            Some(_) => time(self.now),
            None => Timestamp(START - 1_000 + thread.0 as u64),
        };
        self.kernel_half.add(Name { tid: thread.tid(), tgid: process.tgid(), created });
        self.threads[thread.0].remaining = self.cost(thread);
        thread
    }

    pub(super) fn create(&mut self, creator: ThreadId, program: usize) {
        // One that is let run after the window is in no recording.
        let is_in_time = self.now + LONGEST_STEP < self.scenario.window.1;
        let room = self.threads.len() < MOST_THREADS && is_in_time;
        let children = &self.scenario.children;
        let Some(program) = children.get(program % children.len().max(1)).filter(|_| room) else {
            return;
        };
        let process = self.threads[creator.0].process;
        let cpu = self.chance(self.scenario.cpus as u64) as usize;
        let child = self.add(process, cpu, program.clone(), Some(creator));
        self.threads[creator.0].children.push(child);
        self.kernel_half.on_fork(child, self.now);
    }

    /// Lets a thread run that was made.
    pub(super) fn start(&mut self, creator: ThreadId) {
        let Some(&child) = self.threads[creator.0].children.last() else { return };
        if self.threads[child.0].stand == Stand::Made {
            let waking = self.waking_by(creator);
            let cpu = self.threads[child.0].cpu;
            self.kernel_half.on_wakeup_new(child, cpu, waking);
            self.enqueue(child);
        }
    }

    /// The CPU time of a thread's next step.
    fn cost(&mut self, thread: ThreadId) -> u64 {
        let thread = &self.threads[thread.0];
        match thread.program.get(thread.step) {
            Some(Op::Compute(time)) => (*time).max(1),
            _ => 1 + self.chance(LONGEST_STEP),
        }
    }

    fn due(&mut self, cpu: usize) {
        self.count(cpu);
        let Some(thread) = self.cpus[cpu].current else { return };
        if self.threads[thread.0].remaining > 0 {
            if self.cpus[cpu].queue.is_empty() {
                self.threads[thread.0].slice = self.scenario.slice.max(1);
                return self.replan(cpu);
            }
            return self.preempt(cpu, thread);
        }
        match self.threads[thread.0].stand {
            Stand::Falling => return self.fall(cpu, thread),
            Stand::Exiting => return self.die(cpu, thread),
            _ => {}
        }
        match self.perform_step(thread) {
            After::Goes => self.go_on(thread),
            After::Again(later) => self.threads[thread.0].remaining = later,
            After::Sleeps(what) => {
                self.begin_to_wait(thread, what);
                if self.threads[thread.0].remaining == 0 {
                    return self.fall(cpu, thread);
                }
            }
            After::Exits => {
                self.threads[thread.0].stand = Stand::Exiting;
                self.threads[thread.0].remaining = 1 + self.chance(2);
            }
        }
        if self.may_not_run(thread) {
            return self.throttle(cpu, thread);
        }
        self.replan(cpu);
    }

    fn go_on(&mut self, thread: ThreadId) {
        let state = &mut self.threads[thread.0];
        state.resumed = false;
        state.step += 1;
        if state.repeats && state.step >= state.program.len() {
            state.step = 0;
        }
        let cost = self.cost(thread);
        self.threads[thread.0].remaining = cost;
    }

    fn begin_to_wait(&mut self, thread: ThreadId, what: WaitFor) {
        let id = WaitId(self.history.waits.len());
        let lock = match what {
            WaitFor::Futex { futex, .. } => Some(futex).filter(|key| self.locks.contains_key(key)),
            _ => None,
        };
        let looks_like_lock = matches!(
            what,
            WaitFor::Futex { expected: CONTENDED, .. }
                | WaitFor::ThreadEnd { expected: CONTENDED, .. }
        );
        self.history.waits.push(Wait { thread, lock, looks_like_lock, wake_source: None });
        if let (WaitFor::Outside(_), Some(Op::Await(_, time))) =
            (what, self.threads[thread.0].program.get(self.threads[thread.0].step))
        {
            self.plan(self.now + (*time).max(1), Event::Done { wait: id.0 });
        }
        // Most of the time nobody comes in between.
        let race = self.chance(8).saturating_sub(5);
        let state = &mut self.threads[thread.0];
        state.wait = Some((id, what));
        state.stand = Stand::Falling;
        state.early = Early::No;
        state.remaining = race;
    }

    /// A thread that goes to sleep gives up its CPU.
    fn fall(&mut self, cpu: usize, thread: ThreadId) {
        let Some((id, what)) = self.threads[thread.0].wait else { return };
        self.kernel_half.on_block(thread, self.now, cpu, (id, what));
        let early = self.threads[thread.0].early;
        let activity =
            if early == Early::Seen { Activity::Runnable(None) } else { Activity::Blocked(id) };
        self.history.record_activity(thread, self.now, activity);
        self.threads[thread.0].stand = Stand::Blocked;
        self.leave(cpu);
        if early != Early::No {
            self.enqueue(thread);
        }
    }

    fn die(&mut self, cpu: usize, thread: ThreadId) {
        self.kernel_half.on_exit(thread, self.now);
        self.history.lives[thread.0].died = Some(self.now);
        self.threads[thread.0].stand = Stand::Dead;
        self.leave(cpu);
    }

    pub(super) fn waking_by(&self, waker: ThreadId) -> Waking {
        let cpu = self.threads[waker.0].cpu;
        let current = Some(self.name(waker));
        let by = WakeSource::Thread(waker);
        Waking { at: self.now, cpu, by, current, through: None }
    }

    pub(super) fn name(&self, thread: ThreadId) -> ThreadRef {
        ThreadRef { tid: thread.tid(), tgid: self.threads[thread.0].process.tgid() }
    }

    /// A thread ends another's wait.
    pub(super) fn wake(&mut self, thread: ThreadId, waker: ThreadId) -> IsRecorded {
        let waking = self.waking_by(waker);
        self.end_wait(thread, waking)
    }

    /// Something outside ends a wait, over whoever runs on the CPU that takes the interrupt.
    fn done(&mut self, id: WaitId) {
        let wait = &self.history.waits[id.0];
        let thread = wait.thread;
        let Some(&Op::Await(outside, _)) =
            self.threads[thread.0].program.get(self.threads[thread.0].step)
        else {
            return;
        };
        let cpu = self.chance(self.scenario.cpus as u64) as usize;
        let current = self.cpus[cpu].current.map(|current| self.name(current));
        let by = WakeSource::Outside(outside);
        self.end_wait(thread, Waking { at: self.now, cpu, by, current, through: None });
    }

    pub(super) fn end_wait(&mut self, thread: ThreadId, waking: Waking) -> IsRecorded {
        let Some((id, what)) = self.threads[thread.0].wait else { return IsRecorded::No };
        let is_seen = waking.by != WakeSource::Outside(Outside::Unseen);
        let is_recorded =
            if is_seen { self.kernel_half.on_waking(thread, waking, what) } else { IsRecorded::No };
        if is_recorded == IsRecorded::Yes {
            self.history.waits[id.0].wake_source = Some(waking.by);
        }
        match self.threads[thread.0].stand {
            // Nobody is there to tell, if the kernel half has not seen this thread yet.
            Stand::Falling => {
                let is_recorded = is_recorded == IsRecorded::Yes;
                self.threads[thread.0].early =
                    if is_recorded { Early::Seen } else { Early::Unseen };
            }
            Stand::Blocked => {
                if is_seen {
                    self.history.record_activity(thread, self.now, Activity::Runnable(None));
                }
                self.enqueue(thread);
            }
            _ => {}
        }
        is_recorded
    }
}

//! Who each thread really waited for: the rules of `docs/blame.md`, applied to what happened.

use std::collections::{BTreeMap, BTreeSet};

use offwake_recording::{Begin, End, units::Tid};

use super::{
    ThreadId,
    history::{Activity, Futex, History, Queue, WaitId, WakeSource},
    kernel_half::{Edges, FutexRecord, Records},
    program::Outside,
};

/// What some of a wait's time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaf {
    Work(Tid),
    CpuQueue { thread: Tid, holder: Option<Tid> },
    External(&'static str),
    Unattributed(&'static str),
}

/// The value that a futex has while it is a lock that somebody waits for.
pub(super) const CONTENDED: u64 = 2;

/// How a wait divides: by leaf and depth, in nanoseconds.
pub type Parts = BTreeMap<(Leaf, u16), u64>;

/// Which futexes are taken for locks.
///
/// By the records it is a matter of which began after which. Where both lie in the same nanosecond, or
/// a record's beginning is only known to lie before something, two readings are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The futexes that the records prove to be locks.
    Strict,
    /// The futexes that may be locks by the records: every doubt counts as a proof.
    Lenient,
    /// All futexes that are locks, whatever the records prove.
    Knowing,
}

pub struct Truth {
    pub history: History,
    window: (u64, u64),
    waits: BTreeMap<(Tid, u32), WaitId>,
    /// How the beginning and the end of each recorded wait are known.
    edges: BTreeMap<WaitId, Edges>,
    /// The threads that were on each CPU, from when to when.
    stints: BTreeMap<usize, Vec<(u64, u64, ThreadId)>>,
    strictly_locks: BTreeSet<Futex>,
    leniently_locks: BTreeSet<Futex>,
}

impl Truth {
    pub fn new(history: History, window: (u64, u64), records: &Records) -> Self {
        let mut stints = BTreeMap::<_, Vec<_>>::new();
        for (n, life) in history.lives.iter().enumerate() {
            for (from, to, activity) in life.spans() {
                if let Activity::OnCpu(cpu) = activity {
                    stints.entry(cpu).or_default().push((from, to, ThreadId(n)));
                }
            }
        }
        for stints in stints.values_mut() {
            stints.sort_unstable();
        }
        Self {
            history,
            window,
            waits: records.waits.iter().map(|(&record, &(wait, _))| (record, wait)).collect(),
            edges: records.waits.values().copied().collect(),
            stints,
            strictly_locks: locks(&records.futexes, Reading::Strict),
            leniently_locks: locks(&records.futexes, Reading::Lenient),
        }
    }

    /// The waits that there are records of, by thread and number.
    pub fn waits(&self) -> impl Iterator<Item = (Tid, u32)> + '_ {
        self.waits.keys().copied()
    }

    /// Which wait a record is of.
    pub fn wait(&self, record: (Tid, u32)) -> Option<WaitId> {
        self.waits.get(&record).copied()
    }

    /// How long a recorded wait was blocked inside the window.
    pub fn blocked(&self, record: (Tid, u32)) -> u64 {
        self.blocked_spans(record).map(|(from, to)| to - from).sum()
    }

    /// How a recorded wait's blocked time inside the window divides, followed for so many hops.
    pub fn blame(&self, record: (Tid, u32), max_depth: u16, reading: Reading) -> Parts {
        self.follow(record, max_depth, reading, Preempted::WaitsForPreemptor)
    }

    /// The same, but a thread that lost its CPU to the one that it waits for next was in a queue
    /// all the same: so it looks where the record of that wait is lost.
    pub fn blame_by_queues(&self, record: (Tid, u32), max_depth: u16, reading: Reading) -> Parts {
        self.follow(record, max_depth, reading, Preempted::IsQueued)
    }

    fn follow(
        &self,
        record: (Tid, u32),
        max_depth: u16,
        reading: Reading,
        preempted: Preempted,
    ) -> Parts {
        let mut follow = Follow { truth: self, max_depth, reading, preempted, parts: Parts::new() };
        if let Some(&wait) = self.waits.get(&record) {
            for (from, to) in self.blocked_spans(record) {
                follow.wait(wait, from, to, 0);
            }
        }
        follow.parts
    }

    /// Until when a thread is known to have been blocked in a wait, in the window or after it.
    fn ends(&self, wait: WaitId) -> u64 {
        let life = &self.history.lives[self.history.waits[wait.0].thread.0];
        let blocked = life.spans().filter(|&(_, _, activity)| activity == Activity::Blocked(wait));
        let ended = blocked.map(|(_, to, _)| to).max().unwrap_or(0);
        self.edges.get(&wait).map_or(ended, |edges| ended.min(edges.last_seen))
    }

    /// The thread that took the CPU of another, at `begin`, if that one had woken it and waits for
    /// it next, before `until`.
    fn awaited_preemptor(&self, thread: ThreadId, begin: u64, until: u64) -> Option<ThreadId> {
        let spans: Vec<_> = self.history.lives[thread.0].spans().collect();
        let place = spans.iter().position(|&(from, _, _)| from == begin)?;
        let (_, _, Activity::OnCpu(cpu)) = *spans.get(place.checked_sub(1)?)? else { return None };
        let stints = self.stints.get(&cpu)?;
        let &(_, _, preemptor) = stints.iter().find(|&&(from, _, _)| from == begin)?;
        let (opens, closes) = self.window;
        let woken_from = (self.history.lives[preemptor.0].spans())
            .filter(|&(_, to, activity)| {
                matches!(activity, Activity::Blocked(_)) && opens < to && to <= begin
            })
            .last();
        let next = spans.iter().skip(place).find(|(_, _, activity)| {
            matches!(activity, Activity::Blocked(_) | Activity::Throttled)
        });
        let ended_by = |span: Option<&(u64, u64, Activity)>| match span?.2 {
            Activity::Blocked(wait) => {
                Some(&self.history.waits[wait.0]).filter(|wait| !wait.looks_like_lock)?.wake_source
            }
            _ => None,
        };
        let woken_by = match woken_from?.2 {
            Activity::Blocked(wait) => self.history.waits[wait.0].wake_source,
            _ => None,
        };
        let is_awaited = woken_by == Some(WakeSource::Thread(thread))
            && next.is_some_and(|&(from, _, _)| from < closes.min(until))
            && ended_by(next) == Some(WakeSource::Thread(preemptor));
        is_awaited.then_some(preemptor)
    }

    fn blocked_spans(&self, record: (Tid, u32)) -> impl Iterator<Item = (u64, u64)> + '_ {
        let wait = self.waits.get(&record).copied();
        let life = wait.map(|wait| &self.history.lives[self.history.waits[wait.0].thread.0]);
        let (opens, closes) = self.window;
        life.into_iter()
            .flat_map(|life| life.spans())
            .filter(move |(_, _, activity)| Some(*activity) == wait.map(Activity::Blocked))
            .map(move |(from, to, _)| (from.max(opens), to.min(closes)))
            .filter(|(from, to)| from < to)
    }
}

/// The futexes that are locks by what the records say: all waits expect the value of a contended
/// lock, and one began after a wake.
fn locks(records: &[FutexRecord], reading: Reading) -> BTreeSet<Futex> {
    let is_proof = |record: &FutexRecord, wake: u64| match reading {
        // A thread that was woken while it went to sleep had begun to wait before that.
        Reading::Strict => {
            record.begin == Begin::Seen
                && record.woken.map_or(record.off, |woken| woken.min(record.off)) > wake
        }
        Reading::Lenient | Reading::Knowing => record.off >= wake,
    };
    let futexes: BTreeSet<Futex> = records.iter().map(|record| record.futex).collect();
    futexes
        .into_iter()
        .filter(|&futex| {
            let of_it = || records.iter().filter(move |record| record.futex == futex);
            let mut wakes = of_it().filter_map(|record| record.woken);
            of_it().all(|record| record.expected == CONTENDED)
                && wakes.any(|wake| of_it().any(|record| is_proof(record, wake)))
        })
        .collect()
}

/// `answer(thread, m)`, for all moments of a stretch at once.
struct Follow<'a> {
    truth: &'a Truth,
    max_depth: u16,
    reading: Reading,
    preempted: Preempted,
    parts: Parts,
}

/// What becomes of a thread that loses its CPU to the one that it had woken and waits for next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preempted {
    WaitsForPreemptor,
    IsQueued,
}

impl Follow<'_> {
    fn leaf(&mut self, leaf: Leaf, depth: u16, from: u64, to: u64) {
        if from < to {
            *self.parts.entry((leaf, depth)).or_default() += to - from;
        }
    }

    /// A thread blocked in `wait`, `depth` hops from where it all began.
    fn wait(&mut self, wait: WaitId, from: u64, to: u64, depth: u16) {
        let truth = self.truth;
        let state = &truth.history.waits[wait.0];
        let is_known = |lock: &Futex| match self.reading {
            Reading::Strict => truth.strictly_locks.contains(lock),
            Reading::Lenient => truth.leniently_locks.contains(lock),
            Reading::Knowing => true,
        };
        let mut from = from;
        if let Some(lock) = state.lock.filter(is_known) {
            let releases = truth.history.releases.get(&lock).map_or(&[][..], |all| all);
            let over = truth.ends(wait);
            for &(at, holder) in releases.iter().filter(|&&(at, _)| at <= over) {
                if from < at.min(to) {
                    self.thread(holder, from, at.min(to), depth + 1);
                    from = at.min(to);
                }
            }
        }
        match state.wake_source {
            Some(WakeSource::Thread(thread)) => self.thread(thread, from, to, depth + 1),
            Some(WakeSource::Outside(outside)) => self.leaf(outside_leaf(outside), depth, from, to),
            None => self.leaf(Leaf::Unattributed(self.unended(wait)), depth, from, to),
        }
    }

    /// Why nobody is known to have ended a wait.
    fn unended(&self, wait: WaitId) -> &'static str {
        match self.truth.edges.get(&wait) {
            None | Some(Edges { end: End::StillOff, .. }) => "still_blocked",
            Some(Edges { begin: Begin::BeforeWindow, .. }) => "before_window",
            Some(_) => "no_wakeup",
        }
    }

    /// What a thread did, `depth` hops from where it all began.
    fn thread(&mut self, thread: ThreadId, from: u64, to: u64, depth: u16) {
        if depth > self.max_depth {
            return self.leaf(Leaf::Unattributed("depth_limit"), self.max_depth, from, to);
        }
        let life = &self.truth.history.lives[thread.0];
        if from < life.created {
            let until = to.min(life.created);
            match life.creator {
                Some(creator) => self.thread(creator, from, until, depth + 1),
                None => self.leaf(Leaf::Unattributed("not_yet_created"), depth, from, until),
            }
        }
        let stretch_end = to;
        for (begin, end, activity) in life.spans() {
            let (from, to) = (from.max(begin), to.min(end));
            if from >= to {
                continue;
            }
            match activity {
                Activity::OnCpu(_) => self.leaf(Leaf::Work(thread.tid()), depth, from, to),
                Activity::Runnable(queue) => {
                    let awaited = self.truth.awaited_preemptor(thread, begin, stretch_end);
                    match awaited.filter(|_| self.preempted == Preempted::WaitsForPreemptor) {
                        Some(preemptor) => {
                            self.preempted(thread, preemptor, queue, (from, to), depth);
                        }
                        None => self.queue(thread, queue, from, to, depth),
                    }
                }
                Activity::Throttled => self.leaf(Leaf::External("throttled"), depth, from, to),
                Activity::Blocked(wait) => self.wait(wait, from, to, depth),
            }
        }
    }

    /// A thread lost its CPU to the one that it had woken, and waits for next: while that one is on
    /// a CPU, it is its work, and while that one waits for somebody else, it is what that one waits for.
    fn preempted(
        &mut self,
        thread: ThreadId,
        preemptor: ThreadId,
        queue: Option<Queue>,
        (from, to): (u64, u64),
        depth: u16,
    ) {
        let mut from = from;
        for (begin, end, activity) in self.truth.history.lives[preemptor.0].spans() {
            let (begin, end) = (begin.max(from), end.min(to));
            let is_preemptors = match activity {
                Activity::OnCpu(_) => true,
                Activity::Blocked(wait) => {
                    let source = self.truth.history.waits[wait.0].wake_source;
                    source != Some(WakeSource::Thread(thread))
                }
                _ => false,
            };
            if begin < end && is_preemptors {
                self.queue(thread, queue, from, begin, depth);
                self.thread(preemptor, begin, end, depth + 1);
                from = end;
            }
        }
        if from < to {
            self.queue(thread, queue, from, to, depth);
        }
    }

    /// A thread stood in a CPU's queue, and others ran there.
    fn queue(&mut self, thread: ThreadId, queue: Option<Queue>, from: u64, to: u64, depth: u16) {
        let thread = thread.tid();
        let mut from = from;
        if let Some(Queue { cpu, moved }) = queue {
            let moved = moved.unwrap_or(0);
            for &(begin, end, holder) in self.truth.stints.get(&cpu).into_iter().flatten() {
                let (begin, end) = (begin.max(from).max(moved), end.min(to));
                if begin < end {
                    self.leaf(Leaf::CpuQueue { thread, holder: None }, depth, from, begin);
                    let holder = Some(holder.tid());
                    self.leaf(Leaf::CpuQueue { thread, holder }, depth, begin, end);
                    from = end;
                }
            }
        }
        self.leaf(Leaf::CpuQueue { thread, holder: None }, depth, from, to);
    }
}

fn outside_leaf(outside: Outside) -> Leaf {
    match outside {
        Outside::Timer => Leaf::External("timer"),
        Outside::Disk => Leaf::External("disk"),
        Outside::Network => Leaf::External("network"),
        Outside::Device => Leaf::External("device"),
        Outside::Interrupt => Leaf::Unattributed("interrupt"),
        Outside::Unseen => Leaf::Unattributed("no_wakeup"),
    }
}

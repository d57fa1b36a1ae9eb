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
        self.follow(record, max_depth, reading, Preempted::WaitsForAwaited)
    }

    /// The same, but a thread that lost its CPU and waits for one next that it had asked was in a queue
    /// all the same: so it looks where the record of that wait is lost.
    pub fn blame_by_queues(&self, record: (Tid, u32), max_depth: u16, reading: Reading) -> Parts {
        self.follow(record, max_depth, reading, Preempted::IsQueued)
    }

    /// The same for one thread alone.
    pub fn blame_by_queue_of(
        &self,
        record: (Tid, u32),
        max_depth: u16,
        reading: Reading,
        thread: Tid,
    ) -> Parts {
        self.follow(record, max_depth, reading, Preempted::IsQueuedIfIt(thread))
    }

    fn follow(
        &self,
        record: (Tid, u32),
        max_depth: u16,
        reading: Reading,
        preempted: Preempted,
    ) -> Parts {
        let mut follow = Follow {
            truth: self,
            max_depth,
            reading,
            preempted,
            chain: Vec::new(),
            parts: Parts::new(),
        };
        if let Some(&wait) = self.waits.get(&record) {
            follow.chain.push(self.history.waits[wait.0].thread);
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

    /// The thread that another one, which lost its CPU at `begin`, had asked since it slept last, and waits for
    /// next, before `until`; and when that one wakes it.
    fn awaited_after_preemption(
        &self,
        thread: ThreadId,
        begin: u64,
        until: u64,
    ) -> Option<(ThreadId, u64)> {
        let spans: Vec<_> = self.history.lives[thread.0].spans().collect();
        let place = spans.iter().position(|&(from, _, _)| from == begin)?;
        let (_, _, Activity::OnCpu(_)) = *spans.get(place.checked_sub(1)?)? else { return None };
        let (opens, closes) = self.window;
        let next = spans.iter().skip(place).find(|(_, _, activity)| {
            matches!(activity, Activity::Blocked(_) | Activity::Throttled)
        });
        let &(_, _, Activity::Blocked(wait)) =
            next.filter(|&&(from, ..)| from < closes.min(until))?
        else {
            return None;
        };
        let ends = self.ends(wait);
        let wait = Some(&self.history.waits[wait.0]).filter(|wait| !wait.looks_like_lock)?;
        let Some(WakeSource::Thread(awaited)) = wait.wake_source else { return None };
        // Before the window, nobody looked.
        let last = spans[..place].iter().rev().find(|&&(_, to, activity)| {
            matches!(activity, Activity::Blocked(_) | Activity::Throttled) && opens < to
        });
        let awake_since = match last {
            Some(&(_, _, Activity::Throttled)) => return None,
            Some(&(_, to, _)) => to,
            None => 0,
        };
        let is_asked = self.history.lives[awaited.0].spans().any(|(_, to, activity)| {
            let Activity::Blocked(wait) = activity else { return false };
            let source = self.history.waits[wait.0].wake_source;
            opens < to
                && (awake_since..=begin).contains(&to)
                && source == Some(WakeSource::Thread(thread))
        });
        is_asked.then_some((awaited, ends))
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
    /// The threads on the way, the one that waits first.
    chain: Vec<ThreadId>,
    parts: Parts,
}

/// What becomes of a thread that loses its CPU and waits for one next that it had woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preempted {
    WaitsForAwaited,
    IsQueued,
    /// One thread is queued, all others wait.
    IsQueuedIfIt(Tid),
}

impl Preempted {
    fn is_followed(self, thread: ThreadId) -> bool {
        match self {
            Self::WaitsForAwaited => true,
            Self::IsQueued => false,
            Self::IsQueuedIfIt(queued) => queued != thread.tid(),
        }
    }
}

/// A hop to what a thread did, and how far from where it all began.
#[derive(Clone, Copy)]
struct Hop {
    thread: ThreadId,
    /// When it did what was waited for.
    done: u64,
    depth: u16,
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
                    self.hop(Hop { thread: holder, done: at, depth: depth + 1 }, from, at.min(to));
                    from = at.min(to);
                }
            }
        }
        match state.wake_source {
            Some(WakeSource::Thread(thread)) => {
                let done = truth.ends(wait);
                self.hop(Hop { thread, done, depth: depth + 1 }, from, to);
            }
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

    /// What a thread did that somebody waited for.
    fn hop(&mut self, hop: Hop, from: u64, to: u64) {
        if hop.depth > self.max_depth {
            return self.leaf(Leaf::Unattributed("depth_limit"), self.max_depth, from, to);
        }
        if self.chain.contains(&hop.thread) {
            // Threads that wait for each other while one of them has no CPU.
            return self.leaf(Leaf::Unattributed("cycle"), hop.depth - 1, from, to);
        }
        self.chain.push(hop.thread);
        self.thread(hop, from, to);
        self.chain.pop();
    }

    fn thread(&mut self, hop: Hop, from: u64, to: u64) {
        let Hop { thread, done, depth } = hop;
        let life = &self.truth.history.lives[thread.0];
        if from < life.created {
            let until = to.min(life.created);
            match life.creator {
                Some(creator) => {
                    let hop = Hop { thread: creator, done: life.created, depth: depth + 1 };
                    self.hop(hop, from, until);
                }
                None => self.leaf(Leaf::Unattributed("not_yet_created"), depth, from, until),
            }
        }
        for (begin, end, activity) in life.spans() {
            let (from, to) = (from.max(begin), to.min(end));
            if from >= to {
                continue;
            }
            match activity {
                Activity::OnCpu(_) => self.leaf(Leaf::Work(thread.tid()), depth, from, to),
                Activity::Runnable(queue) => {
                    let awaited = self.truth.awaited_after_preemption(thread, begin, done);
                    let is_followed = |&(awaited, _): &(ThreadId, u64)| {
                        self.preempted.is_followed(thread) && !self.chain.contains(&awaited)
                    };
                    match awaited.filter(is_followed) {
                        Some(awaited) => self.preempted(hop, awaited, queue, (from, to)),
                        None => self.queue(thread, queue, from, to, depth),
                    }
                }
                Activity::Throttled => self.leaf(Leaf::External("throttled"), depth, from, to),
                Activity::Blocked(wait) => self.wait(wait, from, to, depth),
            }
        }
    }

    /// A thread lost its CPU, and next waits for one that it had woken, until that one wakes it: it is what that
    /// one does all along, but where that one waits for the first in turn.
    fn preempted(
        &mut self,
        hop: Hop,
        (awaited, done): (ThreadId, u64),
        queue: Option<Queue>,
        (from, to): (u64, u64),
    ) {
        let Hop { thread, depth, .. } = hop;
        let mut from = from;
        for (begin, end, activity) in self.truth.history.lives[awaited.0].spans() {
            let (begin, end) = (begin.max(from), end.min(to));
            let is_awaiteds = match activity {
                Activity::OnCpu(_) | Activity::Runnable(_) | Activity::Throttled => true,
                Activity::Blocked(wait) => {
                    let source = self.truth.history.waits[wait.0].wake_source;
                    source != Some(WakeSource::Thread(thread))
                }
            };
            if begin < end && is_awaiteds {
                self.queue(thread, queue, from, begin, depth);
                self.hop(Hop { thread: awaited, done, depth: depth + 1 }, begin, end);
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

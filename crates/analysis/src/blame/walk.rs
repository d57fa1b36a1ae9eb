//! Follows a wait back along the chain of its wakers, to what its time was spent on.

use crate::timeline::{Interval, Queued, State, Thread, ThreadIndex, Track, WaitIndex};
use offwake_recording::{
    Waits,
    units::{Nanos, Timestamp},
};

use super::{
    Blame, BlameKind, Duty, Ender, Hop, Part, PathId, Paths, Reason, StackPairId, Stance, cpus,
    parts::Parts,
};

/// Finds the blame of one wait after another; fastest if they come in the order of time.
pub struct Walker<'b> {
    blame: &'b Blame<'b>,
    paths: Paths,
    parts: Parts,
    /// Where the last search in each thread's track ended, by [`ThreadIndex`].
    near: Vec<u32>,
    near_stays: cpus::Near,
    /// The threads from the wait's own to the one that is being walked, to detect cycles.
    chain: Vec<ThreadIndex>,
    /// How many waits were walked below the current one.
    nodes: u32,
}

/// A position on the chain that is being walked.
#[derive(Clone, Copy)]
struct At {
    path: PathId,
    depth: u16,
    duty: Duty,
    /// Whether all waits on the way were for what another thread hands over.
    is_fed: bool,
}

impl At {
    /// Returns the position inside a wait with this hint.
    fn inside(self, stance: Stance) -> Self {
        match stance {
            Stance::Idle if self.is_fed => Self { duty: Duty::Idle, ..self },
            Stance::Fed => self,
            Stance::Idle | Stance::Busy => Self { is_fed: false, ..self },
        }
    }
}

/// The time `from..to`, inside one interval or one wait.
#[derive(Clone, Copy)]
struct Stretch {
    from: Timestamp,
    to: Timestamp,
}

impl Stretch {
    fn length(self) -> Nanos {
        self.to.since(self.from)
    }

    fn until(self, to: Timestamp) -> Self {
        Self { from: self.from, to: to.clamp(self.from, self.to) }
    }

    fn since(self, from: Timestamp) -> Self {
        Self { from: from.clamp(self.from, self.to), to: self.to }
    }
}

impl<'b> Walker<'b> {
    pub(super) fn new(blame: &'b Blame<'b>) -> Self {
        Self {
            blame,
            paths: Paths::default(),
            parts: Parts::default(),
            near: vec![0; blame.timeline.threads.len()],
            near_stays: cpus::Near::of(&blame.cpus),
            chain: Vec::new(),
            nodes: 0,
        }
    }

    /// Returns the chains that the parts so far refer to.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Returns the chains, dropping everything else.
    #[must_use]
    pub fn into_paths(self) -> Paths {
        self.paths
    }

    /// Returns what a wait's time was spent on: the parts add up to its blocked part inside the
    /// window.
    pub fn parts(&mut self, wait: WaitIndex) -> &[Part] {
        self.parts.clear();
        self.nodes = 0;
        self.chain.clear();
        if let Some(place) = self.blame.timeline.place(wait) {
            self.chain.push(place.thread);
            let at = At { path: PathId::ROOT, depth: 0, duty: Duty::Busy, is_fed: true };
            self.blocked(wait, Stretch { from: place.from, to: place.to }, at);
        }
        self.parts.list()
    }

    fn push(&mut self, kind: BlameKind, time: Nanos, at: At) {
        self.push_with(kind, StackPairId::NONE, time, at);
    }

    fn push_with(&mut self, kind: BlameKind, stack: StackPairId, time: Nanos, at: At) {
        let At { path, depth, duty, .. } = at;
        self.parts.push(Part { kind, depth, path, stack, duty, time });
    }

    fn unattributed(&mut self, reason: Reason, time: Nanos, at: At) {
        self.push(BlameKind::Unattributed(reason), time, at);
    }

    /// Walks a part of a wait.
    fn blocked(&mut self, wait: WaitIndex, stretch: Stretch, at: At) {
        let Some((_, verdict)) = self.blame.verdict(wait) else { return };
        let at = at.inside(verdict.stance);
        match self.blame.ender(wait) {
            Ender::External(external) => {
                self.push(BlameKind::External(external), stretch.length(), at);
            }
            Ender::Interrupt(reason) => self.unattributed(reason, stretch.length(), at),
            Ender::Nobody(reason) => {
                let rest = self.held_before(wait, stretch, at);
                self.unattributed(reason, rest.length(), at);
            }
            Ender::Task(_) => {
                let rest = self.held_before(wait, stretch, at);
                self.held(wait, rest, rest.to, at);
            }
        }
    }

    /// Walks the part of a wait for a lock in which other threads held the lock than the one that
    /// ended the wait; returns the rest of the wait.
    ///
    /// ```text
    /// wait on a lock   |---------------------------------|
    /// released by            X          Y                ^ Z
    ///                  |  X  |    Y     |   the rest     |
    /// ```
    fn held_before(&mut self, wait: WaitIndex, stretch: Stretch, at: At) -> Stretch {
        let blame = self.blame;
        let Some((row, _)) = blame.verdict(wait) else { return stretch };
        // What comes after the stretch tells who held the lock at its end.
        let end = row.woken_at().unwrap_or(row.on + Nanos(1));
        let mut rest = stretch;
        for release in blame.locks.between(row.pattern.index(), stretch.from, end) {
            if rest.length() == Nanos(0) {
                break;
            }
            self.held(release.wait, rest.until(release.at), release.at, at);
            rest = rest.since(release.at);
        }
        rest
    }

    /// Walks the time before a lock's release, which ended some wait. An earlier release may have
    /// been lost.
    ///
    /// ```text
    /// last release              a gap                 release
    ///  -----+-----------------[.......]------------------+---->
    ///       |   not known who holds it |   who releases  |
    /// ```
    fn held(&mut self, released: WaitIndex, stretch: Stretch, release: Timestamp, at: At) {
        let lock = self.blame.verdict(released).and_then(|(row, verdict)| {
            self.blame.locks.is_lock(row.pattern.index()).then_some(verdict.lock)?
        });
        let gap =
            lock.and_then(|lock| self.blame.gaps.last_end(lock.process(), stretch.from, release));
        let known = stretch.since(gap.unwrap_or(stretch.from));
        self.unattributed(Reason::Lost, known.from.since(stretch.from), at);
        if known.length() > Nanos(0) {
            self.hop(released, known, at);
        }
    }

    /// Walks on to the task that ended `wait`, if the timeline has it.
    fn hop(&mut self, wait: WaitIndex, stretch: Stretch, at: At) {
        let all = stretch.length();
        let Some((index, ended)) = self.blame.recorded_waker(wait) else {
            return self.unattributed(Reason::NotRecorded, all, at);
        };
        let Some(thread) = self.blame.timeline.thread(index) else { return };
        let limits = self.blame.limits;
        if at.depth >= limits.depth {
            return self.unattributed(Reason::DepthLimit, all, at);
        }
        if self.chain.contains(&index) {
            return self.unattributed(Reason::Cycle, all, at);
        }
        if self.nodes >= limits.nodes {
            return self.unattributed(Reason::NodeLimit, all, at);
        }
        self.nodes += 1;
        let stack = self.blame.verdict(wait).map_or(StackPairId::NONE, |(_, v)| v.waker_stack);
        let name = thread.name_at(ended).and_then(|name| u32::try_from(name).ok());
        let path = self.paths.further(at.path, Hop { thread: index, name, stack });
        self.chain.push(index);
        self.follow(index, stretch, stack, At { path, depth: at.depth + 1, ..at });
        self.chain.pop();
    }

    /// Walks what a thread did in `stretch`, from its end back to its beginning.
    ///
    /// ```text
    ///          from                                       to
    /// thread  --|-- on-CPU --+-- blocked --+- runnable -+--|-- on-CPU ---
    ///           |   work     | one hop on  | cpu_queue  |  | work
    /// ```
    fn follow(&mut self, index: ThreadIndex, stretch: Stretch, woke_with: StackPairId, at: At) {
        let Some(thread) = self.blame.timeline.thread(index) else { return };
        self.unattributed(Reason::Lost, stretch.since(thread.track.end()).length(), at);
        let Some(near) = self.near.get_mut(index.0 as usize) else { return };
        let end = thread.track.begun_before(stretch.to, *near as usize);
        *near = u32::try_from(end).unwrap_or(u32::MAX);
        let mut left_with = woke_with;
        let mut waits = 0;
        for place in (0..end).rev() {
            let Some(interval) = thread.track.get(place) else { break };
            if interval.to <= stretch.from {
                break;
            }
            if place.is_multiple_of(Waits::FETCHED) {
                self.fetch_before(&thread.track, place);
            }
            let inside = stretch.since(interval.from).until(interval.to);
            match interval.state {
                State::OnCpu => self.work(index, inside, left_with, at),
                State::Runnable(queued) => self.queue(index, queued, inside, at),
                State::Lost => self.unattributed(Reason::Lost, inside.length(), at),
                State::Blocked(wait) => {
                    if let Some((_, verdict)) = self.blame.verdict(wait) {
                        left_with = verdict.own_stack;
                    }
                    waits += 1;
                    if waits > self.blame.limits.fan_out {
                        self.unattributed(Reason::FanOutLimit, inside.length(), at);
                    } else {
                        self.blocked(wait, inside, at);
                    }
                }
            }
        }
        self.before_birth(thread, stretch.until(thread.from), at);
    }

    /// Fetches the rows of the waits before an interval into the CPU's caches. Behind a long wait
    /// may be thousands of short ones, whose rows were last read when they themselves were walked.
    fn fetch_before(&self, track: &Track, place: usize) {
        let places = place.saturating_sub(Waits::FETCHED)..place;
        let intervals = places.filter_map(|place| track.get(place));
        self.blame.recording.waits.fetch(intervals.filter_map(|interval| match interval.state {
            State::Blocked(wait) => Some(wait.0),
            State::OnCpu | State::Runnable(_) | State::Lost => None,
        }));
    }

    /// Adds time on a CPU, divided evenly among the samples in it. Without samples the stack with
    /// which the thread then left the CPU, or woke another thread, has to do.
    fn work(&mut self, index: ThreadIndex, inside: Stretch, left_with: StackPairId, at: At) {
        let kind = BlameKind::Work(index);
        let samples = self.blame.samples(index, inside.from, inside.to);
        let Some((_, rest)) = samples.split_last() else {
            return self.push_with(kind, left_with, inside.length(), at);
        };
        let share = Nanos(inside.length().0 / samples.len() as u64);
        let mut left = inside.length();
        for &(_, stack) in rest {
            self.push_with(kind, stack, share, at);
            left = left - share;
        }
        if let Some(&(_, stack)) = samples.last() {
            self.push_with(kind, stack, left, at);
        }
    }

    fn queue(&mut self, thread: ThreadIndex, queued: Queued, inside: Stretch, at: At) {
        let Self { blame, near_stays, parts, .. } = self;
        let At { path, depth, duty, .. } = at;
        let tell = |holder, time| {
            let kind = BlameKind::CpuQueue { thread, holder };
            parts.push(Part { kind, depth, path, stack: StackPairId::NONE, duty, time });
        };
        let times = (inside.from, inside.to);
        blame.cpus.holders(blame.recording, blame.timeline, queued, times, near_stays, tell);
    }

    /// Walks the time before a thread was created: what delayed it is what delayed its creator.
    fn before_birth(&mut self, thread: &Thread, unborn: Stretch, at: At) {
        if unborn.length() == Nanos(0) {
            return;
        }
        let first = thread.track.get(0).map(|Interval { state, .. }| state);
        match first {
            Some(State::Runnable(Queued::Woken(birth)))
                if self.blame.is_birth(birth) && self.blame.recorded_waker(birth).is_some() =>
            {
                self.blocked(birth, unborn, at);
            }
            _ if thread.created.is_some_and(|created| created >= thread.from) => {
                self.unattributed(Reason::NotYetCreated, unborn.length(), at);
            }
            _ => self.unattributed(Reason::Lost, unborn.length(), at),
        }
    }
}

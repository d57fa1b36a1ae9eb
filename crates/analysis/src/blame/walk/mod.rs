//! Follows a wait back along the chain of its wakers, to what its time was spent on.

mod answer_parts;
mod answers;
mod asked;
mod behalf;
mod done_meanwhile;
mod groups;
mod holders;
mod marked;
mod position;
mod preempted;
mod push;
mod reserved;
mod shared;
mod threads;
mod unasked;
mod walked_wait;
mod work;

use crate::markers::MarkerPathId;
use crate::timeline::{Interval, RunnableSince, State, Thread, ThreadIndex, Track, WaitIndex};
use offwake_recording::{
    Waits,
    units::{Nanos, Timestamp},
};

use super::{
    Blame, BlameKind, BlamePart, Chains, EndOfLastPiece, External, Hop, IdleHint, Reason, SleepId,
    StackPairId, Stop, WakeSource, cpus, parts::BlameParts, pattern_analysis::PatternAnalysis,
    refused_locks::Held, work_waits::Expects,
};
use position::{ChainPosition, HopTo, Leg, TimeRange};
use shared::{SharedWalkEnd, SharedWalkSearch, SharedWalks};
use threads::ThreadsOnChain;
use work::WorkStep;

pub use groups::{GroupId, HopGroups};
pub use shared::{SharedWalk, SharedWalkId};
pub use walked_wait::{KindSum, WalkedWait};

/// What hops and parts say of the threads on the way. Each distinct chain costs time and memory, so they
/// say what one reader wants.
#[derive(Clone, Copy)]
pub enum HopDetail<'a> {
    /// With which stacks threads woke those before them ([`Hop::stack`]).
    WakerStacks,
    /// How threads slept ([`Hop::slept`], [`BlamePart::slept`]). A reader who does not tell some ways
    /// to sleep apart gives, for each, the one that stands for it, by [`SleepId::index`].
    Sleeps(&'a [SleepId]),
    /// The same, as far as it tells a reader who adds chains up by groups of threads.
    Groups(&'a dyn HopGroups),
}

/// Finds the blame of one wait after another; fastest if they come in the order of time.
pub struct Walker<'b> {
    blame: &'b Blame<'b>,
    detail: HopDetail<'b>,
    chains: Chains,
    parts: BlameParts,
    /// Where the last search in each thread's track ended, by [`ThreadIndex`].
    track_hints: Vec<u32>,
    cpu_hints: cpus::CpuSearchHints,
    threads: ThreadsOnChain,
    /// How many waits were walked below the current one.
    waits_followed: u32,
    /// The group of the wait's own thread, if the wait may have shared walks.
    root: Option<GroupId>,
    shared: SharedWalks,
}

impl<'b> Walker<'b> {
    pub(super) fn new(blame: &'b Blame<'b>, detail: HopDetail<'b>) -> Self {
        Self {
            blame,
            detail,
            chains: Chains::default(),
            parts: BlameParts::default(),
            track_hints: vec![0; blame.timeline.threads.len()],
            cpu_hints: cpus::CpuSearchHints::new(&blame.cpus),
            threads: ThreadsOnChain::new(),
            waits_followed: 0,
            root: None,
            shared: SharedWalks::new(),
        }
    }

    /// Returns the chains that the parts so far refer to.
    #[must_use]
    pub fn chains(&self) -> &Chains {
        &self.chains
    }

    /// Returns the chains, dropping everything else.
    #[must_use]
    pub fn into_chains(self) -> Chains {
        self.chains
    }

    /// Returns what a wait's time was spent on: the parts, and those of its shared walks, add up to its blocked part
    /// inside the window.
    pub fn walk(&mut self, wait: WaitIndex) -> WalkedWait<'_> {
        self.parts.clear();
        self.waits_followed = 0;
        self.threads.clear();
        self.shared.begin_wait();
        if let Some(place) = self.blame.timeline.blocked_interval(wait) {
            self.threads.push(place.thread);
            let group = match self.detail {
                HopDetail::Groups(groups) => {
                    let waiter = self.blame.timeline.named_thread(place.thread, place.from);
                    let group = groups.group_of_waiter(wait, waiter);
                    self.root = groups.has_ends_of_group(wait).then_some(group);
                    Some(group)
                }
                HopDetail::WakerStacks | HopDetail::Sleeps(_) => None,
            };
            let at = ChainPosition::beginning(group);
            self.walk_blocked(wait, TimeRange { from: place.from, to: place.to }, at);
        }
        WalkedWait::new(self.parts.as_slice(), &self.chains, &self.shared)
    }

    /// Returns what a thread's time between two moments was spent on, whatever it did: the parts add up to that
    /// time. `stack` is where the thread was in its code at the end, if it was on a CPU. The walker must not add up by
    /// groups.
    ///
    /// ```text
    ///              from                                   to
    /// thread  -- on-CPU --+----- blocked -----+- runnable -|--
    ///              | work | as of that wait   | cpu_queue  |
    /// ```
    pub(crate) fn walk_time(
        &mut self,
        thread: ThreadIndex,
        from: Timestamp,
        to: Timestamp,
        stack: StackPairId,
    ) -> (&[BlamePart], &Chains) {
        self.parts.clear();
        self.waits_followed = 0;
        self.threads.clear();
        self.shared.begin_wait();
        self.root = None;
        self.threads.push(thread);
        let at = ChainPosition::beginning(None);
        let expects = Expects::Progress;
        self.walk_thread(HopTo { thread, at: to, stack, expects }, TimeRange { from, to }, at, at);
        (self.parts.as_slice(), &self.chains)
    }

    /// Returns the parts of a wait, whose walker does not add up by groups: such waits share no walks.
    pub fn parts(&mut self, wait: WaitIndex) -> &[BlamePart] {
        self.walk(wait).parts
    }

    /// Returns the position inside a wait of this pattern.
    fn position_inside(
        &self,
        pattern: &PatternAnalysis,
        hint: IdleHint,
        at: ChainPosition,
    ) -> ChainPosition {
        let slept = match self.detail {
            HopDetail::Sleeps(representatives) => {
                representatives.get(pattern.sleep.index()).copied().unwrap_or(SleepId::NONE)
            }
            HopDetail::Groups(groups) => groups.find_representative(pattern.sleep),
            HopDetail::WakerStacks => SleepId::NONE,
        };
        ChainPosition { slept, ..at.inside_wait(hint) }
    }

    /// Walks a part of a wait.
    fn walk_blocked(&mut self, wait: WaitIndex, stretch: TimeRange, at: ChainPosition) {
        let Some((_, pattern)) = self.blame.pattern(wait) else { return };
        // Who ended the last piece of a wait that was begun anew was waited for all along.
        let is_on_chain = at.depth > 0;
        let end = self
            .blame
            .end_of_last_piece(wait)
            .or_else(|| is_on_chain.then(|| self.blame.end_of_last_poll(wait)).flatten());
        let hint = match end {
            Some(EndOfLastPiece::Woken(_, hint) | EndOfLastPiece::StillBlocked(hint)) => hint,
            None => pattern.idle_hint,
        };
        let at = self.position_inside(pattern, hint, at);
        match end {
            Some(EndOfLastPiece::Woken(last, _)) => {
                let rest = self.walk_earlier_holders(last, stretch, at);
                return self.walk_lock_holder(last, rest, rest.to, at);
            }
            Some(EndOfLastPiece::StillBlocked(_)) => {
                return self.push_unattributed(Reason::StillBlocked, stretch.length(), at);
            }
            None => {}
        }
        if let Some(thread) = self.blame.interpreter_lock_holder(wait) {
            let rest = self.walk_earlier_holders(wait, stretch, at);
            let (stack, expects) = (StackPairId::NONE, Expects::Progress);
            return self.walk_hop(HopTo { thread, at: rest.to, stack, expects }, rest, at);
        }
        if let Some(held) = self.blame.refused_locks.holders(wait) {
            return self.walk_refused_lock(held, stretch, at);
        }
        match self.blame.wake_source(wait) {
            // Who sends SIGCONT, or thaws a cgroup, ends what somebody else began.
            WakeSource::Task(_)
                if self.blame.stop_of_wait(wait).is_some_and(Stop::is_ended_by_any) =>
            {
                self.push_unattributed(Reason::Stopped, stretch.length(), at);
            }
            WakeSource::Task(_) if self.blame.lone_notifies.is_unclear(wait) => {
                self.push_unattributed(Reason::UnclearWake, stretch.length(), at);
            }
            WakeSource::External(external) => {
                let rest = self.walk_earlier_holders(wait, stretch, at);
                match self.blame.release_after(wait) {
                    Some(next) => self.walk_lock_holder(next.wait, rest, next.at, at),
                    None => self.push(BlameKind::External(external), rest.length(), at),
                }
            }
            WakeSource::Interrupt(reason) => {
                let rest = self.walk_slow_reader(wait, reason, stretch, at);
                self.push_unattributed(reason, rest.length(), at);
            }
            WakeSource::Unknown(reason) => {
                let rest = self.walk_earlier_holders(wait, stretch, at);
                match self.blame.release_after(wait) {
                    Some(next) => self.walk_lock_holder(next.wait, rest, next.at, at),
                    None => self.push_unattributed(reason, rest.length(), at),
                }
            }
            WakeSource::Task(_) => {
                let rest = self.walk_earlier_holders(wait, stretch, at);
                self.walk_lock_holder(wait, rest, rest.to, at);
            }
        }
    }

    /// Walks a sleep of a thread that was refused a lock: on to whoever had it, as long as it had it.
    fn walk_refused_lock(&mut self, held: &[Held], stretch: TimeRange, at: ChainPosition) {
        let mut rest = stretch;
        for part in held.iter().rev() {
            let inside = rest.since(part.from).until(part.to);
            if inside.length() == Nanos(0) {
                continue;
            }
            self.push_timer(rest.since(inside.to), at);
            rest = rest.until(inside.from);
            let (thread, stack, expects) = (part.thread, StackPairId::NONE, Expects::Progress);
            self.walk_hop(HopTo { thread, at: inside.to, stack, expects }, inside, at);
        }
        self.push_timer(rest, at);
    }

    fn push_timer(&mut self, stretch: TimeRange, at: ChainPosition) {
        if stretch.length() > Nanos(0) {
            self.push(BlameKind::External(External::Timer), stretch.length(), at);
        }
    }

    /// Walks on to the task that ended `wait`, if the timeline has it.
    fn walk_waker(&mut self, wait: WaitIndex, stretch: TimeRange, at: ChainPosition) {
        let all = stretch.length();
        let Some((index, ended)) = self.blame.recorded_waker_thread(wait) else {
            return self.push_unattributed(Reason::NotRecorded, all, at);
        };
        let (stack, expects) = self
            .blame
            .pattern(wait)
            .map_or((StackPairId::NONE, Expects::Progress), |(_, pattern)| {
                (pattern.waker_stack, pattern.expects)
            });
        self.walk_hop(HopTo { thread: index, at: ended, stack, expects }, stretch, at);
    }

    /// Walks one hop further, if no limit is reached.
    fn walk_hop(&mut self, hop: HopTo, stretch: TimeRange, at: ChainPosition) {
        let all = stretch.length();
        let limits = self.blame.limits;
        if at.depth >= limits.depth {
            self.threads.note_limit();
            return self.push_unattributed(Reason::DepthLimit, all, at);
        }
        if self.threads.contains(hop.thread) {
            return self.push_unattributed(Reason::Cycle, all, at);
        }
        if self.waits_followed >= limits.nodes {
            self.threads.note_limit();
            return self.push_unattributed(Reason::NodeLimit, all, at);
        }
        self.waits_followed += 1;
        self.threads.note_hop(at.depth);
        let inside = self.position_behind(hop, at);
        self.threads.push(hop.thread);
        self.walk_thread(hop, stretch, at, inside);
        self.threads.pop();
    }

    /// Returns the position one hop further.
    fn position_behind(&mut self, hop: HopTo, at: ChainPosition) -> ChainPosition {
        let thread = self.blame.timeline.named_thread(hop.thread, hop.at);
        let stack = match self.detail {
            HopDetail::WakerStacks => hop.stack,
            HopDetail::Sleeps(_) | HopDetail::Groups(_) => StackPairId::NONE,
        };
        let markers = match self.detail {
            HopDetail::WakerStacks => self.blame.markers.path_at(hop.thread, hop.at),
            HopDetail::Sleeps(_) | HopDetail::Groups(_) => MarkerPathId::NONE,
        };
        let (chain, group) = self.extend_chain(at, Hop { thread, stack, slept: at.slept, markers });
        let (depth, expects) = (at.depth + 1, hop.expects);
        ChainPosition { chain, depth, slept: SleepId::NONE, expects, group, ..at }
    }

    /// Walks what a thread did in `stretch`, from its end back to its beginning. Where the thread
    /// waited for its next piece of work, the walk may go on in another thread of its process.
    ///
    /// ```text
    ///          from                                       to
    /// thread  --|-- on-CPU --+-- blocked --+- runnable -+--|-- on-CPU ---
    ///           |   work     | one hop on  | cpu_queue  |  | work
    /// ```
    fn walk_thread(
        &mut self,
        hop: HopTo,
        stretch: TimeRange,
        parent: ChainPosition,
        at: ChainPosition,
    ) {
        let unexplained = work::NOT_EXPLAINED;
        let mut waits = 0;
        let mut next = Some(Leg {
            thread: hop.thread,
            to: stretch.to,
            done: hop.at,
            left_with: hop.stack,
            parent,
            at,
            unexplained,
            asks: None,
            released_by: None,
        });
        while let Some(leg) = next {
            next = self.walk_leg(leg, stretch.until(leg.to), &mut waits);
        }
    }

    /// Walks a thread back through `stretch`, or until the walk goes on elsewhere; returns where.
    fn walk_leg(&mut self, leg: Leg, stretch: TimeRange, waits: &mut u32) -> Option<Leg> {
        let Leg { thread: index, mut left_with, mut at, .. } = leg;
        let mut leg = leg;
        let thread = self.blame.timeline.thread(index)?;
        self.push_unattributed(Reason::Lost, stretch.since(thread.track.end()).length(), at);
        let mut draft = None;
        let mut known_to = None;
        if *waits == 0 && stretch.to <= thread.track.end() {
            match self.find_shared_walk(&leg, stretch) {
                SharedWalkSearch::Unknown => {}
                SharedWalkSearch::MetAgain(new) => draft = Some(new),
                SharedWalkSearch::Walked(walk) => {
                    known_to = Some(walk.place);
                    left_with = walk.left_with;
                    *waits = walk.waits;
                }
            }
        }
        let end = match known_to {
            Some(end) => end,
            None => {
                let near = self.track_hints.get_mut(index.0 as usize)?;
                let end = thread.track.count_begun_before(stretch.to, *near as usize);
                *near = u32::try_from(end).unwrap_or(u32::MAX);
                end
            }
        };
        for place in (0..end).rev() {
            let Some(interval) = thread.track.get(place) else { break };
            if interval.to <= stretch.from {
                break;
            }
            let ends_shared_walk = || {
                interval.from < stretch.from || self.may_be_work_wait(interval, stretch, at, *waits)
            };
            if draft.is_some() && ends_shared_walk() {
                draft.take().into_iter().for_each(|draft| self.close_shared_walk(draft));
            }
            if place.is_multiple_of(Waits::FETCHED) {
                self.prefetch_waits_before(&thread.track, place);
            }
            let inside = stretch.since(interval.from).until(interval.to);
            at = self.mark_position(index, interval.from, at);
            leg.at = at;
            match interval.state {
                State::OnCpu => self.push_work(index, inside, left_with, at),
                State::Runnable(queued) => {
                    self.walk_runnable(&leg, place, queued, inside);
                    match self.walk_early_wake(interval, stretch, &leg) {
                        WorkStep::NoWorkWait => {}
                        WorkStep::Before(unexplained) => leg.unexplained = unexplained,
                        WorkStep::Elsewhere(next) => return Some(next),
                        WorkStep::Done => return None,
                    }
                }
                State::Throttled(_) => {
                    self.push(BlameKind::External(External::Throttled), inside.length(), at);
                }
                State::Lost => self.push_unattributed(Reason::Lost, inside.length(), at),
                State::Summed(_) => {
                    self.push_unattributed(Reason::ShortWaits, inside.length(), at);
                }
                State::Blocked(wait) => {
                    if let Some((_, pattern)) = self.blame.pattern(wait) {
                        left_with = pattern.own_stack;
                    }
                    *waits += 1;
                    if *waits > self.blame.limits.fan_out {
                        self.push_unattributed(Reason::FanOutLimit, inside.length(), at);
                        continue;
                    }
                    // Only a wait that was over by then can have led to what is walked.
                    let step = if interval.to <= stretch.to {
                        self.walk_work_wait(wait, inside, stretch.until(interval.to), &leg)
                    } else if self.is_after_answer(wait, at) {
                        self.push(work::NOT_EXPLAINED, inside.length(), at);
                        continue;
                    } else {
                        WorkStep::NoWorkWait
                    };
                    match step {
                        WorkStep::NoWorkWait => self.walk_blocked(wait, inside, at),
                        WorkStep::Before(unexplained) => leg.unexplained = unexplained,
                        WorkStep::Elsewhere(next) => return Some(next),
                        WorkStep::Done => return None,
                    }
                }
            }
            let from = interval.from;
            let end = SharedWalkEnd { place, from, left_with, waits: *waits, followed: 0, hops: 0 };
            if let Some(open) = &mut draft
                && !self.extend_shared_walk(open, end)
            {
                draft.take().into_iter().for_each(|draft| self.close_shared_walk(draft));
            }
        }
        draft.take().into_iter().for_each(|draft| self.close_shared_walk(draft));
        self.walk_before_creation(thread, stretch.until(thread.from), at);
        None
    }

    /// Fetches the rows of the waits before an interval into the CPU's caches. Behind a long wait
    /// may be thousands of short ones, whose rows were last read when they themselves were walked.
    fn prefetch_waits_before(&self, track: &Track, place: usize) {
        let places = place.saturating_sub(Waits::FETCHED)..place;
        let intervals = places.filter_map(|place| track.get(place));
        self.blame.recording.waits.fetch(intervals.filter_map(|interval| match interval.state {
            State::Blocked(wait) => Some(wait.0),
            State::OnCpu
            | State::Runnable(_)
            | State::Throttled(_)
            | State::Lost
            | State::Summed(_) => None,
        }));
    }

    /// Walks the time before a thread was created: what delayed it is what delayed its creator.
    fn walk_before_creation(&mut self, thread: &Thread, unborn: TimeRange, at: ChainPosition) {
        if unborn.length() == Nanos(0) {
            return;
        }
        let first = thread.track.get(0).map(|Interval { state, .. }| state);
        match first {
            Some(State::Runnable(RunnableSince::Woken(birth)))
                if self.blame.is_birth(birth)
                    && self.blame.recorded_waker_thread(birth).is_some() =>
            {
                self.walk_blocked(birth, unborn, at);
            }
            _ if thread.created.is_some_and(|created| created >= thread.from) => {
                self.push_unattributed(Reason::NotYetCreated, unborn.length(), at);
            }
            _ => self.push_unattributed(Reason::Lost, unborn.length(), at),
        }
    }
}

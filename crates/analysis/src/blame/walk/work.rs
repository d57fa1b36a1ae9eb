//! The walk through threads that serve several others: event loops, pools, kernel workers.
//!
//! What such a thread did meanwhile says nothing about the one that waits for it. What does is how
//! its answer came about:
//!
//! ```text
//! A     --ask--+================= waits for the loop =====================+--
//! loop  ..poll..[ asks U ]..poll..[ B ]..poll..[ B ]..poll..[ answers A ]..poll..
//!                  | v                                     ^ u
//! U     ...........[ works, sleeps, waits for others ......]
//! blame of A    |loop|<------------ U, from v to u ------->|  loop  |
//! ```
//!
//! The rule is in `docs/blame.md`, "Threads that serve several others".

use offwake_recording::units::Timestamp;

use crate::timeline::{Interval, ThreadIndex, WaitIndex};

use super::{
    super::{
        BlameKind, Reason, StackPairId, WakeSource,
        asks::AskSearch,
        mailboxes::MailboxId,
        pattern_analysis::PatternAnalysis,
        slices::begins_slice,
        work_waits::{Expects, WorkWait},
    },
    ChainPosition, HopTo, Leg, TimeRange, Walker,
};

/// What a loop's time is blamed on where nothing shows what it waited for.
pub(super) const NOT_EXPLAINED: BlameKind = BlameKind::Unattributed(Reason::EventLoop);

/// Where a walk goes on after a wait for work.
pub(super) enum WorkStep {
    /// It was no such wait: the wait itself has to be walked.
    NoWorkWait,
    /// The wait is walked. What the thread did before it comes next; this is what it is blamed on
    /// where nobody was waited for.
    Before(BlameKind),
    /// The wait is walked, and the walk goes on here.
    Elsewhere(Leg),
    /// There is nothing left to be walked.
    Done,
}

impl Walker<'_> {
    /// Walks a wait for work, of which `blocked` is to be walked, and decides what that says about
    /// the time before. `rest` is all of the time up to the wait's end.
    pub(super) fn walk_work_wait(
        &mut self,
        wait: WaitIndex,
        blocked: TimeRange,
        rest: TimeRange,
        leg: &Leg,
    ) -> WorkStep {
        let blame = self.blame;
        let Some((_, pattern)) = blame.pattern(wait) else { return WorkStep::NoWorkWait };
        let is_passed_on = pattern.work_wait == WorkWait::PassedOn;
        if !is_passed_on && pattern.mailbox.is_some_and(|mailbox| !self.is_served_from(mailbox)) {
            if pattern.work_wait == WorkWait::Request
                && leg.at.expects == Expects::Answer
                && self.has_served_giver(wait, leg)
            {
                // It was done with what a client had asked for before it gave the waiter anything: whoever
                // put that into the mailbox did so while the thread was awake.
                self.push(NOT_EXPLAINED, rest.length(), leg.at);
                return WorkStep::Done;
            }
            return WorkStep::NoWorkWait;
        }
        match (pattern.work_wait, leg.at.expects) {
            (WorkWait::No, Expects::Answer) if pattern.is_over_timer() => {
                let at = self.position_inside(pattern, pattern.idle_hint, leg.at);
                self.walk_rest_of_answer(wait, rest, leg, at).unwrap_or(WorkStep::NoWorkWait)
            }
            (WorkWait::No, _) => WorkStep::NoWorkWait,
            // Something came since that nobody saw, and the answer may be to that.
            (WorkWait::KernelWork, _) | (_, Expects::Answer)
                if self.has_gap(leg.thread, rest.to, leg.to) =>
            {
                self.push_unattributed(Reason::Lost, rest.length(), leg.at);
                WorkStep::Done
            }
            (WorkWait::KernelWork, _) => {
                self.walk_blocked(wait, rest, leg.at);
                WorkStep::Done
            }
            (_, Expects::Progress) => WorkStep::NoWorkWait,
            (WorkWait::HandedOver, Expects::Answer) if self.has_served_giver(wait, leg) => {
                // What came next was put into the queue while the thread was awake: not known by whom.
                self.push(NOT_EXPLAINED, rest.length(), leg.at);
                WorkStep::Done
            }
            (WorkWait::HandedOver, Expects::Answer) => self.move_to_waker(wait, rest, leg),
            (WorkWait::PassedOn, Expects::Answer) => self.walk_passed_on(wait, pattern, rest, leg),
            (WorkWait::Request, Expects::Answer)
                if pattern.mailbox.is_some() && self.is_at_work_for_waiter(wait, rest, leg) =>
            {
                self.walk_next_job(wait, pattern, rest, leg)
            }
            (WorkWait::Request, Expects::Answer) => self.walk_unasked(wait, pattern, rest, leg),
            (WorkWait::External, Expects::Answer) => {
                self.walk_external(wait, pattern, (blocked, rest), leg)
            }
            (WorkWait::OwnProcess | WorkWait::Answer | WorkWait::Unclear, Expects::Answer) => {
                self.walk_answer(wait, pattern, rest, leg)
            }
        }
    }

    /// Walks what comes before a wait for work that was over before the thread had left its CPU: what it was woken
    /// by begins a slice as any other does.
    ///
    /// ```text
    /// loop  ..poll..[ V's answer, for B ]x-+ runnable +-[ answers A ]..
    /// U     ---- works, answers ---------+
    /// ```
    pub(super) fn walk_early_wake(
        &mut self,
        interval: Interval,
        stretch: TimeRange,
        leg: &Leg,
    ) -> WorkStep {
        let Some(wait) = self.blame.wait_ended_by(interval) else { return WorkStep::NoWorkWait };
        let Some(woken) = self.blame.early_wake_of(wait) else { return WorkStep::NoWorkWait };
        // Nothing is left of the stretch, or what is walked was done while the thread had no CPU.
        if woken <= stretch.from || interval.to > stretch.to {
            return WorkStep::NoWorkWait;
        }
        let rest = stretch.until(woken);
        let nothing = rest.since(rest.to);
        let step = self.walk_work_wait(wait, nothing, rest, leg);
        if matches!(step, WorkStep::Elsewhere(_) | WorkStep::Done) {
            let own_stack = self.blame.pattern(wait).map(|(_, pattern)| pattern.own_stack);
            let awake = stretch.until(interval.from).since(woken);
            self.push_work(leg.thread, awake, own_stack.unwrap_or(StackPairId::NONE), leg.at);
        }
        step
    }

    /// Returns whether a thread of which an answer is walked waits for its next work, in a wait that is not over by the
    /// end of what is walked. It had answered before, and whoever gave it work later has nothing to do with that.
    ///
    /// ```text
    /// loop   ..poll..[ A: asks U ]........poll........[ a timer, answers A ]
    /// U      ............[ works ]....waits for work........................[ works for B
    /// walked             |  U    |     event_loop     |
    /// ```
    pub(super) fn is_after_answer(&self, wait: WaitIndex, at: ChainPosition) -> bool {
        at.expects == Expects::Answer
            && self.blame.pattern(wait).is_some_and(|(_, pattern)| begins_slice(pattern))
    }

    /// Returns whether a wait, or what it says about the time before, may depend on who waits for the thread, or
    /// on how far back the walk goes.
    pub(super) fn may_be_work_wait(
        &self,
        interval: Interval,
        stretch: TimeRange,
        at: ChainPosition,
        waits: u32,
    ) -> bool {
        let Some(wait) = self.blame.wait_ended_by(interval) else { return false };
        if waits >= self.blame.limits.fan_out {
            return true;
        }
        if interval.to > stretch.to {
            return self.is_after_answer(wait, at);
        }
        self.blame.pattern(wait).is_some_and(|(_, pattern)| match pattern.work_wait {
            WorkWait::No => at.expects == Expects::Answer && pattern.is_over_timer(),
            WorkWait::KernelWork => true,
            _ => at.expects == Expects::Answer,
        })
    }

    /// Walks the time before something came that was passed on to the waiter. Where most of what came
    /// before was passed on to others, that time belongs to the one that it came from, from when that one
    /// was asked if anybody saw that.
    ///
    /// ```text
    /// A         ======================= waits ==================+--
    /// passes on ..wait..[ to B ]..wait..[ to B ]..wait..[ to A ]..
    /// U         ---- works, sleeps ---------------------+
    /// ```
    fn walk_passed_on(
        &mut self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        rest: TimeRange,
        leg: &Leg,
    ) -> WorkStep {
        let timeline = self.blame.timeline;
        let waiter = self.threads.last_waiter();
        let tid = |thread: ThreadIndex| timeline.thread(thread).map(|thread| thread.tid);
        let pair = tid(leg.thread).zip(waiter.and_then(tid));
        let (Some(pair), Some(place)) = (pair, timeline.blocked_interval(wait)) else {
            return WorkStep::NoWorkWait;
        };
        let mailboxes = &self.blame.mailboxes;
        let at = self.position_inside(pattern, pattern.idle_hint, leg.at);
        if mailboxes.first_woken(pair.0, place.to).is_some_and(|first| first != pair.1) {
            // What the waiter got came while the thread was awake for somebody else: not known from whom.
            self.push_unattributed(Reason::EventLoop, rest.length(), at);
            return WorkStep::Done;
        }
        if !mailboxes.passed_on_to_others(pair, (rest.from, place.from)) {
            return WorkStep::NoWorkWait;
        }
        let asked = match self.blame.find_ask(wait, |_| false) {
            AskSearch::Found(ask) => rest.since(ask.at),
            AskSearch::Unseen(_) => rest,
        };
        // Before, its question was on the way, or nobody was free to work on it.
        self.push_unattributed(Reason::EventLoop, asked.from.since(rest.from), at);
        self.walk_waker(wait, asked, at);
        WorkStep::Done
    }

    /// Returns whether the thread before the one that is walked is one of several that the latter serves
    /// out of a mailbox.
    fn is_served_from(&self, mailbox: MailboxId) -> bool {
        self.threads
            .last_waiter()
            .is_some_and(|waiter| self.blame.mailboxes.serves(mailbox, self.blame.timeline, waiter))
    }

    /// Goes on in the thread that handed a job over, in its time before it did.
    pub(super) fn move_to_waker(
        &mut self,
        wait: WaitIndex,
        rest: TimeRange,
        leg: &Leg,
    ) -> WorkStep {
        let Some((thread, at)) = self.blame.recorded_waker_thread(wait) else {
            self.push_unattributed(Reason::NotRecorded, rest.length(), leg.at);
            return WorkStep::Done;
        };
        let stack = self.blame.wait_and_waker_stacks(wait).1;
        self.move_to(HopTo { thread, at, stack, expects: leg.at.expects }, rest, leg)
    }

    /// Goes on in another thread of the same process, which takes the place of this one in the
    /// chain: to the one that waits, they are one server.
    pub(super) fn move_to(&mut self, hop: HopTo, rest: TimeRange, leg: &Leg) -> WorkStep {
        if self.waits_followed >= self.blame.limits.nodes {
            self.threads.note_limit();
            self.push_unattributed(Reason::NodeLimit, rest.length(), leg.at);
            return WorkStep::Done;
        }
        self.waits_followed += 1;
        let Some(current) = self.threads.current() else { return WorkStep::Done };
        if self.threads.is_waiter(hop.thread) {
            // The one that waits had handed it over itself, before it began to wait.
            self.push_unattributed(Reason::EventLoop, rest.length(), leg.at);
            return WorkStep::Done;
        }
        let at = if current == hop.thread {
            leg.at
        } else {
            self.threads.replace_current(hop.thread);
            let expects = leg.at.expects;
            let idle_state = leg.at.idle_state;
            let at = self.position_behind(HopTo { expects, ..hop }, leg.parent);
            ChainPosition { idle_state, ..at }
        };
        WorkStep::Elsewhere(Leg {
            thread: hop.thread,
            to: rest.to,
            done: rest.to,
            left_with: hop.stack,
            at,
            unexplained: NOT_EXPLAINED,
            ..*leg
        })
    }

    /// Returns whether something of what a thread did between two moments is not known.
    fn has_gap(&self, thread: ThreadIndex, from: Timestamp, to: Timestamp) -> bool {
        let timeline = self.blame.timeline;
        let process = timeline.process_of_thread(thread);
        // Most threads have no gaps, and many processes none.
        if process.is_some_and(|tgid| self.blame.gaps.last_end(Some(tgid), from, to).is_none()) {
            return false;
        }
        let Some(track) = timeline.thread(thread).map(|life| &life.track) else { return false };
        (0..track.count_begun_before(to, track.len()))
            .rev()
            .map_while(|place| track.get(place).filter(|interval| interval.to > from))
            .any(|interval| interval.state.is_unknown())
    }

    /// Walks a wait that a timeout or a device ended, and that the answer came out of.
    fn walk_external(
        &mut self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        (blocked, rest): (TimeRange, TimeRange),
        leg: &Leg,
    ) -> WorkStep {
        let at = self.position_inside(pattern, pattern.idle_hint, leg.at);
        match self.find_open_ask(rest, leg) {
            Some(ask) if self.is_surely_for_waiter(&ask, rest) => {
                return self.walk_unasked(wait, pattern, rest, leg);
            }
            // The loop asked in somebody else's slice. What the waiter gets may as well have come from outside.
            Some(_) => {
                self.push(NOT_EXPLAINED, rest.length(), at);
                return WorkStep::Done;
            }
            None => {}
        }
        if let Some(step) = self.walk_rest_of_answer(wait, rest, leg, at) {
            return step;
        }
        let kind = match self.blame.wake_source(wait) {
            WakeSource::External(external) => BlameKind::External(external),
            WakeSource::Interrupt(reason) | WakeSource::Unknown(reason) => {
                BlameKind::Unattributed(reason)
            }
            WakeSource::Task(_) => return WorkStep::NoWorkWait,
        };
        if matches!(kind, BlameKind::External(_)) && self.may_other_have_answered(wait, leg) {
            self.push(NOT_EXPLAINED, rest.length(), at);
            return WorkStep::Done;
        }
        // The loop looked around, and polled again for whoever had the answer.
        if self.blame.poll_ticks.last_poll(wait).is_some() {
            return WorkStep::NoWorkWait;
        }
        self.push(kind, blocked.length(), at);
        WorkStep::Before(kind)
    }
}

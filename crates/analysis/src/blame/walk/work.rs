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

use offwake_recording::units::{Nanos, Timestamp};

use crate::timeline::{Interval, State, ThreadIndex, WaitIndex};

use super::{
    super::{
        BlameKind, External, IdleHint, Reason, StackPairId, WakeSource,
        mailboxes::MailboxId,
        pattern_analysis::PatternAnalysis,
        process_wakes::{Ask, AskSearch},
        slices::{MAX_SLICE_INTERVALS, begins_slice},
        work_waits::{Expects, WorkWait},
    },
    ChainPosition, HopTo, Leg, TimeRange, Walker,
};

/// What a loop's time is blamed on where nothing shows what it waited for.
pub(super) const NOT_EXPLAINED: BlameKind = BlameKind::Unattributed(Reason::EventLoop);

/// A loop that was awake for at most one part in so many was asleep whenever anything came: what comes
/// while it is awake wakes nobody, and is not seen.
const MIN_ASLEEP_PER_AWAKE: u64 = 50;

/// How many threads that a loop asked for one waiter are told apart. Of more, any may have answered.
const MAX_OPEN_ASKS: usize = 16;

/// The time in which a thread was awake before it began to wait.
struct AwakeBefore {
    woken: Timestamp,
    /// When it had come to a CPU.
    from: Timestamp,
}

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
            return false;
        }
        self.blame.pattern(wait).is_some_and(|(_, pattern)| match pattern.work_wait {
            WorkWait::No => false,
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
    fn move_to_waker(&mut self, wait: WaitIndex, rest: TimeRange, leg: &Leg) -> WorkStep {
        let Some((thread, at)) = self.blame.recorded_waker_thread(wait) else {
            self.push_unattributed(Reason::NotRecorded, rest.length(), leg.at);
            return WorkStep::Done;
        };
        let stack = self.blame.wait_and_waker_stacks(wait).1;
        self.move_to(HopTo { thread, at, stack, expects: leg.at.expects }, rest, leg)
    }

    /// Goes on in another thread of the same process, which takes the place of this one in the
    /// chain: to the one that waits, they are one server.
    fn move_to(&mut self, hop: HopTo, rest: TimeRange, leg: &Leg) -> WorkStep {
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

    /// Walks the time before an event that nobody was asked for: another client's request. What the
    /// loop did before says nothing, unless it had asked somebody on the waiter's behalf who
    /// answered while the loop was awake, or a timer of its own was due by the time it answered.
    fn walk_unasked(
        &mut self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        rest: TimeRange,
        leg: &Leg,
    ) -> WorkStep {
        let at = self.position_inside(pattern, pattern.idle_hint, leg.at);
        if let Some(ask) = self.find_open_ask(rest, leg) {
            if self.may_be_timer(wait, leg) && !self.is_surely_for_waiter(&ask, rest) {
                self.push(NOT_EXPLAINED, rest.length(), at);
                return WorkStep::Done;
            }
            let hop = HopTo {
                thread: ask.callee,
                at: ask.at,
                stack: StackPairId::NONE,
                expects: Expects::Answer,
            };
            self.walk_hop(hop, rest.since(ask.at), at);
            return self.move_to_asker(ask, rest, leg);
        }
        let is_unexplained = leg.unexplained == NOT_EXPLAINED;
        let is_timer_due = self.is_timer_due(wait, leg);
        let kind = if is_timer_due && self.may_other_have_answered(wait, leg) {
            NOT_EXPLAINED
        } else if is_timer_due {
            BlameKind::External(External::Timer)
        } else if is_unexplained && self.is_due_to_other_client(wait, pattern, rest, leg) {
            let at = self.position_inside(pattern, IdleHint::Busy, leg.at);
            self.walk_waker(wait, rest, at);
            return WorkStep::Done;
        } else {
            leg.unexplained
        };
        self.push(kind, rest.length(), at);
        WorkStep::Done
    }

    /// Returns whether the loop could go on with the waiter's request because another client sent
    /// something: a job for who waits for one. The loop asks nobody, went to sleep with the waiter's
    /// request taken, and slept nearly all the time. Anything else that it waited for would have woken it
    /// by itself.
    ///
    /// ```text
    /// A     --ask--+================= waits ===================+--
    /// loop  ..poll..[ A ]................poll..............[ B: answers A ]..
    /// B     -------------- does something else -----------+ sends
    /// ```
    fn is_due_to_other_client(
        &self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        rest: TimeRange,
        leg: &Leg,
    ) -> bool {
        if pattern.work_wait != WorkWait::Request {
            return false;
        }
        let Some((other, _)) = self.blame.recorded_waker_thread(wait) else { return false };
        // With the waiter's request unread, its poll would have returned at once.
        let is_request_taken = (self.blame.timeline.blocked_interval(wait))
            .is_some_and(|slept| slept.from >= self.find_awake_since(rest.from));
        // An answer that came while the loop was awake would have come unseen.
        let process = self.blame.timeline.process_of_thread(leg.thread);
        !self.threads.contains(other)
            && process.is_some_and(|process| self.blame.process_wakes.serves_alone(process))
            && is_request_taken
            && self.is_mostly_asleep(leg.thread, rest)
            // Nor would anybody have seen an ask of which the record is lost.
            && self.blame.gaps.last_end(None, self.find_awake_since(rest.from), leg.done).is_none()
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

    /// Returns whether a thread was awake for so little of a stretch that hardly anything can have come
    /// just then.
    fn is_mostly_asleep(&self, thread: ThreadIndex, stretch: TimeRange) -> bool {
        let Some(track) = self.blame.timeline.thread(thread).map(|life| &life.track) else {
            return false;
        };
        let end = track.count_begun_before(stretch.to, track.len());
        let mut asleep = Nanos(0);
        for place in (end.saturating_sub(MAX_SLICE_INTERVALS)..end).rev() {
            let Some(interval) = track.get(place).filter(|it| it.to > stretch.from) else { break };
            if matches!(interval.state, State::Blocked(_)) {
                asleep += interval.to.min(stretch.to).since(interval.from.max(stretch.from));
            }
        }
        let awake = Nanos(stretch.length().0.saturating_sub(asleep.0));
        awake.0.saturating_mul(MIN_ASLEEP_PER_AWAKE) <= stretch.length().0
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
        self.push(kind, blocked.length(), at);
        WorkStep::Before(kind)
    }

    /// Walks the time before an answer: it belongs to the one that answered, from when that one was
    /// asked.
    fn walk_answer(
        &mut self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        rest: TimeRange,
        leg: &Leg,
    ) -> WorkStep {
        // Where the loop's own end tells that this is an answer, nobody answered in the other direction.
        let is_direction_known = pattern.mailbox.is_none()
            && (pattern.work_wait != WorkWait::Unclear
                || self.blame.is_answer_through_own_connection(wait));
        let is_own_process = pattern.work_wait == WorkWait::OwnProcess;
        // The clients of a mailbox are known.
        let is_no_client = pattern.mailbox.is_some();
        let is_for_waiter = |walker: &Self, ask: &Ask| {
            walker.is_for_waiter(ask, rest, leg)
                && (is_direction_known || is_no_client || walker.is_proven_ask(ask))
        };
        let found = self.blame.find_ask(wait, |ask| is_for_waiter(self, ask));
        // After a timer, and where nothing tells which end asks, only what was asked for the waiter
        // in question can have been waited for.
        let is_sure = is_direction_known && leg.unexplained == NOT_EXPLAINED;
        let at = self.position_inside(pattern, IdleHint::Busy, leg.at);
        match found {
            AskSearch::Found(ask) if self.may_be_for_another(wait, &ask, rest, leg) => {
                self.push(NOT_EXPLAINED, rest.length(), at);
                WorkStep::Done
            }
            AskSearch::Found(ask)
                if !is_for_waiter(self, &ask)
                    && ask.at < self.find_awake_since(rest.from)
                    && ask.at >= self.find_possibly_asked_since(rest, leg)
                    && self.is_done_meanwhile(rest, leg) =>
            {
                self.push(NOT_EXPLAINED, rest.length(), at);
                WorkStep::Done
            }
            AskSearch::Found(ask)
                if !is_for_waiter(self, &ask)
                    && (self.is_done_meanwhile(rest, leg) || self.is_timer_due(wait, leg)) =>
            {
                self.walk_unasked(wait, pattern, rest, leg)
            }
            // What another thread of the pool was done with may have been the waiter's.
            AskSearch::Found(ask)
                if is_own_process
                    && !is_for_waiter(self, &ask)
                    && self.may_other_have_answered(wait, leg)
                    && !self.is_pool_full(rest, leg) =>
            {
                self.push(NOT_EXPLAINED, rest.length(), at);
                WorkStep::Done
            }
            AskSearch::Found(ask)
                if is_sure
                    && !is_for_waiter(self, &ask)
                    && self.is_for_another(&ask, rest, leg)
                    && self.is_other_done_meanwhile(wait, rest, leg) =>
            {
                self.push(NOT_EXPLAINED, rest.length(), at);
                WorkStep::Done
            }
            AskSearch::Found(ask) if is_sure || is_for_waiter(self, &ask) => {
                self.walk_waker(wait, rest.since(ask.at), at);
                self.move_to_asker(ask, rest, leg)
            }
            // Who was asked unseen may have been asked for others.
            AskSearch::Unseen(_)
                if (is_direction_known || is_own_process) && self.is_done_meanwhile(rest, leg) =>
            {
                self.walk_unasked(wait, pattern, rest, leg)
            }
            AskSearch::Unseen(before)
                if is_sure
                    && pattern.work_wait == WorkWait::Answer
                    && (self.is_timer_due(wait, leg)
                        || self.is_other_done_meanwhile(wait, rest, leg))
                    && self.may_be_unseen_for_another(wait, before, leg) =>
            {
                self.push(NOT_EXPLAINED, rest.length(), at);
                WorkStep::Done
            }
            AskSearch::Unseen(before) if is_sure && pattern.work_wait == WorkWait::Answer => {
                self.walk_unseen_ask(wait, before, rest, (leg, at))
            }
            AskSearch::Unseen(_)
                if is_own_process
                    && self.may_other_have_answered(wait, leg)
                    && !self.is_pool_full(rest, leg) =>
            {
                self.push(NOT_EXPLAINED, rest.length(), at);
                WorkStep::Done
            }
            AskSearch::Unseen(_) if is_own_process => self.walk_unseen_job(wait, rest, (leg, at)),
            AskSearch::Found(_) | AskSearch::Unseen(_) => {
                self.walk_unasked(wait, pattern, rest, leg)
            }
        }
    }

    /// Returns whether a timeout of the loop was due by the time it answered, or had ended a later wait.
    pub(super) fn may_be_timer(&self, wait: WaitIndex, leg: &Leg) -> bool {
        leg.unexplained != NOT_EXPLAINED || self.is_timer_due(wait, leg)
    }

    /// Returns whether a timeout of the loop was due by the time it answered, in a slice that something
    /// else had begun.
    fn is_timer_due(&self, wait: WaitIndex, leg: &Leg) -> bool {
        leg.unexplained == NOT_EXPLAINED && self.blame.is_timer_due(wait, leg.to)
    }

    /// Returns whether the thread that ended a wait was asked for something since the waiter asked, in a
    /// slice that the waiter had begun. Such a thread may look like a client: each of its results is
    /// followed by its next job.
    ///
    /// ```text
    /// A     --asks--+================ waits =====================+--
    /// loop  ..wait..[ U's job ]..wait..[ next job ]..wait..[ answers A ]
    /// U     ..................[ works ]............[ works ]
    /// ```
    fn is_at_work_for_waiter(&self, wait: WaitIndex, rest: TimeRange, leg: &Leg) -> bool {
        let timeline = self.blame.timeline;
        let (Some((sender, _)), Some(own)) =
            (self.blame.recorded_waker_thread(wait), timeline.thread(leg.thread))
        else {
            return false;
        };
        let range = (self.find_awake_since(rest.from), rest.to);
        !self.threads.is_waiter(sender)
            && self.blame.wakes_of_thread(own.tgid, sender, range).any(|ask| {
                let begun = self.find_slice_start(ask.asker, ask.at);
                let place = timeline.blocked_interval(ask.wait);
                begun.zip(place).is_some_and(|(begun, place)| {
                    self.threads.is_waiter(begun.giver) && place.from < begun.at
                })
            })
    }

    /// Walks the time before the result of a thread that got one job for the waiter after the other.
    fn walk_next_job(
        &mut self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        rest: TimeRange,
        leg: &Leg,
    ) -> WorkStep {
        let at = self.position_inside(pattern, IdleHint::Busy, leg.at);
        match self.blame.find_ask(wait, |_| false) {
            AskSearch::Found(ask) => {
                self.walk_waker(wait, rest.since(ask.at), at);
                self.move_to_asker(ask, rest, leg)
            }
            AskSearch::Unseen(_) => self.walk_unseen_job(wait, rest, (leg, at)),
        }
    }

    /// Walks the time before an answer to an ask that woke nobody. It was made at the latest when the
    /// loop went back to sleep after the answer before, or after the waiter's own request.
    ///
    /// ```text
    /// loop  ..poll..[ answer before, asks again ]....poll....[
    /// U     --------------------------------------- works ---+
    /// blame         |           loop             |     U     |
    /// ```
    fn walk_unseen_ask(
        &mut self,
        wait: WaitIndex,
        before: Option<(ThreadIndex, Timestamp)>,
        rest: TimeRange,
        (leg, at): (&Leg, ChainPosition),
    ) -> WorkStep {
        let set_to_work = before
            .filter(|&(_, at)| at > rest.from)
            .or_else(|| self.find_earlier_request(leg.thread, rest));
        let Some((thread, begun)) = set_to_work else {
            // Who was made for a connection was not asked before that came.
            let asked = self.find_making_slice(wait).map_or(rest, |since| rest.since(since));
            self.push(NOT_EXPLAINED, asked.from.since(rest.from), at);
            self.walk_waker(wait, asked, at);
            return WorkStep::Done;
        };
        let asked = self.find_next_work_wait(thread, begun).unwrap_or(begun);
        self.walk_waker(wait, rest.since(asked), at);
        let (stack, expects) = (StackPairId::NONE, leg.at.expects);
        let asks = self.blame.recorded_waker_thread(wait).map(|(thread, _)| thread);
        let leg = &Leg { asks, ..*leg };
        self.move_to(HopTo { thread, at: asked, stack, expects }, rest.until(asked), leg)
    }

    /// Returns since when the acceptor was awake that made the thread which ended a wait.
    fn find_making_slice(&self, wait: WaitIndex) -> Option<Timestamp> {
        let (thread, _) = self.blame.recorded_waker_thread(wait)?;
        self.blame.end_of_blocked_part(self.blame.made_after(thread)?)
    }

    /// Walks the time before another thread of the process woke the loop, which nobody was seen to hand a
    /// job to. It had its job at the latest when the loop went back to sleep after it last worked for the
    /// waiter. What it did before that, it did for others.
    ///
    /// ```text
    /// loop  ..poll..[ A: asks U ]..poll..[ U's answer, queues a job ]..poll..[ answers A ]
    /// pool  -- works for others ---------------------------------------------+
    /// blame         | loop  |     U      |           loop           |  pool  |   loop
    /// ```
    fn walk_unseen_job(
        &mut self,
        wait: WaitIndex,
        rest: TimeRange,
        (leg, at): (&Leg, ChainPosition),
    ) -> WorkStep {
        let set_to_work = self.find_answer_for_waiter(wait, rest, leg);
        let Some((thread, begun)) =
            set_to_work.or_else(|| self.find_earlier_request(leg.thread, rest))
        else {
            return self.move_to_waker(wait, rest, leg);
        };
        let handed_over = self.find_next_work_wait(thread, begun).unwrap_or(begun);
        self.walk_waker(wait, rest.since(handed_over), at);
        let (stack, expects) = (StackPairId::NONE, leg.at.expects);
        self.move_to(
            HopTo { thread, at: handed_over, stack, expects },
            rest.until(handed_over),
            leg,
        )
    }

    /// Returns when the loop last got an answer, before the end of `last`, to what it had asked for the
    /// waiter.
    fn find_answer_for_waiter(
        &self,
        last: WaitIndex,
        rest: TimeRange,
        leg: &Leg,
    ) -> Option<(ThreadIndex, Timestamp)> {
        let track = &self.blame.timeline.thread(leg.thread)?.track;
        let end = track.count_begun_before(rest.to, track.len());
        (end.saturating_sub(MAX_SLICE_INTERVALS)..end)
            .rev()
            .map_while(|place| track.get(place).filter(|interval| interval.to > rest.from))
            .find_map(|interval| {
                let wait = self.blame.wait_ended_by(interval)?;
                let (_, pattern) = self.blame.pattern(wait).filter(|_| wait != last)?;
                if !matches!(pattern.work_wait, WorkWait::Answer | WorkWait::OwnProcess) {
                    return None;
                }
                let is_for_waiter = |ask: &Ask| self.is_for_waiter(ask, rest, leg);
                match self.blame.find_ask(wait, is_for_waiter) {
                    AskSearch::Found(ask) if is_for_waiter(&ask) => Some((leg.thread, interval.to)),
                    AskSearch::Found(_) | AskSearch::Unseen(_) => None,
                }
            })
    }

    /// Returns when a thread was set to work in `stretch` by one that waits for it, the newest first.
    pub(super) fn requests_of_waiters(
        &self,
        thread: ThreadIndex,
        stretch: TimeRange,
    ) -> impl Iterator<Item = (ThreadIndex, Timestamp)> {
        let track = self.blame.timeline.thread(thread).map(|thread| &thread.track);
        let end = track.map_or(0, |track| track.count_begun_before(stretch.to, track.len()));
        let awake_since = self.find_awake_since(stretch.from);
        (end.saturating_sub(MAX_SLICE_INTERVALS)..end)
            .rev()
            .map_while(move |place| track?.get(place).filter(|it| it.to >= awake_since))
            .filter_map(move |interval| {
                let wait = self.blame.wait_ended_by(interval)?;
                let (waker, _) = self.blame.recorded_waker_thread(wait)?;
                let ended = self.blame.early_wake_of(wait).unwrap_or(interval.to);
                self.threads.is_waiter(waker).then_some((thread, ended))
            })
    }

    /// Returns the newest of these before the end of `rest`, at which the thread was set to work once more.
    /// A walk that went back to that end would come to the same wait again.
    fn find_earlier_request(
        &self,
        thread: ThreadIndex,
        rest: TimeRange,
    ) -> Option<(ThreadIndex, Timestamp)> {
        self.requests_of_waiters(thread, rest).find(|&(_, at)| at < rest.to)
    }

    /// Returns when a thread next begins to wait for work after `at`.
    fn find_next_work_wait(&self, thread: ThreadIndex, at: Timestamp) -> Option<Timestamp> {
        let track = &self.blame.timeline.thread(thread)?.track;
        let begun = track.count_begun_before(at, track.len());
        (begun..track.len()).take(MAX_SLICE_INTERVALS).find_map(|place| {
            let interval = track.get(place)?;
            let wait = self.blame.wait_ended_by(interval)?;
            let (_, pattern) = self.blame.pattern(wait)?;
            begins_slice(pattern).then_some(interval.from)
        })
    }

    /// Goes on with what the thread that asked did before.
    fn move_to_asker(&mut self, ask: Ask, rest: TimeRange, leg: &Leg) -> WorkStep {
        let stack = self.blame.wait_and_waker_stacks(ask.wait).1;
        let hop = HopTo { thread: ask.asker, at: ask.at, stack, expects: leg.at.expects };
        self.move_to(hop, rest.until(ask.at), &Leg { asks: Some(ask.callee), ..*leg })
    }

    /// Finds what the loop asked a thread for on the waiter's behalf, and had no answer to. Of several, only one may
    /// have got done by the time the loop answered, and it is that one.
    pub(super) fn find_open_ask(&self, rest: TimeRange, leg: &Leg) -> Option<Ask> {
        let open = self.find_open_asks(rest, leg);
        let found = match open[..] {
            [only] => Some(only),
            _ if open.len() == MAX_OPEN_ASKS => None,
            _ => {
                let is_done = |ask: &Ask| self.is_ask_done_meanwhile(ask, rest, leg);
                let mut done = open.into_iter().filter(is_done);
                done.next().filter(|_| done.next().is_none())
            }
        };
        found.filter(|ask| !self.has_rival(ask, rest, leg))
    }

    /// Finds what the loop asked threads for on the waiter's behalf, and had no answer to.
    pub(super) fn find_open_asks(&self, rest: TimeRange, leg: &Leg) -> Vec<Ask> {
        let Some(process) = self.blame.timeline.process_of_thread(leg.thread) else {
            return Vec::new();
        };
        let behalf = self.behalf_of_waiter(rest, leg);
        let range = (behalf.awake_since(), rest.to);
        self.blame.find_open_asks(process, range, leg.to, MAX_OPEN_ASKS, |ask, begun| {
            behalf.includes(ask, || begun)
                && self.is_proven_ask(ask)
                && !self.has_ended(ask.callee, rest.to)
                && !self.is_answer_awaited(ask, leg.to)
        })
    }

    /// Returns whether a wake was an ask, and no answer to another client. Where the connection's ends
    /// don't tell, the one that was woken must have waited since before the slice of the wake began:
    /// a client that asks while the loop is awake begins to wait within it.
    ///
    /// ```text
    /// loop  ..poll..[ A: asks U, answers B ]..poll..
    /// U     ............[ works                        asked: it waited already
    /// B     ----asks--+......[                         answered
    /// ```
    ///
    /// A client whose answer is late waits since before the slice as well. It gives itself away by its
    /// other answers: those come in slices that it has begun.
    fn is_proven_ask(&self, ask: &Ask) -> bool {
        if self.blame.is_ask_by_side(ask) {
            return true;
        }
        let timeline = self.blame.timeline;
        let Some(begun) = self.find_slice_start(ask.asker, ask.at) else { return false };
        let Some(place) = timeline.blocked_interval(ask.wait) else { return false };
        let process = |thread| timeline.process_of_thread(thread);
        let is_own_process = process(ask.asker) == process(ask.callee);
        let is_begun_by_callee = |wake: Ask| {
            let Some(begun) = self.find_slice_start(wake.asker, wake.at) else { return false };
            match is_own_process {
                true => begun.giver == ask.callee && wake.callee == ask.callee,
                false => process(begun.giver) == process(ask.callee),
            }
        };
        place.from < begun.at && !self.blame.wakes_around(ask).any(is_begun_by_callee)
    }

    /// Returns since when the thread that waits from `from` on had been awake before: since it came to a CPU, for
    /// until then it asked nobody. It asked in that time: on a busy machine, the answer can be under way before it
    /// gets to wait.
    pub(super) fn find_awake_since(&self, from: Timestamp) -> Timestamp {
        self.find_awake_before(from).map_or(from, |awake| awake.from)
    }

    /// Returns when the thread that waits from `from` on had last been woken before, and since when it then was on a
    /// CPU.
    fn find_awake_before(&self, from: Timestamp) -> Option<AwakeBefore> {
        let track = &self.blame.timeline.thread(self.threads.last_waiter()?)?.track;
        let end = track.count_begun_before(from, track.len());
        let mut came_to_cpu = from;
        for place in (end.saturating_sub(MAX_SLICE_INTERVALS)..end).rev() {
            let interval = track.get(place)?;
            match interval.state {
                State::Blocked(_) => {
                    let woken = interval.to.min(from);
                    return Some(AwakeBefore { woken, from: came_to_cpu.min(from) });
                }
                State::OnCpu | State::Lost | State::Summed(_) => came_to_cpu = interval.from,
                State::Runnable(_) | State::Throttled(_) => {}
            }
        }
        None
    }

    /// Returns since when something may have been asked for the waiter: since it was last answered, if its request is
    /// not seen. It may have sent that before, right behind another one (pipelining), and the loop asks as soon as it
    /// has answered the one before.
    ///
    /// ```text
    /// A     --two requests--+== waits ==+ runnable +#+======== waits ========+--
    /// loop  ..poll...................[ answers A, asks U ]..poll..
    /// ```
    pub(super) fn find_possibly_asked_since(&self, rest: TimeRange, leg: &Leg) -> Timestamp {
        let Some(awake) = self.find_awake_before(rest.from) else { return rest.from };
        match self.requests_of_waiters(leg.thread, rest).next() {
            Some(_) => awake.from,
            None => awake.woken,
        }
    }
}

//! The walk through the time before an answer: it belongs to the one that answered, from when that one was
//! asked.

use offwake_recording::units::Timestamp;

use crate::timeline::{ThreadIndex, WaitIndex};

use super::{
    super::{
        IdleHint, StackPairId,
        asks::{Ask, AskSearch},
        pattern_analysis::PatternAnalysis,
        slices::{MAX_SLICE_INTERVALS, begins_slice},
        work_waits::WorkWait,
    },
    ChainPosition, HopTo, Leg, TimeRange, Walker,
    position::ReleasingAnswer,
    work::{NOT_EXPLAINED, WorkStep},
};

impl Walker<'_> {
    /// Walks the time before an answer: it belongs to the one that answered, from when that one was
    /// asked.
    pub(super) fn walk_answer(
        &mut self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        rest: TimeRange,
        leg: &Leg,
    ) -> WorkStep {
        // `ksoftirqd` delivered it: which ask it belongs to can't be told. What the loop had asked for the
        // waiter is still open, as if the answer had come while the loop was awake.
        if pattern.waker().is_none() {
            return self.walk_unasked(wait, pattern, rest, leg);
        }
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
                let is_released = !is_for_waiter(self, &ask) && leg.asks == Some(ask.callee);
                let released_by = is_released.then_some(ReleasingAnswer { ask, at: rest.to });
                self.move_to_asker(ask, rest, &Leg { released_by, ..*leg })
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

    /// Returns whether the thread that ended a wait was asked for something since the waiter asked, in a
    /// slice that the waiter had begun. Such a thread may look like a client: each of its results is
    /// followed by its next job.
    ///
    /// ```text
    /// A     --asks--+================ waits =====================+--
    /// loop  ..wait..[ U's job ]..wait..[ next job ]..wait..[ answers A ]
    /// U     ..................[ works ]............[ works ]
    /// ```
    pub(super) fn is_at_work_for_waiter(
        &self,
        wait: WaitIndex,
        rest: TimeRange,
        leg: &Leg,
    ) -> bool {
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
    pub(super) fn walk_next_job(
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
                self.move_to_asker(ask, rest, &Leg { released_by: None, ..*leg })
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
        let leg = &Leg { asks, released_by: None, ..*leg };
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

    /// Returns when a thread next begins to wait for work after `at`.
    pub(super) fn find_next_work_wait(
        &self,
        thread: ThreadIndex,
        at: Timestamp,
    ) -> Option<Timestamp> {
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
    pub(super) fn move_to_asker(&mut self, ask: Ask, rest: TimeRange, leg: &Leg) -> WorkStep {
        let stack = self.blame.wait_and_waker_stacks(ask.wait).1;
        let hop = HopTo { thread: ask.asker, at: ask.at, stack, expects: leg.at.expects };
        self.move_to(hop, rest.until(ask.at), &Leg { asks: Some(ask.callee), ..*leg })
    }
}

//! A server that a loop keeps for one client while others wait for it: a connection of a pool, from one statement of a
//! transaction to the next.
//!
//! ```text
//! A     -ask-+============================ waits ===========================+--
//! loop  ....[ A ]..........poll...........[ B: asks U ]..[ U: asks U for A ]..[ answers A ]
//! U     ------ waits for its next request --[ works -----+ works -----------+
//! B     -- does something else --------------+ sends
//! ```
//!
//! A's request was taken, and U had nothing to do, but the loop did not ask it for A before it had answered what B
//! asked: U was kept for B. So what was waited for is that B asks. A pool of several connections keeps each for
//! somebody, and the first that was free again is the one that counts.
//!
//! A quick server's answer may come while the loop is awake for B, and all of that in one slice.
//!
//! It holds from the last time on that the loop was set to work by anything but a request: until then, A's request may
//! have waited for that. A timer that was set before A asked does not count.

use offwake_recording::units::{Nanos, Timestamp};

use crate::timeline::{ThreadIndex, WaitIndex};

use super::{
    super::{
        External, IdleHint, StackPairId, WakeSource,
        pattern_analysis::PatternAnalysis,
        slices::{MAX_SLICE_INTERVALS, begins_slice},
        work_waits::WorkWait,
    },
    HopTo, Leg, TimeRange, Walker,
    position::ReleasingAnswer,
    work::{NOT_EXPLAINED, WorkStep},
};

/// A loop that was awake for at most one part in so many went on with nothing that nobody saw: what comes while it is
/// awake wakes nobody. Had A's request waited for such a thing, U would have been asked then, unless it was
/// kept for B already.
const MIN_ASLEEP_PER_AWAKE: u64 = 10;

/// How much later than its answer comes a server may begin to wait for its next request.
const IDLE_AFTER_ANSWER: Nanos = Nanos(1_000_000);

/// That a loop was set to work by something else than a request.
struct OtherWork {
    at: Timestamp,
    waited_for: WorkWait,
}

impl Walker<'_> {
    /// Walks the time before another client's request, if its server was kept for that client meanwhile.
    pub(super) fn walk_reserved_server(
        &mut self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        rest: TimeRange,
        leg: &Leg,
    ) -> Option<WorkStep> {
        if leg.unexplained != NOT_EXPLAINED || self.is_timer_due(wait, leg) {
            return None;
        }
        let released = leg.released_by.or_else(|| self.find_answer_in_slice(rest, leg))?;
        if !self.is_kept_for_client(wait, pattern, rest, (leg, &released)) {
            return None;
        }
        let begun = self.blame.timeline.blocked_interval(wait)?.from;
        let asked_since = self.find_awake_since(rest.from);
        let is_older = |wait, at| self.is_older_timer(leg.thread, asked_since, wait, at);
        let other = self.find_other_work(leg.thread, (rest.from, begun), is_older);
        let since = other.as_ref().map_or(rest.from, |other| other.at);
        let idle_since = self.blame.timeline.blocked_interval(released.ask.wait)?.from;
        if idle_since > since + IDLE_AFTER_ANSWER {
            return None;
        }
        let at = self.position_inside(pattern, IdleHint::Busy, leg.at);
        self.walk_waker(wait, rest.since(since), at);
        let before = rest.until(since);
        match other {
            None => Some(WorkStep::Done),
            Some(OtherWork { waited_for: WorkWait::Answer, .. }) => {
                let (stack, expects) = (StackPairId::NONE, leg.at.expects);
                let hop = HopTo { thread: leg.thread, at: since, stack, expects };
                Some(self.move_to(hop, before, &Leg { released_by: None, ..*leg }))
            }
            Some(_) => {
                self.push(NOT_EXPLAINED, before.length(), at);
                Some(WorkStep::Done)
            }
        }
    }

    /// Finds what a loop asked in the slice in which it answered the waiter, or asked the server for it, and had an
    /// answer to that woke nobody, as it was awake: the first ask, if the server got done with it.
    ///
    /// ```text
    /// loop  ....[ A ]........poll.........[ B: asks U, U's answer, asks U for A, U's answer, answers A ]
    /// loop  ....[ A ]........poll.........[ B: asks U, U's answer, asks U for A ]..[ U: answers A ]
    /// ```
    fn find_answer_in_slice(&self, rest: TimeRange, leg: &Leg) -> Option<ReleasingAnswer> {
        let process = self.blame.timeline.process_of_thread(leg.thread)?;
        let asks = self.blame.open_asks_of(process, (rest.to, leg.to), leg.to);
        let before = asks.filter(|ask| ask.asker == leg.thread && ask.at < leg.to);
        let first = before.min_by_key(|ask| ask.at)?;
        let is_same_server = leg.asks.is_none_or(|asked| asked == first.callee);
        let is_done = is_same_server
            && self.is_proven_ask(&first)
            && self.is_ask_done_meanwhile(&first, rest, leg);
        is_done.then_some(ReleasingAnswer { ask: first, at: leg.to })
    }

    /// Returns whether the request that ended a wait of the loop's is the one for which it kept the server.
    fn is_kept_for_client(
        &self,
        wait: WaitIndex,
        pattern: &PatternAnalysis,
        rest: TimeRange,
        (leg, released): (&Leg, &ReleasingAnswer),
    ) -> bool {
        let ReleasingAnswer { ask, at: answered } = released;
        if pattern.work_wait != WorkWait::Request || pattern.waker().is_none() {
            return false;
        }
        let Some((client, _)) = self.blame.recorded_waker_thread(wait) else { return false };
        let Some(process) = self.blame.timeline.process_of_thread(leg.thread) else { return false };
        let asked_in = self.blame.find_slice_wait(ask.asker, ask.at).map(|(wait, _)| wait);
        let is_clients_ask = ask.asker == leg.thread && asked_in == Some(wait);
        let awake_since = self.find_awake_since(rest.from);
        // The waiter's request may have waited for whatever else came until it was asked for.
        let has_only_requests = self
            .find_other_work(leg.thread, (ask.at, *answered), |wait, at| {
                self.is_older_timer(leg.thread, awake_since, wait, at)
            })
            .is_none();
        is_clients_ask
            && self.is_request_taken(wait, rest)
            && has_only_requests
            && !self.is_process_in_chain(client)
            && self.is_mostly_asleep(
                leg.thread,
                TimeRange { to: *answered, ..rest },
                MIN_ASLEEP_PER_AWAKE,
            )
            && self.do_others_sleep(process, leg, rest)
            // Nor would anybody have seen what else came of which the record is lost.
            && self.blame.gaps.last_end(None, awake_since, *answered).is_none()
    }

    /// Returns whether a timer that ended a wait of a loop was set before something was asked: the poll in which the loop
    /// was by then, or the last one before, had the same moment for its timeout. So nobody waited for it who asked.
    ///
    /// ```text
    /// A     ------------- asks -+========================
    /// loop  ..[ polls for 333 ms ....[ A ]..polls....[ timer ]..polls..
    ///         '------------- 333 ms -----------------^
    /// ```
    fn is_older_timer(
        &self,
        thread: ThreadIndex,
        asked_since: Timestamp,
        wait: WaitIndex,
        at: Timestamp,
    ) -> bool {
        if self.blame.wake_source(wait) != WakeSource::External(External::Timer) {
            return false;
        }
        let last = self.blame.find_slice_wait(thread, asked_since);
        last.is_some_and(|(last, _)| self.blame.is_timer_due_at(last, at))
    }

    /// Finds when a loop was last set to work between two moments by anything but a request, and by nothing of which
    /// `is_nobodys` says that nobody waited for it.
    fn find_other_work(
        &self,
        thread: ThreadIndex,
        (from, to): (Timestamp, Timestamp),
        is_nobodys: impl Fn(WaitIndex, Timestamp) -> bool,
    ) -> Option<OtherWork> {
        let track = &self.blame.timeline.thread(thread)?.track;
        let end = track.count_begun_before(to, track.len());
        (end.saturating_sub(MAX_SLICE_INTERVALS)..end)
            .rev()
            .map_while(|place| track.get(place).filter(|interval| interval.to > from))
            .filter(|interval| interval.to < to)
            .find_map(|interval| {
                let wait = self.blame.wait_ended_by(interval)?;
                let (_, pattern) = self.blame.pattern(wait)?;
                let is_other = begins_slice(pattern)
                    && pattern.work_wait != WorkWait::Request
                    && !is_nobodys(wait, interval.to);
                is_other.then_some(OtherWork { at: interval.to, waited_for: pattern.work_wait })
            })
    }
}

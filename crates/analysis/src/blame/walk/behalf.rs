//! On whose behalf a loop asked for something.

use std::cell::OnceCell;

use offwake_recording::units::Timestamp;

use crate::timeline::{State, ThreadIndex, WaitIndex};

use super::{
    super::{
        WakeSource,
        asks::{Ask, AskSearch},
        slices::{MAX_SLICE_INTERVALS, SliceOrigin, SliceStart, begins_slice},
        work_waits::{Expects, WorkWait},
    },
    Leg, TimeRange, Walker,
};

/// The number of hand-overs that are followed from one thread of a process to the next.
const MAX_HAND_OVERS: usize = 8;

/// The waiter that asks are looked for of, and what is the same for all of them.
pub(super) struct Behalf<'w, 'b> {
    walker: &'w Walker<'b>,
    /// The thread that serves the waiter.
    server: ThreadIndex,
    rest: TimeRange,
    awake_since: Timestamp,
    is_request_seen: OnceCell<bool>,
}

impl Behalf<'_, '_> {
    /// Returns since when the waiter had been awake before: what was asked for it earlier is answered.
    pub(super) fn awake_since(&self) -> Timestamp {
        self.awake_since
    }

    /// Returns whether something was asked for on behalf of a thread of the chain: the thread that
    /// asked had been set to work by that one. A request that comes while the loop is awake sets
    /// nobody to work: then the thread that asked must have been awake when the wait began.
    ///
    /// ```text
    /// A     --ask--+===== waits ====
    /// loop  ..[ B ... asks U ]..poll
    /// ```
    ///
    /// `begun` says what had set the thread that asked to work.
    pub(super) fn includes(&self, ask: &Ask, begun: impl FnOnce() -> Option<SliceStart>) -> bool {
        let threads = &self.walker.threads;
        if ask.at < self.awake_since || threads.is_waiter(ask.callee) {
            return false;
        }
        let begun = begun().and_then(|begun| self.walker.follow_hand_overs(begun));
        begun.is_some_and(|begun| {
            threads.is_waiter(begun.giver)
                || (begun.at <= self.rest.from && !self.is_request_seen())
        })
    }

    fn is_request_seen(&self) -> bool {
        let find = || self.walker.requests_of_waiters(self.server, self.rest).next().is_some();
        *self.is_request_seen.get_or_init(find)
    }
}

impl<'b> Walker<'b> {
    /// Returns whose asks count for the time that is walked, which is that up to the end of `rest`.
    pub(super) fn behalf_of_waiter(&self, rest: TimeRange, leg: &Leg) -> Behalf<'_, 'b> {
        Behalf {
            walker: self,
            server: leg.thread,
            rest,
            awake_since: self.find_awake_since(rest.from),
            is_request_seen: OnceCell::new(),
        }
    }

    /// Returns whether a thread of a pool was done with the job that it slept for before it did what
    /// is walked: whoever had handed that job over has got its answer.
    ///
    /// ```text
    /// B     hands a job over --+.... waits for it ....+--
    /// pool  ..waits............[  B's job             ^ A's job  ^
    /// A     -------------------- waits --------------------------+--
    /// ```
    pub(super) fn has_served_giver(&self, wait: WaitIndex, leg: &Leg) -> bool {
        let Some((giver, begun)) = self.blame.recorded_waker_thread(wait) else { return false };
        let Some(thread) = self.blame.timeline.thread(giver) else { return false };
        let track = &thread.track;
        let end = track.count_begun_before(leg.done, track.len());
        (end.saturating_sub(MAX_SLICE_INTERVALS)..end)
            .rev()
            .map_while(|place| track.get(place).filter(|interval| interval.to > begun))
            .any(|interval| {
                let State::Blocked(answered) = interval.state else { return false };
                let is_before = interval.from >= begun && interval.to < leg.done;
                is_before
                    && self.blame.pattern(answered).is_some_and(|(_, pattern)| {
                        pattern.expects == Expects::Answer
                            && matches!(self.blame.wake_source(answered), WakeSource::Task(_))
                    })
                    && self
                        .blame
                        .recorded_waker_thread(answered)
                        .is_some_and(|(waker, _)| waker == leg.thread)
            })
    }

    /// Finds what a thread was set to work by that is awake at `at`, back to another process or to one that
    /// waits for it.
    pub(super) fn find_slice_start(
        &self,
        thread: ThreadIndex,
        at: Timestamp,
    ) -> Option<SliceStart> {
        self.follow_hand_overs(self.blame.find_slice_start(thread, at)?)
    }

    /// The same from what its slice begins with.
    fn follow_hand_overs(&self, mut begun: SliceStart) -> Option<SliceStart> {
        let is_start = |begun: &SliceStart| {
            begun.origin == SliceOrigin::Giver || self.threads.is_waiter(begun.giver)
        };
        for _ in 1..MAX_HAND_OVERS {
            if is_start(&begun) {
                break;
            }
            begun = self.blame.find_slice_start(begun.giver, begun.at)?;
        }
        is_start(&begun).then_some(begun)
    }

    /// Returns whether nothing tells if the server that answered was asked on the waiter's behalf. The
    /// waiter's request came while the loop was awake for somebody else, and the loop asked in that slice.
    /// But what it answers the waiter with may as well be from another server, which got done while the
    /// loop was awake, or it may have waited for a timer of its own.
    ///
    /// ```text
    /// B     --ask--+====================================
    /// A     ---------ask--+=============================+--
    /// loop  ..poll..[ asks V, asks U ]..poll..[ V's answer, U's answer, answers A ]
    /// ```
    pub(super) fn may_be_for_another(
        &self,
        wait: WaitIndex,
        ask: &Ask,
        rest: TimeRange,
        leg: &Leg,
    ) -> bool {
        if !self.is_for_waiter(ask, rest, leg) {
            return false;
        }
        let is_sure = self.is_surely_for_waiter(ask, rest);
        let process = |thread| self.blame.timeline.process_of_thread(thread);
        let is_other = |other: ThreadIndex| match is_sure {
            true => process(other) != process(ask.callee),
            false => other != ask.callee,
        };
        (!is_sure && self.may_be_timer(wait, leg))
            || self.has_rival(ask, rest, leg)
            || (self.find_open_asks(rest, leg).iter())
                .any(|it| is_other(it.callee) && self.is_ask_done_meanwhile(it, rest, leg))
    }

    /// Returns whether the waiter may as well have waited for another server: neither its own request had begun the
    /// slice in which this one was asked, nor is it known for whom the loop asked the other, which got done by the
    /// time the loop answered.
    ///
    /// ```text
    /// B     --ask--+====================================
    /// A     ---------ask--+=============================+--
    /// loop  ..poll..[ asks V ]..                ..poll..[ V's answer, U's answer, answers A ]
    /// its other thread  [ asks U: for whom? ]....
    /// ```
    pub(super) fn has_rival(&self, ask: &Ask, rest: TimeRange, leg: &Leg) -> bool {
        if self.is_surely_for_waiter(ask, rest) {
            return false;
        }
        let Some(process) = self.blame.timeline.process_of_thread(leg.thread) else { return false };
        let awake_since = self.find_awake_since(rest.from);
        let range = (self.find_possibly_asked_since(rest, leg), rest.to);
        self.blame.open_asks_of(process, range, leg.to).any(|other| {
            other.callee != ask.callee
                && (other.at < awake_since
                    || self.find_slice_start(other.asker, other.at).is_none())
                && self.blame.is_ask_by_side(&other)
                && self.is_ask_done_meanwhile(&other, rest, leg)
        })
    }

    /// Returns whether the waiter's own request had begun the slice in which something was asked, and not
    /// an earlier one of its requests.
    pub(super) fn is_surely_for_waiter(&self, ask: &Ask, rest: TimeRange) -> bool {
        self.find_slice_start(ask.asker, ask.at).is_some_and(|begun| {
            self.threads.is_waiter(begun.giver) && begun.at >= self.find_awake_since(rest.from)
        })
    }

    /// Returns whether the loop asked for something in a slice that was another's: a request of another client had
    /// begun it, or a timeout of the loop's own, or something from outside of every thread, as a client of another
    /// machine is, or the answer to something that it had not asked for the waiter.
    pub(super) fn is_for_another(&self, ask: &Ask, rest: TimeRange, leg: &Leg) -> bool {
        let mut ask = *ask;
        for _ in 0..MAX_HAND_OVERS {
            // What began it nobody saw, or it came from outside of every thread.
            let Some(begun) = self.find_slice_start(ask.asker, ask.at) else { return true };
            if begun.waited_for != WorkWait::Answer {
                // What was asked for an earlier request of the waiter's is none of its concern either.
                return begun.waited_for == WorkWait::Request
                    && (!self.threads.is_waiter(begun.giver)
                        || begun.at < self.find_possibly_asked_since(rest, leg));
            }
            let Some((answer, _)) = self.blame.find_slice_wait(ask.asker, ask.at) else {
                return true;
            };
            let is_for_waiter = |ask: &Ask| self.is_for_waiter(ask, rest, leg);
            match self.blame.find_ask(answer, is_for_waiter) {
                AskSearch::Found(before) if is_for_waiter(&before) => {
                    return self.may_follow_answer(&before);
                }
                AskSearch::Found(before) => ask = before,
                AskSearch::Unseen(_) => return true,
            }
        }
        true
    }

    /// Returns whether the server's answer before came in the slice in which it was asked again. Where requests queue
    /// for its connection, that answer is as good a reason to ask as what had begun the slice.
    ///
    /// ```text
    /// A     -------------ask--+================================
    /// loop  ..poll............[ U's answer to B, asks U: for C? ]..poll..
    /// U     -- works for B -----+...............[ works
    /// ```
    fn may_follow_answer(&self, ask: &Ask) -> bool {
        let begun = self.find_slice_start(ask.asker, ask.at);
        let waited = self.blame.timeline.blocked_interval(ask.wait);
        begun.zip(waited).is_some_and(|(begun, waited)| waited.from >= begun.at)
    }

    /// Returns whether an ask that woke nobody may have come with another client's request, or with a timer of the
    /// loop's own. The server was awake when it came, and had been since its answer before. With neither meanwhile,
    /// the loop asked in the slice which that answer had begun.
    ///
    /// ```text
    /// loop  ..poll..[ U's answer before ]..poll..[ B: asks U? ]..poll..[ U's answer
    /// U     -- works, answers, still awake ----------+ sleeps, ... -----+
    /// ```
    pub(super) fn may_be_unseen_for_another(
        &self,
        wait: WaitIndex,
        before: Option<(ThreadIndex, Timestamp)>,
        leg: &Leg,
    ) -> bool {
        let Some((_, answered)) = before else { return true };
        let busy_until = || {
            let until = self.blame.timeline.blocked_interval(wait)?.to;
            let (server, _) = self.blame.recorded_waker_thread(wait)?;
            let track = &self.blame.timeline.thread(server)?.track;
            let begun = track.count_begun_before(answered, track.len());
            let mut after = (begun..track.len()).take(MAX_SLICE_INTERVALS);
            let next_work_wait = after.find_map(|place| {
                let interval = track.get(place)?;
                let State::Blocked(wait) = interval.state else { return None };
                let (_, pattern) = self.blame.pattern(wait)?;
                begins_slice(pattern).then_some(interval.from)
            });
            Some(next_work_wait.unwrap_or(until).min(until))
        };
        let Some(busy_until) = busy_until() else { return true };
        let Some(track) = self.blame.timeline.thread(leg.thread).map(|life| &life.track) else {
            return true;
        };
        let end = track.count_begun_before(busy_until, track.len());
        (end.saturating_sub(MAX_SLICE_INTERVALS)..end)
            .rev()
            .map_while(|place| track.get(place).filter(|interval| interval.to > answered))
            .any(|interval| {
                let Some(wait) = self.blame.wait_ended_by(interval) else { return false };
                let pattern = self.blame.pattern(wait).map(|(_, pattern)| pattern.work_wait);
                interval.to <= busy_until
                    && matches!(pattern, Some(WorkWait::Request | WorkWait::External))
                    && !(self.blame.recorded_waker_thread(wait))
                        .is_some_and(|(client, _)| self.threads.is_waiter(client))
            })
    }

    /// Returns whether something was asked for on behalf of a thread of the chain.
    pub(super) fn is_for_waiter(&self, ask: &Ask, rest: TimeRange, leg: &Leg) -> bool {
        let begun = || self.blame.find_slice_start(ask.asker, ask.at);
        self.behalf_of_waiter(rest, leg).includes(ask, begun)
    }
}

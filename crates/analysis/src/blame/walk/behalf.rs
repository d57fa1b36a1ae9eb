//! On whose behalf a loop asked for something.

use std::cell::OnceCell;

use offwake_recording::units::{Nanos, Timestamp};

use crate::timeline::{Interval, RunnableSince, State, ThreadIndex, WaitIndex};

use super::{
    super::{
        ConnectionSide, WakeSource,
        cause::Cause,
        process_wakes::{Ask, AskSearch},
        slices::{MAX_SLICE_INTERVALS, SliceOrigin, SliceStart, begins_slice},
        timed_retries::is_same_wait,
        work_waits::{Expects, WorkWait},
    },
    Leg, TimeRange, Walker,
};

/// The number of hand-overs that are followed from one thread of a process to the next.
const MAX_HAND_OVERS: usize = 8;

/// How many threads that answer a loop are looked at one by one. Of more, any may have answered.
const MAX_ANSWERING: usize = 256;

/// How much later than the loop answers its client a server may go back to waiting that the loop's answer
/// is from: the loop, awake on another CPU, may be the quicker of the two.
const DONE_AFTER_ANSWER: Nanos = Nanos(1_000_000);

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

    /// Returns whether what was asked for the waiter in question got done between the wait's end and the
    /// answer, while the loop was awake for somebody else.
    ///
    /// ```text
    /// loop  ..poll..[ A: asks U ]..poll..[ B: asks V ]..poll..[ V's answer, U's answer, answers A ]
    /// U     .....................[ works                           ]....
    /// ```
    pub(super) fn is_done_meanwhile(&self, rest: TimeRange, leg: &Leg) -> bool {
        self.find_open_ask(rest, leg).is_some_and(|ask| self.is_ask_done_meanwhile(&ask, rest, leg))
    }

    pub(super) fn is_ask_done_meanwhile(&self, ask: &Ask, rest: TimeRange, leg: &Leg) -> bool {
        let done = self.find_return_to_work_wait(ask);
        done.is_some_and(|done| done >= rest.to && self.is_soon_after(leg.to, ask.callee, done))
            && !self.is_answer_awaited(ask, leg.to)
    }

    /// Returns whether the thread that asked still waits for the answer at `at`, in the middle of the job that it asked
    /// for: what the loop answers somebody with then is not that.
    ///
    /// ```text
    /// loop  ..poll..[ a job for A, one for B ]....poll....[ a result, answers A ]..
    /// one   ..........[ asks U ]----- waits for U ------^## A's result
    /// other ..........[ asks V ]----- waits for V ------------------------^##
    /// ```
    pub(super) fn is_answer_awaited(&self, ask: &Ask, at: Timestamp) -> bool {
        let timeline = self.blame.timeline;
        let Some(track) = timeline.thread(ask.asker).map(|life| &life.track) else { return false };
        let end = track.count_begun_before(at, track.len());
        let mut since_ask = (end.saturating_sub(MAX_SLICE_INTERVALS)..end)
            .rev()
            .map_while(|place| track.get(place).filter(|interval| interval.to > ask.at));
        let wait_of = |interval: Interval| match interval.state {
            State::Blocked(wait) => self.blame.pattern(wait).map(|(_, pattern)| (wait, pattern)),
            State::OnCpu
            | State::Runnable(_)
            | State::Throttled(_)
            | State::Lost
            | State::Summed(_) => None,
        };
        let is_awaited = |interval: Interval| {
            let Some((wait, pattern)) = wait_of(interval) else { return false };
            let is_by_callee = || {
                let process = |thread| timeline.process_of_thread(thread);
                let waker = self.blame.recorded_waker_thread(wait);
                waker.is_some_and(|(waker, _)| process(waker) == process(ask.callee))
            };
            interval.to > at
                && pattern.expects == Expects::Answer
                && (pattern.side == ConnectionSide::Asking || is_by_callee())
        };
        // Where it is not known what it did, it may have begun another one.
        let is_same_job = |interval: Interval| {
            !interval.state.is_unknown()
                && !wait_of(interval).is_some_and(|(_, pattern)| begins_slice(pattern))
        };
        since_ask.next().is_some_and(|last| is_same_job(last) && is_awaited(last))
            && since_ask.all(is_same_job)
    }

    /// Returns whether `done` is at most [`DONE_AFTER_ANSWER`] later than `at`. The time in which a thread waits
    /// for a CPU meanwhile does not count: it may have answered before it lost its CPU.
    ///
    /// ```text
    /// loop  ..poll..[ V's answer, U's answer, answers A ]..
    /// U     ---- works, answers ------+ r u n n a b l e +#+....
    /// ```
    fn is_soon_after(&self, at: Timestamp, thread: ThreadIndex, done: Timestamp) -> bool {
        let Some(track) = self.blame.timeline.thread(thread).map(|life| &life.track) else {
            return false;
        };
        let end = track.count_begun_before(done, track.len());
        let queued = (end.saturating_sub(MAX_SLICE_INTERVALS)..end)
            .rev()
            .map_while(|place| track.get(place).filter(|interval| interval.to > at))
            .filter(|interval| matches!(interval.state, State::Runnable(_)))
            .fold(Nanos(0), |sum, it| sum + it.to.min(done).since(it.from.max(at)));
        done <= at + queued + DONE_AFTER_ANSWER
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
                AskSearch::Found(before) if is_for_waiter(&before) => return false,
                AskSearch::Found(before) => ask = before,
                AskSearch::Unseen(_) => return true,
            }
        }
        true
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

    /// Returns whether another server than the one whose answer ended a wait got done between that end and
    /// the loop's answer, whomever it was asked for. A loop that has several requests for one connection sends
    /// the next one as the answer to the one before comes: it asked for A whom A's request had waited for.
    ///
    /// ```text
    /// loop  ..poll..[ U's answer to C: asks U for A ]..poll..[ B: asks V ]..poll..[ V's answer, U's answer, answers A ]
    /// U     ........................[ works                                           ]......
    /// ```
    pub(super) fn is_other_done_meanwhile(
        &self,
        wait: WaitIndex,
        rest: TimeRange,
        leg: &Leg,
    ) -> bool {
        let answered = self.blame.recorded_waker_thread(wait).map(|(thread, _)| thread);
        let process = self.blame.timeline.process_of_thread(leg.thread);
        let Some((answered, process)) = answered.zip(process) else { return false };
        leg.asks != Some(answered)
            && (self
                .blame
                .open_asks_of(process, (self.find_possibly_asked_since(rest, leg), rest.to), leg.to)
                .any(|ask| ask.callee != answered && self.is_ask_done_meanwhile(&ask, rest, leg))
                || self.may_other_have_answered(wait, leg))
    }

    /// Returns whether another process that answers the loop, or another thread of its own that does jobs for it, may
    /// have done so between the end of a wait and the loop's answer: it had a CPU meanwhile. What comes while the
    /// loop is awake wakes nobody, and what asked for it may have woken nobody either.
    ///
    /// ```text
    /// loop  ..poll..[ U's answer, V's answer, answers A ]
    /// U     ---- answers, goes on with what it was asked next: sleeps ....
    /// V     ------------- answers, goes on ....
    /// ```
    pub(super) fn may_other_have_answered(&self, wait: WaitIndex, leg: &Leg) -> bool {
        let timeline = self.blame.timeline;
        let tgid = |thread| timeline.process_of_thread(thread);
        let ended = self.blame.end_of_blocked_part(wait);
        let (Some(process), Some(ended)) = (tgid(leg.thread), ended) else { return false };
        let answered = match self.blame.wake_source(wait) {
            WakeSource::Task(_) => self.blame.waker_thread(wait).map(|(thread, _)| thread),
            _ => None,
        };
        let answering = self.blame.answering_threads(process);
        let answered_process = answered.and_then(tgid);
        // Of the loop's own process count the threads of a pool beside another of them. Those of a runtime wake each
        // other whatever they do.
        let is_other = |server: ThreadIndex| match answered_process == Some(process) {
            true => {
                tgid(server) == answered_process && server != leg.thread && Some(server) != answered
            }
            false => tgid(server) != Some(process) && tgid(server) != answered_process,
        };
        answering.len() > MAX_ANSWERING
            || answering.iter().any(|&server| {
                // A thread of the pool hands its result over before it wakes the loop, and may have lost its CPU since.
                let is_at_work = |state| match (answered_process == Some(process), state) {
                    (true, State::Runnable(RunnableSince::Woken(wait))) => {
                        self.may_have_result_after(wait)
                    }
                    (true, state) => !matches!(state, State::Blocked(_)),
                    (false, state) => matches!(state, State::OnCpu | State::Summed(_)),
                };
                is_other(server)
                    && !self.threads.is_waiter(server)
                    && self.is_any_between(server, ended, leg.to, is_at_work)
            })
    }

    /// Returns whether a thread of a pool that has come out of a wait, but to no CPU yet, may have put a result down
    /// before. What it waited for was for its job then, or was the job: not so a lock, which it may want right after.
    fn may_have_result_after(&self, wait: WaitIndex) -> bool {
        self.blame.early_wake_of(wait).is_some()
            || self
                .blame
                .pattern(wait)
                .is_none_or(|(_, pattern)| pattern.cause == Cause::Futex && !begins_slice(pattern))
    }

    /// Returns whether all threads that do jobs for the loop were at one all along, until the loop answered, and none
    /// else of its process was given anything. Then the waiter's job waited for any of them to be done, and the one that
    /// woke the loop was the first.
    ///
    /// ```text
    /// A     --asks--+=============== waits ==============+--
    /// loop  ..poll..[ queues a job ]....poll....[ a result, answers A ]
    /// one   ---- at a job for B -------------+###
    /// other ---- at a job for B -------------------------------------
    /// ```
    pub(super) fn is_pool_full(&self, rest: TimeRange, leg: &Leg) -> bool {
        let timeline = self.blame.timeline;
        let Some(process) = timeline.process_of_thread(leg.thread) else { return false };
        let answering = self.blame.answering_threads(process);
        // A wait for a job is one for something to be handed over.
        let is_free = |interval: Interval| match interval.state {
            State::Blocked(wait) => self.blame.pattern(wait).is_none_or(|(_, pattern)| {
                begins_slice(pattern)
                    || (pattern.cause == Cause::Futex && pattern.expects == Expects::Answer)
            }),
            State::OnCpu
            | State::Runnable(_)
            | State::Throttled(_)
            | State::Lost
            | State::Summed(_) => false,
        };
        let is_full = |&thread: &ThreadIndex| {
            let Some(track) = timeline.thread(thread).map(|life| &life.track) else { return false };
            let end = track.count_begun_before(leg.to, track.len());
            let first = end.saturating_sub(MAX_SLICE_INTERVALS);
            let reaches_back = track.get(first).is_none_or(|interval| interval.from <= rest.from);
            let mut since = (first..end)
                .rev()
                .map_while(|place| track.get(place).filter(|interval| interval.to > rest.from));
            // Who never was given a job may be no thread of the pool.
            let is_of_pool = answering.contains(&thread);
            let may_have_job = |it: Interval| {
                it.state.is_unknown() || (is_free(it) && (is_of_pool || it.to <= leg.to))
            };
            reaches_back && !since.any(may_have_job)
        };
        let mut others =
            self.blame.threads_of(process).iter().filter(|&&thread| thread != leg.thread);
        (1..=MAX_ANSWERING).contains(&answering.len()) && others.all(is_full)
    }

    fn is_any_between(
        &self,
        thread: ThreadIndex,
        from: Timestamp,
        to: Timestamp,
        is_wanted: impl Fn(State) -> bool,
    ) -> bool {
        let Some(track) = self.blame.timeline.thread(thread).map(|life| &life.track) else {
            return false;
        };
        track.newest_between(from, to).any(|interval| is_wanted(interval.state))
    }

    /// Returns when a thread next waits as it did when it was asked for something, or for other work; or
    /// when it ended. That wait may go on as the recording ends: then nothing else tells what it is for.
    fn find_return_to_work_wait(&self, ask: &Ask) -> Option<Timestamp> {
        let life = self.blame.timeline.thread(ask.callee)?;
        let track = &life.track;
        let begun = track.count_begun_before(ask.at, track.len());
        let found = (begun..track.len()).take(MAX_SLICE_INTERVALS).find_map(|place| {
            let interval = track.get(place)?;
            let wait = self.blame.wait_ended_by(interval)?;
            let (_, pattern) = self.blame.pattern(wait)?;
            let is_return = begins_slice(pattern)
                || (pattern.source.is_none() && is_same_wait(self.blame.recording, wait, ask.wait));
            (is_return && !self.blame.is_for_first_request(ask, wait)).then_some(interval.from)
        });
        let is_whole = track.len() <= begun + MAX_SLICE_INTERVALS;
        found.or_else(|| {
            (is_whole && self.has_ended(ask.callee, Timestamp(u64::MAX))).then_some(life.until)
        })
    }

    /// Returns whether a thread ended before a moment.
    pub(super) fn has_ended(&self, thread: ThreadIndex, at: Timestamp) -> bool {
        let end = self.blame.recording.meta.window.end;
        self.blame.timeline.thread(thread).is_some_and(|life| life.until < at.min(end))
    }

    /// Returns whether something was asked for on behalf of a thread of the chain.
    pub(super) fn is_for_waiter(&self, ask: &Ask, rest: TimeRange, leg: &Leg) -> bool {
        let begun = || self.blame.find_slice_start(ask.asker, ask.at);
        self.behalf_of_waiter(rest, leg).includes(ask, begun)
    }
}

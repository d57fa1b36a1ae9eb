//! Who got done with what a loop had asked for, or may have answered, while the loop was awake.

use offwake_recording::units::{Nanos, Timestamp};

use crate::timeline::{Interval, RunnableSince, State, ThreadIndex, WaitIndex};

use super::{
    super::{
        ConnectionSide, WakeSource,
        asks::Ask,
        cause::Cause,
        slices::{MAX_SLICE_INTERVALS, begins_slice},
        timed_retries::is_same_wait,
        work_waits::Expects,
    },
    Leg, TimeRange, Walker,
};

/// How many threads that answer a loop are looked at one by one. Of more, any may have answered.
const MAX_ANSWERING: usize = 256;

/// How much later than the loop answers its client a server may go back to waiting that the loop's answer
/// is from: the loop, awake on another CPU, may be the quicker of the two.
const DONE_AFTER_ANSWER: Nanos = Nanos(1_000_000);

/// So many intervals of a thread of a pool are looked at: one that computes loses its CPU every few milliseconds.
const MAX_JOB_INTERVALS: usize = 4096;

/// What a thread was at work on for at most one part in so many of a wait was not what was waited for.
const MIN_WAIT_PER_TASK: u64 = 50;

/// A process with more threads is no server of one loop, and all of them would have to be looked at.
pub(super) const MAX_THREADS: usize = 64;

impl Walker<'_> {
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
            let first = end.saturating_sub(MAX_JOB_INTERVALS);
            let reaches_back = track.get(first).is_none_or(|interval| interval.from <= rest.from);
            let mut since = (first..end)
                .rev()
                .map_while(|place| track.get(place).filter(|interval| interval.to > rest.from));
            if answering.contains(&thread) {
                return reaches_back && !since.any(|it| it.state.is_unknown() || is_free(it));
            }
            // Who never answered may be no thread of the pool, and what it is given no job of the waiter's: not if
            // it is for next to nothing.
            let (mut at_work, mut is_given_anything) = (Nanos(0), false);
            for it in since {
                if it.state.is_unknown() {
                    return false;
                }
                if is_free(it) {
                    is_given_anything |= it.to <= leg.to;
                } else {
                    at_work += it.to.min(leg.to).since(it.from.max(rest.from));
                }
            }
            let all = leg.to.since(rest.from);
            reaches_back
                && (!is_given_anything || at_work.0.saturating_mul(MIN_WAIT_PER_TASK) <= all.0)
        };
        let mut others =
            self.blame.threads_of(process).iter().filter(|&&thread| thread != leg.thread);
        (1..=MAX_ANSWERING).contains(&answering.len()) && others.all(is_full)
    }

    pub(super) fn is_any_between(
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

    /// Returns whether the loop has read the answer to what it asked, in an earlier slice: the server waited for its
    /// next request on that connection before the loop last slept. The answer woke nobody, as the loop was awake for
    /// somebody else, but with the answer unread the loop would not have slept.
    ///
    /// ```text
    /// loop  ..poll..[ A's request, asks U for C ]..poll..[ B: reads U's answer, asks U for D ]..poll..[ answers A ]
    /// U     ................................[ works, answers C ]..recv..............[ works
    /// ```
    ///
    /// Where several threads share the loop, any of them may have read it. All have, if all slept at once since.
    ///
    /// A server that waits for several connections at once may wait before it has answered.
    pub(super) fn is_answer_read(&self, ask: &Ask, rest: TimeRange, leg: &Leg) -> bool {
        let waits_for_one = || {
            let pattern = self.blame.pattern(ask.wait);
            pattern.is_some_and(|(_, pattern)| {
                begins_slice(pattern) && !matches!(pattern.cause, Cause::Poll | Cause::IoUring)
            })
        };
        let has_asker_slept_since = |done: Timestamp| {
            let slept = (self.blame.find_slice_wait(leg.thread, rest.to))
                .and_then(|(wait, _)| self.blame.timeline.blocked_interval(wait));
            ask.asker == leg.thread && slept.is_some_and(|slept| done <= slept.from)
        };
        waits_for_one()
            && self.find_return_to_work_wait(ask).is_some_and(|done| {
                has_asker_slept_since(done) || self.have_all_slept_at_once(leg, (done, rest.to))
            })
    }

    /// Returns whether at some moment between two all threads of a loop's process slept.
    ///
    /// ```text
    /// one    ..............[ ## ]..........
    /// other  [ ######### ]............[ ##
    /// all asleep          ^       ^^^^
    /// ```
    fn have_all_slept_at_once(&self, leg: &Leg, (from, to): (Timestamp, Timestamp)) -> bool {
        let timeline = self.blame.timeline;
        let Some(process) = timeline.process_of_thread(leg.thread) else { return false };
        let threads = self.blame.threads_of(process);
        if threads.len() > MAX_THREADS {
            return false;
        }
        let (mut awake, mut known_since) = (Vec::new(), from);
        for life in threads.iter().filter_map(|&thread| timeline.thread(thread)) {
            let newest = life.track.newest_between(from, to);
            for (n, interval) in newest.take(MAX_SLICE_INTERVALS).enumerate() {
                if n + 1 == MAX_SLICE_INTERVALS {
                    known_since = known_since.max(interval.from);
                }
                if !matches!(interval.state, State::Blocked(_)) {
                    awake.push((interval.from, interval.to));
                }
            }
        }
        awake.sort_unstable();
        let mut awake_until = known_since;
        for (begun, ended) in awake {
            if begun > awake_until {
                break;
            }
            awake_until = awake_until.max(ended);
        }
        awake_until < to
    }

    /// Returns whether a thread ended before a moment.
    pub(super) fn has_ended(&self, thread: ThreadIndex, at: Timestamp) -> bool {
        let end = self.blame.recording.meta.window.end;
        self.blame.timeline.thread(thread).is_some_and(|life| life.until < at.min(end))
    }
}

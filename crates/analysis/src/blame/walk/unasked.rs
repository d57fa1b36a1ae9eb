//! The walk through the time before something that nobody was asked for: what it says nothing about, unless
//! something else tells what the loop waited for.

use offwake_recording::units::{Nanos, Tgid};

use crate::timeline::{State, ThreadIndex, WaitIndex};

use super::{
    super::{
        BlameKind, External, IdleHint, StackPairId,
        pattern_analysis::PatternAnalysis,
        slices::MAX_SLICE_INTERVALS,
        work_waits::{Expects, WorkWait},
    },
    HopTo, Leg, TimeRange, Walker,
    done_meanwhile::MAX_THREADS,
    work::{NOT_EXPLAINED, WorkStep},
};

/// A loop that was awake for at most one part in so many was asleep whenever anything came: what comes
/// while it is awake wakes nobody, and is not seen.
const MIN_ASLEEP_PER_AWAKE: u64 = 50;

impl Walker<'_> {
    /// Walks the time before an event that nobody was asked for: another client's request. What the
    /// loop did before says nothing, unless it had asked somebody on the waiter's behalf who
    /// answered while the loop was awake, or a timer of its own was due by the time it answered.
    pub(super) fn walk_unasked(
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
            return self.move_to_asker(ask, rest, &Leg { released_by: None, ..*leg });
        }
        if let Some(step) = self.walk_reserved_server(wait, pattern, rest, leg) {
            return step;
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
        // Of what `ksoftirqd` delivered, several may have come at once.
        if pattern.work_wait != WorkWait::Request || pattern.waker().is_none() {
            return false;
        }
        let Some((other, _)) = self.blame.recorded_waker_thread(wait) else { return false };
        // An answer that came while the loop was awake would have come unseen.
        let process = self.blame.timeline.process_of_thread(leg.thread);
        !self.is_process_in_chain(other)
            && process.is_some_and(|process| self.blame.process_wakes.serves_alone(process))
            && self.is_request_taken(wait, rest)
            && self.is_mostly_asleep(leg.thread, rest, MIN_ASLEEP_PER_AWAKE)
            && process.is_some_and(|process| self.do_others_sleep(process, leg, rest))
            // Nor would anybody have seen an ask of which the record is lost.
            && self.blame.gaps.last_end(None, self.find_awake_since(rest.from), leg.done).is_none()
    }

    /// Returns whether a loop had the waiter's request when it went to sleep: with that unread, its poll would have
    /// returned at once.
    pub(super) fn is_request_taken(&self, wait: WaitIndex, rest: TimeRange) -> bool {
        (self.blame.timeline.blocked_interval(wait))
            .is_some_and(|slept| slept.from >= self.find_awake_since(rest.from))
    }

    /// Returns whether the process of a thread has one that waits for the loop, or is the loop's: several threads may
    /// send through one connection.
    pub(super) fn is_process_in_chain(&self, thread: ThreadIndex) -> bool {
        let Some(process) = self.blame.timeline.process_of_thread(thread) else {
            return self.threads.contains(thread);
        };
        let threads = self.blame.threads_of(process);
        threads.len() > MAX_THREADS || threads.iter().any(|&thread| self.threads.contains(thread))
    }

    /// Returns whether no other thread of the loop's process was awake since the waiter may have asked. Where
    /// several share an epoll, another one may have taken the request, and this one answers by a timer that is due, say.
    pub(super) fn do_others_sleep(&self, process: Tgid, leg: &Leg, rest: TimeRange) -> bool {
        let threads = self.blame.threads_of(process);
        let asked = self.find_awake_since(rest.from);
        let is_awake = |state| !matches!(state, State::Blocked(_));
        threads.len() <= MAX_THREADS
            && (threads.iter().filter(|&&thread| thread != leg.thread))
                .all(|&thread| !self.is_any_between(thread, asked, leg.done, is_awake))
    }

    /// Returns whether a thread was awake for so little of a stretch, at most one part in so many, that hardly anything
    /// can have come just then.
    pub(super) fn is_mostly_asleep(
        &self,
        thread: ThreadIndex,
        stretch: TimeRange,
        min_asleep_per_awake: u64,
    ) -> bool {
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
        awake.0.saturating_mul(min_asleep_per_awake) <= stretch.length().0
    }

    /// Returns whether a timeout of the loop was due by the time it answered, or had ended a later wait.
    pub(super) fn may_be_timer(&self, wait: WaitIndex, leg: &Leg) -> bool {
        leg.unexplained != NOT_EXPLAINED || self.is_timer_due(wait, leg)
    }

    /// Returns whether a timeout of the loop was due by the time it answered, in a slice that something
    /// else had begun.
    pub(super) fn is_timer_due(&self, wait: WaitIndex, leg: &Leg) -> bool {
        leg.unexplained == NOT_EXPLAINED && self.blame.is_timer_due(wait, leg.to)
    }
}

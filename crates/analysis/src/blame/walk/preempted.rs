//! Threads that lose their CPU to the one that they have just woken, and then wait for it.
//!
//! ```text
//! X  -- on-CPU, wakes Y --+- runnable -+- on-CPU --+-- blocked: waits for Y --+--
//! Y  ........ blocked ....+-- on-CPU --+--- … -----------------------------+  ^ wake
//! blame of X's time       |   work Y   | work X    |        Y's time       |
//! ```
//!
//! With another CPU X would have waited for Y from the beginning, so that time is Y's. While Y waits for
//! somebody else in turn, it is that one's. Without the rule it is X's wait for a CPU that Y holds: one hop
//! earlier than where one looks for it.
//!
//! It holds only if X waited for Y before it ended the wait that is walked. A loop that asks Y on
//! another's behalf, and then answers, was kept from answering by Y's having the CPU.

use offwake_recording::units::Nanos;

use crate::timeline::{Interval, PreemptionIndex, RunnableSince, State, ThreadIndex, WaitIndex};

use super::{
    super::{Blame, WakeSource, locks::FutexWait, work_waits::WorkWait},
    HopTo, Leg, TimeRange, Walker,
};

/// The most CPU time between the preemption and the wait: enough to come back from the call that
/// woke the other, not to do any work.
const MAX_CPU_TIME: Nanos = Nanos(100_000);

/// A thread that took the CPU of the one that had woken it, which then waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AwaitedPreemptor {
    thread: ThreadIndex,
    /// The wait for it.
    wait: WaitIndex,
}

impl Walker<'_> {
    /// Walks time in which the thread of `leg` waited for a CPU; `place` is the interval's.
    pub(super) fn walk_runnable(
        &mut self,
        leg: &Leg,
        place: usize,
        queued: RunnableSince,
        inside: TimeRange,
    ) {
        let preemptor = match queued {
            RunnableSince::Preempted(preemption) => {
                self.blame.find_awaited_preemptor(leg, place, preemption)
            }
            RunnableSince::Woken(_) => None,
        };
        match preemptor.filter(|preemptor| !self.threads.contains(preemptor.thread)) {
            Some(preemptor) => self.walk_preemptor(leg, preemptor, queued, inside),
            None => self.push_cpu_queue(leg.thread, queued, inside, leg.at),
        }
    }

    /// Divides the time among the preemptor, while it is on a CPU or waits for somebody else, and the CPU's queue.
    fn walk_preemptor(
        &mut self,
        leg: &Leg,
        preemptor: AwaitedPreemptor,
        queued: RunnableSince,
        inside: TimeRange,
    ) {
        let blame = self.blame;
        let Some(thread) = blame.timeline.thread(preemptor.thread) else { return };
        let Some((row, pattern)) = blame.pattern(preemptor.wait) else { return };
        let at = self.position_inside(pattern, pattern.idle_hint, leg.at);
        let hop = HopTo {
            thread: preemptor.thread,
            at: row.woken_at().unwrap_or(inside.to),
            stack: pattern.waker_stack,
            expects: pattern.expects,
        };
        let first = thread.track.count_begun_before(inside.from, thread.track.len());
        let mut rest = inside;
        for place in first.saturating_sub(1)..thread.track.len() {
            let Some(interval) = thread.track.get(place) else { break };
            if interval.from >= inside.to {
                break;
            }
            let is_preemptors = match interval.state {
                State::OnCpu => true,
                // Until the first thread has a CPU, the preemptor can't go on either.
                State::Blocked(wait) => blame.task_that_ended(wait) != Some(leg.thread),
                State::Runnable(_) | State::Throttled(_) | State::Lost => false,
            };
            if is_preemptors && interval.to > rest.from {
                self.push_cpu_queue(leg.thread, queued, rest.until(interval.from), leg.at);
                self.walk_hop(hop, rest.since(interval.from).until(interval.to), at);
                rest = rest.since(interval.to);
            }
        }
        self.push_cpu_queue(leg.thread, queued, rest, leg.at);
    }
}

impl Blame<'_> {
    /// Finds the thread that preempted another if that one had woken it, and waited for it next. It
    /// must have waited before the end of what is walked: else it was on its way to do something
    /// else.
    fn find_awaited_preemptor(
        &self,
        leg: &Leg,
        place: usize,
        preemption: PreemptionIndex,
    ) -> Option<AwaitedPreemptor> {
        let preemption = self.recording.preemptions.get(preemption.0 as usize)?;
        let preemptor = self.timeline.find_thread(preemption.next, preemption.off)?;
        if !self.timeline.are_waits_recorded(preemptor) {
            return None;
        }
        let others = &self.timeline.thread(preemptor)?.track;
        let begun = others.count_begun_before(preemption.off, others.len());
        let woken_from = (0..begun).rev().find_map(|place| match others.get(place)?.state {
            State::Blocked(wait) => Some(Some(wait)),
            // There may have been a wait.
            State::Lost => Some(None),
            State::OnCpu | State::Runnable(_) | State::Throttled(_) => None,
        })??;
        if self.task_that_ended(woken_from)? != leg.thread {
            return None;
        }
        let own = &self.timeline.thread(leg.thread)?.track;
        if own.get(place)?.from != preemption.off {
            // A quota took the CPU first: it was not the other that kept the thread from going on.
            return None;
        }
        let mut cpu_time = Nanos(0);
        for place in place + 1..own.len() {
            let Interval { from, to, state } = own.get(place)?;
            match state {
                State::OnCpu => cpu_time += to.since(from),
                State::Runnable(_) => {}
                // Another CPU would not have helped.
                State::Throttled(_) | State::Lost => return None,
                State::Blocked(_) if from >= leg.to => return None,
                State::Blocked(wait) => {
                    let (_, pattern) = self.pattern(wait)?;
                    let is_lock = pattern.lock.is_some_and(FutexWait::looks_like_lock);
                    let is_work_wait = pattern.work_wait != WorkWait::No;
                    return (!is_lock && !is_work_wait && self.task_that_ended(wait)? == preemptor)
                        .then_some(AwaitedPreemptor { thread: preemptor, wait });
                }
            }
            if cpu_time > MAX_CPU_TIME {
                return None;
            }
        }
        None
    }

    /// Returns the thread that ended a wait, if a task did.
    fn task_that_ended(&self, wait: WaitIndex) -> Option<ThreadIndex> {
        match self.wake_source(wait) {
            WakeSource::Task(_) => self.recorded_waker_thread(wait).map(|(thread, _)| thread),
            WakeSource::External(_) | WakeSource::Interrupt(_) | WakeSource::Unknown(_) => None,
        }
    }
}

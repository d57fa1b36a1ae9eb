//! Threads that lose their CPU to the one that they have just woken, and then wait for it.
//!
//! ```text
//! X  -- on-CPU, wakes Y --+- runnable -+- on-CPU --+-- blocked: waits for Y --+--
//! Y  ........ blocked ....+-- on-CPU --+--- … -----------------------------+  ^ wake
//! blame of X's time       |   work Y   | work X    |        Y's time       |
//! ```
//!
//! With another CPU X would have waited for Y from the beginning, so that time is Y's. Without the
//! rule it is X's wait for a CPU that Y holds: one hop earlier than where one looks for it.
//!
//! It does not matter who has the CPU: Z, whom Y has asked in turn, or somebody else. Nor does it while Y
//! is kept from its own CPU, as by Z here, for which it waits as soon as it has one again:
//!
//! ```text
//! X  -- wakes Y --+- runnable ---------------------------------+--+-- blocked: waits for Y --+--
//! Y  . blocked ...+- on-CPU, wakes Z -+- runnable -+-+-- blocked: waits for Z --+-- on-CPU --+  ^ wake
//! Z  ........ blocked ................+- on-CPU ---+ +--- on-CPU ---------------+
//! blame of X's time  |    work Y      |        work Z          |      Y's time, then Z's     |
//! ```
//!
//! It holds only if X waited for Y before it ended the wait that is walked. A loop that asks Y on
//! another's behalf, and then answers, was kept from answering by not having the CPU.

use offwake_recording::units::{Nanos, Timestamp};

use crate::timeline::{Interval, PreemptionIndex, RunnableSince, State, ThreadIndex, WaitIndex};

use super::{
    super::{Blame, WakeSource, locks::FutexWait, work_waits::WorkWait},
    HopTo, Leg, TimeRange, Walker,
};

/// The most CPU time between the preemption and the wait: enough to come back from the call that
/// woke the other, not to do any work.
const MAX_CPU_TIME: Nanos = Nanos(100_000);

/// The most intervals of a thread that are looked at for when it was asked.
const MOST_INTERVALS: usize = 1000;

/// A thread that another one has asked, and waits for as soon as it has a CPU again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AwaitedThread {
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
        let awaited = match queued {
            RunnableSince::Preempted(preemption) => {
                self.blame.find_awaited_thread((leg.thread, leg.done), place, preemption)
            }
            RunnableSince::Woken(_) => None,
        };
        match awaited.filter(|awaited| !self.threads.contains(awaited.thread)) {
            Some(awaited) => self.walk_awaited(leg, awaited, queued, inside),
            None => self.push_cpu_queue(leg.thread, queued, inside, leg.at),
        }
    }

    /// Walks the awaited thread; where it is not known what that one did, or that one waited for the
    /// first in turn, the time is in the CPU's queue.
    fn walk_awaited(
        &mut self,
        leg: &Leg,
        awaited: AwaitedThread,
        queued: RunnableSince,
        inside: TimeRange,
    ) {
        let blame = self.blame;
        let Some((row, pattern)) = blame.pattern(awaited.wait) else { return };
        let at = self.position_inside(pattern, pattern.idle_hint, leg.at);
        let hop = HopTo {
            thread: awaited.thread,
            at: row.woken_at().unwrap_or(inside.to),
            stack: pattern.waker_stack,
            expects: pattern.expects,
        };
        let mut rest = inside;
        for stretch in blame.find_awaited_stretches(leg.thread, awaited, inside) {
            self.push_cpu_queue(leg.thread, queued, rest.until(stretch.from), leg.at);
            self.walk_hop(hop, stretch, at);
            rest = rest.since(stretch.to);
        }
        self.push_cpu_queue(leg.thread, queued, rest, leg.at);
    }
}

impl Blame<'_> {
    /// Finds the stretches of a time without a CPU in which a thread waited for that CPU. In the others it
    /// would have waited for another thread on any CPU.
    pub(in super::super) fn find_queued_stretches(
        &self,
        thread: ThreadIndex,
        place: usize,
        interval: Interval,
    ) -> Vec<(Timestamp, Timestamp)> {
        let awaited = match interval.state {
            State::Runnable(RunnableSince::Preempted(preemption)) => {
                let done = self.recording.meta.window.end;
                self.find_awaited_thread((thread, done), place, preemption)
            }
            _ => None,
        };
        let inside = TimeRange { from: interval.from, to: interval.to };
        let awaiting = awaited.map(|awaited| self.find_awaited_stretches(thread, awaited, inside));
        let mut queued = Vec::new();
        let mut since = interval.from;
        for stretch in awaiting.into_iter().flatten() {
            queued.push((since, stretch.from));
            since = stretch.to;
        }
        queued.push((since, interval.to));
        queued.retain(|(from, to)| from < to);
        queued
    }

    /// Finds the stretches of a time without a CPU in which the awaited thread kept the other one waiting.
    fn find_awaited_stretches(
        &self,
        own: ThreadIndex,
        awaited: AwaitedThread,
        inside: TimeRange,
    ) -> Vec<TimeRange> {
        let Some(thread) = self.timeline.thread(awaited.thread) else { return Vec::new() };
        let first = thread.track.count_begun_before(inside.from, thread.track.len());
        (first.saturating_sub(1)..thread.track.len())
            .map_while(|place| thread.track.get(place))
            .take_while(|interval| interval.from < inside.to)
            .filter(|interval| interval.to > inside.from)
            .filter(|interval| match interval.state {
                // What keeps that one from a CPU keeps the first one waiting.
                State::OnCpu | State::Runnable(_) | State::Throttled(_) => true,
                // Until the first thread has a CPU, the awaited one can't go on either.
                State::Blocked(wait) => self.task_that_ended(wait) != Some(own),
                State::Lost | State::Summed(_) => false,
            })
            .map(|interval| inside.since(interval.from).until(interval.to))
            .collect()
    }

    /// Finds the thread that another one, which lost its CPU, had asked before and waited for next. It must have
    /// waited before it did what was waited for: else it was on its way to do that.
    fn find_awaited_thread(
        &self,
        (own_thread, done): (ThreadIndex, Timestamp),
        place: usize,
        preemption: PreemptionIndex,
    ) -> Option<AwaitedThread> {
        let preemption = self.recording.preemptions.get(preemption.0 as usize)?;
        let own = &self.timeline.thread(own_thread)?.track;
        if own.get(place)?.from != preemption.off {
            // A quota took the CPU first: it was nobody else that kept the thread from going on.
            return None;
        }
        let wait = self.find_wait_after_preemption((own_thread, done), place)?;
        let thread = self.task_that_ended(wait)?;
        if !self.timeline.are_waits_recorded(thread) {
            return None;
        }
        let awake_since = (0..place).rev().take(MOST_INTERVALS).find_map(|place| {
            let interval = own.get(place)?;
            match interval.state {
                State::OnCpu | State::Runnable(_) => None,
                State::Blocked(_) => Some(Some(interval.to)),
                // It may have waited in it, or another CPU would not have helped.
                State::Throttled(_) | State::Lost | State::Summed(_) => Some(None),
            }
        });
        let awake_since = awake_since.unwrap_or_else(|| {
            own.get(0).filter(|_| place <= MOST_INTERVALS).map(|first| first.from)
        })?;
        let others = &self.timeline.thread(thread)?.track;
        let begun = others.count_begun_before(preemption.off, others.len());
        let mut before = (0..begun).rev().take(MOST_INTERVALS).map_while(|place| others.get(place));
        let asked = before.find_map(|interval| {
            match interval.state {
                _ if interval.to < awake_since => Some(false),
                // There may have been a wait.
                State::Lost | State::Summed(_) => Some(false),
                State::Blocked(wait)
                    if interval.to <= preemption.off
                        && self.task_that_ended(wait) == Some(own_thread) =>
                {
                    Some(true)
                }
                _ => None,
            }
        });
        (asked == Some(true)).then_some(AwaitedThread { thread, wait })
    }

    /// Finds the wait that a thread began next when it had a CPU again, if it did so at once, and if that was
    /// no wait for a lock or for more work.
    fn find_wait_after_preemption(
        &self,
        (own_thread, done): (ThreadIndex, Timestamp),
        place: usize,
    ) -> Option<WaitIndex> {
        let own = &self.timeline.thread(own_thread)?.track;
        let mut cpu_time = Nanos(0);
        for place in place + 1..own.len() {
            let Interval { from, to, state } = own.get(place)?;
            match state {
                State::OnCpu => cpu_time += to.since(from),
                State::Runnable(_) => {}
                // Another CPU would not have helped.
                State::Throttled(_) | State::Lost | State::Summed(_) => return None,
                State::Blocked(_) if from >= done => return None,
                State::Blocked(wait) => {
                    let (_, pattern) = self.pattern(wait)?;
                    let is_lock = pattern.lock.is_some_and(FutexWait::looks_like_lock);
                    let is_work_wait = pattern.work_wait != WorkWait::No;
                    return (!is_lock && !is_work_wait).then_some(wait);
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

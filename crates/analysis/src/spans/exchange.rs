//! Finds the waits that were requests: the thread that ended them had been asked to by the one that
//! waited.
//!
//! ```text
//! A  ---- on-CPU --+-----+-- blocked ------------------+--
//!                  | s   switch-out                    ^ t
//!                  v wake                              | wake
//! B  .. blocked ...------- works, waits for others ----+---
//! ```
//!
//! B had been asked if A woke it at s, B had not woken A since, and
//!
//! - was not handed something new by a third meanwhile, unless A waits on the very descriptor that it
//!   had woken B through;
//! - if s lies before A's wait before this one: B had not waited for something new at all.
//!
//! Who is not asleep when it is asked is not woken. So A's wait was answered by B as well if A waits on
//! the asking end of a connection, or on something through which B was found to answer it otherwise,
//! and B had not waited for anything new since it answered A last. Then no moment is known at which A
//! asked but that it had by the time it went to sleep.
//!
//! What ends a wait that goes on in another piece is no answer.
//!
//! A request can be handed on: A wakes B, B wakes C, C wakes A. Each of them has a *leg* of it.
//!
//! Two passes over the waits in the order of their ends, with a fixed amount of work for each: the
//! first finds through what threads answer each other.

use std::collections::{HashMap, HashSet};

use offwake_recording::units::{Tgid, Timestamp};

use crate::{
    blame::{
        ConnectionSide, ConnectionSides, Reason, WakeSource,
        cause::{Cause, WaitedOn, WokenThrough, woken_through},
        descriptor,
    },
    timeline::{ThreadIndex, WaitIndex},
};

use super::{SpanInput, exits::ThreadExits, pieces::WaitPieces};

/// The most threads that a request is followed through as it is handed on.
const MAX_LEGS: u16 = 8;

/// A wait that was answered, or that would have been had the window been longer.
#[derive(Clone, Copy, Debug)]
enum Exchange {
    /// The thread that was asked was woken for it.
    Woken {
        /// The wait of the thread that was asked last, which the thread before it ended.
        last: WaitIndex,
        /// How many threads the request went through.
        legs: u16,
        /// When the client asked; at the earliest, when it had come back from its wait before.
        asked: Timestamp,
    },
    /// The thread that answered was awake when it was asked, before the wait began.
    Awake,
}

/// What a thread waits on that another answers it through.
type Channel = (ThreadIndex, ThreadIndex, WaitedOn);

type Channels = HashSet<Channel, foldhash::fast::RandomState>;

/// The last wait that a thread ended of another, or of a process.
type LastWakes<T> = HashMap<(ThreadIndex, T), WaitEnd, foldhash::fast::RandomState>;

/// A thread's part in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    /// The thread.
    pub(super) thread: ThreadIndex,
    /// When it was asked.
    pub(super) from: Timestamp,
    /// When it answered, or handed the request on.
    pub(super) to: Timestamp,
    /// The wait that it ended by that.
    pub(super) ended: WaitIndex,
}

/// A thread's most recent wakes, up to the point that the pass has reached.
#[derive(Clone, Copy, Debug, Default)]
struct RecentWakes {
    /// When the thread last came back from a wait that kept it off the CPU.
    resumed_at: Timestamp,
    /// The thread's last wait that was ended by a thread which it had not asked.
    unasked_wake: Option<WaitEnd>,
    /// The thread's last wait that was ended by anything but an answer.
    non_answer: Option<WaitEnd>,
    /// The last wait of another thread that this one ended, and that other thread.
    last_woken: Option<(ThreadIndex, WaitEnd)>,
    /// The last wait that it ended of any thread but that one.
    last_woken_other: Option<WaitEnd>,
}

/// The end of a wait, and its index in the order of all ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WaitEnd {
    order: usize,
    wait: WaitIndex,
}

/// The answered waits of a recording.
pub(super) struct Exchanges {
    /// The exchange that a wait was part of, by [`WaitIndex`].
    exchanges: Vec<Option<Exchange>>,
    /// By [`WaitIndex`]: the earlier wait of its waker whose end made the waker do what it did.
    waker_triggers: Vec<Option<WaitIndex>>,
    /// The thread that ended a wait, by [`WaitIndex`].
    wakers: Vec<Option<ThreadIndex>>,
}

impl Exchanges {
    pub(super) fn find(
        evidence: SpanInput<'_>,
        pieces: &WaitPieces,
        sides: &ConnectionSides<'_>,
        ends: &ThreadExits<'_>,
    ) -> Self {
        let mut order: Vec<_> = (evidence.waits())
            .filter(|&index| !pieces.is_continued(index))
            .filter(|&index| evidence.interval(index).is_some_and(|place| place.thread.is_some()))
            .map(|index| (evidence.woken_at(index), index))
            .collect();
        order.sort_unstable();
        let first = Pass::run(evidence, sides, ends, &order, Channels::default());
        let channels = first.channels(evidence, &order);
        Pass::run(evidence, sides, ends, &order, channels)
    }

    fn empty(count: usize) -> Self {
        Self {
            exchanges: vec![None; count],
            waker_triggers: vec![None; count],
            wakers: vec![None; count],
        }
    }

    /// Returns the channels through which threads were found to answer each other.
    fn channels(&self, evidence: SpanInput<'_>, order: &[(Timestamp, WaitIndex)]) -> Channels {
        (order.iter())
            .filter(|(_, wait)| matches!(self.exchange(*wait), Some(Exchange::Woken { .. })))
            .filter_map(|&(_, wait)| {
                let waiter = evidence.interval(wait)?.thread?;
                Some((waiter, self.waker(wait)?, evidence.waited_on(wait)?))
            })
            .collect()
    }

    /// Returns whether the wait's waker had been asked by the one that waited.
    pub(super) fn is_answered(&self, wait: WaitIndex) -> bool {
        self.exchange(wait).is_some()
    }

    /// Returns when the one that waited had asked, if it is known.
    pub(super) fn asked_at(&self, wait: WaitIndex) -> Option<Timestamp> {
        match self.exchange(wait)? {
            Exchange::Woken { asked, .. } => Some(asked),
            Exchange::Awake => None,
        }
    }

    /// Returns the thread that ended a wait, if the timeline has it.
    pub(super) fn waker(&self, wait: WaitIndex) -> Option<ThreadIndex> {
        self.wakers.get(wait.0 as usize).copied().flatten()
    }

    /// Returns the threads that a request went through, in order, if it began at `from`; none if
    /// the wait was no request.
    pub(super) fn legs(
        &self,
        evidence: SpanInput<'_>,
        wait: WaitIndex,
        from: Timestamp,
    ) -> Vec<Leg> {
        let (Some(exchange), Some(place)) = (self.exchange(wait), evidence.interval(wait)) else {
            return Vec::new();
        };
        let (last, most, asked) = match exchange {
            Exchange::Woken { last, legs, asked } => (last, legs, asked),
            Exchange::Awake => {
                let leg = |thread| Leg { thread, from, to: place.to, ended: wait };
                return self.waker(wait).map(leg).into_iter().collect();
            }
        };
        let mut legs = Vec::new();
        let (mut handed, mut to, mut ended) = (Some(last), place.to, wait);
        while let Some(index) = handed.filter(|_| legs.len() < usize::from(most)) {
            let thread = evidence.interval(index).and_then(|place| place.thread);
            let from = evidence.woken_at(index).clamp(asked.min(to), to);
            if let Some(thread) = thread {
                legs.push(Leg { thread, from, to, ended });
            }
            (to, ended) = (from, index);
            handed = self.waker_triggers(index);
        }
        legs.reverse();
        legs
    }

    fn waker_triggers(&self, wait: WaitIndex) -> Option<WaitIndex> {
        self.waker_triggers.get(wait.0 as usize).copied().flatten()
    }

    fn record(
        &mut self,
        wait: WaitIndex,
        exchange: Option<Exchange>,
        waker: Option<ThreadIndex>,
        given_to_ender: Option<WaitIndex>,
    ) {
        let of_wait = wait.0 as usize;
        if let Some(found) = self.exchanges.get_mut(of_wait) {
            *found = exchange;
        }
        if let Some(found) = self.wakers.get_mut(of_wait) {
            *found = waker;
        }
        if let Some(found) = self.waker_triggers.get_mut(of_wait) {
            *found = given_to_ender;
        }
    }

    fn exchange(&self, wait: WaitIndex) -> Option<Exchange> {
        self.exchanges.get(wait.0 as usize).copied().flatten()
    }
}

struct Pass<'a> {
    evidence: SpanInput<'a>,
    sides: &'a ConnectionSides<'a>,
    exits: &'a ThreadExits<'a>,
    /// Each thread's recent wakes, by [`ThreadIndex`].
    recent: Vec<RecentWakes>,
    /// The last wait of the second thread that the first thread ended.
    wakes: LastWakes<ThreadIndex>,
    /// Processes of which a thread exited.
    exiting: HashSet<Tgid>,
    channels: Channels,
    /// The last wait of any thread of an exiting process that the thread ended.
    wakes_in_process: LastWakes<Tgid>,
    exchanges: Exchanges,
}

impl<'a> Pass<'a> {
    fn run(
        evidence: SpanInput<'a>,
        sides: &'a ConnectionSides<'a>,
        ends: &'a ThreadExits<'a>,
        order: &[(Timestamp, WaitIndex)],
        channels: Channels,
    ) -> Exchanges {
        let mut pass = Self {
            evidence,
            sides,
            exits: ends,
            recent: vec![RecentWakes::default(); evidence.timeline.threads.len()],
            wakes: LastWakes::default(),
            exiting: ends.processes(),
            channels,
            wakes_in_process: LastWakes::default(),
            exchanges: Exchanges::empty(evidence.wait_count()),
        };
        for (place, &(_, wait)) in order.iter().enumerate() {
            pass.visit_wait_end(WaitEnd { order: place, wait });
        }
        pass.exchanges
    }

    /// Takes the end of the next wait into account.
    fn visit_wait_end(&mut self, event: WaitEnd) {
        let Some(place) = self.evidence.interval(event.wait) else { return };
        let Some(waiter) = place.thread else { return };
        if self.evidence.can_hand_over(event.wait) {
            self.visit_hand_over(waiter, event);
        }
        if place.to > place.from
            && let Some(dealings) = self.recent.get_mut(waiter.0 as usize)
        {
            dealings.resumed_at = place.to;
        }
    }

    fn visit_hand_over(&mut self, waiter: ThreadIndex, event: WaitEnd) {
        let waker = self.evidence.waker_thread(event.wait).filter(|&waker| waker != waiter);
        let exchange = match ((self.evidence.wake_source)(event.wait), waker) {
            _ if self.evidence.side(self.sides, event.wait) == ConnectionSide::Serving => None,
            (WakeSource::Task(_), Some(waker)) => self.find_exchange(waiter, waker, event.wait),
            (WakeSource::Unknown(Reason::StillBlocked), _) => {
                self.find_unfinished_exchange(waiter, event.wait)
            }
            _ => None,
        };
        let given = waker.and_then(|waker| self.recent(waker).unasked_wake);
        self.exchanges.record(event.wait, exchange, waker, given.map(|given| given.wait));
        if let Some(waiter) = self.recent.get_mut(waiter.0 as usize)
            && exchange.is_none()
        {
            waiter.non_answer = Some(event);
            waiter.unasked_wake = waker.map(|_| event).or(waiter.unasked_wake);
        }
        let Some(waker) = waker else { return };
        self.wakes.insert((waker, waiter), event);
        let process = self.evidence.thread(waiter).map(|thread| thread.tgid);
        if let Some(process) = process.filter(|process| self.exiting.contains(process)) {
            self.wakes_in_process.insert((waker, process), event);
        }
        if let Some(dealings) = self.recent.get_mut(waker.0 as usize) {
            if let Some((_, before)) = dealings.last_woken.filter(|(other, _)| *other != waiter) {
                dealings.last_woken_other = Some(before);
            }
            dealings.last_woken = Some((waiter, event));
        }
    }

    fn recent(&self, thread: ThreadIndex) -> RecentWakes {
        self.recent.get(thread.0 as usize).copied().unwrap_or_default()
    }

    /// Returns the exchange of a wait whose waker had been asked by the one that waited.
    fn find_exchange(
        &self,
        waiter: ThreadIndex,
        waker: ThreadIndex,
        wait: WaitIndex,
    ) -> Option<Exchange> {
        let last_answer = self.wakes.get(&(waker, waiter)).copied();
        let asked = self.wakes.get(&(waiter, waker)).copied();
        let asked = asked.filter(|asked| last_answer.is_none_or(|last| *asked > last));
        // Whichever of its threads was asked, a process that ends closes its files with the last.
        let asked = asked.or_else(|| {
            self.exits.waker_exit_status(wait)?;
            let process = self.evidence.thread(waker)?.tgid;
            self.wakes_in_process.get(&(waiter, process)).copied()
        });
        asked
            .and_then(|asked| self.find_direct_exchange(waiter, wait, asked))
            .or_else(|| self.find_relayed_exchange(waiter, waker, last_answer))
            .or_else(|| self.find_awake_exchange(waiter, waker, wait, last_answer))
    }

    /// Returns the exchange if the waker was asked while it was awake.
    fn find_awake_exchange(
        &self,
        waiter: ThreadIndex,
        waker: ThreadIndex,
        wait: WaitIndex,
        last_answer: Option<WaitEnd>,
    ) -> Option<Exchange> {
        let is_asking = || self.evidence.side(self.sides, wait) == ConnectionSide::Asking;
        let is_channel = || {
            let on = self.evidence.waited_on(wait);
            on.is_some_and(|on| self.channels.contains(&(waiter, waker, on)))
        };
        let was_awake = last_answer.is_some_and(|last_answer| {
            self.recent(waker).non_answer.is_none_or(|turned| turned < last_answer)
        });
        (is_asking() || (was_awake && is_channel())).then_some(Exchange::Awake)
    }

    fn find_direct_exchange(
        &self,
        waiter: ThreadIndex,
        wait: WaitIndex,
        asked: WaitEnd,
    ) -> Option<Exchange> {
        let callee = self.evidence.interval(asked.wait)?.thread?;
        let since = |event: Option<WaitEnd>| event.is_some_and(|event| event > asked);
        let RecentWakes { unasked_wake: given, non_answer: turned, .. } = self.recent(callee);
        let (at, back) = (self.evidence.woken_at(asked.wait), self.recent(waiter).resumed_at);
        let still_at_it = if at >= back {
            !since(given) || self.is_through_one_descriptor(asked.wait, wait)
        } else {
            !since(turned)
        };
        still_at_it.then_some(Exchange::Woken { last: asked.wait, legs: 1, asked: at.max(back) })
    }

    /// Follows the wakes that led to the waker back to the one that waited.
    fn find_relayed_exchange(
        &self,
        waiter: ThreadIndex,
        waker: ThreadIndex,
        last_answer: Option<WaitEnd>,
    ) -> Option<Exchange> {
        let last = self.recent(waker).unasked_wake?.wait;
        let mut first = last;
        for legs in 2..=MAX_LEGS {
            first = self.exchanges.waker_triggers(first)?;
            if self.exchanges.waker(first) != Some(waiter) {
                continue;
            }
            let asked = self.evidence.woken_at(first);
            let answered = last_answer.map(|answer| self.evidence.woken_at(answer.wait));
            let is_new =
                asked >= self.recent(waiter).resumed_at && answered.is_none_or(|last| asked > last);
            return is_new.then_some(Exchange::Woken { last, legs, asked });
        }
        None
    }

    /// Finds the request of a wait that did not end: its thread had asked the only thread that it
    /// had woken since it came back from its wait before. An event loop may wait for any of
    /// several.
    fn find_unfinished_exchange(&self, waiter: ThreadIndex, wait: WaitIndex) -> Option<Exchange> {
        let RecentWakes {
            resumed_at: back, last_woken: woke, last_woken_other: woke_another, ..
        } = self.recent(waiter);
        let (callee, asked) = woke?;
        let is_recent = |event: WaitEnd| self.evidence.woken_at(event.wait) >= back;
        let answer = self.wakes.get(&(callee, waiter));
        let is_sure = (self.evidence.cause)(wait) != Cause::Poll
            || self.evidence.side(self.sides, wait) == ConnectionSide::Asking;
        (is_sure
            && is_recent(asked)
            && !woke_another.is_some_and(is_recent)
            && answer.is_none_or(|answer| asked > *answer))
        .then(|| Exchange::Woken {
            last: asked.wait,
            legs: 1,
            asked: self.evidence.woken_at(asked.wait),
        })
    }

    /// Returns whether a thread waits on the same descriptor that it had woken another through.
    fn is_through_one_descriptor(&self, asked: WaitIndex, wait: WaitIndex) -> bool {
        let asked = self.evidence.wait(asked).and_then(|asked| woken_through(&asked.wake?));
        let waits = self
            .evidence
            .wait(wait)
            .and_then(|wait| descriptor(wait.syscall.as_ref(), wait.polled_fd, wait.file));
        matches!((asked, waits), (Some(WokenThrough::File { fd, .. }), Some((own, _))) if fd == own)
    }
}

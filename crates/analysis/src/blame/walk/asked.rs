//! What a loop asked for on behalf of the one that waits for it, and when that one asked.

use offwake_recording::units::Timestamp;

use crate::timeline::{State, ThreadIndex};

use super::{
    super::{asks::Ask, slices::MAX_SLICE_INTERVALS},
    Leg, TimeRange, Walker,
};

/// How many threads that a loop asked for one waiter are told apart. Of more, any may have answered.
const MAX_OPEN_ASKS: usize = 16;

/// The time in which a thread was awake before it began to wait.
struct AwakeBefore {
    woken: Timestamp,
    /// When it had come to a CPU.
    from: Timestamp,
}

impl Walker<'_> {
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
                && !self.is_answer_read(ask, rest, leg)
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
    pub(super) fn is_proven_ask(&self, ask: &Ask) -> bool {
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
    pub(super) fn find_earlier_request(
        &self,
        thread: ThreadIndex,
        rest: TimeRange,
    ) -> Option<(ThreadIndex, Timestamp)> {
        self.requests_of_waiters(thread, rest).find(|&(_, at)| at < rest.to)
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

//! A thread's records → its track.

use crate::{
    recording::{Begin, End, Phase, Recording, Wait},
    units::{Nanos, Timestamp},
};

use super::{
    Misfits, Placed, State, ThreadIndex, Timeline, Track, WaitIndex, WakeUse,
    life::{Life, Record},
};

/// How long before the switch-out a wake may come and still belong to the wait.
///
/// Between the tracepoint in
/// [`try_to_wake_up`](https://github.com/torvalds/linux/blob/v6.12/kernel/sched/core.c#L4171) and
/// the switch-out of the wakee lie microseconds with interrupts off. An older wake is one that the
/// thread never slept on: it was woken while it still ran, and went on.
pub(crate) const EARLY_WAKE: Nanos = Nanos(100_000);

/// Something that says what a thread was doing.
#[derive(Clone, Copy)]
enum Item {
    /// It was off the CPU.
    Off(Record),
    /// It was looked at, and was on a CPU.
    OnCpu { seq: u32, edge: Edge },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Opening,
    Closing,
}

/// The parts that waits and preemptions have in common.
struct Off<'a> {
    seq: u32,
    begin: Begin,
    end: End,
    off: Timestamp,
    on: Timestamp,
    wait: Option<(WaitIndex, &'a Wait)>,
}

/// Divides a life into intervals, and says where its waits lie.
pub(super) fn lay(
    recording: &Recording,
    life: &Life<'_>,
    thread: ThreadIndex,
    timeline: &mut Timeline,
) -> Track {
    let items = items(recording, life);
    let mut layer = Layer {
        life,
        thread,
        waits: &mut timeline.waits,
        misfits: &mut timeline.misfits,
        track: Track::starting(life.from),
        newest: None,
        off_until: Timestamp(0),
        tail: State::Lost,
    };
    for (n, (_, item)) in items.iter().enumerate() {
        match *item {
            Item::OnCpu { seq, edge } => layer.on_cpu(items[n].0, seq, edge),
            Item::Off(record) => {
                if let Some(off) = look_up(recording, record) {
                    layer.off(&off, n + 1 == items.len());
                }
            }
        }
    }
    layer.finish()
}

/// Everything that speaks of the thread, in order of time.
fn items(recording: &Recording, life: &Life<'_>) -> Vec<(Timestamp, Item)> {
    let edges = [(life.opening, Edge::Opening), (life.closing, Edge::Closing)];
    let mut items: Vec<(Timestamp, Item)> = (edges.into_iter())
        .filter_map(|(sighting, edge)| sighting.map(|sighting| (sighting, edge)))
        .filter(|(sighting, _)| sighting.phase == Phase::OnCpu)
        .map(|(sighting, edge)| (sighting.at, Item::OnCpu { seq: sighting.seq, edge }))
        .chain(life.records.iter().filter_map(|&record| {
            look_up(recording, record).map(|off| (off.off, Item::Off(record)))
        }))
        .collect();
    items.sort_by_key(|&(at, _)| at);
    items
}

fn look_up(recording: &Recording, record: Record) -> Option<Off<'_>> {
    match record {
        Record::Wait(index) => recording.waits.get(index.0 as usize).map(|wait| Off {
            seq: wait.seq,
            begin: wait.begin,
            end: wait.end,
            off: wait.off,
            on: wait.on,
            wait: Some((index, wait)),
        }),
        Record::Preemption(index) => recording.preemptions.get(index as usize).map(|p| Off {
            seq: p.seq,
            begin: p.begin,
            end: p.end,
            off: p.off,
            on: p.on,
            wait: None,
        }),
    }
}

/// What a thread does between its wake and `on`: it waits for a CPU, unless nobody saw it come back.
fn after_wake(end: End) -> State {
    match end {
        End::Seen | End::StillOff => State::Runnable,
        End::Missed => State::Lost,
    }
}

struct Layer<'a, 'r> {
    life: &'a Life<'r>,
    thread: ThreadIndex,
    waits: &'a mut [Placed],
    misfits: &'a mut Misfits,
    track: Track,
    /// The number up to which everything was seen. The thread is on a CPU at the end of the track.
    newest: Option<u32>,
    /// The switch-in of the newest record, not clipped.
    off_until: Timestamp,
    /// What the thread does from the end of the track to the end of its life.
    tail: State,
}

impl Layer<'_, '_> {
    fn extend(&mut self, to: Timestamp, state: State) {
        self.track.extend(to.min(self.life.until), state);
    }

    /// ```text
    ///   seq 4       lost         seq 6        looked at: on-CPU, newest is 6
    /// ---[==]....................[==]---------------*----> time
    ///        on               off    on
    /// ```
    ///
    /// Numbers that follow on each other: between them the thread was on the CPU. A number missing:
    /// it left the CPU and came back, and nobody knows when.
    fn on_cpu(&mut self, at: Timestamp, seq: u32, edge: Edge) {
        let state = match self.newest {
            Some(newest) if newest > seq => return,
            Some(newest) if newest == seq => State::OnCpu,
            // It was looked at as the window opened: it had not left the CPU before.
            None if edge == Edge::Opening => State::OnCpu,
            _ => State::Lost,
        };
        self.extend(at, state);
        self.newest = Some(seq);
        // The same as the window closed.
        self.tail = if edge == Edge::Closing { State::OnCpu } else { State::Lost };
    }

    fn off(&mut self, record: &Off<'_>, is_last: bool) {
        if record.on < record.off || self.newest.is_some_and(|newest| record.seq <= newest) {
            self.misfits.backwards += 1;
        }
        if record.off < self.off_until {
            self.misfits.overlaps += 1;
        }
        self.off_until = self.off_until.max(record.on);
        self.reach(record);
        let stays_off = record.end == End::StillOff && is_last && !self.tail_is_lost(record.seq);
        let on = if stays_off { self.life.until } else { record.on };
        match record.wait {
            Some((index, wait)) if record.begin != Begin::Newborn => self.wait(index, wait, on),
            Some((index, wait)) => {
                self.place(index, on, on, wait.wake.map_or(WakeUse::None, |_| WakeUse::Early));
                self.extend(on, after_wake(record.end));
            }
            None => self.extend(on, after_wake(record.end)),
        }
        self.tail = State::Lost;
        self.newest = Some(record.seq);
    }

    /// Fills the time before a record.
    fn reach(&mut self, record: &Off<'_>) {
        let state = match self.newest {
            Some(newest) if newest.checked_add(1) == Some(record.seq) => State::OnCpu,
            Some(_) => State::Lost,
            None => match record.begin {
                // It was off the CPU when the window opened, and had not run since: what the record
                // says of `off` holds from the window's first moment on.
                Begin::BeforeWindow if self.is_first(record.seq) => return,
                // A newborn waits to run from its creation on; the microseconds in which its
                // parent still builds it are counted with the wait for a CPU.
                Begin::Newborn if record.seq <= 1 => State::Runnable,
                _ => State::Lost,
            },
        };
        self.extend(record.off, state);
    }

    /// Whether no record came before the one with this number, nor could have.
    fn is_first(&self, seq: u32) -> bool {
        seq <= self.life.opening.map_or(0, |sighting| sighting.seq).saturating_add(1)
    }

    /// Divides a wait.
    ///
    /// ```text
    ///              off            wake.at           on
    /// normal     ---+-- blocked -----+-- runnable ---+---
    /// no wake    ---+-- blocked ---------------------+---
    /// missed     ---+-- blocked -----+-- lost -----------+---   on: found there; came back unseen
    /// early    wake.at: at most 100 us before off
    ///            -x-+-- runnable --------------------+---
    /// stale    wake.at: longer before; not believed
    ///       x    ---+-- blocked ---------------------+---
    /// ```
    fn wait(&mut self, index: WaitIndex, wait: &Wait, on: Timestamp) {
        let (blocked_until, wake) = match &wait.wake {
            None => (on, WakeUse::None),
            Some(wake) if wake.at > wait.off => {
                if wake.at > wait.on {
                    self.misfits.backwards += 1;
                }
                (wake.at.min(on), WakeUse::Ended)
            }
            Some(wake) if wait.off.since(wake.at) <= EARLY_WAKE => (wait.off, WakeUse::Early),
            Some(_) => {
                self.misfits.stale_wakes += 1;
                (on, WakeUse::Stale)
            }
        };
        let blocked_until = if wake == WakeUse::Early { self.track.end() } else { blocked_until };
        let is_all_lost = wait.end == End::Missed && matches!(wake, WakeUse::None | WakeUse::Stale);
        let blocked_until = if is_all_lost { self.track.end() } else { blocked_until };
        self.place(index, self.track.end(), blocked_until, wake);
        self.extend(blocked_until, State::Blocked(index));
        self.extend(on, after_wake(wait.end));
    }

    fn place(&mut self, index: WaitIndex, from: Timestamp, to: Timestamp, wake: WakeUse) {
        let from = from.clamp(self.life.from, self.life.until);
        let to = to.clamp(from, self.life.until);
        if let Some(place) = self.waits.get_mut(index.0 as usize) {
            *place = Placed { thread: Some(self.thread), from, to, wake };
        }
    }

    /// Whether something newer than record `seq` is known to have been.
    fn tail_is_lost(&self, seq: u32) -> bool {
        self.life.closing.is_some_and(|sighting| sighting.seq > seq)
            || self.life.exit.is_some_and(|exit| exit.seq > seq)
    }

    /// Fills the time after the newest record.
    fn finish(mut self) -> Track {
        if let (Some(exit), Some(newest)) = (self.life.exit, self.newest)
            && exit.seq == newest
            && self.life.until <= exit.at
        {
            self.tail = State::OnCpu;
        }
        self.extend(self.life.until, self.tail);
        self.track
    }
}

//! Lays out a life's records as its track.

use offwake_recording::{
    Begin, End, Phase, Recording, Scope, WaitRow, Waits,
    units::{Cpu, Nanos, Timestamp},
};

use super::{
    Anomalies, RunnableSince, State, SummedTimes, Thread, Track, WaitIndex, WaitScope,
    evidence::{Anchor, TidEvidence},
    lives::{OffCpuRecord, ThreadLife},
};

/// How long before the switch-out a wake may come and still belong to the wait.
///
/// Between the tracepoint in
/// [`try_to_wake_up`](https://github.com/torvalds/linux/blob/v6.12/kernel/sched/core.c#L4171) and
/// the switch-out of the wakee lie microseconds with interrupts off. An older wake is one that the
/// thread never slept on: it was woken while it still ran, and went on.
pub const EARLY_WAKE: Nanos = Nanos(100_000);

/// What a wait's wake did to the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUse {
    /// No wake is known.
    None,
    /// The wake ended the blocked part.
    Ended,
    /// The wake came before the switch-out: the thread never was blocked.
    Early,
    /// The wake came too long before the switch-out to belong to this wait, and is ignored.
    Stale,
}

/// Returns what a wait's wake did to the wait.
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
#[must_use]
pub fn wake_use(wait: &WaitRow) -> WakeUse {
    match wait.woken_at() {
        None => WakeUse::None,
        Some(_) if wait.begin() == Begin::Newborn => WakeUse::Early,
        Some(at) if at > wait.off => WakeUse::Ended,
        Some(at) if wait.off.since(at) <= EARLY_WAKE => WakeUse::Early,
        Some(_) => WakeUse::Stale,
    }
}

/// What to do with a life that has gaps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GapPolicy {
    /// Lay it out with its gaps.
    Allow,
    /// Don't lay it out yet: the records of other threads may prove what is missing.
    Reject,
}

/// A thread was seen on a CPU, and had made this many records.
#[derive(Clone, Copy)]
struct OnCpuObservation {
    at: Timestamp,
    seq: u32,
    when: ObservedAt,
}

/// The occasion on which a thread was seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObservedAt {
    Opening,
    DuringWindow,
    Closing,
}

/// A time off the CPU: what waits and preemptions have in common, and those that were summed up.
struct OffCpuPeriod {
    /// The number of the first of those that were summed up; of one alone its own.
    first_seq: u32,
    seq: u32,
    begin: Begin,
    end: End,
    off: Timestamp,
    on: Timestamp,
    off_cpu: Cpu,
    on_cpu: Cpu,
    /// What the thread did, a wait's blocked part left out.
    state: State,
}

/// Divides a life into intervals. None if it has gaps and `gaps` forbids them.
pub(super) fn lay_out(
    recording: &Recording,
    life: &ThreadLife<'_>,
    known: Option<&TidEvidence>,
    gaps: GapPolicy,
    anomalies: &mut Anomalies,
) -> Option<Thread> {
    let mut builder = TrackBuilder {
        recording,
        life,
        throttles_passed: 0,
        known,
        anomalies,
        track: Track::starting_at(life.from),
        inferred: Vec::new(),
        summed: SummedTimes::default(),
        newest: life.begun_by_exec.map(|change| change.seq),
        cpu: None,
        off_until: Timestamp(0),
        proven_from: None,
        has_gap: false,
        tail: State::Lost,
    };
    let mut records = (life.records.chunks(Waits::FETCHED))
        .flat_map(|records| {
            recording.waits.fetch(records.iter().filter_map(|record| match record {
                OffCpuRecord::Wait(index) => Some(index.0),
                OffCpuRecord::Preemption(_) | OffCpuRecord::Summed(_) => None,
            }));
            records
        })
        .filter_map(|&record| off_cpu_period(recording, record))
        .peekable();
    let mut observations = collect_observations(life, known).into_iter().peekable();
    while let Some(off) = records.next() {
        while let Some(observation) = observations.next_if(|observation| observation.at <= off.off)
        {
            builder.add_observation(observation);
        }
        let is_last = records.peek().is_none() && observations.peek().is_none();
        match off.state {
            State::Runnable(RunnableSince::Woken(index)) if off.begin != Begin::Newborn => {
                let row = recording.waits.rows().get(index.0 as usize);
                builder.add_off_cpu(&off, is_last, row.map(|row| (index, row)));
            }
            _ => builder.add_off_cpu(&off, is_last, None),
        }
        if builder.has_gap && gaps == GapPolicy::Reject {
            return None;
        }
    }
    observations.for_each(|observation| builder.add_observation(observation));
    builder.finish();
    if builder.has_gap && gaps == GapPolicy::Reject {
        return None;
    }
    let TrackBuilder { track, inferred, summed, .. } = builder;
    let &ThreadLife { tid, tgid, kind, in_target, cgroup, created, from, until, .. } = life;
    let names = life.names.clone();
    let waits_recorded = match recording.meta.scope {
        Scope::Target if !in_target => WaitScope::OutOfScope,
        Scope::Machine | Scope::Target => WaitScope::Recorded,
    };
    Some(Thread {
        tid,
        tgid,
        kind,
        in_target,
        waits_recorded,
        cgroup,
        created,
        from,
        until,
        names,
        track,
        summed,
        inferred,
    })
}

/// Collects the moments at which the thread was seen on a CPU with a known number of records, in
/// order of time.
fn collect_observations(
    life: &ThreadLife<'_>,
    known: Option<&TidEvidence>,
) -> Vec<OnCpuObservation> {
    let edges = [(life.opening, ObservedAt::Opening), (life.closing, ObservedAt::Closing)];
    let edges = (edges.into_iter())
        .filter_map(|(thread_event, when)| thread_event.map(|thread_event| (thread_event, when)))
        .filter(|(thread_event, _)| thread_event.phase == Phase::OnCpu)
        .map(|(thread_event, when)| OnCpuObservation {
            at: thread_event.at,
            seq: thread_event.seq,
            when,
        });
    let is_inside = |anchor: &&Anchor| life.from < anchor.at && anchor.at < life.until;
    let anchors = known.map_or([].as_slice(), |known| known.anchors.as_slice());
    let meanwhile = (anchors.iter().filter(is_inside))
        .map(|&Anchor { at, seq }| OnCpuObservation { at, seq, when: ObservedAt::DuringWindow });
    let mut observations: Vec<_> = edges.chain(meanwhile).collect();
    observations.sort_by_key(|observation| observation.at);
    observations
}

fn off_cpu_period(recording: &Recording, record: OffCpuRecord) -> Option<OffCpuPeriod> {
    match record {
        OffCpuRecord::Wait(index) => {
            recording.waits.rows().get(index.0 as usize).map(|wait| OffCpuPeriod {
                first_seq: wait.seq,
                seq: wait.seq,
                begin: wait.begin(),
                end: wait.end(),
                off: wait.off,
                on: wait.on,
                off_cpu: wait.off_cpu,
                on_cpu: wait.on_cpu,
                state: State::Runnable(RunnableSince::Woken(index)),
            })
        }
        OffCpuRecord::Preemption(index) => {
            recording.preemptions.get(index.0 as usize).map(|p| OffCpuPeriod {
                first_seq: p.seq,
                seq: p.seq,
                begin: p.begin,
                end: p.end,
                off: p.off,
                on: p.on,
                off_cpu: p.off_cpu,
                on_cpu: p.on_cpu,
                state: State::Runnable(RunnableSince::Preempted(index)),
            })
        }
        OffCpuRecord::Summed(index) => {
            recording.summed.get(index.0 as usize).map(|summed| OffCpuPeriod {
                first_seq: summed.first_seq().unwrap_or(summed.seq),
                seq: summed.seq,
                begin: Begin::Seen,
                end: End::Seen,
                off: summed.from,
                on: summed.until,
                off_cpu: summed.off_cpu,
                on_cpu: summed.on_cpu,
                state: State::Summed(index),
            })
        }
    }
}

struct TrackBuilder<'a, 'r> {
    recording: &'a Recording,
    life: &'a ThreadLife<'r>,
    /// How many of the life's throttles end before the end of the track.
    throttles_passed: usize,
    known: Option<&'a TidEvidence>,
    anomalies: &'a mut Anomalies,
    track: Track,
    inferred: Vec<(Timestamp, Timestamp)>,
    summed: SummedTimes,
    /// The number up to which everything was seen. The thread is on a CPU at the end of the track.
    newest: Option<u32>,
    /// The CPU that the thread is on at the end of the track, if it is known.
    cpu: Option<Cpu>,
    /// The time of the newest record's switch-in, not clipped to the window.
    off_until: Timestamp,
    /// The beginning of the time that only others' records prove; not after the end of the track.
    proven_from: Option<Timestamp>,
    has_gap: bool,
    /// What the thread does from the end of the track to the end of its life.
    tail: State,
}

impl TrackBuilder<'_, '_> {
    fn extend(&mut self, to: Timestamp, state: State) {
        let to = to.min(self.life.until);
        self.has_gap |= state == State::Lost && to > self.track.end();
        match state {
            State::OnCpu => self.track.extend_on_cpu(to, self.cpu),
            State::Runnable(_) => self.extend_runnable(to, state),
            State::Throttled(_) | State::Blocked(_) | State::Lost | State::Summed(_) => {
                self.track.extend(to, state)
            }
        }
    }

    /// Appends time in which the thread could run, with the stretches in which it was throttled.
    ///
    /// ```text
    /// records      off |--------------- runnable ------------------| on
    /// throttles  |---------|    |------|
    /// track            | t | r  |   t  |          runnable         |
    /// ```
    fn extend_runnable(&mut self, to: Timestamp, state: State) {
        while let Some(&index) = self.life.throttles.get(self.throttles_passed) {
            let Some(throttle) = self.recording.throttles.get(index.0 as usize) else { break };
            if throttle.until > self.track.end() {
                if throttle.from >= to {
                    break;
                }
                self.track.extend(throttle.from, state);
                self.track.extend(throttle.until.min(to), State::Throttled(index));
                if throttle.until > to {
                    break;
                }
            }
            self.throttles_passed += 1;
        }
        self.track.extend(to, state);
    }

    /// ```text
    ///   seq 4       lost         seq 6        looked at: on-CPU, newest is 6
    /// ---[==]....................[==]---------------*----> time
    ///        on               off    on
    /// ```
    ///
    /// Numbers that follow on each other: between them the thread was on the CPU. A number missing:
    /// it left the CPU and came back, and nobody knows when. An observation inside such a gap says how many
    /// of the records missing lie on its either side:
    ///
    /// ```text
    ///   seq 4     looked at: newest is 4          seq 6
    /// ---[==]-----------*.........................[==]---> time
    ///   seq 4                  newest is 5        seq 6
    /// ---[==].....................*---------------[==]---> time
    /// ```
    fn add_observation(&mut self, OnCpuObservation { at, seq, when }: OnCpuObservation) {
        let state = match self.newest {
            Some(newest) if newest > seq => return,
            Some(newest) if newest == seq => State::OnCpu,
            // It was looked at as the window opened: it had not left the CPU before.
            None if when == ObservedAt::Opening => State::OnCpu,
            _ => State::Lost,
        };
        if when == ObservedAt::DuringWindow {
            if state == State::OnCpu {
                self.proven_from.get_or_insert(self.track.end());
            } else {
                self.proven_from = Some(at.min(self.life.until));
            }
        }
        if state == State::Lost {
            self.cpu = None;
        }
        self.extend(at, state);
        self.newest = Some(seq);
        // The same as the window closed.
        self.tail = if when == ObservedAt::Closing { State::OnCpu } else { State::Lost };
    }

    fn add_off_cpu(
        &mut self,
        record: &OffCpuPeriod,
        is_last: bool,
        wait: Option<(WaitIndex, &WaitRow)>,
    ) {
        if record.on < record.off || self.newest.is_some_and(|newest| record.first_seq <= newest) {
            self.anomalies.backwards += 1;
        }
        if record.off < self.off_until {
            self.anomalies.overlaps += 1;
        }
        self.off_until = self.off_until.max(record.on);
        self.fill_until(record);
        let stays_off = record.end == End::StillOff && is_last && !self.tail_is_lost(record.seq);
        let on = if stays_off { self.life.until } else { record.on };
        if let Some((index, wait)) = wait {
            self.extend_blocked(index, wait, on);
        }
        let begun = self.track.end();
        self.extend(on, after_wake(record));
        if let State::Summed(index) = record.state
            && let Some(stretch) = self.recording.summed.get(index.0 as usize)
        {
            self.summed.add(stretch, self.track.end().since(begun));
        }
        self.tail = State::Lost;
        self.newest = Some(record.seq);
        self.cpu = (record.end == End::Seen).then_some(record.on_cpu);
    }

    /// Fills the time between the end of the track and a record.
    fn fill_until(&mut self, record: &OffCpuPeriod) {
        let proven_from = self.proven_from.take();
        let state = match self.newest {
            Some(newest) if newest.checked_add(1) == Some(record.first_seq) => {
                // The time before the observation is a gap; the time after it is known only by it.
                if let Some(from) = proven_from.filter(|&from| self.is_gap_before(from)) {
                    self.mark_inferred(from, record.off);
                }
                State::OnCpu
            }
            Some(newest) => {
                if let Some(from) = proven_from {
                    self.mark_inferred(from, self.track.end());
                }
                if let Some(came) = self.find_arrival(newest, record) {
                    self.extend(came, State::Lost);
                    self.mark_inferred(came, record.off);
                    self.cpu = None;
                    State::OnCpu
                } else {
                    State::Lost
                }
            }
            None => match record.begin {
                // It was off the CPU when the window opened, and had not run since: what the record
                // says of `off` holds from the window's first moment on.
                Begin::BeforeWindow if self.is_first(record.first_seq) => return,
                // A newborn waits to run from its creation on; the microseconds in which its
                // parent still builds it are counted with the wait for a CPU.
                Begin::Newborn if record.seq <= 1 => record.state,
                _ => State::Lost,
            },
        };
        if self.cpu.is_none() && record.begin == Begin::Seen {
            self.cpu = Some(record.off_cpu);
        }
        self.extend(record.off, state);
    }

    /// Returns whether nothing is known of the time just before `at`.
    fn is_gap_before(&self, at: Timestamp) -> bool {
        let before =
            at.0.checked_sub(1).and_then(|before| self.track.interval_at(Timestamp(before)));
        before.is_some_and(|interval| interval.state == State::Lost)
    }

    fn mark_inferred(&mut self, from: Timestamp, to: Timestamp) {
        let to = to.min(self.life.until);
        if from < to {
            self.inferred.push((from, to));
        }
    }

    /// Returns when the thread came back from the single time off the CPU whose record is missing:
    /// another thread was preempted for it then.
    ///
    /// ```text
    ///          seq 4          missing          seq 6
    /// thread  --[==]--......................-----[==]---> time
    /// another ----------------------------+ preempted, next: thread
    /// ```
    fn find_arrival(&self, newest: u32, record: &OffCpuPeriod) -> Option<Timestamp> {
        let is_single = newest.checked_add(2) == Some(record.first_seq);
        let arrivals = &self.known.filter(|_| is_single)?.arrivals;
        let first = arrivals.partition_point(|&at| at <= self.track.end());
        let came = *arrivals.get(first)?;
        // Two would contradict the numbers.
        let is_only = arrivals.get(first + 1).is_none_or(|&second| second >= record.off);
        (came < record.off && is_only).then_some(came)
    }

    /// Returns whether there can't have been a record before the one with this number.
    fn is_first(&self, seq: u32) -> bool {
        seq <= self.life.opening.map_or(0, |thread_event| thread_event.seq).saturating_add(1)
    }

    /// Appends the blocked part of a wait; see [`wake_use`].
    fn extend_blocked(&mut self, index: WaitIndex, wait: &WaitRow, on: Timestamp) {
        let used = wake_use(wait);
        self.anomalies.stale_wakes += u64::from(used == WakeUse::Stale);
        let until = match (used, wait.woken_at()) {
            (WakeUse::Ended, Some(woken)) => {
                if woken > wait.on {
                    self.anomalies.backwards += 1;
                }
                woken.min(on)
            }
            (WakeUse::Early, _) => return,
            (WakeUse::None | WakeUse::Stale, _) if wait.end() == End::Missed => return,
            (WakeUse::Ended | WakeUse::None | WakeUse::Stale, _) => on,
        };
        self.extend(until, State::Blocked(index));
    }

    /// Returns whether a record newer than `seq` is known to have existed.
    fn tail_is_lost(&self, seq: u32) -> bool {
        self.life.closing.is_some_and(|thread_event| thread_event.seq > seq)
            || self.life.seen_ends().any(|(_, newest)| newest > seq)
    }

    /// Fills the time from the newest record to the end of the life.
    fn finish(&mut self) {
        if let Some(newest) = self.newest
            && self.life.seen_ends().any(|(at, seq)| seq == newest && self.life.until <= at)
        {
            self.tail = State::OnCpu;
        }
        let proven_from = self.proven_from.take();
        if let Some(from) = proven_from {
            let known_behind = self.tail == State::OnCpu;
            if !known_behind {
                self.mark_inferred(from, self.track.end());
            } else if self.is_gap_before(from) {
                self.mark_inferred(from, self.life.until);
            }
        }
        self.extend(self.life.until, self.tail);
        self.track.shrink_to_fit();
    }
}

/// Returns the state of a thread from its wake, or its preemption, to its switch-in: it waits for a
/// CPU, unless nobody saw it come back.
fn after_wake(record: &OffCpuPeriod) -> State {
    match record.end {
        End::Seen | End::StillOff => record.state,
        End::Missed => State::Lost,
    }
}

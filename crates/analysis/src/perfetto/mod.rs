//! A recording as a trace for Perfetto: what ran on each CPU, what every thread was doing, who woke
//! whom, and where the target waited.
//!
//! ```text
//! Recording + Timeline + who ended each wait + Spans → packets → .pftrace
//! ```
//!
//! Values in, packets out. The [messages] are Perfetto's own.
//! The scheduler's events are written as ftrace would have recorded them, so that Perfetto finds
//! thread states and wakers by itself. `docs/perfetto.md` says where what is found.

mod cpus;
mod initially_blocked;
mod losses;
mod machine;
mod markers;
pub mod messages;
mod nested_slices;
mod packets;
mod processes;
mod requests;
mod sched;
mod stacks;
mod tracks;
mod waits;

use std::{cmp::Reverse, io, ops::Deref};

use offwake_recording::{WaitRow, units::Nanos};

use crate::{
    blame::Blame,
    filter::Filter,
    spans::Spans,
    timeline::{BlockedInterval, WaitIndex},
};

use packets::Packets;
use tracks::Tracks;

/// What a trace is made from.
#[derive(Clone, Copy)]
pub struct TraceInput<'a> {
    /// The recording, its timeline, and who ended each wait.
    pub blame: &'a Blame<'a>,
    /// Which of the target's waits are drawn with their stacks and wakes. The scheduler's events
    /// are there whatever it keeps.
    pub filter: &'a Filter,
    /// Requests.
    pub spans: &'a Spans,
    /// How much there is room for.
    pub limits: TraceLimits,
}

/// The most of everything of which a trace can have very many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLimits {
    /// Waits that are drawn with their stacks and wakes: the longest ones.
    pub waits: usize,
    /// Events of the scheduler: the last ones, so that what is there is whole.
    pub events: usize,
    /// Samples of threads on a CPU: each so manieth.
    pub samples: usize,
    /// Requests: the longest ones.
    pub requests: usize,
    /// Ranges that programs marked, the longest ones; and as many instants, the last ones.
    pub markers: usize,
}

impl TraceLimits {
    /// Everything.
    pub const NONE: Self = Self {
        waits: usize::MAX,
        events: usize::MAX,
        samples: usize::MAX,
        requests: usize::MAX,
        markers: usize::MAX,
    };
    /// A trace of usable size, 20 MB at most: packed, a wait takes 60 to 95 bytes, an event 9 to 13, a sample 16, and a
    /// request 17. `tests/pure/sizes.rs` adds them up where nothing is alike.
    pub const USABLE: Self =
        Self { waits: 70_000, events: 850_000, samples: 60_000, requests: 30_000, markers: 20_000 };
}

/// How much a trace has no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOutOfTrace {
    /// Waits of the target without stacks and wakes.
    pub waits: u64,
    /// Events of the scheduler, from the window's beginning on.
    pub events: u64,
    /// Samples.
    pub samples: u64,
    /// Requests.
    pub requests: u64,
    /// Ranges and instants that programs marked.
    pub markers: u64,
}

impl LeftOutOfTrace {
    /// Describes what is not there, if anything is not.
    pub(crate) fn describe(self) -> Option<String> {
        let parts = [
            (self.waits, "shorter waits without their stacks and wakers' slices"),
            (self.events, "earlier events of the scheduler left out"),
            (self.samples, "samples left out"),
            (self.requests, "shorter requests left out"),
            (self.markers, "shorter marked ranges and earlier marked instants left out"),
        ];
        let parts: Vec<_> = (parts.into_iter())
            .filter(|&(count, _)| count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!parts.is_empty()).then(|| format!("has {}", parts.join(", ")))
    }
}

/// A trace that is written, and which waits there is room for.
#[derive(Clone, Copy)]
struct LimitedTrace<'a> {
    input: TraceInput<'a>,
    /// The length of the longest wait that there is no room for.
    longer_than: Option<Nanos>,
}

impl<'a> Deref for LimitedTrace<'a> {
    type Target = TraceInput<'a>;

    fn deref(&self) -> &TraceInput<'a> {
        &self.input
    }
}

impl<'a> LimitedTrace<'a> {
    fn new(input: TraceInput<'a>) -> Self {
        let lengths = input.kept_waits().map(|(_, _, place)| place.to.since(place.from));
        let mut lengths: Vec<Nanos> = lengths.collect();
        Self { input, longer_than: largest_left_out(&mut lengths, input.limits.waits) }
    }

    /// Returns the waits that there is room for.
    fn shown_waits(self) -> impl Iterator<Item = (WaitIndex, &'a WaitRow, BlockedInterval)> {
        let has_room = move |place: &BlockedInterval| {
            self.longer_than.is_none_or(|most| place.to.since(place.from) > most)
        };
        self.input.kept_waits().filter(move |(_, _, place)| has_room(place))
    }

    /// Counts the waits that there is no room for.
    fn count_left_out(self) -> u64 {
        match self.longer_than {
            None => 0,
            Some(_) => (self.input.kept_waits().count() - self.shown_waits().count()) as u64,
        }
    }
}

/// Returns the largest of those that are left out if only `most` of the largest are kept; none if all of them are.
fn largest_left_out<T: Ord + Copy>(all: &mut [T], most: usize) -> Option<T> {
    (all.len() > most).then(|| *all.select_nth_unstable_by_key(most, |&one| Reverse(one)).1)
}

impl<'a> TraceInput<'a> {
    /// Returns the target's waits that the filter keeps, and their blocked intervals.
    fn kept_waits(self) -> impl Iterator<Item = (WaitIndex, &'a WaitRow, BlockedInterval)> {
        let Self { blame, filter, .. } = self;
        let waits = &blame.recording().waits;
        let filter = filter.for_recording(blame.recording());
        waits.rows().iter().zip(0..).filter_map(move |(row, n)| {
            let index = WaitIndex(n);
            let place = blame.timeline().blocked_interval(index)?;
            let idle_state = blame.own_idle_state(index);
            let keeps = filter.keeps(index, row, place.to.since(place.from), idle_state);
            (blame.timeline().is_in_target(place.thread) && keeps).then_some((index, row, place))
        })
    }
}

/// Writes a trace, and returns what it has no room for.
///
/// # Errors
///
/// Those of `out`.
pub fn write(input: TraceInput<'_>, out: &mut dyn io::Write) -> io::Result<LeftOutOfTrace> {
    let trace = LimitedTrace::new(input);
    let mut left_out = LeftOutOfTrace { waits: trace.count_left_out(), ..Default::default() };
    let (recording, timeline) = (input.blame.recording(), input.blame.timeline());
    let mut packets = Packets::new(recording, out);
    machine::write(recording, &mut packets)?;
    processes::write(recording, timeline, &mut packets)?;
    left_out.events = sched::write(input.blame, input.limits.events, &mut packets)?;
    left_out.samples = stacks::write(trace, &mut packets)?;
    let mut tracks = Tracks::begin(timeline, &mut packets)?;
    waits::write(trace, &mut tracks, &mut packets)?;
    let mut next_track = 0;
    left_out.requests = requests::write(input, &mut tracks, &mut next_track, &mut packets)?;
    left_out.markers = markers::write(input, &mut tracks, &mut next_track, &mut packets)?;
    losses::write(recording, timeline, left_out, &mut packets)?;
    packets.finish()?;
    Ok(left_out)
}

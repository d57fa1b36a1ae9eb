//! A recording as a trace for Perfetto: what ran on each CPU, what every thread was doing, who woke
//! whom, and where the target waited.
//!
//! ```text
//! Recording + Timeline + who ended each wait + Spans → packets → .pftrace
//! ```
//!
//! Values in, packets out. The messages are Perfetto's own
//! ([`protos/perfetto/trace`](https://github.com/google/perfetto/tree/v51.0/protos/perfetto/trace)).
//! The scheduler's events are written as ftrace would have recorded them, so that Perfetto finds
//! thread states and wakers by itself. `docs/perfetto.md` says where what is found.

mod cpus;
mod initially_blocked;
mod losses;
mod machine;
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
    /// are always whole.
    pub filter: &'a Filter,
    /// Requests.
    pub spans: &'a Spans,
    /// The most waits that are drawn so: the longest ones. Each takes 60 bytes, a request 100.
    pub most_waits: usize,
}

/// The most waits that are drawn with their stacks and wakes in a trace of usable size. The scheduler's
/// events of 342,000 waits take another 10 MB.
pub const MAX_WAITS: usize = 80_000;

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
        let longer_than = (lengths.len() > input.most_waits).then(|| {
            *lengths.select_nth_unstable_by_key(input.most_waits, |&length| Reverse(length)).1
        });
        Self { input, longer_than }
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
            let keeps = filter.keeps(row, place.to.since(place.from), idle_state);
            (blame.timeline().is_in_target(place.thread) && keeps).then_some((index, row, place))
        })
    }
}

/// Writes a trace, and returns how many waits of the target it has no stacks and wakes of.
///
/// # Errors
///
/// Those of `out`.
pub fn write(input: TraceInput<'_>, out: &mut dyn io::Write) -> io::Result<u64> {
    let trace = LimitedTrace::new(input);
    let left_out = trace.count_left_out();
    let (recording, timeline) = (input.blame.recording(), input.blame.timeline());
    let mut packets = Packets::new(recording, out);
    machine::write(recording, &mut packets)?;
    processes::write(recording, timeline, &mut packets)?;
    sched::write(input.blame, &mut packets)?;
    stacks::write(trace, &mut packets)?;
    let mut tracks = Tracks::begin(timeline, &mut packets)?;
    waits::write(trace, &mut tracks, &mut packets)?;
    requests::write(input, &mut tracks, &mut packets)?;
    losses::write(recording, timeline, left_out, &mut packets)?;
    packets.finish()?;
    Ok(left_out)
}

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

use std::io;

use offwake_recording::WaitRow;

use crate::{
    blame::Blame,
    report::Filter,
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
}

impl<'a> TraceInput<'a> {
    /// Returns the target's waits that the filter keeps, and their blocked intervals.
    fn shown_waits(self) -> impl Iterator<Item = (WaitIndex, &'a WaitRow, BlockedInterval)> {
        let Self { blame, filter, .. } = self;
        let waits = &blame.recording().waits;
        waits.rows().iter().zip(0..).filter_map(move |(row, n)| {
            let index = WaitIndex(n);
            let place = blame.timeline().blocked_interval(index)?;
            let waiter = waits.waiter(row);
            let idle_state = blame.own_idle_state(index);
            let keeps = filter.keeps(waiter, place.to.since(place.from), idle_state);
            (blame.timeline().is_in_target(place.thread) && keeps).then_some((index, row, place))
        })
    }
}

/// Writes a trace, packet by packet.
///
/// # Errors
///
/// Those of `out`.
pub fn write(trace: TraceInput<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let mut packets = Packets::new(trace.blame.recording(), out);
    machine::write(trace.blame.recording(), &mut packets)?;
    processes::write(trace.blame.recording(), trace.blame.timeline(), &mut packets)?;
    sched::write(trace.blame, &mut packets)?;
    stacks::write(trace, &mut packets)?;
    let mut tracks = Tracks::begin(trace.blame.timeline(), &mut packets)?;
    waits::write(trace, &mut tracks, &mut packets)?;
    requests::write(trace, &mut tracks, &mut packets)?;
    losses::write(trace.blame.recording(), trace.blame.timeline(), &mut packets)
}

//! How long a thread waited for a CPU before it was back.

use crate::timeline::{Interval, State, Thread};
use offwake_recording::{
    Begin, End,
    units::{Nanos, Timestamp},
};

/// A time off the CPU, of which the last part may have been spent waiting for one.
#[derive(Clone, Copy)]
pub(super) struct Off {
    pub(super) begin: Begin,
    pub(super) end: End,
    /// Not before this moment: where the blocked part ends, or where the thread left the CPU.
    pub(super) runnable_from: Timestamp,
    pub(super) on: Timestamp,
}

/// That last part, as far as it lies inside the window and is known.
pub(super) fn part(thread: &Thread, off: Off) -> Nanos {
    let on = match off.end {
        End::StillOff => thread.until,
        End::Seen | End::Missed => off.on.min(thread.until),
    };
    let Some(last) = on.0.checked_sub(1) else { return Nanos(0) };
    match thread.track.interval_at(Timestamp(last)) {
        Some(Interval { from, state: State::Runnable(_), .. }) => on.since(match off.begin {
            // A thread that is off the CPU before anybody looks: its timeline says since when.
            Begin::BeforeWindow | Begin::Newborn => from,
            Begin::Seen => from.max(off.runnable_from),
        }),
        _ => Nanos(0),
    }
}

//! What was recorded, where, and by which clocks.

use std::io;

use offwake_recording::Recording;

use crate::{report::unix_time, text};

use super::{
    messages::{
        BuiltinClock, Clock, ClockSnapshot, Data, SystemInfo, TracePacketDefaults, Utsname,
    },
    packets::{Packets, Sequence},
};

pub(super) fn write(recording: &Recording, packets: &mut Packets<'_>) -> io::Result<()> {
    packets.begin(Sequence::Kernel, TracePacketDefaults::default())?;
    let start = recording.meta.window.start;
    // The clocks run alike: what they show as the window opens follows from any reading.
    if let Some(unix_ns) = unix_time(recording, start) {
        let clock = |clock: BuiltinClock, timestamp: u64| Clock {
            clock_id: Some(clock as u32),
            timestamp: Some(timestamp),
        };
        let snapshot = ClockSnapshot {
            clocks: vec![
                clock(BuiltinClock::Boottime, packets.boot_time(start)),
                clock(BuiltinClock::Monotonic, start.0),
                clock(BuiltinClock::Realtime, u64::try_from(unix_ns).unwrap_or(0)),
            ],
            primary_trace_clock: Some(BuiltinClock::Boottime as i32),
        };
        packets.send(Sequence::Kernel, start, Data::ClockSnapshot(snapshot))?;
    }
    // The release also says how the states of `sched_switch` are numbered.
    let info = SystemInfo {
        utsname: Some(Utsname {
            sysname: Some("Linux".to_owned()),
            release: Some(text::plain(&recording.meta.kernel)),
        }),
    };
    packets.send(Sequence::Kernel, start, Data::SystemInfo(info))
}

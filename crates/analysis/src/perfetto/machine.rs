//! What was recorded, where, and by which clocks.

use std::io;

use offwake_recording::Recording;
use perfetto_protos::{
    builtin_clock::BuiltinClock,
    clock_snapshot::{ClockSnapshot, clock_snapshot::Clock},
    system_info::{SystemInfo, Utsname},
    trace_packet::trace_packet::Data,
    trace_packet_defaults::TracePacketDefaults,
};
use protobuf::{EnumOrUnknown, MessageField};

use crate::{report::unix_time, text};

use super::packets::{Packets, Sequence};

pub(super) fn write(recording: &Recording, packets: &mut Packets<'_>) -> io::Result<()> {
    packets.begin(Sequence::Kernel, TracePacketDefaults::new())?;
    let start = recording.meta.window.start;
    // The clocks run alike: what they show as the window opens follows from any reading.
    if let Some(unix_ns) = unix_time(recording, start) {
        let clock = |clock: BuiltinClock, timestamp: u64| Clock {
            clock_id: Some(clock as u32),
            timestamp: Some(timestamp),
            ..Clock::new()
        };
        let snapshot = ClockSnapshot {
            clocks: vec![
                clock(BuiltinClock::BUILTIN_CLOCK_BOOTTIME, packets.boot_time(start)),
                clock(BuiltinClock::BUILTIN_CLOCK_MONOTONIC, start.0),
                clock(BuiltinClock::BUILTIN_CLOCK_REALTIME, u64::try_from(unix_ns).unwrap_or(0)),
            ],
            primary_trace_clock: Some(EnumOrUnknown::new(BuiltinClock::BUILTIN_CLOCK_BOOTTIME)),
            ..ClockSnapshot::new()
        };
        packets.send(Sequence::Kernel, start, Data::ClockSnapshot(snapshot))?;
    }
    // The release also says how the states of `sched_switch` are numbered.
    let info = SystemInfo {
        utsname: MessageField::some(Utsname {
            sysname: Some("Linux".to_owned()),
            release: Some(text::plain(&recording.meta.kernel)),
            ..Utsname::new()
        }),
        ..SystemInfo::new()
    };
    packets.send(Sequence::Kernel, start, Data::SystemInfo(info))
}

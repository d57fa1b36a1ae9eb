//! What is missing, as counters.

use std::{collections::BTreeMap, io};

use offwake_recording::{Recording, units::Timestamp};

use crate::timeline::{State, Timeline};

use super::{
    LeftOutOfTrace,
    packets::Packets,
    tracks::{self, TrackId},
};

/// The number of the first track of a counter. Tracks of requests are numbered from 0, and are
/// never as many.
const FIRST_TRACK: u32 = u32::MAX / 2;

pub(super) fn write(
    recording: &Recording,
    timeline: &Timeline,
    left_out: LeftOutOfTrace,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let window = recording.meta.window;
    let gaps = TrackId::numbered(FIRST_TRACK);
    tracks::describe_counter(gaps, "threads in a gap", "threads", window.start, packets)?;
    tracks::write_count(gaps, window.start, 0, packets)?;
    for (at, threads) in count_threads_in_gaps(timeline) {
        tracks::write_count(gaps, at, threads, packets)?;
    }
    let left_out = [
        (left_out.waits, "short waits without slices and stacks", "waits"),
        (left_out.events, "events of the scheduler left out before the first one", "events"),
        (left_out.samples, "samples left out", "samples"),
        (left_out.requests, "short requests left out", "requests"),
        (left_out.markers, "markers left out", "markers"),
    ];
    for ((count, name, unit), n) in
        left_out.into_iter().zip(1..).filter(|((count, ..), _)| *count > 0)
    {
        let track = TrackId::numbered(FIRST_TRACK - n);
        let name = format!("{name} (--full has them)");
        tracks::describe_counter(track, &name, unit, window.start, packets)?;
        tracks::write_count(track, window.start, count, packets)?;
    }
    let loss = &recording.loss;
    let totals = [("lost records", loss.records), ("lost stacks", loss.stacks)];
    let named = loss.counters.iter().map(|(name, &count)| (name.as_str(), count));
    for ((name, total), track) in totals.into_iter().chain(named).zip(FIRST_TRACK + 1..) {
        // When they were lost is not known, but for a ring that was full: they were by then.
        let by = match (name, loss.ring_full) {
            ("lost records", Some((_, last))) => last.clamp(window.start, window.end),
            _ => window.end,
        };
        let track = TrackId::numbered(track);
        tracks::describe_counter(track, &format!("loss: {name}"), "lost", window.start, packets)?;
        tracks::write_count(track, window.start, 0, packets)?;
        tracks::write_count(track, by, total, packets)?;
    }
    Ok(())
}

/// Counts the threads of which nothing is known, at each moment at which the number changes.
fn count_threads_in_gaps(timeline: &Timeline) -> BTreeMap<Timestamp, u64> {
    let mut changes: BTreeMap<Timestamp, i64> = BTreeMap::new();
    for interval in timeline.threads.iter().flat_map(|thread| thread.track.iter()) {
        if interval.state == State::Lost {
            *changes.entry(interval.from).or_default() += 1;
            *changes.entry(interval.to).or_default() -= 1;
        }
    }
    let mut now = 0_i64;
    (changes.into_iter())
        .map(|(at, change)| {
            now = now.saturating_add(change);
            (at, u64::try_from(now).unwrap_or(0))
        })
        .collect()
}

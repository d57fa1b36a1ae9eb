//! What programs marked: each range a slice, each instant one, on a track below its thread's.

use std::{cmp::Reverse, io};

use crate::markers::{MarkerInstant, MarkerRange, RangeBegin, RangeEnd};

use super::{
    TraceInput, largest_left_out,
    nested_slices::NestedSlices,
    packets::Packets,
    tracks::{self, Argument, Mark, TrackId, Tracks},
};

/// Writes what the target marked, and returns how much there was no room for.
pub(super) fn write(
    trace: TraceInput<'_>,
    tracks: &mut Tracks<'_>,
    next_track: &mut u32,
    packets: &mut Packets<'_>,
) -> io::Result<u64> {
    let markers = trace.blame.markers();
    let timeline = trace.blame.timeline();
    let length = |range: &MarkerRange| range.to.since(range.from);
    let mut ranges: Vec<&MarkerRange> =
        markers.ranges().iter().filter(|range| timeline.is_in_target(range.thread)).collect();
    let mut instants: Vec<&MarkerInstant> =
        markers.instants().iter().filter(|one| timeline.is_in_target(one.thread)).collect();
    let all = ranges.len() + instants.len();
    let mut lengths: Vec<_> = ranges.iter().map(|range| length(range)).collect();
    if let Some(longest) = largest_left_out(&mut lengths, trace.limits.markers) {
        ranges.retain(|range| length(range) > longest);
    }
    instants.drain(..instants.len().saturating_sub(trace.limits.markers));
    let left_out = (all - ranges.len() - instants.len()) as u64;
    let track_of = |range: &MarkerRange| markers.name(range.name).0;
    ranges.sort_by_key(|range| (range.thread, track_of(range), range.from, Reverse(range.to)));
    let is_beside = |one: &&MarkerRange, other: &&MarkerRange| {
        (one.thread, track_of(one)) == (other.thread, track_of(other))
    };
    for of_track in ranges.chunk_by(is_beside) {
        let Some(first) = of_track.first() else { continue };
        let mut lanes = NestedSlices::new(track_of(first));
        for range in of_track {
            let times = (range.from, range.to);
            let numbered = (&mut *tracks, &mut *next_track);
            if let Some(track) = lanes.find_track(range.thread, times, numbered, packets)? {
                let name = markers.name(range.name).1;
                tracks::begin(track, range.from, range_mark(range, name), packets)?;
            }
        }
        lanes.close_all(packets)?;
    }
    let instant_track = |instant: &MarkerInstant| markers.name(instant.name).0;
    instants.sort_by_key(|instant| (instant.thread, instant_track(instant), instant.at));
    let mut last: Option<(&MarkerInstant, TrackId)> = None;
    for instant in instants {
        let (of_track, name) = markers.name(instant.name);
        let known = last.filter(|(before, _)| {
            (before.thread, instant_track(before)) == (instant.thread, of_track)
        });
        let track = match known {
            Some((_, track)) => track,
            None => {
                let Some(parent) = tracks.thread_track(instant.thread, packets)? else { continue };
                let track = TrackId::numbered(*next_track);
                *next_track += 1;
                tracks::describe_child_track(track, parent, of_track, instant.at, packets)?;
                track
            }
        };
        tracks::write_instant(track, instant.at, mark(name, Vec::new()), packets)?;
        last = Some((instant, track));
    }
    Ok(left_out)
}

/// A range says what is not known of it.
fn range_mark(range: &MarkerRange, name: &str) -> Mark<'static> {
    let begin = match range.begin {
        RangeBegin::Marked => None,
        RangeBegin::BeforeWindow => Some(("begin", Argument::Text("before the window"))),
    };
    let end = match range.end {
        RangeEnd::Marked => None,
        RangeEnd::ByOtherThread => Some(("end", Argument::Text("marked by another thread"))),
        RangeEnd::NotSeen => Some(("end", Argument::Text("not marked"))),
    };
    mark(name, begin.into_iter().chain(end).collect())
}

fn mark(name: &str, arguments: Vec<(&'static str, Argument<'static>)>) -> Mark<'static> {
    Mark { category: "marker", name: name.to_owned(), arguments, arrows: Vec::new() }
}

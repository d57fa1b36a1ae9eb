//! Tracks, and what lies on them: slices, instants and counters.

use std::{collections::HashSet, io};

use offwake_recording::units::Timestamp;

use crate::{
    text,
    timeline::{ThreadIndex, Timeline},
};

use super::{
    messages::{
        AnnotationValue, CounterDescriptor, Data, DebugAnnotation, ThreadDescriptor,
        TracePacketDefaults, TrackDescriptor, TrackEvent, TrackEventType,
    },
    packets::{Packets, Sequence},
};

/// Names a track within a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TrackId(u64);

impl TrackId {
    /// Returns a thread's own track.
    fn for_thread(index: ThreadIndex) -> Self {
        Self((1 << 32) | u64::from(index.0))
    }

    /// Returns a track that is not a thread's own, by its number.
    pub(super) fn numbered(number: u32) -> Self {
        Self((2 << 32) | u64::from(number))
    }
}

/// An end of an arrow between two events on different tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrow {
    /// The arrow with this id starts here.
    From(u64),
    /// The arrow with this id ends here.
    To(u64),
}

/// A slice's beginning, or an instant.
pub(super) struct Mark<'a> {
    pub(super) category: &'static str,
    pub(super) name: String,
    pub(super) arguments: Vec<(&'static str, Argument<'a>)>,
    pub(super) arrows: Vec<Arrow>,
}

/// The value of an argument of a slice or an instant.
pub(super) enum Argument<'a> {
    Text(&'a str),
    Number(u64),
}

/// The tracks that were described so far.
pub(super) struct Tracks<'a> {
    timeline: &'a Timeline,
    described: HashSet<ThreadIndex>,
}

impl<'a> Tracks<'a> {
    pub(super) fn begin(timeline: &'a Timeline, packets: &mut Packets<'_>) -> io::Result<Self> {
        packets.begin(Sequence::Tracks, TracePacketDefaults::default())?;
        Ok(Self { timeline, described: HashSet::new() })
    }

    /// Returns a thread's own track, and describes it if it is new. None if there is no such
    /// thread.
    pub(super) fn thread_track(
        &mut self,
        index: ThreadIndex,
        packets: &mut Packets<'_>,
    ) -> io::Result<Option<TrackId>> {
        let Some(thread) = self.timeline.thread(index) else { return Ok(None) };
        let id = TrackId::for_thread(index);
        if self.described.insert(index) {
            let descriptor = TrackDescriptor {
                uuid: Some(id.0),
                thread: Some(ThreadDescriptor {
                    pid: Some(thread.tgid.0.cast_signed()),
                    tid: Some(thread.tid.0.cast_signed()),
                }),
                ..TrackDescriptor::default()
            };
            packets.send(Sequence::Tracks, thread.from, Data::TrackDescriptor(descriptor))?;
        }
        Ok(Some(id))
    }
}

/// Describes a track below another.
pub(super) fn describe_child_track(
    id: TrackId,
    parent: TrackId,
    name: &str,
    at: Timestamp,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let descriptor = TrackDescriptor {
        uuid: Some(id.0),
        parent_uuid: Some(parent.0),
        name: Some(name.to_owned()),
        ..TrackDescriptor::default()
    };
    packets.send(Sequence::Tracks, at, Data::TrackDescriptor(descriptor))
}

/// Describes a counter.
pub(super) fn describe_counter(
    id: TrackId,
    name: &str,
    unit: &str,
    at: Timestamp,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let descriptor = TrackDescriptor {
        uuid: Some(id.0),
        counter: Some(CounterDescriptor { unit_name: Some(unit.to_owned()) }),
        name: Some(text::plain(name)),
        ..TrackDescriptor::default()
    };
    packets.send(Sequence::Tracks, at, Data::TrackDescriptor(descriptor))
}

/// Writes the value of a counter.
pub(super) fn write_count(
    id: TrackId,
    at: Timestamp,
    value: u64,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let event = TrackEvent {
        counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
        ..event(id, TrackEventType::Counter)
    };
    packets.send_with(Sequence::Tracks, at, Data::TrackEvent(event), None)
}

/// Writes a slice from `from` to `to`. The slices of one track are nested or apart.
pub(super) fn write_slice(
    id: TrackId,
    (from, to): (Timestamp, Timestamp),
    mark: Mark<'_>,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    begin(id, from, mark, packets)?;
    end_slice(id, to, packets)
}

/// Writes a slice's beginning.
pub(super) fn begin(
    id: TrackId,
    at: Timestamp,
    mark: Mark<'_>,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let event = with_mark(event(id, TrackEventType::SliceBegin), mark);
    packets.send_with(Sequence::Tracks, at, Data::TrackEvent(event), None)
}

/// Writes the end of the slice that began last.
pub(super) fn end_slice(id: TrackId, at: Timestamp, packets: &mut Packets<'_>) -> io::Result<()> {
    let event = event(id, TrackEventType::SliceEnd);
    packets.send_with(Sequence::Tracks, at, Data::TrackEvent(event), None)
}

/// Writes an instant.
pub(super) fn write_instant(
    id: TrackId,
    at: Timestamp,
    mark: Mark<'_>,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let event = with_mark(event(id, TrackEventType::Instant), mark);
    packets.send_with(Sequence::Tracks, at, Data::TrackEvent(event), None)
}

fn event(id: TrackId, of_type: TrackEventType) -> TrackEvent {
    let r#type = Some(of_type as i32);
    TrackEvent { track_uuid: Some(id.0), r#type, ..TrackEvent::default() }
}

fn with_mark(mut event: TrackEvent, mark: Mark<'_>) -> TrackEvent {
    event.categories = vec![mark.category.to_owned()];
    event.name = Some(text::plain(&mark.name));
    for (name, argument) in mark.arguments {
        event.debug_annotations.push(DebugAnnotation {
            name: Some(name.to_owned()),
            value: Some(match argument {
                Argument::Text(words) => AnnotationValue::Text(text::plain(words)),
                Argument::Number(number) => AnnotationValue::Number(number),
            }),
        });
    }
    for arrow in mark.arrows {
        match arrow {
            Arrow::From(id) => event.flow_ids.push(id),
            Arrow::To(id) => event.terminating_flow_ids.push(id),
        }
    }
    event
}

//! The timeline's lanes as JSON.

use offwake_recording::units::Timestamp;
use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::report::Report;

use super::{
    class::PageClass,
    lanes::{Bin, Lane, LaneShape, Lanes},
    texts::{TextId, Texts},
};

/// Times are nanoseconds since the window opened.
#[derive(Serialize)]
pub(super) struct PageTimeline<'a> {
    length_ns: u64,
    lanes: Vec<LaneEntry<'a>>,
    waits: Vec<LaneWaitEntry>,
    waits_left_out: u64,
    threads_left_out: u64,
    blocked_left_out_ns: u64,
}

#[derive(Serialize)]
struct LaneEntry<'a> {
    text: TextId,
    process: u32,
    from_ns: u64,
    until_ns: u64,
    #[serde(flatten)]
    shape: ShapeEntry<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ShapeEntry<'a> {
    /// Pairs: how long after the interval before it an interval begins, and its state.
    Exact(Vec<u64>),
    Binned(Bins<'a>),
}

/// Four characters a bin, one for each state: `A` is nothing, `/` all of it.
struct Bins<'a>(&'a [Bin]);

impl Serialize for Bins<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The alphabet of base64: no character of it needs escaping in JSON.
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digits = self.0.iter().flat_map(|bin| bin.0);
        let text: String = digits
            .map(|share| char::from(DIGITS.get(usize::from(share)).copied().unwrap_or(b'/')))
            .collect();
        serializer.serialize_str(&text)
    }
}

/// `[lane, from, to, cause, on, label, woken by, lane of the waker, [class, words, ns]…, rest]`
struct LaneWaitEntry {
    lane: usize,
    from_ns: u64,
    to_ns: u64,
    cause: TextId,
    on: Option<TextId>,
    label: Option<TextId>,
    ended_by: TextId,
    ended_from: Option<usize>,
    parts: Vec<(PageClass, TextId, u64)>,
    rest_ns: u64,
}

impl Serialize for LaneWaitEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_seq(Some(10))?;
        row.serialize_element(&self.lane)?;
        row.serialize_element(&self.from_ns)?;
        row.serialize_element(&self.to_ns)?;
        row.serialize_element(&self.cause)?;
        row.serialize_element(&self.on)?;
        row.serialize_element(&self.label)?;
        row.serialize_element(&self.ended_by)?;
        row.serialize_element(&self.ended_from)?;
        row.serialize_element(&self.parts)?;
        row.serialize_element(&self.rest_ns)?;
        row.end()
    }
}

/// Builds the timeline of the report's target.
pub(super) fn build_timeline<'a>(
    report: &Report,
    lanes: &'a Lanes,
    texts: &mut Texts<'_>,
) -> PageTimeline<'a> {
    let since = |at: Timestamp| at.since(report.window.start_ns).0;
    let waits = (lanes.waits.iter())
        .map(|wait| LaneWaitEntry {
            lane: wait.lane,
            from_ns: since(wait.from),
            to_ns: since(wait.to),
            cause: texts.id(wait.cause.name()),
            on: wait.on.as_ref().map(|on| texts.id(on)),
            label: wait.label.as_ref().map(|label| texts.id(&label.function)),
            ended_by: texts.id(&wait.ended_by),
            ended_from: wait.ended_from,
            parts: (wait.parts.iter())
                .map(|part| (part.class, texts.id(&part.text), part.ns.0))
                .collect(),
            rest_ns: wait.rest.0,
        })
        .collect();
    PageTimeline {
        length_ns: report.window.duration_ns.0,
        lanes: lanes.lanes.iter().map(|lane| lane_entry(lane, since, texts)).collect(),
        waits,
        waits_left_out: lanes.waits_left_out,
        threads_left_out: lanes.threads_left_out,
        blocked_left_out_ns: lanes.blocked_left_out.0,
    }
}

fn lane_entry<'a>(
    lane: &'a Lane,
    since: impl Fn(Timestamp) -> u64,
    texts: &mut Texts<'_>,
) -> LaneEntry<'a> {
    let from_ns = since(lane.from);
    LaneEntry {
        text: texts.thread(&lane.comm, lane.tid, lane.container.as_deref()),
        process: lane.tgid.0,
        from_ns,
        until_ns: since(lane.until),
        shape: match &lane.shape {
            LaneShape::Binned(bins) => ShapeEntry::Binned(Bins(bins)),
            LaneShape::Exact(intervals) => {
                let mut before = from_ns;
                let pairs = intervals.iter().flat_map(|&(at, state)| {
                    let at = since(at);
                    let delta = at.saturating_sub(before);
                    before = at;
                    [delta, state as u64]
                });
                ShapeEntry::Exact(pairs.collect())
            }
        },
    }
}

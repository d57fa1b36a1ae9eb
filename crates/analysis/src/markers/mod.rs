//! What programs marked in their own code: begins and ends → ranges, and in which of them a thread
//! is at any moment.
//!
//! ```text
//! markers  B step       B forward        E forward      E step
//! thread  --[----------------[----------------]-------------]--------
//! path        step        step, forward            step         none
//! ```
//!
//! `docs/markers.md` says what is made of a begin without an end, and of an end without a begin.

mod pairing;
mod paths;
mod spans;
mod totals;

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexSet;
use offwake_recording::{Marker, MarkerKind, Recording, units::Timestamp};

use crate::timeline::{ThreadIndex, Timeline};

use paths::{MarkerPaths, PathSteps};

pub use pairing::UnpairedMarkers;
pub use paths::MarkerPathId;
pub(crate) use spans::label_spans;
pub use totals::{MarkerTotals, sum_up};

/// A track and a name, within one [`Markers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkerNameId(u32);

/// Where the beginning of a range is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeBegin {
    /// Its marker.
    Marked,
    /// It was open already as the window opened.
    BeforeWindow,
}

/// Where the end of a range is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeEnd {
    /// Its marker.
    Marked,
    /// A marker that another thread of the process set. Nothing is said then of what either thread
    /// was doing in between: such a range is on no chain.
    ByOtherThread,
    /// No marker: the window or the thread ended, the process executed another program, or the same
    /// range began again.
    NotSeen,
}

/// A range of a thread's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerRange {
    /// The thread that began it.
    pub thread: ThreadIndex,
    /// Its track and its name.
    pub name: MarkerNameId,
    /// Where it begins.
    pub from: Timestamp,
    /// Where it ends.
    pub to: Timestamp,
    /// How the first is known.
    pub begin: RangeBegin,
    /// How the second is known.
    pub end: RangeEnd,
}

/// A moment that a thread marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerInstant {
    /// The thread.
    pub thread: ThreadIndex,
    /// Its track and its name.
    pub name: MarkerNameId,
    /// When.
    pub at: Timestamp,
}

/// The tracks and names of markers, each stored once.
#[derive(Debug, Default)]
struct MarkerNames {
    pairs: IndexSet<(Arc<str>, Arc<str>), foldhash::fast::RandomState>,
    /// Both in one text, by [`MarkerNameId`].
    texts: Vec<Arc<str>>,
}

impl MarkerNames {
    fn intern(&mut self, marker: &Marker) -> MarkerNameId {
        let pair = (Arc::clone(&marker.track), Arc::clone(&marker.name));
        let (index, is_new) = self.pairs.insert_full(pair);
        if is_new {
            self.texts.push(match &*marker.track {
                Marker::DEFAULT_TRACK => Arc::clone(&marker.name),
                track => Arc::from(format!("{track}:{}", marker.name)),
            });
        }
        MarkerNameId(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// Everything that was marked in a recording.
#[derive(Debug, Default)]
pub struct Markers {
    names: MarkerNames,
    /// By thread, then by their beginnings.
    ranges: Vec<MarkerRange>,
    /// In order of time.
    instants: Vec<MarkerInstant>,
    unpaired: UnpairedMarkers,
    paths: MarkerPaths,
    steps: HashMap<ThreadIndex, PathSteps, foldhash::fast::RandomState>,
}

impl Markers {
    /// Pairs the markers of a recording.
    #[must_use]
    pub fn new(recording: &Recording, timeline: &Timeline) -> Self {
        let mut markers = Self::default();
        if recording.markers.is_empty() {
            return markers;
        }
        let window = recording.meta.window;
        let mut names = MarkerNames::default();
        let mut pairing = pairing::Pairing::new(recording, timeline);
        let mut resolved = Vec::with_capacity(recording.markers.len());
        for marker in &recording.markers {
            let inside = marker.at.clamp(window.start, window.end);
            let Some(thread) = timeline.find_thread(marker.tid, inside) else { continue };
            let name = names.intern(marker);
            pairing.note_role(marker.kind, thread, name);
            resolved.push((marker, thread, name));
        }
        for (marker, thread, name) in resolved {
            match marker.kind {
                MarkerKind::Begin => pairing.begin_range(marker, thread, name),
                MarkerKind::End => pairing.end_range(marker, thread, name),
                MarkerKind::Instant if marker.at >= window.start => {
                    markers.instants.push(MarkerInstant { thread, name, at: marker.at });
                }
                MarkerKind::Instant => {}
            }
        }
        (markers.ranges, markers.unpaired) = pairing.finish();
        markers.names = names;
        for of_thread in markers.ranges.chunk_by(|one, other| one.thread == other.thread) {
            if let Some(first) = of_thread.first() {
                let steps = markers.paths.find_steps(of_thread);
                markers.steps.insert(first.thread, steps);
            }
        }
        markers
    }

    /// Returns whether nothing was marked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.instants.is_empty()
    }

    /// Returns all ranges, by thread, then by their beginnings.
    #[must_use]
    pub fn ranges(&self) -> &[MarkerRange] {
        &self.ranges
    }

    /// Returns all instants, in order of time.
    #[must_use]
    pub fn instants(&self) -> &[MarkerInstant] {
        &self.instants
    }

    /// Returns how many markers lack their other half.
    #[must_use]
    pub fn unpaired(&self) -> UnpairedMarkers {
        self.unpaired
    }

    /// Returns a track and a name.
    #[must_use]
    pub fn name(&self, id: MarkerNameId) -> (&str, &str) {
        (self.names.pairs.get_index(id.0 as usize)).map_or(("", ""), |(track, name)| (track, name))
    }

    /// Returns a track and a name in one text: `Training:forward`, and the name alone of the track
    /// of markers that have none.
    #[must_use]
    pub fn text(&self, id: MarkerNameId) -> Arc<str> {
        self.names.texts.get(id.0 as usize).cloned().unwrap_or_default()
    }

    /// Returns in which ranges a thread is at a moment.
    #[must_use]
    pub fn path_at(&self, thread: ThreadIndex, at: Timestamp) -> MarkerPathId {
        self.steps.get(&thread).map_or(MarkerPathId::NONE, |steps| steps.path_at(at))
    }

    /// Divides a stretch of a thread's life where the ranges change that it is in, and calls
    /// `visit` with each part, the last one first.
    pub(crate) fn divide_back(
        &self,
        thread: ThreadIndex,
        (from, to): (Timestamp, Timestamp),
        mut visit: impl FnMut((Timestamp, Timestamp), MarkerPathId),
    ) {
        match self.steps.get(&thread) {
            Some(steps) => steps.divide_back((from, to), visit),
            None => visit((from, to), MarkerPathId::NONE),
        }
    }

    /// Returns the texts of the ranges of a path, the outermost first.
    #[must_use]
    pub fn path_texts(&self, path: MarkerPathId) -> Vec<Arc<str>> {
        self.paths.names(path).iter().map(|&name| self.text(name)).collect()
    }
}

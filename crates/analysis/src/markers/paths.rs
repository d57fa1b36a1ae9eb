//! In which ranges a thread is, as a list of moments at which that changes.

use indexmap::IndexSet;
use offwake_recording::units::Timestamp;

use super::{MarkerNameId, MarkerRange, RangeEnd};

/// The most ranges of a path: the outermost.
const MAX_DEPTH: usize = 16;

/// The ranges that a thread is in, within one [`super::Markers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkerPathId(u32);

impl MarkerPathId {
    /// The thread is in none.
    pub const NONE: Self = Self(0);

    /// The number by which hashes tell it from others.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// The distinct paths, each stored once. The empty one is not among them.
#[derive(Debug, Default)]
pub(super) struct MarkerPaths(IndexSet<Box<[MarkerNameId]>, foldhash::fast::RandomState>);

impl MarkerPaths {
    /// Returns the names of a path, the outermost first.
    pub fn names(&self, path: MarkerPathId) -> &[MarkerNameId] {
        let place = (path.0 as usize).checked_sub(1);
        place.and_then(|place| self.0.get_index(place)).map_or(&[], |names| names)
    }

    /// Finds how the path of a thread changes. Ranges that another thread ended are on no path.
    pub fn find_steps(&mut self, ranges: &[MarkerRange]) -> PathSteps {
        let mut changes: Vec<(Timestamp, Change, usize)> = Vec::with_capacity(2 * ranges.len());
        let own = ranges.iter().enumerate().filter(|(_, r)| r.end != RangeEnd::ByOtherThread);
        for (place, range) in own.filter(|(_, range)| range.from < range.to) {
            changes.push((range.from, Change::Begin, place));
            changes.push((range.to, Change::End, place));
        }
        changes.sort_unstable();
        let mut open: Vec<usize> = Vec::new();
        let mut steps: Vec<(Timestamp, MarkerPathId)> = Vec::new();
        for (at, change, place) in changes {
            match change {
                Change::Begin => open.push(place),
                Change::End => open.retain(|&one| one != place),
            }
            let names = open.iter().take(MAX_DEPTH).filter_map(|&place| ranges.get(place));
            let path = self.intern(names.map(|range| range.name).collect());
            match steps.last_mut().filter(|(before, _)| *before == at) {
                Some(step) => step.1 = path,
                None => steps.push((at, path)),
            }
        }
        PathSteps(steps)
    }

    fn intern(&mut self, names: Box<[MarkerNameId]>) -> MarkerPathId {
        if names.is_empty() {
            return MarkerPathId::NONE;
        }
        let (index, _) = self.0.insert_full(names);
        MarkerPathId(u32::try_from(index + 1).unwrap_or(0))
    }
}

/// Ends come before begins of the same moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    End,
    Begin,
}

/// From which moment on a thread is in which ranges, in order of time.
#[derive(Debug, Default)]
pub(super) struct PathSteps(Vec<(Timestamp, MarkerPathId)>);

impl PathSteps {
    pub fn path_at(&self, at: Timestamp) -> MarkerPathId {
        let begun = self.0.partition_point(|&(since, _)| since <= at);
        let place = begun.checked_sub(1);
        place.and_then(|place| self.0.get(place)).map_or(MarkerPathId::NONE, |step| step.1)
    }

    pub fn divide_back(
        &self,
        (from, to): (Timestamp, Timestamp),
        mut visit: impl FnMut((Timestamp, Timestamp), MarkerPathId),
    ) {
        let begun = self.0.partition_point(|&(since, _)| since < to);
        let mut until = to;
        for &(since, path) in self.0.get(..begun).unwrap_or_default().iter().rev() {
            if since <= from {
                return visit((from, until), path);
            }
            visit((since, until), path);
            until = since;
        }
        visit((from, until), MarkerPathId::NONE);
    }
}

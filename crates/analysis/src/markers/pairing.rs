//! Begins and ends → ranges, thread by thread.

use std::collections::{BTreeMap, HashMap, HashSet};

use offwake_recording::{
    Marker, MarkerKind, Recording, ThreadEventReason, Window,
    units::{Tgid, Timestamp},
};

use crate::timeline::{ThreadIndex, Timeline};

use super::{MarkerNameId, MarkerRange, RangeBegin, RangeEnd};

/// The most ranges that a thread is in at once. Who begins more does not end them.
const MAX_OPEN: usize = 64;
/// The most of them that have one name: a function that calls itself. The first of more was not
/// ended.
const MAX_RECURSION: usize = 8;
/// Counters of lost markers: where one is not 0, the other half of a marker may have been set.
const LOSSES: [&str; 4] =
    ["ring_full_marker", "marker_unreadable", "marker_over_rate", "markers_refused"];

/// How many markers lack their other half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpairedMarkers {
    /// Ranges that no marker ended.
    pub begins_without_end: u64,
    /// Ends of ranges that were open as the window opened.
    pub ends_of_earlier_begins: u64,
    /// Ends of nothing: they are left out.
    pub ends_without_begin: u64,
    /// Ranges that another thread ended than the one that began them.
    pub ended_by_other_threads: u64,
    /// Ranges of threads that were in too many already: they are left out.
    pub too_many_open: u64,
    /// Markers that were lost.
    pub lost: u64,
}

/// A range that has not ended yet.
#[derive(Clone, Copy)]
struct OpenRange {
    name: MarkerNameId,
    from: Timestamp,
    /// When the same range began once more.
    again: Option<Timestamp>,
}

#[derive(Default)]
struct ThreadRanges {
    /// In the order of their beginnings.
    open: Vec<OpenRange>,
    /// What the thread has marked so far.
    seen: HashSet<MarkerNameId, foldhash::fast::RandomState>,
    /// The ranges that are taken to have been open as the window opened, by their places.
    earlier: HashMap<MarkerNameId, usize, foldhash::fast::RandomState>,
}

#[derive(Default)]
struct ProcessRanges {
    threads: BTreeMap<ThreadIndex, ThreadRanges>,
    /// By name, the threads that began such a range, the latest last. It may have ended since.
    openers: HashMap<MarkerNameId, Vec<ThreadIndex>, foldhash::fast::RandomState>,
    /// When the process executed other programs, the latest first.
    execs: Vec<Timestamp>,
    has_executed: bool,
}

/// What threads do with names.
type Roles = HashSet<(ThreadIndex, MarkerNameId, MarkerKind), foldhash::fast::RandomState>;

/// Pairs the markers of a recording, which come in order of time.
pub(super) struct Pairing<'a> {
    timeline: &'a Timeline,
    window: Window,
    processes: BTreeMap<Tgid, ProcessRanges>,
    /// Which threads begin ranges of which names, and which end some.
    roles: Roles,
    ranges: Vec<MarkerRange>,
    /// Places of ranges that turned out to be none.
    revoked: HashSet<usize>,
    unpaired: UnpairedMarkers,
}

impl<'a> Pairing<'a> {
    pub fn new(recording: &Recording, timeline: &'a Timeline) -> Self {
        let mut processes: BTreeMap<Tgid, ProcessRanges> = BTreeMap::new();
        for marker in &recording.markers {
            processes.entry(marker.tgid).or_default();
        }
        for seen in recording.thread_events.iter().rev() {
            if seen.reason == ThreadEventReason::Exec
                && let Some(process) = processes.get_mut(&seen.tgid)
            {
                process.execs.push(seen.at);
            }
        }
        let counters = &recording.loss.counters;
        let lost = LOSSES.iter().filter_map(|name| counters.get(*name)).sum();
        Self {
            timeline,
            window: recording.meta.window,
            processes,
            roles: HashSet::default(),
            ranges: Vec::new(),
            revoked: HashSet::new(),
            unpaired: UnpairedMarkers { lost, ..UnpairedMarkers::default() },
        }
    }

    /// Notes what a thread does with a name, before anything is paired.
    pub fn note_role(&mut self, kind: MarkerKind, thread: ThreadIndex, name: MarkerNameId) {
        self.roles.insert((thread, name, kind));
    }

    /// A thread begins a range.
    pub fn begin_range(&mut self, marker: &Marker, thread: ThreadIndex, name: MarkerNameId) {
        self.end_by_exec(marker);
        let Some(process) = self.processes.get_mut(&marker.tgid) else { return };
        let ranges = process.threads.entry(thread).or_default();
        ranges.seen.insert(name);
        ranges.earlier.remove(&name);
        let mut alike = 0;
        for open in ranges.open.iter_mut().filter(|open| open.name == name) {
            open.again.get_or_insert(marker.at);
            alike += 1;
        }
        if alike >= MAX_RECURSION
            && let Some(first) = ranges.open.iter().position(|open| open.name == name)
        {
            let open = ranges.open.remove(first);
            self.close_unended(thread, open, marker.at);
        }
        let Some(process) = self.processes.get_mut(&marker.tgid) else { return };
        let ranges = process.threads.entry(thread).or_default();
        if ranges.open.len() >= MAX_OPEN {
            self.unpaired.too_many_open += 1;
            return;
        }
        ranges.open.push(OpenRange { name, from: marker.at, again: None });
        process.openers.entry(name).or_default().push(thread);
    }

    /// A thread ends a range: the last one of this name that it began, else one from before the
    /// window. Who never begins such ranges ends that of another thread of its process which never
    /// ends any: a pool's threads, of which each has ranges of its own, have nothing to do with each
    /// other.
    pub fn end_range(&mut self, marker: &Marker, thread: ThreadIndex, name: MarkerNameId) {
        self.end_by_exec(marker);
        let Some(process) = self.processes.get_mut(&marker.tgid) else { return };
        if let Some(open) = process.take_open(thread, name) {
            return self.push(thread, open.name, (open.from, marker.at), RangeEnd::Marked);
        }
        if !self.roles.contains(&(thread, name, MarkerKind::Begin))
            && let Some((opener, open)) = process.take_open_of_others(name, &self.roles)
        {
            self.unpaired.ended_by_other_threads += 1;
            return self.push(opener, name, (open.from, marker.at), RangeEnd::ByOtherThread);
        }
        let has_executed = process.has_executed;
        let ranges = process.threads.entry(thread).or_default();
        // What was over before the window opened says nothing of it.
        if marker.at < self.window.start {
            return;
        }
        let is_first = ranges.seen.insert(name);
        let was_there = (self.timeline.thread(thread))
            .is_some_and(|life| life.created.is_none_or(|created| created < self.window.start));
        if is_first && was_there && !has_executed && self.unpaired.lost == 0 {
            ranges.earlier.insert(name, self.ranges.len());
            self.unpaired.ends_of_earlier_begins += 1;
            let (from, to) = self.window.clip(self.window.start, marker.at);
            let begin = RangeBegin::BeforeWindow;
            self.ranges.push(MarkerRange { thread, name, from, to, begin, end: RangeEnd::Marked });
            return;
        }
        self.unpaired.ends_without_begin += 1;
        // The program ends what it has not begun: the first of these ends said no more than this
        // one does.
        if let Some(place) = ranges.earlier.remove(&name) {
            self.revoked.insert(place);
            self.unpaired.ends_of_earlier_begins -= 1;
            self.unpaired.ends_without_begin += 1;
        }
    }

    /// Returns all ranges, by thread, then by their beginnings.
    pub fn finish(mut self) -> (Vec<MarkerRange>, UnpairedMarkers) {
        for process in std::mem::take(&mut self.processes).into_values() {
            let exec = process.execs.last().copied();
            for (thread, ranges) in process.threads {
                let until = self.timeline.thread(thread).map(|life| life.until);
                let until = until.unwrap_or(self.window.end);
                for open in ranges.open {
                    let exec = exec.filter(|&at| at > open.from);
                    self.close_unended(thread, open, exec.map_or(until, |at| at.min(until)));
                }
            }
        }
        let mut place = 0..;
        self.ranges.retain(|_| place.next().is_some_and(|place| !self.revoked.contains(&place)));
        let order = |range: &MarkerRange| (range.thread, range.from, std::cmp::Reverse(range.to));
        self.ranges.sort_by_key(order);
        (self.ranges, self.unpaired)
    }

    /// Ends the ranges of a process that has executed another program before it set this marker.
    fn end_by_exec(&mut self, marker: &Marker) {
        let Some(process) = self.processes.get_mut(&marker.tgid) else { return };
        let mut ended = Vec::new();
        while let Some(exec) = process.execs.pop_if(|at| *at <= marker.at) {
            process.has_executed = true;
            process.openers.clear();
            for (thread, ranges) in std::mem::take(&mut process.threads) {
                ended.extend(ranges.open.into_iter().map(|open| (thread, open, exec)));
            }
        }
        for (thread, open, exec) in ended {
            self.close_unended(thread, open, exec);
        }
    }

    /// Ends a range that no marker ended: where the same one begins again, at `until` at the
    /// latest. Where markers were lost, its end may be one of them, and nothing is claimed.
    fn close_unended(&mut self, thread: ThreadIndex, open: OpenRange, until: Timestamp) {
        self.unpaired.begins_without_end += 1;
        if self.unpaired.lost == 0 {
            let to = open.again.map_or(until, |again| again.min(until));
            self.push(thread, open.name, (open.from, to), RangeEnd::NotSeen);
        }
    }

    fn push(
        &mut self,
        thread: ThreadIndex,
        name: MarkerNameId,
        (from, to): (Timestamp, Timestamp),
        end: RangeEnd,
    ) {
        let begin =
            if from < self.window.start { RangeBegin::BeforeWindow } else { RangeBegin::Marked };
        // One that was over before the window opened is not in it.
        if to >= self.window.start {
            let (from, to) = self.window.clip(from, to);
            self.ranges.push(MarkerRange { thread, name, from, to, begin, end });
        }
    }
}

impl ProcessRanges {
    /// Takes the last range of this name that a thread has begun, and not ended.
    fn take_open(&mut self, thread: ThreadIndex, name: MarkerNameId) -> Option<OpenRange> {
        let open = &mut self.threads.get_mut(&thread)?.open;
        let place = open.iter().rposition(|range| range.name == name)?;
        Some(open.remove(place))
    }

    /// The same of whichever thread was the last to begin one, of those that end none.
    fn take_open_of_others(
        &mut self,
        name: MarkerNameId,
        roles: &Roles,
    ) -> Option<(ThreadIndex, OpenRange)> {
        while let Some(opener) = self.openers.get_mut(&name)?.pop() {
            if !roles.contains(&(opener, name, MarkerKind::End))
                && let Some(open) = self.take_open(opener, name)
            {
                return Some((opener, open));
            }
        }
        None
    }
}

//! Times in which a process may have done something of which nothing was recorded: records were lost, or
//! short waits summed up.

use std::collections::HashMap;

use offwake_recording::units::{Tgid, Timestamp};

use crate::timeline::Timeline;

type TimeRanges = Vec<(Timestamp, Timestamp)>;

/// The gaps in the lives of all threads.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    by_process: HashMap<Tgid, TimeRanges>,
    all: TimeRanges,
}

impl Gaps {
    pub(super) fn new(timeline: &Timeline) -> Self {
        let mut gaps = Self::default();
        for thread in &timeline.threads {
            for interval in thread.track.iter().filter(|i| i.state.is_unknown()) {
                let gap = (interval.from, interval.to);
                gaps.by_process.entry(thread.tgid).or_default().push(gap);
                gaps.all.push(gap);
            }
        }
        gaps.by_process.values_mut().for_each(merge_overlapping);
        merge_overlapping(&mut gaps.all);
        gaps
    }

    /// Returns whether a process has any gap; without a process, whether any thread has.
    pub(super) fn has_any(&self, process: Option<Tgid>) -> bool {
        match process {
            Some(tgid) => self.by_process.contains_key(&tgid),
            None => !self.all.is_empty(),
        }
    }

    /// Returns the end of the last gap inside `from..to`, of one process or of all of them.
    pub(super) fn last_end(
        &self,
        process: Option<Tgid>,
        from: Timestamp,
        to: Timestamp,
    ) -> Option<Timestamp> {
        let stretches = match process {
            Some(tgid) => self.by_process.get(&tgid)?,
            None => &self.all,
        };
        let begun = stretches.partition_point(|&(begin, _)| begin < to);
        let &(_, end) = stretches.get(begun.checked_sub(1)?)?;
        (end > from).then_some(end.min(to))
    }
}

/// Sorts time ranges and merges those that touch or overlap.
fn merge_overlapping(stretches: &mut TimeRanges) {
    stretches.sort_unstable();
    let mut joined: TimeRanges = Vec::new();
    for &(from, to) in stretches.iter() {
        match joined.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => joined.push((from, to)),
        }
    }
    *stretches = joined;
}

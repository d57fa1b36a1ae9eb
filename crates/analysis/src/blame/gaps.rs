//! Times in which a process may have done something of which records were lost.

use std::collections::HashMap;

use crate::timeline::{State, Timeline};
use offwake_recording::units::{Tgid, Timestamp};

type Stretches = Vec<(Timestamp, Timestamp)>;

/// The gaps in the lives of all threads.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    of_processes: HashMap<Tgid, Stretches>,
    of_all: Stretches,
}

impl Gaps {
    pub(super) fn new(timeline: &Timeline) -> Self {
        let mut gaps = Self::default();
        for thread in &timeline.threads {
            for interval in thread.track.iter().filter(|i| i.state == State::Lost) {
                let gap = (interval.from, interval.to);
                gaps.of_processes.entry(thread.tgid).or_default().push(gap);
                gaps.of_all.push(gap);
            }
        }
        gaps.of_processes.values_mut().for_each(join);
        join(&mut gaps.of_all);
        gaps
    }

    /// Returns whether a process has any gap; without a process, whether any thread has.
    pub(super) fn are_in(&self, process: Option<Tgid>) -> bool {
        match process {
            Some(tgid) => self.of_processes.contains_key(&tgid),
            None => !self.of_all.is_empty(),
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
            Some(tgid) => self.of_processes.get(&tgid)?,
            None => &self.of_all,
        };
        let begun = stretches.partition_point(|&(begin, _)| begin < to);
        let &(_, end) = stretches.get(begun.checked_sub(1)?)?;
        (end > from).then_some(end.min(to))
    }
}

/// Sorts time ranges and merges those that touch or overlap.
fn join(stretches: &mut Stretches) {
    stretches.sort_unstable();
    let mut joined: Stretches = Vec::new();
    for &(from, to) in stretches.iter() {
        match joined.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => joined.push((from, to)),
        }
    }
    *stretches = joined;
}

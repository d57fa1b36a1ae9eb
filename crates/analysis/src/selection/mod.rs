//! The target of a report where it is another than the recording's own: a recording of the whole
//! machine is narrowed to a process, say, after the fact.
//!
//! The chosen threads become the target of the timeline, and everything that comes after it follows:
//! ledgers, waits, wakes, processes, and every output. The recording stays as it is, and the chains
//! of the chosen threads lead wherever they led.

mod candidates;
mod container_query;
mod criteria;
mod error;
mod family;
mod identity;
mod words;

use std::collections::HashSet;

use offwake_recording::{
    Recording, TraceId,
    units::{Tgid, Tid},
};

pub use container_query::ContainerQuery;
pub use error::SelectionError;
pub use words::{describe_children, describe_processes};

use crate::timeline::{SelectedThreads, Timeline, WaitScope};
use criteria::Matches;

/// What becomes of the children of chosen processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Children {
    /// The children are chosen as well, and their children.
    #[default]
    Included,
    /// The children are not chosen for their parents' sake.
    Excluded,
}

/// Selects the threads that are the target of a report: those that meet every criterion that there
/// is. A criterion of several values is met by any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetSelection {
    /// Processes. Empty if any process will do.
    pub processes: Vec<Tgid>,
    /// Whether the children of those processes are meant as well.
    pub children: Children,
    /// Threads. Empty if any thread will do.
    pub threads: Vec<Tid>,
    /// Names that a thread had at any time. Empty if any name will do.
    pub comms: Vec<String>,
    /// A cgroup of the v2 hierarchy, which a thread was in or below at any time that it was looked
    /// at.
    pub cgroup: Option<String>,
    /// A container, or a pod.
    pub container: Option<ContainerQuery>,
    /// A trace that a thread worked for at any time that it was looked at.
    pub trace: Option<TraceId>,
}

impl TargetSelection {
    /// Returns whether there is no criterion: then the recording's own target stays.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let Self { processes, children: _, threads, comms, cgroup, container, trace } = self;
        processes.is_empty()
            && threads.is_empty()
            && comms.is_empty()
            && cgroup.is_none()
            && container.is_none()
            && trace.is_none()
    }

    /// Selects threads.
    ///
    /// # Errors
    ///
    /// If a value matches nothing, or no thread meets all criteria, or none of those that do was
    /// recorded.
    pub(crate) fn select(
        &self,
        recording: &Recording,
        timeline: &Timeline,
    ) -> Result<SelectedThreads, SelectionError> {
        let mut threads = vec![true; timeline.threads.len()];
        let mut words = Vec::new();
        for criterion in self.criteria(recording, timeline) {
            let Matches { threads: matching, words: of_criterion } = criterion?;
            for (selected, matches) in threads.iter_mut().zip(matching) {
                *selected &= matches;
            }
            words.push(of_criterion);
        }
        let words = words.join(", ");
        if !threads.contains(&true) {
            return Err(SelectionError::NoneTogether { words });
        }
        for (selected, thread) in threads.iter_mut().zip(&timeline.threads) {
            *selected &= thread.waits_recorded == WaitScope::Recorded;
        }
        if !threads.contains(&true) {
            let target = recording.meta.target.clone();
            return Err(SelectionError::NotRecorded { words, target });
        }
        let words = format!("{words} (of {})", recording.meta.target);
        Ok(SelectedThreads { threads, words })
    }

    fn criteria<'a>(
        &'a self,
        recording: &'a Recording,
        timeline: &'a Timeline,
    ) -> impl Iterator<Item = Result<Matches, SelectionError>> + 'a {
        let Self { processes, children, threads, comms, cgroup, container, trace } = self;
        let pids = (!processes.is_empty())
            .then(|| criteria::processes(recording, timeline, processes, *children));
        let tids = (!threads.is_empty()).then(|| criteria::threads(timeline, threads));
        let names = (!comms.is_empty()).then(|| criteria::comms(timeline, comms));
        let group = (cgroup.as_deref()).map(|path| criteria::cgroup(recording, timeline, path));
        let inside =
            (container.as_ref()).map(|query| criteria::container(recording, timeline, query));
        let traced = trace.map(|trace| criteria::trace(recording, timeline, trace));
        [pids, tids, names, group, inside, traced].into_iter().flatten()
    }
}

/// Lists each of several values once, in the order in which they come.
fn distinct<T: Copy + Eq + std::hash::Hash>(values: &[T]) -> Vec<T> {
    let mut seen = HashSet::new();
    values.iter().copied().filter(|value| seen.insert(*value)).collect()
}

//! Who descends from whom, as far as a recording tells.

use std::collections::{HashMap, HashSet};

use offwake_recording::{Recording, units::Tgid};

use crate::timeline::Timeline;

use super::{Children, identity::Process};

/// The processes that had one of these ids and, if they are included, their children, theirs and so
/// on.
///
/// A process is the child of every process that was its parent when it was looked at: of the one that
/// forked it, and of whoever adopted it after that one had ended. Who ended before the recording
/// began is in nobody's memory, and nor are its children's children known to be of the family.
pub(super) fn members(
    recording: &Recording,
    timeline: &Timeline,
    wanted: &[Tgid],
    children: Children,
) -> HashSet<Process> {
    let mut members: HashSet<Process> = (timeline.threads.iter())
        .filter(|thread| wanted.contains(&thread.tgid))
        .map(|thread| Process::from_thread(timeline, thread))
        .collect();
    if children == Children::Excluded {
        return members;
    }
    let by_parent = children_by_parent(recording, timeline);
    let mut pending: Vec<Process> = members.iter().copied().collect();
    while let Some(parent) = pending.pop() {
        for &child in by_parent.get(&parent).into_iter().flatten() {
            if members.insert(child) {
                pending.push(child);
            }
        }
    }
    members
}

fn children_by_parent(
    recording: &Recording,
    timeline: &Timeline,
) -> HashMap<Process, HashSet<Process>> {
    let events = recording.thread_events.iter().map(|thread_event| {
        let child = Process::at(timeline, thread_event.tgid, thread_event.created);
        (child, Process::at(timeline, thread_event.parent, thread_event.at))
    });
    let infos = recording.processes.iter().filter_map(|info| {
        let child = Process::at(timeline, info.tgid, info.at);
        Some((child, Process::at(timeline, info.parent?, info.at)))
    });
    let mut by_parent = HashMap::<Process, HashSet<Process>>::new();
    for (child, parent) in events.chain(infos) {
        // PID 0 is the kernel's own, and the parent of those that have none.
        if parent.tgid != Tgid(0) && parent.tgid != child.tgid {
            by_parent.entry(parent).or_default().insert(child);
        }
    }
    by_parent
}

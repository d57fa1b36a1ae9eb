//! The containers that threads live in.

use std::collections::{BTreeMap, HashMap};

use offwake_recording::{
    ContainerId, ContainerNames, Recording,
    units::{Tgid, Tid},
};

use crate::timeline::Timeline;

use super::{ContainerEntry, ContainerProcess};

/// The ids that processes have inside of their containers, by those that they have outside.
pub(super) fn inner_pids(recording: &Recording) -> HashMap<Tgid, u32> {
    // Sorted by time: the last reading counts.
    let infos = recording.processes.iter().filter(|info| info.pid_in_container.is_some());
    infos.filter_map(|info| Some((info.tgid, info.pid_in_container?))).collect()
}

/// The containers in which threads were seen, by id.
pub(super) fn container_entries(recording: &Recording, timeline: &Timeline) -> Vec<ContainerEntry> {
    let mut containers = BTreeMap::<&ContainerId, (&ContainerNames, BTreeMap<Tgid, &str>)>::new();
    for thread in &timeline.threads {
        let cgroup = thread.cgroup.and_then(|id| recording.cgroups.get(&id));
        let Some((cgroup, container)) = cgroup.and_then(|c| Some((c, c.container.as_ref()?)))
        else {
            continue;
        };
        let (names, processes) =
            containers.entry(container).or_insert_with(|| (&cgroup.names, BTreeMap::new()));
        if **names == ContainerNames::default() {
            *names = &cgroup.names;
        }
        let comm = processes.entry(thread.tgid).or_insert_with(|| thread.last_comm());
        if thread.tid == Tid(thread.tgid.0) {
            *comm = thread.last_comm();
        }
    }
    let inner = inner_pids(recording);
    (containers.into_iter())
        .map(|(id, (names, processes))| ContainerEntry {
            id: id.to_string(),
            label: names.label(id),
            name: names.name.clone(),
            image: names.image.clone(),
            pod: names.pod.as_ref().map(ToString::to_string),
            processes: (processes.into_iter())
                .map(|(tgid, comm)| ContainerProcess {
                    tgid,
                    comm: comm.to_owned(),
                    pid_in_container: inner.get(&tgid).copied(),
                })
                .collect(),
        })
        .collect()
}

//! What containers are called.

use std::collections::HashMap;

use offwake_recording::{Recording, units::CgroupId};

use crate::timeline::Thread;

/// The labels of a recording's containers, by cgroup.
pub(crate) struct ContainerLabels(HashMap<CgroupId, String>);

impl ContainerLabels {
    pub(crate) fn new(recording: &Recording) -> Self {
        let labels = recording
            .cgroups
            .values()
            .filter_map(|cgroup| Some((cgroup.id, cgroup.names.label(cgroup.container.as_ref()?))));
        Self(labels.collect())
    }

    /// Returns the label of the container that a cgroup belongs to.
    pub(crate) fn for_cgroup(&self, cgroup: Option<CgroupId>) -> Option<&str> {
        self.0.get(&cgroup?).map(String::as_str)
    }

    /// Returns the label of the container that a thread was in last.
    pub(crate) fn for_thread(&self, thread: &Thread) -> Option<&str> {
        self.for_cgroup(thread.cgroup)
    }
}

//! Who a process was, beyond its name: its program and its cgroup.

use crate::{
    container::{ContainerId, ContainerNames},
    memory::{OWNED, measure_texts},
    units::{CgroupId, Tgid, Timestamp},
};

/// What `/proc` said of a process at one moment. What it could not say is absent.
///
/// The texts come from other programs, and may hold anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The process.
    pub tgid: Tgid,
    /// When it was looked at.
    pub at: Timestamp,
    /// Its parent; PID 1 has none.
    pub parent: Option<Tgid>,
    /// The program that it ran, as the link `/proc/PID/exe` names it; a kernel thread and a zombie
    /// have none.
    pub executable: Option<String>,
    /// Its arguments, the name that it was called by first: 4096 bytes in all at most. A `…` at the
    /// end says that there were more. Empty too while it was becoming another program.
    pub arguments: Vec<String>,
    /// Path of its cgroup in the v2 hierarchy, with a leading slash.
    pub cgroup: Option<String>,
    /// Its own idea of its PID, if it lives in a PID namespace below the host's.
    pub pid_in_container: Option<u32>,
    /// Its effective user id, in the host's user namespace.
    pub uid: Option<u32>,
}

impl ProcessInfo {
    /// Returns about how many bytes it takes in memory. The process chooses the texts.
    #[must_use]
    pub fn memory(&self) -> usize {
        let texts = self.arguments.iter().chain(&self.executable).chain(&self.cgroup);
        size_of::<Self>() + measure_texts(texts)
    }
}

/// A cgroup of the v2 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupInfo {
    /// Its id.
    pub id: CgroupId,
    /// Its path from the hierarchy's root, with a leading slash.
    pub path: String,
    /// The container that it is, or is a part of.
    pub container: Option<ContainerId>,
    /// What people call that container, as far as anybody could say.
    pub names: ContainerNames,
}

impl CgroupInfo {
    /// A cgroup by its path, which also says whether it belongs to a container.
    #[must_use]
    pub fn new(id: CgroupId, path: String) -> Self {
        let container = ContainerId::from_cgroup_path(&path);
        Self { id, path, container, names: ContainerNames::default() }
    }

    /// The same, of a container that somebody knows by this name.
    #[must_use]
    pub fn named(self, container: ContainerId, names: ContainerNames) -> Self {
        Self { container: Some(container), names, ..self }
    }

    /// Returns about how many bytes it takes in memory.
    #[must_use]
    pub fn memory(&self) -> usize {
        let ContainerNames { name, image, pod } = &self.names;
        let of_pod = pod.iter().flat_map(|pod| [&pod.namespace, &pod.name]);
        let texts = [&self.path].into_iter().chain(name).chain(image).chain(of_pod);
        let container = self.container.as_ref().map_or(0, |id| OWNED + id.as_str().len());
        size_of::<Self>() + container + measure_texts(texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_a_process_chose_count_with_their_bytes() {
        let process = |arguments: Vec<String>| ProcessInfo {
            tgid: Tgid(7),
            at: Timestamp(1),
            parent: None,
            executable: Some("x".repeat(1_000)),
            arguments,
            cgroup: Some("y".repeat(2_000)),
            pid_in_container: None,
            uid: None,
        };
        let short = process(Vec::new()).memory();
        assert!((3_000..3_500).contains(&short), "{short}");
        let long = process(vec!["a".repeat(2_000); 2]).memory();
        assert!((4_000..4_200).contains(&(long - short)), "{long}");
        // Empty ones take something too.
        let many = process(vec![String::new(); 2_048]).memory();
        assert!(many - short > 2_048 * size_of::<String>(), "{many}");
    }
}

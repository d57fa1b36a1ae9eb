//! The cgroups of containers and pods, by what their directories are called.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    path::{Path, PathBuf},
};

use offwake_recording::ContainerId;

/// How many directories are read. A machine with a thousand containers has some ten thousand.
const MAX_DIRECTORIES: usize = 262_144;
/// How deep below the root directories are read: the kernel allows more, but nobody nests like
/// that.
const MAX_DEPTH: usize = 64;

/// The containers and pods of one hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ContainerCgroups {
    /// The cgroup of each container: the uppermost that bears its id. Paths go from the hierarchy's
    /// root.
    pub containers: HashMap<ContainerId, PathBuf>,
    /// The cgroup of each pod, by its unique id.
    pub pods: HashMap<String, PathBuf>,
}

/// Searches the hierarchy that is mounted at `root`.
pub(super) fn scan(root: &Path) -> ContainerCgroups {
    let mut cgroups = ContainerCgroups::default();
    // The directories are read level by level, so that the uppermost one of a container comes
    // first.
    let mut open = VecDeque::from([(PathBuf::new(), 0)]);
    let mut seen = 0;
    while let Some((path, depth)) = open.pop_front() {
        let Ok(entries) = fs::read_dir(root.join(&path)) else { continue };
        for entry in entries.flatten() {
            // What a link leads to is not read.
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            seen += 1;
            if seen > MAX_DIRECTORIES {
                return cgroups;
            }
            let path = path.join(entry.file_name());
            cgroups.add_directory(&path, &entry.file_name().to_string_lossy());
            if depth < MAX_DEPTH {
                open.push_back((path, depth + 1));
            }
        }
    }
    cgroups
}

impl ContainerCgroups {
    fn add_directory(&mut self, path: &Path, name: &str) {
        if let Some(id) = ContainerId::in_directory_name(name) {
            self.containers.entry(id).or_insert_with(|| path.to_owned());
        } else if let Some(uid) = parse_pod_uid(name) {
            self.pods.entry(uid).or_insert_with(|| path.to_owned());
        }
    }

    /// The containers that are certain without an engine's word: their directories lie where only
    /// runtimes make any.
    pub(super) fn certain_containers(&self) -> impl Iterator<Item = (&ContainerId, &Path)> {
        self.containers.iter().map(|(id, path)| (id, path.as_path())).filter(|(id, path)| {
            let path = format!("/{}", path.display());
            ContainerId::from_cgroup_path(&path).as_ref() == Some(id)
        })
    }
}

/// The unique id of the pod whose cgroup this is or lies in.
pub(super) fn find_pod_uid(path: &Path) -> Option<String> {
    path.iter().rev().find_map(|name| parse_pod_uid(&name.to_string_lossy()))
}

/// Parses the unique id of a pod out of the name of its cgroup. The kubelet writes `pod<uid>`, or
/// with systemd's driver `kubepods-burstable-pod<uid>.slice` with `_` for `-`
/// ([`cgroup_manager_linux.go`](https://github.com/kubernetes/kubernetes/blob/v1.31.0/pkg/kubelet/cm/cgroup_manager_linux.go#L80),
/// [`GetPodContainerName`](https://github.com/kubernetes/kubernetes/blob/v1.31.0/pkg/kubelet/cm/pod_container_manager_linux.go#L106)).
fn parse_pod_uid(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => {
            let (above, uid) = slice.rsplit_once("-pod")?;
            if !above.starts_with("kubepods") && !above.contains("-kubepods") {
                return None;
            }
            uid.replace('_', "-")
        }
        None => name.strip_prefix("pod")?.to_owned(),
    };
    // The id is a UUID; that of a pod that a file on the node describes is a hash without hyphens.
    let is_uid = (32..=36).contains(&uid.len())
        && uid.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    is_uid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::parse_pod_uid;

    const UID: &str = "1b2c3d4e-0000-4111-8222-333344445555";

    #[test]
    fn a_pods_cgroup_is_known_by_its_name_with_either_driver() {
        let underscored = UID.replace('-', "_");
        for (name, expected) in [
            (format!("pod{UID}"), Some(UID)),
            (format!("kubepods-burstable-pod{underscored}.slice"), Some(UID)),
            (format!("kubepods-besteffort-pod{underscored}.slice"), Some(UID)),
            (format!("kubepods-pod{underscored}.slice"), Some(UID)),
            // In a cluster that runs in containers (kind).
            (format!("kubelet-kubepods-pod{underscored}.slice"), Some(UID)),
            (
                "pod0123456789abcdef0123456789abcdef".to_owned(),
                Some("0123456789abcdef0123456789abcdef"),
            ),
            (format!("my-pod{underscored}.slice"), None),
            ("pod".to_owned(), None),
            ("podman".to_owned(), None),
            ("kubepods-burstable.slice".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(parse_pod_uid(&name).as_deref(), expected, "{name}");
        }
    }
}

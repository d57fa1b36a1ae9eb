//! `containers.json`: the list that Podman and CRI-O keep beside the layers of their containers.

use offwake_recording::{ContainerId, ContainerNames};
use serde::Deserialize;

use super::{Container, ContainerRole, ContainerState};

/// An entry of the list
/// ([`Container`](https://github.com/containers/storage/blob/v1.55.0/containers.go#L44) of
/// containers/storage).
#[derive(Deserialize)]
struct StoredContainer {
    id: String,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    metadata: String,
}

/// The text that Podman and CRI-O put into an entry, as JSON.
#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(rename = "image-name")]
    image: Option<String>,
    /// CRI-O sets this for a pod's containers, whose names in the list are others.
    #[serde(rename = "pod-name")]
    pod: Option<String>,
}

/// Parses the containers of a list; none if it is no such list. Those of CRI-O's pods are left out:
/// their names here are made up, and their bundles say more.
pub(super) fn parse(json: &[u8]) -> Vec<Container> {
    let stored: Vec<StoredContainer> = serde_json::from_slice(json).unwrap_or_default();
    let known = stored.into_iter().filter_map(|stored| {
        let metadata: Metadata = serde_json::from_str(&stored.metadata).unwrap_or_default();
        if metadata.pod.is_some() {
            return None;
        }
        let names = ContainerNames {
            name: stored.names.into_iter().next(),
            image: metadata.image,
            pod: None,
        };
        let id = ContainerId::new(&stored.id)?;
        let state = ContainerState::Stopped(None);
        Some(Container { id, names, pod_uid: None, role: ContainerRole::Workload, state })
    });
    known.collect()
}

//! Lists the containers of an engine: Docker's API, which Podman speaks as well.

use std::{path::Path, time::Duration};

use offwake_recording::{ContainerId, ContainerNames, PodName};
use serde::Deserialize;

use super::{Container, ContainerRole, ContainerState, unix_socket};

/// How long one engine may take: the list of a thousand containers is there in some 0.1 s.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of an answer. A container takes some 1 to 3 KB of it.
const MAX_ANSWER: u64 = 32 << 20;

/// One entry of the list
/// ([`ContainerList`](https://docs.docker.com/reference/api/engine/version/v1.47/#tag/Container/operation/ContainerList);
/// Podman's [compatible one](https://docs.podman.io/en/v5.2.0/_static/api.html#tag/containers-(compat)/operation/ContainerList)).
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    id: String,
    /// With a leading slash. Names with another one in them are those by which other containers
    /// link to it.
    names: Option<Vec<String>>,
    image: Option<String>,
    state: Option<String>,
    labels: Option<std::collections::BTreeMap<String, String>>,
}

/// Lists the containers of the engine that one of these users has listening at `socket`, those that
/// are stopped included.
///
/// # Errors
///
/// Why there is no answer, or none that can be parsed.
pub(super) fn list(socket: &Path, listeners: &[u32]) -> Result<Vec<Container>, String> {
    list_within(socket, listeners, TIMEOUT)
}

/// Does the same within another time.
pub(super) fn list_within(
    socket: &Path,
    listeners: &[u32],
    timeout: Duration,
) -> Result<Vec<Container>, String> {
    let agent = unix_socket::agent(socket.to_owned(), listeners, timeout);
    // Without a version in the path, the engine answers as the newest that it knows.
    let answer = agent.get("http://engine/containers/json?all=1").call();
    let mut answer = answer.map_err(|error| error.to_string())?;
    let body = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
    parse(&body.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

/// Parses the containers of a list. Entries without an id in full are left out.
pub(super) fn parse(json: &[u8]) -> serde_json::Result<Vec<Container>> {
    let entries: Vec<Entry> = serde_json::from_slice(json)?;
    Ok(entries.into_iter().filter_map(Entry::into_container).collect())
}

impl Entry {
    fn into_container(self) -> Option<Container> {
        let own = |name: String| {
            let name = name.strip_prefix('/').unwrap_or(&name);
            (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
        };
        let label =
            |key: &str| self.labels.as_ref()?.get(key).filter(|text| !text.is_empty()).cloned();
        // A kubelet that has Docker run its pods (cri-dockerd) writes these labels.
        let pod = label("io.kubernetes.pod.namespace").zip(label("io.kubernetes.pod.name"));
        let name = label("io.kubernetes.container.name")
            .or_else(|| self.names.unwrap_or_default().into_iter().find_map(own));
        let is_sandbox = label("io.kubernetes.docker.type").as_deref() == Some("podsandbox");
        Some(Container {
            id: ContainerId::new(&self.id)?,
            pod_uid: label("io.kubernetes.pod.uid"),
            names: ContainerNames {
                name,
                image: self.image.filter(|image| !image.is_empty()),
                pod: pod.map(|(namespace, name)| PodName { namespace, name }),
            },
            role: if is_sandbox { ContainerRole::Sandbox } else { ContainerRole::Workload },
            state: match self.state.as_deref() {
                Some("running" | "paused") => ContainerState::Running,
                other => ContainerState::Stopped(other.map(str::to_owned)),
            },
        })
    }
}

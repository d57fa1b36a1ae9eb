//! `config.json` of an OCI bundle: what a runtime was told about one container.

use std::collections::BTreeMap;

use offwake_recording::{ContainerId, ContainerNames, PodName};
use serde::Deserialize;

use super::{Container, ContainerRole, ContainerState};

/// What is read of a bundle's configuration; the format is that of the
/// [OCI runtime specification](https://github.com/opencontainers/runtime-spec/blob/v1.2.0/config.md#annotations).
#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Parses what a bundle says of the container `id`; none if it is no JSON, or names neither a
/// container nor a pod. A bundle does not say whether its container runs.
///
/// The keys are containerd's
/// ([annotations.go](https://github.com/containerd/containerd/blob/v2.0.0/internal/cri/annotations/annotations.go)),
/// CRI-O's
/// ([annotations.go](https://github.com/cri-o/cri-o/blob/v1.31.0/pkg/annotations/internal.go)), which puts
/// Kubernetes' labels in one of them as JSON
/// ([labels.go](https://github.com/kubernetes/kubernetes/blob/v1.31.0/staging/src/k8s.io/kubelet/pkg/types/labels.go)),
/// and nerdctl's
/// ([labels.go](https://github.com/containerd/nerdctl/blob/v2.0.0/pkg/labels/labels.go)).
pub(super) fn parse(id: &ContainerId, json: &[u8]) -> Option<Container> {
    let Config { annotations } = serde_json::from_slice(json).ok()?;
    let annotation = |key: &str| annotations.get(key).filter(|text| !text.is_empty()).cloned();
    let labels: BTreeMap<String, String> = (annotation("io.kubernetes.cri-o.Labels"))
        .and_then(|labels| serde_json::from_str(&labels).ok())
        .unwrap_or_default();
    let label = |key: &str| labels.get(key).filter(|text| !text.is_empty()).cloned();

    let either = |containerd: &str, crio: &str| annotation(containerd).or_else(|| label(crio));
    let name = either("io.kubernetes.cri.container-name", "io.kubernetes.container.name")
        .or_else(|| annotation("nerdctl/name"));
    let image = annotation("io.kubernetes.cri.image-name")
        .or_else(|| annotation("io.kubernetes.cri-o.ImageName"));
    let pod = either("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name");
    let namespace = either("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace");
    let pod_uid = either("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid");
    let role = annotation("io.kubernetes.cri.container-type")
        .or_else(|| annotation("io.kubernetes.cri-o.ContainerType"))
        .map_or(ContainerRole::Workload, |kind| match kind.as_str() {
            "sandbox" => ContainerRole::Sandbox,
            _ => ContainerRole::Workload,
        });
    let pod = namespace.zip(pod).map(|(namespace, name)| PodName { namespace, name });
    let is_known = name.is_some() || pod.is_some() || pod_uid.is_some();
    is_known.then(|| Container {
        id: id.clone(),
        names: ContainerNames { name, image, pod },
        pod_uid,
        role,
        state: ContainerState::Stopped(None),
    })
}

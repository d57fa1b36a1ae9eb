//! Containers: which one a cgroup belongs to, by the names that runtimes give to cgroups, and what
//! people call it.

use std::fmt;

/// What people call a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerNames {
    /// Its own name; in a pod, the one that it has there.
    pub name: Option<String>,
    /// The image that it was made from.
    pub image: Option<String>,
    /// The Kubernetes pod that it is a part of.
    pub pod: Option<PodName>,
}

/// What people call a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// The namespace that its name counts in.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ContainerNames {
    /// The container in one word: `web`, `shop/cart-7d9f/web` in a pod; of one whose name nobody knows,
    /// the first twelve digits of its id.
    #[must_use]
    pub fn label(&self, id: &ContainerId) -> String {
        match (&self.pod, &self.name) {
            (Some(pod), Some(name)) => format!("{pod}/{name}"),
            (Some(pod), None) => pod.to_string(),
            (None, Some(name)) => name.clone(),
            (None, None) => id.short().to_owned(),
        }
    }
}

/// What container engines put before the id in the name of a container's cgroup: Docker, CRI-O, containerd for
/// Kubernetes and for nerdctl, Podman. With systemd's scopes the names end in `.scope`; where the
/// runtime makes the directories itself, some go without.
const ENGINE_CGROUP_PREFIXES: [&str; 5] =
    ["docker-", "crio-", "cri-containerd-", "nerdctl-", "libpod-"];

/// What its runtime calls a container: 64 hexadecimal digits, of LXC a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(String);

impl ContainerId {
    /// The container that a cgroup belongs to: the innermost, where they are nested.
    ///
    /// Only what a runtime is known to write is taken for one; the processes that watch over a
    /// container (`conmon`, `lxc.monitor`) have cgroups of their own, and are not in it.
    #[must_use]
    pub fn from_cgroup_path(path: &str) -> Option<Self> {
        let mut rest = path.trim_end_matches('/');
        while let Some((above, name)) = rest.rsplit_once('/') {
            if let Some(id) = parse_container_id(above, name) {
                return Some(Self(id.to_owned()));
            }
            rest = above;
        }
        None
    }

    /// An id in full.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        is_id(text).then(|| Self(text.to_owned()))
    }

    /// The container whose own cgroup a directory of this name is, wherever that directory lies.
    #[must_use]
    pub fn in_directory_name(name: &str) -> Option<Self> {
        /// Of the processes that watch over a container.
        const WATCHERS: &str = "-conmon-";

        let bare = name.strip_suffix(".scope").unwrap_or(name);
        let id = bare.rsplit('-').next()?;
        if bare.contains(WATCHERS) { None } else { Self::new(id) }
    }

    /// The innermost container whose id a path bears, wherever it lies. It is one only if somebody knows
    /// it: `docker run --cgroup-parent` makes any path possible, and so does everybody else.
    #[must_use]
    pub fn borne_by(path: &str) -> Option<Self> {
        path.rsplit('/').find_map(Self::in_directory_name)
    }

    /// The digits that it is called by for short.
    #[must_use]
    pub fn short(&self) -> &str {
        match self.0.get(..12) {
            Some(digits) if is_id(&self.0) => digits,
            _ => &self.0,
        }
    }

    /// As its runtime writes it, in full.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The id in the name of one directory below `above`.
fn parse_container_id<'a>(above: &str, name: &'a str) -> Option<&'a str> {
    if let Some(name) = name.strip_prefix("lxc.payload.") {
        return (!name.is_empty()).then_some(name);
    }
    let bare = name.strip_suffix(".scope").unwrap_or(name);
    if let Some(id) = ENGINE_CGROUP_PREFIXES.iter().find_map(|prefix| bare.strip_prefix(prefix)) {
        return is_id(id).then_some(id);
    }
    let is_runtimes = above.ends_with("/docker")
        || above.split('/').any(|part| part == "kubepods" || part == "kubepods.slice");
    (is_runtimes && is_id(name)).then_some(name)
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::{ContainerId, ContainerNames, PodName};

    const A: &str = "4f1c0b5a9d3e7f2846b0c8d1e5a37f904f1c0b5a9d3e7f2846b0c8d1e5a37f90";
    const B: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn the_innermost_container_of_a_path_is_found() {
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b_2c.slice";
        for (path, expected) in [
            // Docker.
            (format!("/docker/{A}"), Some(A)),
            (format!("/docker/{A}/init.scope"), Some(A)),
            (format!("/system.slice/docker-{A}.scope"), Some(A)),
            (format!("/system.slice/docker-{A}.scope/system.slice/nginx.service"), Some(A)),
            (format!("/docker/{A}/docker/{B}"), Some(B)),
            // Kubernetes.
            (format!("/kubepods/burstable/pod1b-2c/{A}"), Some(A)),
            (format!("/kubepods.slice/{A}"), Some(A)),
            (format!("/{pod}/cri-containerd-{A}.scope"), Some(A)),
            (format!("/{pod}/crio-{A}.scope"), Some(A)),
            (format!("/{pod}/crio-{A}.scope/container"), Some(A)),
            (format!("/kubepods/besteffort/pod1b-2c/crio-{A}"), Some(A)),
            (format!("/docker/{A}/kubelet/kubepods/pod1b-2c/{B}"), Some(B)),
            // Podman.
            (format!("/machine.slice/libpod-{A}.scope/container"), Some(A)),
            (
                format!("/user.slice/user-1.slice/user@1.service/user.slice/libpod-{A}.scope"),
                Some(A),
            ),
            (format!("/libpod_parent/libpod-{A}"), Some(A)),
            // nerdctl.
            (format!("/system.slice/nerdctl-{A}.scope"), Some(A)),
            // LXC, and what runs inside it.
            ("/lxc.payload.web-1".to_owned(), Some("web-1")),
            ("/lxc.payload.web-1/system.slice/cron.service".to_owned(), Some("web-1")),
            (format!("/lxc.payload.web-1/system.slice/docker-{A}.scope"), Some(A)),
            // The watchers.
            (format!("/machine.slice/libpod-conmon-{A}.scope"), None),
            (format!("/{pod}/crio-conmon-{A}.scope"), None),
            ("/lxc.monitor.web-1".to_owned(), None),
            // What only looks alike.
            (format!("/system.slice/{A}"), None),
            (format!("/dockers/{A}"), None),
            (format!("/my-kubepods/{A}"), None),
            (format!("/docker/{}", &A[1..]), None),
            (format!("/docker/{A}0"), None),
            (format!("/docker/{}", A.to_uppercase()), None),
            (format!("/system.slice/docker-{A}.service"), None),
            (format!("/system.slice/docker-{}.scope", &A[..12]), None),
            ("/system.slice/docker.service".to_owned(), None),
            ("/kubepods/burstable/pod1b-2c".to_owned(), None),
            ("/lxc.payload.".to_owned(), None),
            (format!("docker-{A}.scope"), None),
            ("/".to_owned(), None),
            ("///".to_owned(), None),
            (String::new(), None),
            ("/ü/…/\u{fffd}".to_owned(), None),
        ] {
            let found = ContainerId::from_cgroup_path(&path);
            assert_eq!(found.as_ref().map(ContainerId::as_str), expected, "{path}");
        }
    }

    #[test]
    fn a_directory_that_bears_an_id_is_a_containers_wherever_it_lies() {
        for (name, is_one) in [
            (A.to_owned(), true),
            (format!("docker-{A}.scope"), true),
            (format!("my-own-{A}"), true),
            (format!("libpod-conmon-{A}.scope"), false),
            (format!("docker-{A}.service"), false),
            (format!("docker-{}.scope", &A[1..]), false),
            ("kubepods-burstable-pod1b_2c.slice".to_owned(), false),
            (String::new(), false),
        ] {
            let found = ContainerId::in_directory_name(&name);
            assert_eq!(found.as_ref().map(ContainerId::as_str), is_one.then_some(A), "{name}");
        }
    }

    #[test]
    fn a_container_is_called_by_what_is_known_of_it() {
        let id = ContainerId::new(A).unwrap();
        let pod = || Some(PodName { namespace: "shop".to_owned(), name: "cart-7d9f".to_owned() });
        let name = || Some("web".to_owned());
        let label = |name, pod| ContainerNames { name, pod, image: None }.label(&id);
        assert_eq!(label(name(), pod()), "shop/cart-7d9f/web");
        assert_eq!(label(None, pod()), "shop/cart-7d9f");
        assert_eq!(label(name(), None), "web");
        assert_eq!(label(None, None), "4f1c0b5a9d3e");
    }
}

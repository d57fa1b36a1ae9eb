//! Where container engines listen.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Who has called offwake, and where his own engines may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    /// The user who called sudo.
    pub sudo_uid: Option<u32>,
    /// `DOCKER_HOST`
    pub docker_host: Option<OsString>,
    /// `XDG_RUNTIME_DIR`
    pub runtime_directory: Option<PathBuf>,
}

impl Caller {
    pub(super) fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            sudo_uid: std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok()),
            docker_host: variable("DOCKER_HOST"),
            runtime_directory: variable("XDG_RUNTIME_DIR").map(PathBuf::from),
        }
    }
}

/// The sockets to ask, those of the system first: an engine of a user's own does not get to rename what is
/// theirs. `run` is `/run`.
///
/// As Docker's clients have it, `DOCKER_HOST` stands for Docker's socket; one that is no `unix://` address
/// is on another machine, and its containers are not here.
pub(super) fn sockets(caller: &Caller, run: &Path) -> Vec<PathBuf> {
    let docker = match caller.docker_host.as_ref().map(|host| host.to_string_lossy()) {
        None => Some(run.join("docker.sock")),
        Some(host) => host.strip_prefix("unix://").map(PathBuf::from),
    };
    let own = match caller.sudo_uid {
        Some(uid) => Some(run.join("user").join(uid.to_string())),
        None => caller.runtime_directory.clone(),
    };
    (docker.into_iter())
        .chain([run.join("podman/podman.sock")])
        .chain(
            own.into_iter()
                .flat_map(|own| [own.join("docker.sock"), own.join("podman/podman.sock")]),
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Caller, sockets};

    fn of(caller: Caller) -> Vec<PathBuf> {
        sockets(&caller, Path::new("/run"))
    }

    #[test]
    fn the_systems_sockets_come_before_the_callers_own() {
        let caller = Caller { sudo_uid: Some(1000), ..Caller::default() };
        let expected = [
            "/run/docker.sock",
            "/run/podman/podman.sock",
            "/run/user/1000/docker.sock",
            "/run/user/1000/podman/podman.sock",
        ];
        assert_eq!(of(caller), expected.map(PathBuf::from));
        assert_eq!(
            of(Caller::default()),
            expected[..2].iter().map(PathBuf::from).collect::<Vec<_>>()
        );
    }

    #[test]
    fn docker_host_replaces_dockers_socket_and_no_other() {
        let with = |host: &str| of(Caller { docker_host: Some(host.into()), ..Caller::default() });
        let podman = PathBuf::from("/run/podman/podman.sock");
        assert_eq!(with("unix:///tmp/d.sock"), [PathBuf::from("/tmp/d.sock"), podman.clone()]);
        for elsewhere in
            ["tcp://10.0.0.1:2375", "ssh://host", "npipe:////./pipe/docker", "/tmp/d.sock"]
        {
            assert_eq!(with(elsewhere), std::slice::from_ref(&podman), "{elsewhere}");
        }
    }
}

//! Where container engines listen.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Who has called offwake, and where that user's own engines may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Caller {
    /// The user: under sudo the one who called that, as whom everything is done.
    pub user: u32,
    /// `DOCKER_HOST`
    pub docker_host: Option<OsString>,
    /// `XDG_RUNTIME_DIR`
    pub runtime_directory: Option<PathBuf>,
}

impl Caller {
    pub(super) fn from_environment() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            user: rustix::process::geteuid().as_raw(),
            docker_host: variable("DOCKER_HOST"),
            runtime_directory: variable("XDG_RUNTIME_DIR").map(PathBuf::from),
        }
    }
}

/// The sockets to query, those of the system first: an engine of a user's own does not get to
/// rename what is theirs. `run` is `/run`.
///
/// As Docker's clients have it, `DOCKER_HOST` stands for Docker's socket; one that is no `unix://`
/// address is on another machine, and its containers are not here.
pub(super) fn engine_sockets(caller: &Caller, run: &Path) -> Vec<PathBuf> {
    let docker = match caller.docker_host.as_ref().map(|host| host.to_string_lossy()) {
        None => Some(run.join("docker.sock")),
        Some(host) => host.strip_prefix("unix://").map(PathBuf::from),
    };
    // sudo drops the variable.
    let own = (caller.runtime_directory.clone())
        .unwrap_or_else(|| run.join("user").join(caller.user.to_string()));
    (docker.into_iter())
        .chain([run.join("podman/podman.sock")])
        .chain([own.join("docker.sock"), own.join("podman/podman.sock")])
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Caller, engine_sockets};

    fn sockets_for(caller: Caller) -> Vec<PathBuf> {
        engine_sockets(&caller, Path::new("/run"))
    }

    #[test]
    fn the_systems_sockets_come_before_the_callers_own() {
        for (runtime_directory, own) in [(None, "/run/user/1000"), (Some("/tmp/own"), "/tmp/own")] {
            let runtime_directory = runtime_directory.map(PathBuf::from);
            let caller = Caller { user: 1000, runtime_directory, ..Caller::default() };
            let expected = [
                "/run/docker.sock".to_owned(),
                "/run/podman/podman.sock".to_owned(),
                format!("{own}/docker.sock"),
                format!("{own}/podman/podman.sock"),
            ];
            assert_eq!(sockets_for(caller), expected.map(PathBuf::from));
        }
    }

    #[test]
    fn docker_host_replaces_dockers_socket_and_no_other() {
        let with = |host: &str| {
            let mut all =
                sockets_for(Caller { docker_host: Some(host.into()), ..Caller::default() });
            all.retain(|socket| !socket.starts_with("/run/user"));
            all
        };
        let podman = PathBuf::from("/run/podman/podman.sock");
        assert_eq!(with("unix:///tmp/d.sock"), [PathBuf::from("/tmp/d.sock"), podman.clone()]);
        for elsewhere in
            ["tcp://10.0.0.1:2375", "ssh://host", "npipe:////./pipe/docker", "/tmp/d.sock"]
        {
            assert_eq!(with(elsewhere), std::slice::from_ref(&podman), "{elsewhere}");
        }
    }
}

//! A container that starts again, found again.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use super::{Found, Host, Place, Resolved, Wanted};
use crate::{
    privileges::{self, Task},
    units::CgroupId,
};

/// How often the cgroup is looked at. A runtime takes some 0.1 s from making one to starting a process.
const GLANCE: Duration = Duration::from_millis(20);
/// How often it is looked for when it is gone.
const SEARCH: Duration = Duration::from_millis(250);

/// Watches a container by name, on a thread of its own; the thread ends when this is dropped.
#[derive(Debug)]
pub struct Follower {
    restarts: Receiver<CgroupId>,
    _stop: Sender<()>,
}

impl Resolved {
    /// What will mean this one when it has started again: its name, if it has one.
    fn again(&self) -> Wanted {
        match self {
            Self::Pod { uid, .. } => Wanted::Pod { pod: uid.clone(), container: None },
            Self::Container(container) => match (&container.names.name, &container.pod_uid) {
                (Some(name), Some(pod)) => {
                    Wanted::Pod { pod: pod.clone(), container: Some(name.clone()) }
                }
                (Some(name), None) => Wanted::Container(name.clone()),
                (None, _) => Wanted::Container(container.id.to_string()),
            },
        }
    }
}

impl Follower {
    /// Watches what was found in `cgroup`, a directory whose id is `id`.
    pub(crate) fn start(host: Host, resolved: &Resolved, cgroup: PathBuf, id: CgroupId) -> Self {
        let (restarted, restarts) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let wanted = resolved.again();
        // Without that thread, the container is lost when it stops, as without being followed.
        let _started =
            std::thread::Builder::new().name("offwake-follow".to_owned()).spawn(move || {
                privileges::keep_for(Task::AskingEngines);
                watch(&host, &wanted, cgroup, id, &stopped, &restarted);
            });
        Self { restarts, _stop: stop }
    }

    /// A cgroup that the container has got since this was asked last.
    #[must_use]
    pub fn take_restart(&self) -> Option<CgroupId> {
        self.restarts.try_recv().ok()
    }

    #[cfg(test)]
    pub(super) fn wait_for_restart(&self) -> Option<CgroupId> {
        self.restarts.recv_timeout(Duration::from_secs(20)).ok()
    }
}

fn watch(
    host: &Host,
    wanted: &Wanted,
    mut cgroup: PathBuf,
    mut id: CgroupId,
    stopped: &Receiver<()>,
    restarted: &Sender<CgroupId>,
) {
    let depth = cgroup.components().count();
    let mut searched: Option<Instant> = None;
    while stopped.recv_timeout(GLANCE) == Err(RecvTimeoutError::Timeout) {
        let mut now = id_of(&cgroup);
        if now.is_none() && searched.is_none_or(|at| at.elapsed() >= SEARCH) {
            if let Ok(Found { place: Place::Cgroup(found), .. }) = host.find(wanted) {
                // The kernel half compares ancestors at one depth.
                if found.components().count() == depth {
                    now = id_of(&found);
                    cgroup = found;
                } else {
                    log::warn!("{wanted} is now at another depth: {}", found.display());
                }
            }
            searched = Some(Instant::now());
        }
        if let Some(now) = now.filter(|now| *now != id) {
            id = now;
            if restarted.send(now).is_err() {
                return;
            }
        }
    }
}

fn id_of(cgroup: &Path) -> Option<CgroupId> {
    std::fs::symlink_metadata(cgroup).ok().map(|metadata| CgroupId(metadata.ino()))
}

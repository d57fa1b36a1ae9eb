//! Finds a container again when it starts again.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError},
    time::{Duration, Instant},
};

use offwake_recording::units::CgroupId;

use super::{ContainerLocation, ContainerQuery, FoundContainer, Host, Resolved};
use crate::{
    capture::CaptureError,
    own_threads::{self, OwnThread},
    privileges::{self, Task},
};

/// How often the cgroup is checked. A runtime takes some 0.1 s from making one to starting a
/// process.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How often a cgroup that is gone is searched for.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);

/// Watches a container by name, on a thread of its own; the thread ends when this is dropped.
#[derive(Debug)]
pub struct RestartWatcher {
    restarts: Receiver<CgroupId>,
    _stop: Sender<()>,
}

impl Resolved {
    /// The query that finds this container or pod when it has started again: its name, if it has
    /// one.
    fn restart_query(&self) -> ContainerQuery {
        match self {
            Self::Pod { uid, .. } => ContainerQuery::Pod { pod: uid.clone(), container: None },
            Self::Container(container) => match (&container.names.name, &container.pod_uid) {
                (Some(name), Some(pod)) => {
                    ContainerQuery::Pod { pod: pod.clone(), container: Some(name.clone()) }
                }
                (Some(name), None) => ContainerQuery::Container(name.clone()),
                (None, _) => ContainerQuery::Container(container.id.to_string()),
            },
        }
    }
}

impl RestartWatcher {
    /// Watches the container or pod that was found in `cgroup`, a directory whose id is `id`.
    pub(crate) fn start(host: Host, resolved: &Resolved, cgroup: PathBuf, id: CgroupId) -> Self {
        let (restarted, restarts) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let query = resolved.restart_query();
        // Without that thread nobody would see the container start again: the run ends.
        let _started = own_threads::spawn(OwnThread::Follow, move || {
            privileges::restrict_to(Task::AskingEngines);
            watch(&host, &query, cgroup, id, &stopped, &restarted);
        });
        Self { restarts, _stop: stop }
    }

    /// A cgroup that the container has got since the last call.
    ///
    /// # Errors
    ///
    /// If nobody watches any more: its thread has died.
    pub fn try_next_restart(&self) -> Result<Option<CgroupId>, CaptureError> {
        match self.restarts.try_recv() {
            Ok(id) => Ok(Some(id)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(CaptureError::Thread(OwnThread::Follow)),
        }
    }

    #[cfg(test)]
    pub(super) fn wait_for_restart(&self) -> Option<CgroupId> {
        self.restarts.recv_timeout(Duration::from_secs(20)).ok()
    }
}

fn watch(
    host: &Host,
    query: &ContainerQuery,
    mut cgroup: PathBuf,
    mut id: CgroupId,
    stopped: &Receiver<()>,
    restarted: &Sender<CgroupId>,
) {
    let depth = cgroup.components().count();
    let mut searched: Option<Instant> = None;
    while stopped.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        own_threads::pass();
        let mut now = cgroup_id(&cgroup);
        if now.is_none() && searched.is_none_or(|at| at.elapsed() >= SEARCH_INTERVAL) {
            if let Ok(FoundContainer { location: ContainerLocation::Cgroup(found), .. }) =
                host.find(query)
            {
                // The kernel half compares ancestors at one depth.
                if found.components().count() == depth {
                    now = cgroup_id(&found);
                    cgroup = found;
                } else {
                    log::warn!("{query} is now at another depth: {}", found.display());
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

fn cgroup_id(cgroup: &Path) -> Option<CgroupId> {
    std::fs::symlink_metadata(cgroup).ok().map(|metadata| CgroupId(metadata.ino()))
}

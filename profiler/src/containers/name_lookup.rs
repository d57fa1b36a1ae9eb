//! Looks up the names of containers in a thread of its own: an engine may take its time.

use std::{
    collections::HashMap,
    sync::mpsc::{self, Receiver, Sender},
    time::{Duration, Instant},
};

use offwake_recording::{ContainerId, ContainerNames};

use super::Host;
use crate::{
    own_threads::{self, OwnThread},
    privileges::{self, Task},
};

/// The shortest time between two queries of the same engine.
const QUERY_INTERVAL: Duration = Duration::from_millis(250);
/// How often a container is looked up: an engine may know it later than the kernel.
const TRIES: u32 = 3;
/// How long the last names are waited for.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

type NamedContainer = (ContainerId, ContainerNames);

/// Looks up names of containers. No engine is queried, and no thread runs, before there is a
/// container.
#[derive(Default)]
pub(crate) struct NameLookup(Option<LookupThread>);

/// The channels to and from the thread that looks names up.
struct LookupThread {
    requests: Sender<ContainerId>,
    names: Receiver<NamedContainer>,
}

impl NameLookup {
    /// Requests the name of a container.
    pub(crate) fn request(&mut self, id: ContainerId) {
        let thread = self.0.get_or_insert_with(|| {
            let (requests, requested) = mpsc::channel();
            let (found, names) = mpsc::channel();
            // Without that thread, containers go by their ids.
            let _started = own_threads::spawn(OwnThread::ContainerNames, move || {
                privileges::restrict_to(Task::AskingEngines);
                look_up_names(&Host::local(), &requested, &found);
            });
            LookupThread { requests, names }
        });
        let _gone = thread.requests.send(id);
    }

    /// The names that were found since the last call.
    pub(crate) fn drain(&self) -> Vec<NamedContainer> {
        self.0.iter().flat_map(|thread| thread.names.try_iter()).collect()
    }

    /// Waits for the names that are still to come, for a while.
    pub(crate) fn finish(self) -> Vec<NamedContainer> {
        let Some(LookupThread { requests, names }) = self.0 else { return Vec::new() };
        drop(requests);
        let deadline = Instant::now() + FINISH_TIMEOUT;
        let mut named = Vec::new();
        while let Ok(name) = names.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            named.push(name);
        }
        named
    }
}

/// Looks names up until nobody requests any more.
fn look_up_names(host: &Host, requests: &Receiver<ContainerId>, found: &Sender<NamedContainer>) {
    let mut open = HashMap::<ContainerId, u32>::new();
    loop {
        let more = if open.is_empty() {
            requests.recv().map_err(|_closed| mpsc::RecvTimeoutError::Disconnected)
        } else {
            requests.recv_timeout(QUERY_INTERVAL)
        };
        match more {
            Ok(id) => {
                open.entry(id).or_insert(0);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) if open.is_empty() => return,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                // The engines are queried once more, as these are the last requests.
                open.values_mut().for_each(|tries| *tries = TRIES - 1);
            }
        }
        open.extend(requests.try_iter().map(|id| (id, 0)));
        let mut listed = host.list_containers().containers;
        open.retain(|id, tries| {
            *tries += 1;
            match listed.remove(id) {
                Some(container) => {
                    let _gone = found.send((container.id, container.names));
                    false
                }
                None => *tries < TRIES,
            }
        });
    }
}

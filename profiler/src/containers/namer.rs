//! Finding out what containers are called, beside everything else: an engine may take its time.

use std::{
    collections::HashMap,
    sync::mpsc::{self, Receiver, Sender},
    time::{Duration, Instant},
};

use super::Host;
use crate::{
    privileges::{self, Task},
    recording::{ContainerId, ContainerNames},
};

/// The shortest time between two questions to the same engine.
const PACE: Duration = Duration::from_millis(250);
/// How often a container is asked for: an engine may know it later than the kernel.
const TRIES: u32 = 3;
/// How long the last answers are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

type Named = (ContainerId, ContainerNames);

/// Asks for names of containers, and is told them in time. Nobody is asked anything, and no thread runs,
/// before there is a container.
#[derive(Default)]
pub(crate) struct Namer(Option<Asked>);

struct Asked {
    ask: Sender<ContainerId>,
    told: Receiver<Named>,
}

impl Namer {
    /// Wants to know what a container is called.
    pub(crate) fn ask(&mut self, id: ContainerId) {
        let asked = self.0.get_or_insert_with(|| {
            let (ask, asked) = mpsc::channel();
            let (tell, told) = mpsc::channel();
            // Without that thread, containers go by their ids.
            let _started =
                std::thread::Builder::new().name("offwake-names".to_owned()).spawn(move || {
                    privileges::keep_for(Task::AskingEngines);
                    answer(&Host::this(), &asked, &tell);
                });
            Asked { ask, told }
        });
        let _gone = asked.ask.send(id);
    }

    /// The names that were found since the last time.
    pub(crate) fn take(&self) -> Vec<Named> {
        self.0.iter().flat_map(|asked| asked.told.try_iter()).collect()
    }

    /// Those that are still to come, waited for in patience.
    pub(crate) fn finish(self) -> Vec<Named> {
        let Some(Asked { ask, told }) = self.0 else { return Vec::new() };
        drop(ask);
        let deadline = Instant::now() + PATIENCE;
        let mut named = Vec::new();
        while let Ok(name) = told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            named.push(name);
        }
        named
    }
}

/// Answers until nobody asks any more.
fn answer(host: &Host, asked: &Receiver<ContainerId>, tell: &Sender<Named>) {
    let mut open = HashMap::<ContainerId, u32>::new();
    loop {
        let more = if open.is_empty() {
            asked.recv().map_err(|_closed| mpsc::RecvTimeoutError::Disconnected)
        } else {
            asked.recv_timeout(PACE)
        };
        match more {
            Ok(id) => {
                open.entry(id).or_insert(0);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) if open.is_empty() => return,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                // Once more, as these are the last.
                open.values_mut().for_each(|tries| *tries = TRIES - 1);
            }
        }
        open.extend(asked.try_iter().map(|id| (id, 0)));
        let mut known = host.known().containers;
        open.retain(|id, tries| {
            *tries += 1;
            match known.remove(id) {
                Some(container) => {
                    let _gone = tell.send((container.id, container.names));
                    false
                }
                None => *tries < TRIES,
            }
        });
    }
}

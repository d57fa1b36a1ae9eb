//! Has files searched for the variables, on a thread of its own: a file may be on a server that does not
//! answer, and that must not hold up the recording.

use std::sync::mpsc::{Receiver, Sender, channel};

use offwake_recording::ModuleId;

use super::convention::{Carrier, Convention, queries};
use crate::{
    own_threads::{self, OwnThread},
    privileges::{self, Task},
    reader_process,
    symbols::address_spaces::FileToDescribe,
};

/// Files that are searched, and what was found.
pub(super) struct SymbolReader {
    /// None if there is no thread yet.
    jobs: Option<Sender<(ModuleId, FileToDescribe)>>,
    sender: Sender<(ModuleId, Vec<Carrier>)>,
    found: Receiver<(ModuleId, Vec<Carrier>)>,
}

impl SymbolReader {
    pub(super) fn new() -> Self {
        let (sender, found) = channel();
        Self { jobs: None, sender, found }
    }

    /// Has a file searched.
    pub(super) fn request(&mut self, module: ModuleId, file: FileToDescribe) {
        let jobs = self.jobs.get_or_insert_with(|| start_thread(self.sender.clone()));
        // Without the thread, which is said as the run ends, nothing is found.
        let _received = jobs.send((module, file));
    }

    /// The variables that were found since the last call.
    pub(super) fn drain_found(&self) -> impl Iterator<Item = (ModuleId, Vec<Carrier>)> {
        self.found.try_iter()
    }
}

/// Starts the thread that has files searched.
fn start_thread(found: Sender<(ModuleId, Vec<Carrier>)>) -> Sender<(ModuleId, FileToDescribe)> {
    let (sender, jobs) = channel::<(ModuleId, FileToDescribe)>();
    let body = move || {
        privileges::restrict_to(Task::Naming);
        for (module, FileToDescribe { file, identity }) in jobs {
            own_threads::pass();
            let symbols = reader_process::find_tls_symbols(&file, identity, queries());
            let carriers: Vec<Carrier> = symbols
                .into_iter()
                .filter_map(|(query, symbol)| {
                    Some(Carrier { convention: *Convention::ALL.get(query)?, symbol })
                })
                .collect();
            // Nobody receives any more when the run is over.
            if !carriers.is_empty() && found.send((module, carriers)).is_err() {
                return;
            }
        }
    };
    if let Err(error) = own_threads::spawn(OwnThread::TagSymbols, body) {
        log::warn!("cannot start the thread that searches for labels: {error}");
    }
    sender
}

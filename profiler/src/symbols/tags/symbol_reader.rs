//! Has files searched for the variables, on a thread of its own: a file may be on a server that
//! does not answer, and that must not hold up the recording.

use std::sync::mpsc::{Receiver, Sender, channel};

use offwake_recording::ModuleId;

use super::convention::{Carrier, queries};
use crate::{
    own_threads::{self, OwnThread},
    privileges::{self, Task},
    reader_process,
    symbols::address_spaces::FileToDescribe,
};

/// What was found in a file.
pub(super) struct Found {
    pub(super) module: ModuleId,
    pub(super) carriers: Vec<Carrier>,
    /// Whether it has labels of a Go that nobody knows.
    pub(super) has_unknown_go: bool,
}

impl Found {
    fn is_nothing(&self) -> bool {
        self.carriers.is_empty() && !self.has_unknown_go
    }
}

/// Files that are searched, and what was found.
pub(super) struct SymbolReader {
    /// None if there is no thread yet.
    jobs: Option<Sender<(ModuleId, FileToDescribe)>>,
    sender: Sender<Found>,
    found: Receiver<Found>,
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
    pub(super) fn drain_found(&self) -> impl Iterator<Item = Found> {
        self.found.try_iter()
    }
}

/// Starts the thread that has files searched.
fn start_thread(found: Sender<Found>) -> Sender<(ModuleId, FileToDescribe)> {
    let (sender, jobs) = channel::<(ModuleId, FileToDescribe)>();
    let body = move || {
        privileges::restrict_to(Task::Naming);
        for (module, FileToDescribe { file, identity }) in jobs {
            own_threads::pass();
            let symbols = reader_process::find_tls_symbols(&file, identity, queries());
            let symbols = symbols.into_iter();
            let mut carriers: Vec<Carrier> =
                symbols.filter_map(|(query, symbol)| Carrier::named(query, symbol)).collect();
            let labels = reader_process::find_goroutine_labels(&file, identity);
            let is_go = labels.is_some();
            let go = labels.and_then(Carrier::go);
            let has_unknown_go = is_go && go.is_none();
            carriers.extend(go);
            let found_in_file = Found { module, carriers, has_unknown_go };
            // Nobody receives any more when the run is over.
            if !found_in_file.is_nothing() && found.send(found_in_file).is_err() {
                return;
            }
        }
    };
    if let Err(error) = own_threads::spawn(OwnThread::TagSymbols, body) {
        log::warn!("cannot start the thread that searches for labels: {error}");
    }
    sender
}

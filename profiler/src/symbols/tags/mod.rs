//! Which processes say what each of their threads is doing, and where: for the kernel half, which
//! reads it ([`profiler_ebpf::tags`]).
//!
//! ```text
//!  file that is mapped for the first time ──> SymbolReader ──> TlsSymbol ──┐
//!  process whose mappings were read ───────────────────────────────────────┴─> place ──> the kernel half
//!  the words that its loader filled in, in its memory ─────────────────────┘
//! ```
//!
//! What a process calls its labels is in a mapping of a known name (`process_context`).
//!
//! Who calls it: `stacks/processor.rs`, which sees what processes map. `kernel/tag_sources.rs` tells the
//! kernel half, `profiler-ebpf/src/programs/tags.rs` reads, and `decode/tags.rs` understands.
//!
//! What can go wrong, and what bounds it: all of it comes from files and memory of strangers. A wrong
//! place leads the kernel half to memory of that same process, which it can read without harm, and
//! whose form it checks.

mod convention;
mod place;
mod process_context;
mod symbol_reader;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use offwake_recording::{
    ModuleId, TagName,
    loss::{Diagnostics, count},
    units::Tgid,
};
use offwake_unwind::elf::{goroutine_labels::GoroutineLabels, tls_symbol::TlsSymbol};
use profiler_ebpf::tags::{TagSource, form};

use self::{
    convention::Carrier,
    place::find_source,
    process_context::{MAPPINGS, read_names},
    symbol_reader::{Found, SymbolReader},
};
use super::{
    address_spaces::{AddressSpaces, MappedFile, ProgramChange},
    python::memory::ProcessMemory,
};
use crate::reader_process;

/// Processes that the kernel half has a source of at most: as many as its map has room for.
const MAX_SOURCES: usize = 4096;
/// How often it is looked whether a library that was just mapped is ready, and after how long first.
const MAX_TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// How often the names of a process's labels are read again at first, and at most: a process may use
/// more as it runs.
const FIRST_NAMES_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_NAMES_PAUSE: Duration = Duration::from_secs(64);

/// Where the threads of a process have their tags, for the kernel half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagProgram {
    /// The process.
    pub tgid: Tgid,
    /// Where they are. None if the process has none, or none any more.
    pub source: Option<TagSource>,
}

/// A process that has mapped a file with such a variable.
#[derive(Default)]
struct Publisher {
    source: Option<TagSource>,
    tries: u32,
    due: Option<Instant>,
    /// What the process calls its labels, by their numbers.
    names: Vec<String>,
    /// When they are read again, and how long after that once more.
    names_due: Option<(Instant, Duration)>,
}

impl Publisher {
    /// Reads what the process calls its labels, and adds what is new.
    fn read_names(&mut self, tgid: Tgid, new: &mut Vec<TagName>) {
        let read = || {
            let address = reader_process::find_named_mapping(tgid, &MAPPINGS)?;
            read_names(&ProcessMemory::open(tgid).ok()?, address)
        };
        let Some(names) = read() else { return };
        for (key, name) in (0..=u8::MAX).zip(&names) {
            if self.names.get(usize::from(key)) != Some(name) {
                new.push(TagName { tgid, key, name: name.clone() });
            }
        }
        self.names = names;
    }
}

/// Every process that publishes tags.
pub(crate) struct TagProcesses {
    reader: SymbolReader,
    carriers: HashMap<ModuleId, Vec<Carrier>>,
    publishers: HashMap<Tgid, Publisher>,
    changes: Vec<ProgramChange>,
    changed: Vec<TagProgram>,
    new_names: Vec<TagName>,
    diagnostics: Diagnostics,
}

impl TagProcesses {
    pub(crate) fn new() -> Self {
        Self {
            reader: SymbolReader::new(),
            carriers: HashMap::new(),
            publishers: HashMap::new(),
            changes: Vec::new(),
            changed: Vec::new(),
            new_names: Vec::new(),
            diagnostics: Diagnostics::new(),
        }
    }

    /// Notes a change of what a process runs.
    pub(crate) fn observe(&mut self, change: ProgramChange) {
        self.changes.push(change);
    }

    /// Drains the processes that began or ceased to publish tags, or do it elsewhere now. Cheap while
    /// nothing has changed.
    pub(crate) fn drain_changed(&mut self, spaces: &mut AddressSpaces) -> Vec<TagProgram> {
        for (module, file) in spaces.modules_mut().drain_new_files() {
            self.reader.request(module, file);
        }
        let mut found = Vec::new();
        for Found { module, carriers, has_unknown_go } in self.reader.drain_found() {
            if has_unknown_go {
                count(&mut self.diagnostics, "go_labels_unknown");
            }
            if !carriers.is_empty() {
                self.carriers.insert(module, carriers);
                found.push(module);
            }
        }
        if !found.is_empty() {
            for tgid in spaces.processes_with(&found) {
                self.begin(tgid);
            }
        }
        for change in std::mem::take(&mut self.changes) {
            let tgid = match change {
                // The kernel half has forgotten what it knew of a process that runs another program.
                ProgramChange::Ended(tgid) => {
                    self.end(tgid);
                    tgid
                }
                ProgramChange::Mapped(tgid) => tgid,
            };
            if self.carriers.is_empty() {
                continue;
            }
            let files = spaces.mapped_files(tgid);
            if files.iter().any(|file| self.carriers.contains_key(&file.module)) {
                self.begin(tgid);
            } else {
                self.end(tgid);
            }
        }
        self.find_due(spaces);
        self.read_due_names(Instant::now());
        std::mem::take(&mut self.changed)
    }

    /// Has it found out anew where a process publishes its tags.
    fn begin(&mut self, tgid: Tgid) {
        if self.publishers.len() >= MAX_SOURCES && !self.publishers.contains_key(&tgid) {
            return count(&mut self.diagnostics, "tag_processes_over_limit");
        }
        let publisher = self.publishers.entry(tgid).or_default();
        publisher.tries = 0;
        publisher.due = Some(Instant::now());
    }

    /// A process ended, became another program, or has unmapped what it published tags by.
    fn end(&mut self, tgid: Tgid) {
        let publisher = self.publishers.remove(&tgid);
        if publisher.is_some_and(|publisher| publisher.source.is_some()) {
            self.changed.push(TagProgram { tgid, source: None });
        }
    }

    fn find_due(&mut self, spaces: &AddressSpaces) {
        if self.publishers.is_empty() {
            return;
        }
        let now = Instant::now();
        for (&tgid, publisher) in &mut self.publishers {
            if publisher.due.is_none_or(|due| due > now) {
                continue;
            }
            publisher.due = None;
            let source = find_in_process(tgid, &self.carriers, &spaces.mapped_files(tgid));
            if source.is_none() && publisher.tries < MAX_TRIES {
                publisher.due = Some(now + FIRST_PAUSE * (1 << publisher.tries));
                publisher.tries += 1;
            } else if source.is_none() {
                count(&mut self.diagnostics, "tag_places_unknown");
            }
            // Other forms have the names with the labels.
            let has_names = source.is_some_and(|source| source.form == form::CONTEXT);
            if has_names && publisher.names_due.is_none() {
                publisher.names_due = Some((now, FIRST_NAMES_PAUSE));
            }
            if source != publisher.source {
                publisher.source = source;
                self.changed.push(TagProgram { tgid, source });
            }
        }
    }

    /// Reads the names of labels of those processes for which it is time.
    fn read_due_names(&mut self, now: Instant) {
        for (&tgid, publisher) in &mut self.publishers {
            let Some((due, pause)) = publisher.names_due else { continue };
            if due <= now {
                publisher.names_due = Some((now + pause, (pause * 2).min(LONGEST_NAMES_PAUSE)));
                publisher.read_names(tgid, &mut self.new_names);
            }
        }
    }

    /// Reads the names of all labels once more.
    pub(crate) fn read_names_again(&mut self) {
        for (&tgid, publisher) in &mut self.publishers {
            if publisher.names_due.is_some() {
                publisher.read_names(tgid, &mut self.new_names);
            }
        }
    }

    /// Drains the names of labels that are new.
    pub(crate) fn drain_new_names(&mut self) -> Vec<TagName> {
        std::mem::take(&mut self.new_names)
    }

    /// Adds what could not be done so far.
    pub(crate) fn add_diagnostics(&self, all: &mut Diagnostics) {
        offwake_recording::loss::add_all(all, &self.diagnostics);
    }
}

/// Finds where a process publishes its tags. Code of the program itself comes first: its variable is
/// the one that libraries use as well.
fn find_in_process(
    tgid: Tgid,
    carriers: &HashMap<ModuleId, Vec<Carrier>>,
    files: &[MappedFile],
) -> Option<TagSource> {
    let carried = files.iter().filter_map(|file| Some((file, carriers.get(&file.module)?)));
    let mut carried: Vec<_> =
        carried.flat_map(|(file, carriers)| carriers.iter().map(move |it| (file, it))).collect();
    carried.sort_by_key(|(_, carrier)| (carrier.convention, !carrier.symbol.is_program));
    let memory = ProcessMemory::open(tgid).ok()?;
    carried.into_iter().find_map(|(file, carrier)| {
        let symbol = &carrier.symbol;
        let source = find_source(symbol, symbol.bias(file.start, file.offset)?, &memory)?;
        Some(carrier.complete(source))
    })
}

/// Parses bytes as a file and as a process's context, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    for (_, symbol) in TlsSymbol::find_all(bytes, &convention::queries()) {
        let _place = (symbol.bias(1 << 46, 0), symbol.program_offset());
    }
    let _go = GoroutineLabels::find(bytes).and_then(Carrier::go);
    let _names = process_context::find_names(bytes);
}

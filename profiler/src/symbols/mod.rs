//! Addresses into names: the only place that names blazesym.
//!
//! While recording, every user address is turned at once into a file and an offset into it, and the
//! file is held open. What is new is taken from here again and again, to be written down; what stays
//! is each distinct frame. The names are looked up at the end, from the held files: a process that
//! has ended, a deleted binary and a container's file are then no different from any other.
//!
//! ```text
//!  ring --> observe_stack: address -> (file, offset)   ...recording...   finish: (file, offset) -> names
//!                 |               |                                        |
//!     /proc/PID/maps, map_files   take_new: modules, frames, stacks        the held file, handed to
//!                                                                          offwake-parser: blazesym
//! ```

mod answering;
mod asking;
mod backwards;
mod debuginfod;
mod description;
mod elf;
mod frames;
mod go;
mod handed;
mod identify;
mod kernel;
mod mapped;
mod maps;
mod modules;
mod names;
mod naming;
mod own_root;
mod perf_map;
mod places;
mod process;
mod python;
mod pythons;
mod resymbolize;
mod script_names;
mod sleepers;
mod sources;
#[cfg(test)]
mod tests;
mod unwinding;
mod wire;

use std::{
    collections::{HashMap, VecDeque},
    iter,
};

pub use answering::answer;
pub use asking::receive_names;
pub use debuginfod::{Debuginfod, Fetched, NoServers};
use frames::{Frames, Place, Placed};
use maps::Backing;
use modules::Modules;
pub use naming::{NameBook, Naming};
use perf_map::PerfMaps;
pub use places::DebugPlaces;
pub use process::CodeEpochs;
use process::{Found, Moment, Process};
pub use pythons::PythonThread;
use pythons::Pythons;
pub use resymbolize::{RecordedIn, Resymbolized, resymbolize};
pub use sleepers::Sleeper;
pub use sources::{Detail, NameSources};

use crate::{
    parser::Parser,
    recording::{
        AddressKind, AddressSpace, FrameId, Function, NewStacks, Stack, StackEnd,
        loss::{Shortfalls, count},
    },
    text,
    units::{StackId, Tgid, Timestamp},
};

/// Names longer than this many bytes are cut.
const MAX_NAME: usize = 4096;
/// Processes that are remembered at a time. A host's default `pid_max` is 32,768 or 4,194,304.
const MAX_PROCESSES: usize = 65_536;
/// Distinct frames that are kept: some 80 bytes each before they are named.
const MAX_FRAMES: usize = 4_000_000;
/// Processes that ended stay known for their late stacks until this many others have ended.
const ENDED_KEPT: usize = 1024;

/// A frame as it was found.
enum FoundFrame {
    /// By its address.
    At(u64, AddressKind),
    /// By its name.
    Python(Function),
    /// None: what says that some are missing.
    Said(&'static str),
}

/// Turns the addresses of stacks into frames with names.
pub struct Symbols {
    processes: HashMap<Tgid, Process>,
    ended: VecDeque<Tgid>,
    modules: Modules,
    perf_maps: PerfMaps,
    frames: Frames,
    pythons: Pythons,
    stacks: Vec<(StackId, Stack)>,
    passing: Vec<(AddressSpace, StackId)>,
    sources: NameSources,
    code_epochs: Option<CodeEpochs>,
    shortfalls: Shortfalls,
}

impl Default for Symbols {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbols {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            processes: HashMap::new(),
            ended: VecDeque::new(),
            modules: Modules::new(),
            perf_maps: PerfMaps::new(),
            frames: Frames::new(MAX_FRAMES),
            pythons: Pythons::default(),
            stacks: Vec::new(),
            passing: Vec::new(),
            sources: NameSources::default(),
            code_epochs: None,
            shortfalls: Shortfalls::new(),
        }
    }

    /// With names from these sources.
    #[must_use]
    pub fn named_by(self, sources: NameSources) -> Self {
        Self { sources, ..self }
    }

    /// Told of the epochs of processes' code.
    #[must_use]
    pub fn told_of(self, code_epochs: CodeEpochs) -> Self {
        Self { code_epochs: Some(code_epochs), ..self }
    }

    /// A process was seen: captures its executable mappings while it lives. Cheap when it is known.
    pub fn observe_process(&mut self, tgid: Tgid) {
        if tgid.0 == 0 || self.processes.get(&tgid).is_some_and(Process::is_alive) {
            return;
        }
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&tgid) {
            count(&mut self.shortfalls, "symbols_processes_over_limit");
            return;
        }
        self.processes.entry(tgid).or_default().begin(Timestamp(0));
        if !self.read_mappings(tgid) {
            count(&mut self.shortfalls, "symbols_processes_gone");
        }
    }

    /// `child` was forked at `at`: its address space is a copy of its parent's, which is all that
    /// can be known of a child that ends before its turn comes.
    pub fn observe_fork(&mut self, parent: Tgid, child: Tgid, at: Timestamp) {
        if parent == child || child.0 == 0 {
            return;
        }
        let Some(inherited) = self.processes.get(&parent).and_then(|process| process.at(at)) else {
            return self.observe_process(child);
        };
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&child) {
            count(&mut self.shortfalls, "symbols_processes_over_limit");
            return;
        }
        let process = self.processes.entry(child).or_default();
        process.begin_as_copy(inherited, at);
        process.end_perf_maps(&mut self.perf_maps);
        self.pythons.end(child);
        self.look_for_python(child);
    }

    /// A process became another program at `at`: stacks taken before are of the old one.
    pub fn observe_exec(&mut self, tgid: Tgid, at: Timestamp) {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&tgid) {
            count(&mut self.shortfalls, "symbols_processes_over_limit");
            return;
        }
        let process = self.processes.entry(tgid).or_default();
        let is_unread = process.exec(at);
        process.end_perf_maps(&mut self.perf_maps);
        self.pythons.end(tgid);
        if is_unread && !self.read_mappings(tgid) {
            count(&mut self.shortfalls, "symbols_processes_gone");
        }
    }

    /// A process ended at `at`: its number may be used again.
    pub fn observe_exit(&mut self, tgid: Tgid, at: Timestamp) {
        let Some(process) = self.processes.get_mut(&tgid) else { return };
        process.end(at);
        process.end_perf_maps(&mut self.perf_maps);
        self.pythons.end(tgid);
        self.ended.push_back(tgid);
        if self.ended.len() > ENDED_KEPT
            && let Some(oldest) = self.ended.pop_front()
            && self.processes.get(&oldest).is_some_and(|process| !process.is_alive())
        {
            self.processes.remove(&oldest);
        }
    }

    /// A stack arrived, leaf first, that was taken at `taken`.
    ///
    /// User addresses are looked up now, in the mappings that the process had then as far as they
    /// are known. Addresses in no mapping, those of a broken walk among them, are kept as they are.
    pub fn observe_stack(
        &mut self,
        id: StackId,
        space: AddressSpace,
        taken: Timestamp,
        addresses: &[u64],
    ) {
        if let AddressSpace::Process(tgid) = space {
            self.know(tgid, Moment::at(taken), addresses);
        }
        // Every address but the leaf is where a call returns to.
        let kinds = iter::once(AddressKind::Instruction).chain(iter::repeat(AddressKind::Return));
        let frames = addresses.iter().zip(kinds).map(|(&at, kind)| FoundFrame::At(at, kind));
        self.add_stack(id, space, Moment::at(taken), frames, StackEnd::Unknown);
    }

    fn add_stack(
        &mut self,
        id: StackId,
        space: AddressSpace,
        moment: Moment,
        found: impl Iterator<Item = FoundFrame>,
        end: StackEnd,
    ) {
        let mut frames = Vec::with_capacity(found.size_hint().0);
        for found in found {
            let frame = match found {
                FoundFrame::At(address, kind) => self.frame_at(space, moment, address, kind),
                FoundFrame::Python(function) => self.python_frame(function),
                FoundFrame::Said(text) => self.frames.intern_told(Function::named(text), None),
            };
            let Some(frame) = frame else {
                return count(&mut self.shortfalls, "symbols_frames_over_limit");
            };
            frames.push(frame);
        }
        self.stacks.push((id, Stack { space, frames, end }));
    }

    fn python_frame(&mut self, function: Function) -> Option<FrameId> {
        let module = self.modules.missing(pythons::MODULE)?;
        self.modules.refer_to(module);
        self.frames.intern_told(function, Some(module))
    }

    fn frame_at(
        &mut self,
        space: AddressSpace,
        moment: Moment,
        address: u64,
        kind: AddressKind,
    ) -> Option<FrameId> {
        let placed = match space {
            AddressSpace::Kernel => self.place_in_kernel(address),
            AddressSpace::Process(tgid) => self.place(tgid, moment, address, kind),
        };
        let frame = self.frames.intern(address, kind, &placed)?;
        if let Some(module) = placed.place.module() {
            self.modules.refer_to(module);
        }
        Some(frame)
    }

    /// Knows what a process had mapped when a stack with these addresses was taken, as far as it can be
    /// known.
    fn know(&mut self, tgid: Tgid, moment: Moment, addresses: &[u64]) {
        // Not for the late stack of a process that ended: its number stands for nothing now.
        if !self.processes.get(&tgid).is_some_and(|process| process.is_known_at(moment.taken)) {
            self.observe_process(tgid);
        }
        self.refresh(tgid, moment, addresses);
    }

    /// Reads a process's mappings again if they are too old for this stack; whether it did.
    fn refresh(&mut self, tgid: Tgid, moment: Moment, addresses: &[u64]) -> bool {
        let process = self.processes.get(&tgid);
        process.is_some_and(|process| process.wants_reading(moment, addresses))
            && self.read_mappings(tgid)
    }

    /// Reads the mappings of the program that a process runs now. False if it is gone.
    fn read_mappings(&mut self, tgid: Tgid) -> bool {
        let process = self.processes.get_mut(&tgid);
        let is_read = process.is_some_and(|process| {
            let epochs = self.code_epochs.as_ref();
            process.read(tgid, epochs, &mut self.modules, &mut self.shortfalls)
        });
        self.look_for_python(tgid);
        is_read
    }

    fn look_for_python(&mut self, tgid: Tgid) {
        if let Some(process) = self.processes.get(&tgid) {
            let candidates = process.pythons();
            self.pythons.observe(tgid, candidates, &self.modules, &mut self.shortfalls);
        }
    }

    /// What is new of threads that run Python since this was called last.
    pub fn take_python_threads(&mut self) -> Vec<PythonThread> {
        self.pythons.take_news()
    }

    fn place_in_kernel(&mut self, address: u64) -> Placed {
        let kernel = (address >= kernel::HALF).then(|| self.modules.kernel());
        Placed::at(kernel.flatten().map_or(Place::Nowhere, Place::Kernel))
    }

    fn place(&mut self, tgid: Tgid, moment: Moment, address: u64, kind: AddressKind) -> Placed {
        let nowhere = Placed::at(Place::Nowhere);
        let Some(process) = self.processes.get_mut(&tgid) else { return nowhere };
        // A call that ends a mapping returns to behind it.
        let mapping = match process.find(moment, address.saturating_sub(kind.before())) {
            Found::Nothing => return nowhere,
            Found::Conflict => {
                count(&mut self.shortfalls, "symbols_mapping_conflicts");
                return nowhere;
            }
            Found::Mapping(mapping) => mapping,
        };
        let offset = Some(address.wrapping_sub(mapping.start).wrapping_add(mapping.offset));
        let place = match mapping.backing {
            Backing::Module(module) => Place::File(module),
            Backing::Memory(module) => {
                Place::Memory(module, process.perf_map(moment.taken, tgid, &mut self.perf_maps))
            }
        };
        Placed { place, offset }
    }

    /// What is new since this was called last. A module can come later than the frames in it: as soon
    /// as its file's headers are read, or after two seconds without what they say.
    pub fn take_new(&mut self) -> NewStacks {
        NewStacks {
            modules: self.modules.take_new(),
            frames: self.frames.take_new(),
            stacks: std::mem::take(&mut self.stacks),
            passing: std::mem::take(&mut self.passing),
            names: self.frames.take_newly_told(),
        }
    }

    /// The frames whose names were not asked for yet, to be looked up apart from here.
    pub fn take_nameless(&mut self) -> Naming {
        for (tgid, process) in &mut self.processes {
            process.last_chance(*tgid, &mut self.perf_maps);
        }
        Naming::take(&mut self.frames, &self.modules, &self.perf_maps, self.sources.clone())
    }

    /// What could not be done so far, the looking up of names apart.
    #[must_use]
    pub fn shortfalls(&self) -> Shortfalls {
        let mut all = self.shortfalls.clone();
        self.modules.add_shortfalls(&mut all);
        self.perf_maps.add_shortfalls(&mut all);
        all
    }

    /// Looks at no process any more: every file is open that names are to be found in.
    #[must_use]
    pub fn finish(mut self) -> Unnamed {
        let naming = self.take_nameless();
        let modules = self.modules.take_rest();
        let stacks = std::mem::take(&mut self.stacks);
        let passing = std::mem::take(&mut self.passing);
        let new = NewStacks {
            modules,
            frames: self.frames.take_new(),
            stacks,
            passing,
            names: self.frames.take_newly_told(),
        };
        Unnamed { new, naming, shortfalls: self.shortfalls() }
    }
}

/// What was found, but for the names.
pub struct Unnamed {
    new: NewStacks,
    naming: Naming,
    shortfalls: Shortfalls,
}

impl Unnamed {
    /// Has every distinct frame named whose name was not asked for yet. `progress` is called with the
    /// frames done and all of them.
    ///
    /// Gives back what is still new, the names of the frames that have any, and what could not be
    /// done.
    pub fn name(
        self,
        parser: &mut Parser,
        progress: &mut dyn FnMut(usize, usize),
    ) -> (NewStacks, Vec<(FrameId, Vec<Function>)>, Shortfalls) {
        let Self { new, naming, mut shortfalls } = self;
        let mut book = NameBook::default();
        book.look_up(naming, parser, progress);
        let names = book.finish(&mut shortfalls);
        (new, names, shortfalls)
    }
}

/// Cuts a name that came from another program to [`MAX_NAME`] bytes.
fn cut(name: &str) -> String {
    text::cut(name, MAX_NAME)
}

//! What every process has mapped, and when: which module and offset an address is.
//!
//! Every file that is mapped as code is held open from first sight on.

mod byte_account;
pub(crate) mod description;
mod description_reader;
pub(crate) mod held_file;
pub(crate) mod kernel;
mod mappings;
pub(crate) mod modules;
pub(crate) mod perf_maps;
pub(crate) mod proc_maps;
mod process;
pub(crate) mod process_root;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use offwake_unwind::CodeMapping;

use crate::{decode::CodeEpoch, reader_process};
use mappings::Backing;
use modules::Modules;
use offwake_recording::{
    AddressKind, AddressSpace, ModuleId,
    loss::{Diagnostics, add_all, count},
    units::{Tgid, Timestamp},
};
use perf_maps::{PerfMapId, PerfMaps};
use process::{MappedCode, Process};

pub(crate) use description_reader::FileToDescribe;
pub(crate) use mappings::PythonCandidate;
pub use process::CodeEpochs;
pub(crate) use process::Moment;

/// Processes that are remembered at a time. A host's default `pid_max` is 32,768 or 4,194,304.
const MAX_PROCESSES: usize = 65_536;
/// Processes that ended stay known for their late stacks until this many others have ended.
const MAX_ENDED: usize = 1024;

/// What an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AddressOwner {
    /// No mapping.
    Nothing,
    /// The kernel, which is this module.
    Kernel(ModuleId),
    /// A mapped file.
    File(ModuleId),
    /// Memory of this name, for which a JIT may have written a perf map.
    Memory(ModuleId, Option<PerfMapId>),
}

impl AddressOwner {
    /// The module that the address is in.
    pub(crate) fn module(self) -> Option<ModuleId> {
        match self {
            Self::Nothing => None,
            Self::Kernel(module) | Self::File(module) | Self::Memory(module, _) => Some(module),
        }
    }
}

/// An address that was looked up in its address space.
pub(crate) struct ResolvedAddress {
    pub owner: AddressOwner,
    /// The offset in the file or, for memory, in the mapping.
    pub offset: Option<u64>,
}

impl ResolvedAddress {
    /// An address of which no offset is known.
    pub(crate) fn without_offset(owner: AddressOwner) -> Self {
        Self { owner, offset: None }
    }
}

/// When the mappings of a program are read that a process has just begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupTime {
    /// At once.
    Now,
    /// With its first stack, or later.
    Later,
}

/// A file that a process has mapped as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedFile {
    pub module: ModuleId,
    /// Where the mapping begins.
    pub start: u64,
    /// Which offset in the file is there.
    pub offset: u64,
}

/// A change of what a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramChange {
    /// The mappings of the process are known anew.
    Mapped(Tgid),
    /// The program of the process ended.
    Ended(Tgid),
}

/// The address spaces of the kernel and of all processes.
pub(crate) struct AddressSpaces {
    processes: HashMap<Tgid, Process>,
    ended: VecDeque<Tgid>,
    modules: Modules,
    perf_maps: PerfMaps,
    code_epochs: Option<CodeEpochs>,
    changes: Vec<ProgramChange>,
    diagnostics: Diagnostics,
}

impl AddressSpaces {
    /// No process is known yet.
    pub(crate) fn new() -> Self {
        Self {
            processes: HashMap::new(),
            ended: VecDeque::new(),
            modules: Modules::new(),
            perf_maps: PerfMaps::new(),
            code_epochs: None,
            changes: Vec::new(),
            diagnostics: Diagnostics::new(),
        }
    }

    /// Reads the epochs of processes' code by this function from now on.
    pub(crate) fn set_code_epochs(&mut self, code_epochs: CodeEpochs) {
        self.code_epochs = Some(code_epochs);
    }

    /// A process was seen: captures its executable mappings while it lives. Cheap when it is known.
    pub(crate) fn observe_process(&mut self, tgid: Tgid) {
        if tgid.0 == 0 || self.processes.get(&tgid).is_some_and(Process::is_alive) {
            return;
        }
        if self.is_over_limit(tgid) {
            return;
        }
        self.processes.entry(tgid).or_default().begin(Timestamp(0));
        if !self.read_mappings(tgid) {
            count(&mut self.diagnostics, "symbols_processes_gone");
        }
    }

    /// `child` was forked at `at`: its address space is a copy of its parent's, which is all that
    /// can be known of a child that ends before its turn comes.
    pub(crate) fn observe_fork(&mut self, parent: Tgid, child: Tgid, at: Timestamp) {
        if parent == child || child.0 == 0 {
            return;
        }
        let Some(inherited) = self.processes.get(&parent).and_then(|process| process.at(at)) else {
            return self.observe_process(child);
        };
        if self.is_over_limit(child) {
            return;
        }
        let process = self.processes.entry(child).or_default();
        process.begin_as_copy(inherited, at);
        process.end_perf_maps(&mut self.perf_maps);
        self.changes.extend([ProgramChange::Ended(child), ProgramChange::Mapped(child)]);
    }

    /// A process became another program at `at`: stacks taken before are of the old one.
    pub(crate) fn observe_exec(&mut self, tgid: Tgid, at: Timestamp, time: LookupTime) {
        if self.is_over_limit(tgid) {
            return;
        }
        let process = self.processes.entry(tgid).or_default();
        let is_unread = process.exec(at);
        process.end_perf_maps(&mut self.perf_maps);
        reader_process::forget_process(tgid);
        self.changes.push(ProgramChange::Ended(tgid));
        if is_unread && time == LookupTime::Now && !self.read_mappings(tgid) {
            count(&mut self.diagnostics, "symbols_processes_gone");
        }
    }

    /// Reads the mappings of the program that a process runs now, if they were never read.
    pub(crate) fn read_unread_mappings(&mut self, tgid: Tgid) {
        if self.processes.get(&tgid).is_some_and(Process::is_unread) {
            self.read_mappings(tgid);
        }
    }

    /// A process ended at `at`: its number may be used again.
    pub(crate) fn observe_exit(&mut self, tgid: Tgid, at: Timestamp) {
        let Some(process) = self.processes.get_mut(&tgid) else { return };
        process.end(at);
        process.end_perf_maps(&mut self.perf_maps);
        reader_process::forget_process(tgid);
        self.changes.push(ProgramChange::Ended(tgid));
        self.ended.push_back(tgid);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
            && self.processes.get(&oldest).is_some_and(|process| !process.is_alive())
        {
            self.processes.remove(&oldest);
        }
    }

    /// Whether there is no room for a process, which is counted.
    fn is_over_limit(&mut self, tgid: Tgid) -> bool {
        let is_over = self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&tgid);
        if is_over {
            count(&mut self.diagnostics, "symbols_processes_over_limit");
        }
        is_over
    }

    /// Drains the changes of what processes run, in their order.
    pub(crate) fn drain_changes(&mut self) -> Vec<ProgramChange> {
        std::mem::take(&mut self.changes)
    }

    /// The moment of a stack whose epoch the kernel half has sent.
    pub(crate) fn moment(&self, taken: Timestamp, code_epoch: CodeEpoch) -> Moment {
        Moment { taken, code_epoch: self.code_epochs.is_some().then_some(code_epoch) }
    }

    /// Makes sure that it is known what a process had mapped when a stack with these addresses was
    /// taken, as far as it can be known.
    pub(crate) fn update_mappings(&mut self, tgid: Tgid, moment: Moment, addresses: &[u64]) {
        // Not for the late stack of a process that ended: its number stands for nothing now.
        if !self.processes.get(&tgid).is_some_and(|process| process.is_known_at(moment.taken)) {
            self.observe_process(tgid);
        }
        self.refresh_mappings(tgid, moment, addresses);
    }

    /// Reads a process's mappings again if they are too old for a stack with these addresses.
    pub(crate) fn refresh_mappings(&mut self, tgid: Tgid, moment: Moment, addresses: &[u64]) {
        let process = self.processes.get(&tgid);
        if process.is_some_and(|process| process.needs_reading(moment, addresses)) {
            self.read_mappings(tgid);
        }
    }

    /// Reads the mappings of the program that a process runs now. False if the process is gone.
    fn read_mappings(&mut self, tgid: Tgid) -> bool {
        let process = self.processes.get_mut(&tgid);
        let is_read = process.is_some_and(|process| {
            let epochs = self.code_epochs.as_ref();
            process.read_mappings(tgid, epochs, &mut self.modules, &mut self.diagnostics)
        });
        self.changes.push(ProgramChange::Mapped(tgid));
        is_read
    }

    /// The code that a process had mapped when a stack was taken, as far as is known.
    pub(crate) fn code(&self, tgid: Tgid, moment: Moment) -> Rc<[CodeMapping]> {
        let process = self.processes.get(&tgid);
        process.and_then(|process| process.code(moment)).unwrap_or_default()
    }

    /// Whether code of a process was unmapped since this was called last: what its return addresses
    /// stood for is not certain any more.
    pub(crate) fn check_lost_code(&mut self, tgid: Tgid) -> bool {
        self.processes.get_mut(&tgid).is_some_and(Process::check_lost_code)
    }

    /// The files of the program that a process runs now that may be a CPython. None if the process
    /// is not known.
    pub(crate) fn python_candidates(&self, tgid: Tgid) -> Option<&[PythonCandidate]> {
        self.processes.get(&tgid).map(Process::python_candidates)
    }

    /// The files that the program which a process runs now has mapped as code.
    pub(crate) fn mapped_files(&self, tgid: Tgid) -> Vec<MappedFile> {
        self.processes.get(&tgid).map_or_else(Vec::new, Process::mapped_files)
    }

    /// The processes that have one of these files mapped as code.
    pub(crate) fn processes_with(&self, modules: &[ModuleId]) -> Vec<Tgid> {
        let has_any = |process: &Process| {
            process.mapped_files().iter().any(|file| modules.contains(&file.module))
        };
        let alive = self.processes.iter().filter(|(_, process)| process.is_alive());
        alive.filter(|(_, process)| has_any(process)).map(|(tgid, _)| *tgid).collect()
    }

    /// Looks up what an address was in when a stack was taken.
    pub(crate) fn resolve(
        &mut self,
        space: AddressSpace,
        moment: Moment,
        address: u64,
        kind: AddressKind,
    ) -> ResolvedAddress {
        match space {
            AddressSpace::Kernel => self.resolve_in_kernel(address),
            AddressSpace::Process(tgid) => self.resolve_in_process(tgid, moment, address, kind),
        }
    }

    fn resolve_in_kernel(&mut self, address: u64) -> ResolvedAddress {
        let kernel = (address >= kernel::FIRST_ADDRESS).then(|| self.modules.kernel()).flatten();
        ResolvedAddress::without_offset(kernel.map_or(AddressOwner::Nothing, AddressOwner::Kernel))
    }

    fn resolve_in_process(
        &mut self,
        tgid: Tgid,
        moment: Moment,
        address: u64,
        kind: AddressKind,
    ) -> ResolvedAddress {
        let nothing = ResolvedAddress::without_offset(AddressOwner::Nothing);
        let Some(process) = self.processes.get_mut(&tgid) else { return nothing };
        // A call that ends a mapping returns to behind it.
        let mapping = match process.find(moment, address.saturating_sub(kind.before())) {
            MappedCode::Nothing => return nothing,
            MappedCode::Conflict => {
                count(&mut self.diagnostics, "symbols_mapping_conflicts");
                return nothing;
            }
            MappedCode::Mapping(mapping) => mapping,
        };
        let offset = Some(address.wrapping_sub(mapping.start).wrapping_add(mapping.offset));
        let owner = match mapping.backing {
            Backing::Module(module) => AddressOwner::File(module),
            Backing::Memory(module) => {
                let perf_map = process.perf_map(moment.taken, tgid, &mut self.perf_maps);
                AddressOwner::Memory(module, perf_map)
            }
        };
        ResolvedAddress { owner, offset }
    }

    /// The modules of all address spaces.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The modules of all address spaces, to add to them or to drain them.
    pub(crate) fn modules_mut(&mut self) -> &mut Modules {
        &mut self.modules
    }

    /// Tries once more to open the perf maps that are not open yet.
    pub(crate) fn open_perf_maps(&mut self) {
        for (tgid, process) in &mut self.processes {
            process.open_perf_map(*tgid, &mut self.perf_maps);
        }
    }

    /// The perf maps of all processes.
    pub(crate) fn perf_maps(&self) -> &PerfMaps {
        &self.perf_maps
    }

    /// Adds what could not be done so far.
    pub(crate) fn add_diagnostics(&self, all: &mut Diagnostics) {
        add_all(all, &self.diagnostics);
        self.modules.add_diagnostics(all);
        self.perf_maps.add_diagnostics(all);
    }
}

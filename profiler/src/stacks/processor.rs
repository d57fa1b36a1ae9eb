//! From addresses and stack copies to the stacks of a recording.

use std::{
    iter,
    rc::Rc,
    time::{Duration, Instant},
};

use offwake_recording::{
    AddressKind, AddressSpace, FrameId, Function, Module, ModuleId, NewStacks, Stack, StackEnd,
    TagName,
    loss::{Diagnostics, add_all, count},
    units::{StackId, Tgid, Tid, Timestamp},
};
use offwake_unwind::{
    CodeBacking, CodeMapping, Registers, StackCopy, UnwindEnd, UnwoundFrame, UnwoundStack,
    find_mapping,
};

use super::{
    sleeping_threads::{OfferedStacks, read_if_asleep},
    stack_cache::{CacheUpdate, StackCache, StackCode},
};
use crate::{
    decode::{CallSiteKey, CopyPurpose, PythonStack, UserStackCopy},
    parser::Parser,
    symbols::{
        CodeEpochs, NameSources, NamingRequest, PythonProgram, PythonThread, ResolvedNames,
        address_spaces::{AddressSpaces, LookupTime, Moment, ProgramChange},
        frame_table::{DrainedStacks, FrameTable},
        python::{self, MergedFrame, PythonProcesses},
        tags::{TagProcesses, TagProgram},
    },
    unwinder_process::{UnwindRequest, UnwinderClient, is_same_code},
};

/// Distinct frames that are kept: some 80 bytes each before they are named.
const MAX_FRAMES: usize = 4_000_000;
/// The most stacks of sleeping threads that are read because somebody waits for those threads: of each
/// up to 64 KiB.
const MAX_SLEEPERS: usize = 256;

/// A frame before it has a number.
enum FoundFrame {
    /// An address.
    Address(u64, AddressKind),
    /// A function of Python.
    Python(Function),
    /// A note that frames are missing.
    Note(&'static str),
}

/// What came of one stack copy.
pub struct UnwoundCopy {
    /// The id that records refer to the stack by.
    pub id: StackId,
    /// The native frames, and why there are no more. None if nobody could unwind the stack.
    pub unwound: Option<Rc<UnwoundStack>>,
    /// What changes in the kernel half's cache.
    pub cache_update: CacheUpdate,
}

/// The names of all frames, and what is still new of the stacks.
pub type ResolvedStacks = (NewStacks, Vec<(FrameId, Vec<Function>)>, Diagnostics);

/// Turns stack copies and walked addresses into stacks with frames.
pub struct StackProcessor {
    spaces: AddressSpaces,
    pythons: PythonProcesses,
    tags: TagProcesses,
    frames: FrameTable,
    unwinder: UnwinderClient,
    cache: StackCache,
    offered: OfferedStacks,
    name_sources: NameSources,
    diagnostics: Diagnostics,
}

impl StackProcessor {
    /// A processor that has stacks unwound by `unwinder`, and the stacks of so many call sites
    /// cached at most.
    #[must_use]
    pub fn new(unwinder: UnwinderClient, max_call_sites: usize) -> Self {
        Self {
            spaces: AddressSpaces::new(),
            pythons: PythonProcesses::default(),
            tags: TagProcesses::new(),
            frames: FrameTable::new(MAX_FRAMES),
            unwinder,
            cache: StackCache::new(max_call_sites),
            offered: OfferedStacks::default(),
            name_sources: NameSources::default(),
            diagnostics: Diagnostics::new(),
        }
    }

    /// With names from these sources.
    #[must_use]
    pub fn with_name_sources(self, name_sources: NameSources) -> Self {
        Self { name_sources, ..self }
    }

    /// With the epochs of processes' code.
    #[must_use]
    pub fn with_code_epochs(mut self, code_epochs: CodeEpochs) -> Self {
        self.spaces.set_code_epochs(code_epochs);
        self
    }

    /// A process was seen: captures its executable mappings while it lives. Cheap when it is known.
    pub fn observe_process(&mut self, tgid: Tgid) {
        self.spaces.observe_process(tgid);
        self.update_pythons();
    }

    /// `child` was forked at `at`: its address space is a copy of its parent's.
    pub fn observe_fork(&mut self, parent: Tgid, child: Tgid, at: Timestamp) {
        self.spaces.observe_fork(parent, child, at);
        self.update_pythons();
    }

    /// A process became another program at `at`: stacks taken before are of the old one.
    pub fn observe_exec(&mut self, tgid: Tgid, at: Timestamp, time: LookupTime) {
        self.spaces.observe_exec(tgid, at, time);
        self.update_pythons();
    }

    /// Captures the executable mappings of a process whose program began some time ago, if that is
    /// not done.
    pub fn read_unread_mappings(&mut self, tgid: Tgid) {
        self.spaces.read_unread_mappings(tgid);
        self.update_pythons();
    }

    /// A process ended at `at`: its number may be used again.
    pub fn observe_exit(&mut self, tgid: Tgid, at: Timestamp) {
        self.spaces.observe_exit(tgid, at);
        self.update_pythons();
    }

    /// Finds out which processes run Python now.
    fn update_pythons(&mut self) {
        for change in self.spaces.drain_changes() {
            self.tags.observe(change);
            match change {
                ProgramChange::Ended(tgid) => self.pythons.end(tgid),
                ProgramChange::Mapped(tgid) => {
                    if let Some(candidates) = self.spaces.python_candidates(tgid) {
                        let modules = self.spaces.modules();
                        self.pythons.observe(tgid, candidates, modules, &mut self.diagnostics);
                    }
                }
            }
        }
    }

    /// Drains the processes that began or ceased to run Python, for the kernel half.
    pub fn drain_python_programs(&mut self) -> Vec<PythonProgram> {
        self.pythons.drain_changed_programs()
    }

    /// Drains the processes that began or ceased to say what their threads do, for the kernel half.
    pub fn drain_tag_programs(&mut self) -> Vec<TagProgram> {
        self.tags.drain_changed(&mut self.spaces)
    }

    /// Reads once more what processes call their labels.
    pub fn read_tag_names_again(&mut self) {
        self.tags.read_names_again();
    }

    /// Drains what processes call their labels.
    pub fn drain_tag_names(&mut self) -> Vec<TagName> {
        self.tags.drain_new_names()
    }

    /// Drains the threads that began or ceased to run Python, for the kernel half.
    pub fn drain_python_threads(&mut self) -> Vec<PythonThread> {
        self.pythons.drain_changed_threads()
    }

    /// Adds a stack that was walked at `taken`, as addresses, leaf first.
    ///
    /// User addresses are looked up now, in the mappings that the process had then as far as they
    /// are known. Addresses in no mapping, those of a broken walk among them, are kept as they are.
    pub fn add_walked_stack(
        &mut self,
        id: StackId,
        space: AddressSpace,
        taken: Timestamp,
        addresses: &[u64],
    ) {
        let moment = Moment::at(taken);
        if let AddressSpace::Process(tgid) = space {
            self.spaces.update_mappings(tgid, moment, addresses);
            self.update_pythons();
        }
        // Every address but the leaf is where a call returns to.
        let kinds = iter::once(AddressKind::Instruction).chain(iter::repeat(AddressKind::Return));
        let frames = addresses.iter().zip(kinds).map(|(&at, kind)| FoundFrame::Address(at, kind));
        self.add_stack(id, space, moment, frames, StackEnd::Unknown);
    }

    /// Unwinds copies of user stacks, and adds their stacks. Those that are only offered are kept in
    /// mind for [`Self::read_sleepers`].
    pub fn process_copies(&mut self, copies: Vec<UserStackCopy<'_>>) -> Vec<UnwoundCopy> {
        let mut processed = Vec::with_capacity(copies.len());
        let copies: Vec<UserStackCopy> =
            copies.into_iter().filter_map(|copy| self.offered.keep_offered(copy)).collect();
        // Whether a thread that is asleep runs Python has to be known before its stack is read.
        for copy in &copies {
            if matches!(copy.purpose, CopyPurpose::BeforeWindow { .. }) {
                self.spaces.update_mappings(copy.tgid, self.moment(copy), &[copy.ip]);
            }
        }
        self.update_pythons();
        let (copies, asleep): (Vec<UserStackCopy>, Vec<Option<StackOfSleeper>>) = copies
            .into_iter()
            .filter_map(|copy| match self.read_sleeper(&copy) {
                Ok(sleeper) => Some((copy, sleeper)),
                Err(Woken) => {
                    processed.push(self.add_end_alone(&copy, StackEnd::WaitOver));
                    None
                }
            })
            .unzip();
        let (own, others): (Vec<UserStackCopy>, Vec<UserStackCopy>) = iter::zip(copies, &asleep)
            .map(|(copy, sleeper)| match sleeper {
                None => copy,
                Some((bytes, python)) => UserStackCopy { bytes, python: python.clone(), ..copy },
            })
            .partition(|copy| self.unwinder.is_own(copy.tgid));
        // The unwinder does not unwind its own stacks: each request would make the next ones.
        for copy in &own {
            processed.push(self.add_unwound(copy, None));
        }
        for copies in StackCache::split_first_of_each_site(others) {
            let known: Vec<_> = copies.iter().map(|copy| self.cache.find(copy)).collect();
            let unknown: Vec<&UserStackCopy> = iter::zip(&copies, &known)
                .filter_map(|(copy, known)| known.is_none().then_some(copy))
                .collect();
            let mut unwound = self.unwind(&unknown).into_iter();
            for (copy, known) in iter::zip(&copies, known) {
                let unwound = known.or_else(|| unwound.next().flatten().map(Rc::new));
                processed.push(self.add_unwound(copy, unwound));
            }
        }
        processed
    }

    /// Reads and unwinds the stacks of these threads, in this order, as far as they were offered: for
    /// `time` at most, and no more than 256 of them. Returns the ids of what was read; the others are
    /// counted.
    pub fn read_sleepers(&mut self, threads: &[Tid], time: Duration) -> Vec<(Tid, StackId)> {
        let deadline = Instant::now() + time;
        let mut read = Vec::new();
        for &tid in threads {
            let Some(copy) = self.offered.remove(tid) else { continue };
            if read.len() >= MAX_SLEEPERS || Instant::now() >= deadline {
                count(&mut self.diagnostics, "stacks_of_sleepers_unread");
                continue;
            }
            let id = copy.id;
            self.process_copies(vec![copy]);
            read.push((tid, id));
        }
        read
    }

    /// Removes stacks from the cache that are not in the recording any more. Returns the call sites
    /// to remove from the kernel half.
    pub fn remove_from_cache(&mut self, gone: &[StackId]) -> Vec<CallSiteKey> {
        self.cache.remove_stacks(gone)
    }

    /// Reads the stack of a thread that slept before the window opened. Any other is in the copy.
    fn read_sleeper(&self, copy: &UserStackCopy) -> Result<Option<StackOfSleeper>, Woken> {
        let CopyPurpose::BeforeWindow { voluntary_switches } = copy.purpose else {
            return Ok(None);
        };
        let python = || self.pythons.walk(copy.tgid, copy.tid);
        read_if_asleep(copy, voluntary_switches, python).map(Some).ok_or(Woken)
    }

    /// Has copies of user stacks unwound. None for each where that failed, which is counted.
    fn unwind(&mut self, copies: &[&UserStackCopy]) -> Vec<Option<UnwoundStack>> {
        for copy in copies {
            self.spaces.update_mappings(copy.tgid, self.moment(copy), &[copy.ip]);
        }
        let requests: Vec<UnwindRequest> = copies.iter().map(|copy| self.request(copy)).collect();
        let mut unwound =
            self.unwinder.unwind(&requests, self.spaces.modules(), &mut self.diagnostics);
        // A library may have been loaded since the mappings were read.
        let mut again = Vec::new();
        for (index, (copy, unwound)) in iter::zip(copies, &unwound).enumerate() {
            let Some(UnwoundStack { end: UnwindEnd::NotCode { address }, .. }) = *unwound else {
                continue;
            };
            self.spaces.refresh_mappings(copy.tgid, self.moment(copy), &[address]);
            let request = self.request(copy);
            // The mappings may also have been read for another one of these copies.
            if !is_same_code(&request.code, &requests[index].code) {
                again.push((index, request));
            }
        }
        self.update_pythons();
        let (indices, requests): (Vec<usize>, Vec<UnwindRequest>) = again.into_iter().unzip();
        let modules = self.spaces.modules();
        let unwound_again = self.unwinder.unwind(&requests, modules, &mut self.diagnostics);
        for (index, again) in iter::zip(indices, unwound_again) {
            unwound[index] = again;
        }
        unwound
    }

    fn request<'a>(&self, copy: &UserStackCopy<'a>) -> UnwindRequest<'a> {
        let &UserStackCopy { tgid, ip, sp, fp, red_zone, bytes, missing, .. } = copy;
        let code = self.spaces.code(tgid, self.moment(copy));
        let registers = Registers { ip, sp, fp };
        UnwindRequest { code, copy: StackCopy { registers, red_zone, bytes, missing } }
    }

    fn moment(&self, copy: &UserStackCopy) -> Moment {
        self.spaces.moment(copy.copied, copy.code_epoch)
    }

    /// Adds a copied stack, and caches it.
    fn add_unwound(
        &mut self,
        copy: &UserStackCopy,
        unwound: Option<Rc<UnwoundStack>>,
    ) -> UnwoundCopy {
        let mut remove = match self.spaces.check_lost_code(copy.tgid) {
            true => self.cache.remove_process(copy.tgid),
            false => Vec::new(),
        };
        // A stack that was not unwound is not cached: it is copied the next time too.
        let Some(unwound) = unwound else {
            let mut processed = match copy.purpose {
                CopyPurpose::Check(_) => UnwoundCopy::without_frames(copy.id),
                _ => self.add_end_alone(copy, StackEnd::NotUnwound),
            };
            processed.cache_update.remove = remove;
            return processed;
        };
        // A stack that was copied too short is not cached, and tells nothing of its call site: the next
        // copy of it is longer.
        let is_next_longer = unwound.end == UnwindEnd::CopyTooShort && copy.size.larger().is_some();
        let chain = copy.python.as_ref().filter(|_| !is_next_longer);
        let code = if self.pythons.runs_python(copy.tgid, &unwound, chain) {
            StackCode::Python
        } else if is_in_files(&unwound, &self.spaces.code(copy.tgid, self.moment(copy))) {
            StackCode::Files
        } else {
            StackCode::Generated
        };
        let mut cache_update = self.cache.update(copy, &unwound, code);
        if cache_update.is_cached || !matches!(copy.purpose, CopyPurpose::Check(_)) {
            self.add_frames(copy, &unwound);
        }
        remove.append(&mut cache_update.remove);
        cache_update.remove = remove;
        UnwoundCopy { id: copy.id, unwound: Some(unwound), cache_update }
    }

    /// Adds a stack that could not be unwound. Of its frames the leaf is known, unless the wait is
    /// over.
    fn add_end_alone(&mut self, copy: &UserStackCopy, end: StackEnd) -> UnwoundCopy {
        let space = AddressSpace::Process(copy.tgid);
        let leaf = FoundFrame::Address(copy.ip, AddressKind::Instruction);
        let leaf = (end != StackEnd::WaitOver).then_some(leaf);
        self.add_stack(copy.id, space, self.moment(copy), leaf.into_iter(), end);
        self.mark_if_passing(copy);
        UnwoundCopy::without_frames(copy.id)
    }

    /// Adds the frames of a stack that was unwound, with those of Python.
    fn add_frames(&mut self, copy: &UserStackCopy, unwound: &UnwoundStack) {
        let space = AddressSpace::Process(copy.tgid);
        let native = |frame: &UnwoundFrame| FoundFrame::Address(frame.address, frame.kind);
        let merged = self.pythons.merge(copy.tgid, copy.tid, unwound, copy.python.as_ref());
        let frames: Vec<FoundFrame> = match merged {
            None => unwound.frames.iter().map(native).collect(),
            Some(merged) => merged
                .into_iter()
                .filter_map(|frame| match frame {
                    MergedFrame::Native(index) => unwound.frames.get(index).map(native),
                    MergedFrame::Python(function) => Some(FoundFrame::Python(function)),
                    MergedFrame::Note(text) => Some(FoundFrame::Note(text)),
                })
                .collect(),
        };
        let end = match unwound.end {
            UnwindEnd::EntryPoint => StackEnd::EntryPoint,
            UnwindEnd::CopyTooShort => StackEnd::CopyTooShort,
            UnwindEnd::PageMissing => StackEnd::PageMissing,
            UnwindEnd::NoUnwindInfo { .. } => StackEnd::NoUnwindInfo,
            UnwindEnd::NotCode { .. } => StackEnd::NotCode,
            UnwindEnd::Broken { .. } => StackEnd::Broken,
            UnwindEnd::OtherStack => StackEnd::OtherStack,
            UnwindEnd::LostRegister { .. } => StackEnd::LostRegister,
            UnwindEnd::OtherMachine { .. } => StackEnd::OtherMachine,
            UnwindEnd::TooDeep => StackEnd::TooDeep,
        };
        self.add_stack(copy.id, space, self.moment(copy), frames.into_iter(), end);
        self.mark_if_passing(copy);
    }

    /// Only records of about now refer to the stack of a sample.
    fn mark_if_passing(&mut self, copy: &UserStackCopy) {
        if copy.purpose == CopyPurpose::Sample {
            self.frames.mark_as_passing(AddressSpace::Process(copy.tgid), copy.id);
        }
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
                FoundFrame::Address(address, kind) => self.frame(space, moment, address, kind),
                FoundFrame::Python(function) => self.python_frame(function),
                FoundFrame::Note(text) => self.frames.intern_named(Function::named(text), None),
            };
            let Some(frame) = frame else {
                return count(&mut self.diagnostics, "symbols_frames_over_limit");
            };
            frames.push(frame);
        }
        self.frames.add_stack(id, Stack { space, frames, end });
    }

    fn python_frame(&mut self, function: Function) -> Option<FrameId> {
        let modules = self.spaces.modules_mut();
        let module = modules.named_module(python::MODULE)?;
        modules.refer_to(module);
        self.frames.intern_named(function, Some(module))
    }

    fn frame(
        &mut self,
        space: AddressSpace,
        moment: Moment,
        address: u64,
        kind: AddressKind,
    ) -> Option<FrameId> {
        let resolved = self.spaces.resolve(space, moment, address, kind);
        let frame = self.frames.intern(address, kind, &resolved)?;
        if let Some(module) = resolved.owner.module() {
            self.spaces.modules_mut().refer_to(module);
        }
        Some(frame)
    }

    /// Drains what is new. A module can come later than the frames in it: as soon as its file's
    /// headers are read, or after two seconds without what they say.
    pub fn drain_new(&mut self) -> NewStacks {
        let modules = self.spaces.modules_mut().drain_new();
        self.new_stacks(modules)
    }

    fn new_stacks(&mut self, modules: Vec<(ModuleId, Module)>) -> NewStacks {
        let DrainedStacks { stacks, passing } = self.frames.drain_new_stacks();
        let (frames, names) = (self.frames.drain_new(), self.frames.drain_new_names());
        NewStacks { modules, frames, stacks, passing, names }
    }

    /// Makes a request for the names of the frames that were in none yet.
    pub fn request_names(&mut self) -> NamingRequest {
        self.spaces.open_perf_maps();
        let (modules, perf_maps) = (self.spaces.modules(), self.spaces.perf_maps());
        NamingRequest::new(&mut self.frames, modules, perf_maps, self.name_sources.clone())
    }

    /// What could not be done so far, except the lookup of names.
    #[must_use]
    pub fn diagnostics(&self) -> Diagnostics {
        let mut all = self.diagnostics.clone();
        self.spaces.add_diagnostics(&mut all);
        self.frames.add_diagnostics(&mut all);
        self.tags.add_diagnostics(&mut all);
        all
    }

    /// Ends the work on processes: every file is open that names are to be found in.
    #[must_use]
    pub fn finish(mut self) -> UnnamedStacks {
        let names = self.request_names();
        let modules = self.spaces.modules_mut().drain_all();
        let new = self.new_stacks(modules);
        UnnamedStacks { new, names, diagnostics: self.diagnostics() }
    }
}

/// Whether all frames of a stack are in code of files.
fn is_in_files(stack: &UnwoundStack, code: &[CodeMapping]) -> bool {
    stack.frames.iter().all(|frame| {
        let looked_up = frame.address.wrapping_sub(frame.kind.before());
        let mapping = find_mapping(code, looked_up);
        mapping.is_some_and(|mapping| matches!(mapping.backing, CodeBacking::File(_)))
    })
}

impl UnwoundCopy {
    fn without_frames(id: StackId) -> Self {
        Self { id, unwound: None, cache_update: CacheUpdate::default() }
    }
}

/// The bytes of a stack that was read from a sleeping thread, and what Python ran in it.
type StackOfSleeper = (Vec<u8>, Option<PythonStack>);

/// The thread woke before its stack could be read.
struct Woken;

/// All that was found, except the names.
pub struct UnnamedStacks {
    new: NewStacks,
    names: NamingRequest,
    diagnostics: Diagnostics,
}

impl UnnamedStacks {
    /// Looks up the names of all frames that were in no request yet. `progress` is called with the
    /// number of frames done and of all frames.
    ///
    /// Returns what is still new, the names of the frames that have any, and what could not be
    /// done.
    pub fn resolve(
        self,
        parser: &mut Parser,
        progress: &mut dyn FnMut(usize, usize),
    ) -> ResolvedStacks {
        let Self { new, names: request, mut diagnostics } = self;
        let mut resolved = ResolvedNames::default();
        resolved.resolve(request, parser, progress);
        add_all(&mut diagnostics, &resolved.diagnostics());
        (new, resolved.into_names(), diagnostics)
    }
}

//! Every distinct frame once, the stacks of these frames, and what is new of both.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use offwake_recording::{
    AddressKind, AddressSpace, Frame, FrameId, Function, ModuleId, Stack, loss::Diagnostics,
    units::StackId,
};

use super::address_spaces::{AddressOwner, ResolvedAddress, perf_maps::PerfMapId};

/// Bytes that functions take at most which are known by their names alone. A program can make ever
/// new ones, with names as long as it likes. A copy of each is kept until the recording is closed.
const MAX_NAMED_BYTES: usize = 128 << 20;
/// Stands for the functions for which there was no room.
const NAME_OVER_LIMIT: &str = "[function name over the limit]";

/// What makes two frames the same. A file is mapped at an address of its own in each process: there
/// the offset counts, everywhere else the address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FrameKey {
    owner: AddressOwner,
    at: u64,
    kind: AddressKind,
}

/// Where the names of frames are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameSource {
    Kernel,
    File(ModuleId),
    PerfMap(PerfMapId),
}

/// A frame to be named, and the offset or address that has the name.
pub(crate) struct UnnamedFrame {
    pub frame: FrameId,
    pub at: u64,
}

/// Every distinct frame, and the stacks that are new.
pub(crate) struct FrameTable {
    by_address: HashMap<FrameKey, FrameId>,
    /// Frames that had their name from the beginning.
    by_function: HashMap<Function, FrameId>,
    /// The source files of those functions: each has many.
    files: HashSet<Arc<str>>,
    /// Bytes that more of those functions may take.
    named_bytes_left: usize,
    /// How often a function found no room.
    names_over_limit: u64,
    /// The number of frames up to which `drain_new_names` has given those names.
    names_drained: usize,
    /// The number of frames up to which a naming request has those names.
    names_in_requests: usize,
    /// The number of frames up to which names were requested.
    requested: usize,
    new: Vec<(FrameId, Frame)>,
    new_stacks: Vec<(StackId, Stack)>,
    /// The new stacks that only records of about now refer to.
    passing: Vec<(AddressSpace, StackId)>,
    limit: usize,
}

/// The stacks that are new.
#[derive(Default)]
pub(crate) struct DrainedStacks {
    pub stacks: Vec<(StackId, Stack)>,
    /// The stacks among them that only records of about now refer to.
    pub passing: Vec<(AddressSpace, StackId)>,
}

impl FrameTable {
    /// An empty table of so many frames at most.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            by_address: HashMap::new(),
            by_function: HashMap::new(),
            files: HashSet::new(),
            named_bytes_left: MAX_NAMED_BYTES,
            names_over_limit: 0,
            names_drained: 0,
            names_in_requests: 0,
            requested: 0,
            new: Vec::new(),
            new_stacks: Vec::new(),
            passing: Vec::new(),
            limit,
        }
    }

    /// Adds a stack of frames of this table.
    pub(crate) fn add_stack(&mut self, id: StackId, stack: Stack) {
        self.new_stacks.push((id, stack));
    }

    /// Marks a stack as one that only records of about now refer to.
    pub(crate) fn mark_as_passing(&mut self, space: AddressSpace, id: StackId) {
        self.passing.push((space, id));
    }

    /// Drains the stacks that are new.
    pub(crate) fn drain_new_stacks(&mut self) -> DrainedStacks {
        DrainedStacks {
            stacks: std::mem::take(&mut self.new_stacks),
            passing: std::mem::take(&mut self.passing),
        }
    }

    /// The frame of an address, or none if there are too many frames.
    pub(crate) fn intern(
        &mut self,
        address: u64,
        kind: AddressKind,
        resolved: &ResolvedAddress,
    ) -> Option<FrameId> {
        let &ResolvedAddress { owner, offset: module_offset } = resolved;
        let at = match owner {
            AddressOwner::File(_) => module_offset.unwrap_or(address),
            AddressOwner::Nothing | AddressOwner::Kernel(_) | AddressOwner::Memory(..) => address,
        };
        let key = FrameKey { owner, at, kind };
        if let Some(&known) = self.by_address.get(&key) {
            return Some(known);
        }
        let id = self.next_id()?;
        self.by_address.insert(key, id);
        let module = owner.module();
        self.new.push((id, Frame { address, kind, module, module_offset, functions: Vec::new() }));
        Some(id)
    }

    /// The frame of a function that is known by its name alone, or none if there are too many
    /// frames. If names take too much memory, a frame that says so.
    pub(crate) fn intern_named(
        &mut self,
        mut function: Function,
        module: Option<ModuleId>,
    ) -> Option<FrameId> {
        if let Some(&known) = self.by_function.get(&function) {
            return Some(known);
        }
        match self.named_bytes_left.checked_sub(self.size(&function)) {
            Some(left) => {
                self.named_bytes_left = left;
                function.file = function.file.map(|file| self.intern_file(file));
            }
            None => {
                self.names_over_limit += 1;
                function = Function::named(NAME_OVER_LIMIT);
                if let Some(&known) = self.by_function.get(&function) {
                    return Some(known);
                }
            }
        }
        let id = self.next_id()?;
        self.by_function.insert(function, id);
        let kind = AddressKind::Instruction;
        let frame = Frame { address: 0, kind, module, module_offset: None, functions: Vec::new() };
        self.new.push((id, frame));
        Some(id)
    }

    /// Bytes that a new function takes, with its file unless another function has that already.
    fn size(&self, Function { name, file, .. }: &Function) -> usize {
        let new_file = file.as_ref().filter(|file| !self.files.contains(*file));
        let file = new_file.map_or(0, |file| size_of::<Arc<str>>() + file.len());
        size_of::<(Function, FrameId)>() + name.len() + file
    }

    fn intern_file(&mut self, file: Arc<str>) -> Arc<str> {
        match self.files.get(&file) {
            Some(known) => Arc::clone(known),
            None => {
                self.files.insert(Arc::clone(&file));
                file
            }
        }
    }

    pub(crate) fn add_diagnostics(&self, all: &mut Diagnostics) {
        if self.names_over_limit > 0 {
            *all.entry("symbols_names_over_limit").or_default() += self.names_over_limit;
        }
    }

    fn count(&self) -> usize {
        self.by_address.len() + self.by_function.len()
    }

    fn next_id(&self) -> Option<FrameId> {
        let count = self.count();
        (count < self.limit).then(|| u32::try_from(count).ok().map(FrameId))?
    }

    /// Drains the names of frames that had them from the beginning, to be written down at once:
    /// nobody can look them up again.
    pub(crate) fn drain_new_names(&mut self) -> Vec<(FrameId, Vec<Function>)> {
        let count = self.count();
        let from = std::mem::replace(&mut self.names_drained, count);
        self.names_from(from)
    }

    /// Drains the same names for naming requests.
    pub(crate) fn drain_names_for_request(&mut self) -> Vec<(FrameId, Vec<Function>)> {
        let count = self.count();
        let from = std::mem::replace(&mut self.names_in_requests, count);
        self.names_from(from)
    }

    /// The names that frames from this number on had from the beginning.
    fn names_from(&self, from: usize) -> Vec<(FrameId, Vec<Function>)> {
        if from == self.count() {
            return Vec::new();
        }
        let is_new = |id: FrameId| id.0 as usize >= from;
        let named = self.by_function.iter().filter(|(_, id)| is_new(**id));
        let mut names: Vec<_> = named.map(|(function, &id)| (id, vec![function.clone()])).collect();
        names.sort_unstable_by_key(|(id, _)| *id);
        names
    }

    /// Drains the frames that are new, without names.
    pub(crate) fn drain_new(&mut self) -> Vec<(FrameId, Frame)> {
        std::mem::take(&mut self.new)
    }

    /// Drains the frames whose names were not requested yet, and their number, which includes those
    /// that have no source of names. Code that a JIT wrote is requested each time, because the JIT
    /// may have written down its name since.
    pub(crate) fn drain_unnamed(&mut self) -> (BTreeMap<NameSource, Vec<UnnamedFrame>>, usize) {
        let count = self.count();
        let from = std::mem::replace(&mut self.requested, count);
        let mut by_source = BTreeMap::<NameSource, Vec<UnnamedFrame>>::new();
        let mut total = 0;
        for (&FrameKey { owner, at, kind }, &frame) in &self.by_address {
            let is_new = frame.0 as usize >= from;
            let source = match owner {
                AddressOwner::Memory(_, Some(perf_map)) => Some(NameSource::PerfMap(perf_map)),
                _ if !is_new => continue,
                AddressOwner::Nothing | AddressOwner::Memory(_, None) => None,
                AddressOwner::Kernel(_) => Some(NameSource::Kernel),
                AddressOwner::File(module) => Some(NameSource::File(module)),
            };
            total += 1;
            let unnamed = UnnamedFrame { frame, at: at.saturating_sub(kind.before()) };
            if let Some(source) = source {
                by_source.entry(source).or_default().push(unnamed);
            }
        }
        (by_source, total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, file: &str, line: u32) -> Function {
        Function { name: name.to_owned(), file: Some(file.into()), line: Some(line) }
    }

    #[test]
    fn functions_over_the_limit_are_counted_and_those_before_stay() {
        let room = size_of::<(Function, FrameId)>() * 2 + 2 + size_of::<Arc<str>>() + "/a.py".len();
        let mut frames = FrameTable { named_bytes_left: room, ..FrameTable::new(100) };
        let mut intern =
            |name: &str, file, line| frames.intern_named(function(name, file, line), None).unwrap();
        // The file is paid for once.
        let [one, two] = [1, 2].map(|line| intern("f", "/a.py", line));
        let [three, four] = [3, 4].map(|line| intern("f", "/a.py", line));
        assert_eq!((intern("f", "/a.py", 1), intern("f", "/a.py", 2)), (one, two));
        assert!(one != two && two != three && three == four);
        let mut diagnostics = Diagnostics::new();
        frames.add_diagnostics(&mut diagnostics);
        assert_eq!(diagnostics, [("symbols_names_over_limit", 2)].into());
        let names = frames.drain_new_names();
        assert_eq!(names.len(), 3);
        assert_eq!(names[2], (three, vec![Function::named(NAME_OVER_LIMIT)]));
        let files = [&names[0], &names[1]].map(|(_, named)| named[0].file.clone().unwrap());
        assert!(Arc::ptr_eq(&files[0], &files[1]));
    }

    /// As a program that makes ever new functions with long names.
    #[test]
    fn ever_new_names_take_no_more_than_the_limit() {
        const LIMIT: usize = 1 << 20;
        let mut frames = FrameTable { named_bytes_left: LIMIT, ..FrameTable::new(4_000_000) };
        for number in 0..10_000_u32 {
            let (name, file) = (format!("{number:04096}"), format!("/{number:04095}"));
            assert!(frames.intern_named(function(&name, &file, 1), None).is_some());
        }
        let kept: usize = frames.by_function.keys().map(|function| function.name.len()).sum();
        let files: usize = frames.files.iter().map(|file| file.len()).sum();
        assert!(kept + files <= LIMIT + NAME_OVER_LIMIT.len(), "{kept} and {files} bytes");
        assert!(kept > LIMIT / 4 && files > LIMIT / 4, "{kept} and {files} bytes");
        assert_eq!(frames.names_over_limit as usize + frames.by_function.len() - 1, 10_000);
    }
}

//! Every distinct frame, once.

use std::collections::{BTreeMap, HashMap};

use super::perf_map::PerfMapId;
use crate::recording::{AddressKind, Frame, FrameId, Function, ModuleId};

/// What an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In no mapping.
    Nowhere,
    /// In the kernel, which is this module.
    Kernel(ModuleId),
    /// In a mapped file.
    File(ModuleId),
    /// In memory of this name, for which a JIT may have written a perf map.
    Memory(ModuleId, Option<PerfMapId>),
}

impl Place {
    /// What it is a part of.
    pub(super) fn module(self) -> Option<ModuleId> {
        match self {
            Self::Nowhere => None,
            Self::Kernel(module) | Self::File(module) | Self::Memory(module, _) => Some(module),
        }
    }
}

/// An address's place.
pub(super) struct Placed {
    pub place: Place,
    /// Its offset into the file or, for memory, into the mapping.
    pub offset: Option<u64>,
}

impl Placed {
    pub(super) fn at(place: Place) -> Self {
        Self { place, offset: None }
    }
}

/// What makes two frames the same. A file is mapped at an address of its own in each process: there
/// the offset counts, everywhere else the address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    place: Place,
    at: u64,
    kind: AddressKind,
}

/// Where names are looked up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Kernel,
    File(ModuleId),
    PerfMap(PerfMapId),
}

/// A frame to be named, and the offset or address that has the name.
pub(super) struct Wanted {
    pub frame: FrameId,
    pub at: u64,
}

/// Every distinct frame.
pub(super) struct Frames {
    ids: HashMap<Key, FrameId>,
    /// Frames that had their name from the beginning.
    told: HashMap<Function, FrameId>,
    /// Of so many frames those names were written down.
    written: usize,
    /// Of so many who collects names was told them.
    collected: usize,
    new: Vec<(FrameId, Frame)>,
    limit: usize,
    /// The names of so many were asked for.
    named: usize,
}

impl Frames {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            ids: HashMap::new(),
            told: HashMap::new(),
            written: 0,
            collected: 0,
            new: Vec::new(),
            limit,
            named: 0,
        }
    }

    /// The frame of an address; none if it is one too many.
    pub(super) fn intern(
        &mut self,
        address: u64,
        kind: AddressKind,
        placed: &Placed,
    ) -> Option<FrameId> {
        let at = match placed.place {
            Place::File(_) => placed.offset.unwrap_or(address),
            Place::Nowhere | Place::Kernel(_) | Place::Memory(..) => address,
        };
        let key = Key { place: placed.place, at, kind };
        if let Some(&known) = self.ids.get(&key) {
            return Some(known);
        }
        let id = self.next_id()?;
        self.ids.insert(key, id);
        let (module, module_offset) = (placed.place.module(), placed.offset);
        self.new.push((id, Frame { address, kind, module, module_offset, functions: Vec::new() }));
        Some(id)
    }

    /// The frame of a function that is known by its name alone; none if it is one too many.
    pub(super) fn intern_told(
        &mut self,
        function: Function,
        module: Option<ModuleId>,
    ) -> Option<FrameId> {
        if let Some(&known) = self.told.get(&function) {
            return Some(known);
        }
        let id = self.next_id()?;
        self.told.insert(function, id);
        let kind = AddressKind::Instruction;
        let frame = Frame { address: 0, kind, module, module_offset: None, functions: Vec::new() };
        self.new.push((id, frame));
        Some(id)
    }

    fn count(&self) -> usize {
        self.ids.len() + self.told.len()
    }

    fn next_id(&self) -> Option<FrameId> {
        let count = self.count();
        (count < self.limit).then(|| u32::try_from(count).ok().map(FrameId))?
    }

    /// The names of those that had them from the beginning, to be written down at once: nobody can
    /// look them up again.
    pub(super) fn take_newly_told(&mut self) -> Vec<(FrameId, Vec<Function>)> {
        let count = self.count();
        let from = std::mem::replace(&mut self.written, count);
        self.told_from(from)
    }

    /// The same for who collects names.
    pub(super) fn take_told(&mut self) -> Vec<(FrameId, Vec<Function>)> {
        let count = self.count();
        let from = std::mem::replace(&mut self.collected, count);
        self.told_from(from)
    }

    /// Those of the frames from this one on that had their name from the beginning.
    fn told_from(&self, from: usize) -> Vec<(FrameId, Vec<Function>)> {
        if from == self.count() {
            return Vec::new();
        }
        let is_new = |id: FrameId| id.0 as usize >= from;
        let told = self.told.iter().filter(|(_, id)| is_new(**id));
        let mut told: Vec<_> = told.map(|(function, &id)| (id, vec![function.clone()])).collect();
        told.sort_unstable_by_key(|(id, _)| *id);
        told
    }

    /// Those that are new since this was called last, without names.
    pub(super) fn take_new(&mut self) -> Vec<(FrameId, Frame)> {
        std::mem::take(&mut self.new)
    }

    /// Those whose names were not asked for yet, and how many were looked at. What a JIT wrote is asked
    /// for each time: it may have written down the name since.
    pub(super) fn take_nameless(&mut self) -> (BTreeMap<Source, Vec<Wanted>>, usize) {
        let count = self.count();
        let from = std::mem::replace(&mut self.named, count);
        let mut by_source = BTreeMap::<Source, Vec<Wanted>>::new();
        let mut total = 0;
        for (&Key { place, at, kind }, &frame) in &self.ids {
            let is_new = frame.0 as usize >= from;
            let source = match place {
                Place::Memory(_, Some(perf_map)) => Some(Source::PerfMap(perf_map)),
                _ if !is_new => continue,
                Place::Nowhere | Place::Memory(_, None) => None,
                Place::Kernel(_) => Some(Source::Kernel),
                Place::File(module) => Some(Source::File(module)),
            };
            total += 1;
            let wanted = Wanted { frame, at: at.saturating_sub(kind.before()) };
            if let Some(source) = source {
                by_source.entry(source).or_default().push(wanted);
            }
        }
        (by_source, total)
    }
}

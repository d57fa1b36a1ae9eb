//! Every distinct frame, once.

use std::collections::{BTreeMap, HashMap};

use super::{
    Shortfalls, elf, kernel,
    modules::Modules,
    names::Names,
    perf_map::{PerfMapId, PerfMaps},
};
use crate::recording::{AddressKind, Frame, FrameId, ModuleId};

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
enum Source {
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
    new: Vec<(FrameId, Frame)>,
    limit: usize,
}

impl Frames {
    pub(super) fn new(limit: usize) -> Self {
        Self { ids: HashMap::new(), new: Vec::new(), limit }
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
        if self.ids.len() >= self.limit {
            return None;
        }
        let id = FrameId(u32::try_from(self.ids.len()).ok()?);
        self.ids.insert(key, id);
        let (module, module_offset) = (placed.place.module(), placed.offset);
        self.new.push((id, Frame { address, kind, module, module_offset, functions: Vec::new() }));
        Some(id)
    }

    /// Those that are new since this was called last, without names.
    pub(super) fn take_new(&mut self) -> Vec<(FrameId, Frame)> {
        std::mem::take(&mut self.new)
    }

    /// Names them all: those that have a name, in the order of their ids.
    pub(super) fn name(
        self,
        modules: &mut Modules,
        perf_maps: &mut PerfMaps,
        shortfalls: &mut Shortfalls,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Vec<(FrameId, Vec<String>)> {
        let total = self.ids.len();
        let mut by_source = BTreeMap::<Source, Vec<Wanted>>::new();
        for (Key { place, at, kind }, frame) in self.ids {
            let source = match place {
                Place::Nowhere | Place::Memory(_, None) => continue,
                Place::Kernel(_) => Source::Kernel,
                Place::File(module) => Source::File(module),
                Place::Memory(_, Some(perf_map)) => Source::PerfMap(perf_map),
            };
            let wanted = Wanted { frame, at: at.saturating_sub(kind.before()) };
            by_source.entry(source).or_default().push(wanted);
        }
        // What can't be looked up is done.
        let mut done = total - by_source.values().map(Vec::len).sum::<usize>();
        progress(done, total);
        let mut names = Names::new();
        for (source, mut wanted) in by_source {
            wanted.sort_unstable_by_key(|wanted| wanted.at);
            match source {
                Source::Kernel => kernel::name(&wanted, shortfalls, &mut names),
                Source::PerfMap(id) => perf_maps.name(id, &wanted, &mut names),
                Source::File(id) => {
                    if let Some(module) = modules.get(id) {
                        elf::name(module, &wanted, shortfalls, &mut names);
                    }
                }
            }
            done += wanted.len();
            progress(done, total);
        }
        names.add_shortfalls(shortfalls);
        names.into_vec()
    }
}

//! Every distinct frame, once.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use super::{
    Shortfalls, elf, kernel,
    modules::{ModuleId, Modules},
    perf_map::{PerfMapId, PerfMaps},
};
use crate::recording::{Frame, FrameId};

/// Where an address's name is to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// In no mapping.
    Nowhere,
    /// In the kernel.
    Kernel,
    /// In a mapped file.
    Module(ModuleId),
    /// In memory that a JIT may have named.
    Memory(PerfMapId),
}

/// An address's place, and what else is known of it.
pub(super) struct Placed {
    pub place: Place,
    /// Its offset into the file or, for memory, into the mapping.
    pub offset: Option<u64>,
    /// What the memory is called.
    pub memory: Option<Rc<str>>,
}

impl Placed {
    pub(super) fn at(place: Place) -> Self {
        Self { place, offset: None, memory: None }
    }
}

/// What makes two frames the same: the address in its place, and how far before it the name is
/// looked up.
type Key = (Place, u64, u64);

/// Every distinct frame.
pub(super) struct Frames {
    frames: Vec<(Placed, u64, u64)>,
    ids: HashMap<Key, FrameId>,
    limit: usize,
}

/// A frame to be named: its index, and the offset or address that has the name.
pub(super) struct Wanted {
    pub index: usize,
    pub at: u64,
}

impl Frames {
    pub(super) fn new(limit: usize) -> Self {
        Self { frames: Vec::new(), ids: HashMap::new(), limit }
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The frame of `address`, of which the name is that of `address - before`.
    pub(super) fn intern(&mut self, address: u64, before: u64, placed: Placed) -> FrameId {
        let key = match placed.place {
            Place::Module(_) => (placed.place, placed.offset.unwrap_or(address), before),
            Place::Nowhere => (placed.place, address, 0),
            _ => (placed.place, address, before),
        };
        let next = FrameId(u32::try_from(self.frames.len().min(self.limit)).unwrap_or(u32::MAX));
        *self.ids.entry(key).or_insert_with(|| {
            self.frames.push((placed, address, before));
            next
        })
    }

    /// Names them all.
    pub(super) fn name(
        self,
        modules: &mut Modules,
        perf_maps: &mut PerfMaps,
        shortfalls: &mut Shortfalls,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Vec<Frame> {
        let total = self.frames.len();
        let mut by_place = BTreeMap::<Place, Vec<Wanted>>::new();
        let mut frames = Vec::with_capacity(total);
        for (index, (placed, address, before)) in self.frames.into_iter().enumerate() {
            let module = match placed.place {
                Place::Module(id) => modules.get(id).map(|module| module.name.clone()),
                _ => placed.memory.as_deref().map(str::to_owned),
            };
            let at = match placed.place {
                Place::Module(_) => placed.offset.unwrap_or(address),
                _ => address,
            };
            by_place
                .entry(placed.place)
                .or_default()
                .push(Wanted { index, at: at.saturating_sub(before) });
            let functions = Vec::new();
            frames.push(Frame { address, module, module_offset: placed.offset, functions });
        }
        let mut done = 0;
        progress(done, total);
        for (place, wanted) in by_place {
            let mut name = |index: usize, functions: Vec<String>| {
                if let Some(frame) = frames.get_mut(index) {
                    if place == Place::Kernel {
                        frame.module = Some("[kernel]".to_owned());
                    }
                    frame.functions = functions;
                }
            };
            match place {
                Place::Nowhere => {}
                Place::Kernel => kernel::name(&wanted, shortfalls, &mut name),
                Place::Memory(id) => perf_maps.name(id, &wanted, &mut name),
                Place::Module(id) => {
                    if let Some(module) = modules.get(id) {
                        elf::name(module, &wanted, shortfalls, &mut name);
                    }
                }
            }
            done += wanted.len();
            progress(done, total);
        }
        frames
    }
}

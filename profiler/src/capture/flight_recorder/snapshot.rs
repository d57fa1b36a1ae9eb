//! A snapshot: what was retained at one moment, and how it becomes a recording.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::{self, Write},
    sync::Arc,
};

use offwake_recording::{
    Frame, FrameId, Module, ModuleId, Stack,
    loss::Diagnostics,
    stream::{END, Encoder, Slice, count_fitting_names},
    units::{Nanos, StackId},
};

use crate::{capture::messages::WaitCounts, symbols::ResolvedNames};

/// How many rows go into one slice.
const ROWS: usize = 16_384;

/// What was retained at one moment: it shares its slices with the recorder, which goes on.
#[derive(Clone, Debug)]
pub struct RetainedSnapshot {
    pub(super) first: Option<Slice>,
    pub(super) slices: Vec<Arc<Vec<u8>>>,
    pub(super) stacks: Vec<(StackId, Arc<Stack>)>,
    pub(super) next_number: u64,
    pub(super) last: Slice,
    pub(super) counts: WaitCounts,
}

/// The frames of a run, with their modules and names: too many to be copied for each snapshot.
#[derive(Default)]
pub struct FrameTables {
    frames: HashMap<FrameId, Frame>,
    modules: BTreeMap<ModuleId, Module>,
    /// The names.
    pub names: ResolvedNames,
}

impl FrameTables {
    /// Adds what is new.
    pub fn add(&mut self, frames: Vec<(FrameId, Frame)>, modules: Vec<(ModuleId, Module)>) {
        self.frames.extend(frames);
        self.modules.extend(modules);
    }
}

impl RetainedSnapshot {
    /// How much time the snapshot covers.
    #[must_use]
    pub fn length(&self) -> Nanos {
        self.last.meta.as_ref().map_or(Nanos(0), |meta| meta.window.length())
    }

    /// How many waits the snapshot has.
    #[must_use]
    pub fn counts(&self) -> WaitCounts {
        self.counts
    }

    /// Writes the snapshot as a recording.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn write(mut self, tables: &FrameTables, out: &mut dyn Write) -> io::Result<()> {
        let mut encoder = Encoder::new().map_err(io::Error::other)?;
        out.write_all(encoder.header())?;
        let mut encode = |slice: &Slice| encoder.encode(slice).map_err(io::Error::other);
        if let Some(first) = &self.first {
            out.write_all(&encode(first)?)?;
        }
        for slice in &self.slices {
            out.write_all(slice)?;
        }
        for mut slice in self.stack_slices(tables) {
            slice.number = self.next_number;
            slice.until = self.last.until;
            slice.clocks = self.last.clocks;
            self.next_number += 1;
            out.write_all(&encode(&slice)?)?;
        }
        let diagnostics: Diagnostics = tables.names.diagnostics();
        self.last.loss.add_diagnostics(&diagnostics);
        self.last.number = self.next_number;
        out.write_all(&encode(&self.last)?)?;
        out.write_all(&END)
    }

    /// The stacks, the frames that are in one, and the modules.
    fn stack_slices(&self, tables: &FrameTables) -> Vec<Slice> {
        let used: HashSet<FrameId> =
            self.stacks.iter().flat_map(|(_, stack)| stack.frames.iter().copied()).collect();
        let mut used: Vec<FrameId> = used.into_iter().collect();
        used.sort_unstable();
        let stacks = self.stacks.chunks(ROWS).map(|stacks| Slice {
            stacks: stacks.iter().map(|(id, stack)| (*id, (**stack).clone())).collect(),
            ..Slice::default()
        });
        let frames = used.chunks(ROWS).map(|frames| Slice {
            frames: (frames.iter())
                .filter_map(|id| Some((*id, tables.frames.get(id)?.clone())))
                .collect(),
            ..Slice::default()
        });
        let name = |id: &FrameId| Some((*id, tables.names.get(*id)?.to_vec()));
        let names = used.chunks(ROWS).flat_map(|frames| {
            let mut names: Vec<_> = frames.iter().filter_map(name).collect();
            let mut slices = Vec::new();
            while !names.is_empty() {
                let rest = names.split_off(count_fitting_names(&names));
                slices.push(Slice { names, ..Slice::default() });
                names = rest;
            }
            slices
        });
        let modules: Vec<_> = tables.modules.iter().map(|(id, m)| (*id, m.clone())).collect();
        let modules = modules
            .chunks(ROWS)
            .map(|modules| Slice { modules: modules.to_vec(), ..Slice::default() });
        stacks.chain(frames).chain(names).chain(modules.collect::<Vec<_>>()).collect()
    }
}

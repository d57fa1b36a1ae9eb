//! A kept stretch as it stood at one moment, and how it becomes a recording.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::{self, Write},
    sync::Arc,
};

use crate::{
    capture::{collector::OpenRecords, store::Counts, trigger::Trip},
    recording::{
        Clocks, Effort, Frame, FrameId, LossTotals, Meta, Module, ModuleId, Stack,
        loss::Shortfalls,
        stream::{END, Encoder, Slice},
    },
    symbols::NameBook,
    units::{Nanos, StackId},
};

/// Rows that go into one slice.
const ROWS: usize = 16_384;

/// Why a stretch is written out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Somebody asked for it by this signal.
    Signal(&'static str),
    /// A wait was too long.
    Trigger(Trip),
    /// Somebody looks on.
    View,
    /// The run is over.
    End,
}

/// What is known of a stretch's end.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// What the recording is of; its window goes from the run's beginning to the stretch's end.
    pub meta: Meta,
    /// How everybody stood then.
    pub open: OpenRecords,
    /// What was lost since the run's beginning.
    pub loss: LossTotals,
    /// What the kernel half did since it was loaded.
    pub effort: Effort,
    /// CPU time of the profiler's own threads since then.
    pub own_cpu: Nanos,
    /// The clocks.
    pub clocks: Clocks,
    /// The number of the next slice.
    pub next_number: u64,
}

/// A kept stretch: it shares its slices with the recorder, which goes on.
#[derive(Clone, Debug)]
pub struct Frozen {
    pub(super) first: Option<Slice>,
    pub(super) kept: Vec<Arc<Vec<u8>>>,
    pub(super) stacks: Vec<(StackId, Arc<Stack>)>,
    pub(super) next_number: u64,
    pub(super) last: Slice,
    /// Waits in it.
    pub(super) counts: Counts,
}

/// The frames of a run, with their modules and names: too many to be copied for each snapshot.
#[derive(Default)]
pub struct Tables {
    frames: HashMap<FrameId, Frame>,
    modules: BTreeMap<ModuleId, Module>,
    /// The names.
    pub book: NameBook,
}

impl Tables {
    /// Adds what is new.
    pub fn add(&mut self, frames: Vec<(FrameId, Frame)>, modules: Vec<(ModuleId, Module)>) {
        self.frames.extend(frames);
        self.modules.extend(modules);
    }
}

impl Frozen {
    /// How long it is.
    #[must_use]
    pub fn length(&self) -> Nanos {
        self.last.meta.as_ref().map_or(Nanos(0), |meta| meta.window.length())
    }

    /// Waits in it.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Writes it as a recording.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn write(mut self, tables: &Tables, out: &mut dyn Write) -> io::Result<()> {
        let mut encoder = Encoder::new().map_err(io::Error::other)?;
        out.write_all(encoder.header())?;
        let mut encode = |slice: &Slice| encoder.encode(slice).map_err(io::Error::other);
        if let Some(first) = &self.first {
            out.write_all(&encode(first)?)?;
        }
        for slice in &self.kept {
            out.write_all(slice)?;
        }
        for mut slice in self.tail(tables) {
            slice.number = self.next_number;
            slice.until = self.last.until;
            slice.clocks = self.last.clocks;
            self.next_number += 1;
            out.write_all(&encode(&slice)?)?;
        }
        let shortfalls: Shortfalls = tables.book.shortfalls();
        self.last.loss.add_shortfalls(&shortfalls);
        self.last.number = self.next_number;
        out.write_all(&encode(&self.last)?)?;
        out.write_all(&END)
    }

    /// The stacks, and of the frames those that are in one.
    fn tail(&self, tables: &Tables) -> Vec<Slice> {
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
            names: (frames.iter())
                .filter_map(|id| Some((*id, tables.book.get(*id)?.to_vec())))
                .collect(),
            ..Slice::default()
        });
        let modules: Vec<_> = tables.modules.iter().map(|(id, m)| (*id, m.clone())).collect();
        let modules = modules
            .chunks(ROWS)
            .map(|modules| Slice { modules: modules.to_vec(), ..Slice::default() });
        stacks.chain(frames).chain(modules.collect::<Vec<_>>()).collect()
    }
}

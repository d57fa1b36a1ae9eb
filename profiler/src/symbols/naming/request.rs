//! Looks up names. This is separate from the frame table because it takes long and recording may go
//! on meanwhile, on another thread.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc};

use offwake_recording::{
    FrameId, Function,
    loss::{Diagnostics, add_all},
};

use super::{
    client::NameClient, kernel, names::NameTable, perf_map::ReadBudget, sources::NameSources,
};
use crate::{
    parser::Parser,
    symbols::{
        address_spaces::{
            modules::{ModuleContent, Modules},
            perf_maps::PerfMaps,
        },
        frame_table::{FrameTable, NameSource, UnnamedFrame},
    },
};

/// Frames without names, and all that is needed to look these up on any thread.
#[derive(Default)]
pub struct NamingRequest {
    pub(super) jobs: Vec<NamingJob>,
    pub(super) total: usize,
    pub(super) sources: NameSources,
    /// Names that need not be looked up.
    pub(super) known: Vec<(FrameId, Vec<Function>)>,
}

/// Frames whose names are in one place.
pub(super) struct NamingJob {
    pub(super) source: NameSource,
    pub(super) open: OpenSource,
    pub(super) wanted: Vec<UnnamedFrame>,
}

/// Where names are looked up, held open.
pub(super) enum OpenSource {
    Kernel,
    File(ModuleContent),
    PerfMap(Arc<OwnedFd>),
}

impl NamingRequest {
    /// A request for the frames whose names were not requested yet.
    pub(crate) fn new(
        frames: &mut FrameTable,
        modules: &Modules,
        perf_maps: &PerfMaps,
        sources: NameSources,
    ) -> Self {
        let (by_source, total) = frames.drain_unnamed();
        let jobs = by_source.into_iter().filter_map(|(source, wanted)| {
            let open = match source {
                NameSource::Kernel => OpenSource::Kernel,
                NameSource::File(id) => OpenSource::File(modules.get(id)?.content.clone()),
                NameSource::PerfMap(id) => OpenSource::PerfMap(perf_maps.file(id)?),
            };
            Some(NamingJob { source, open, wanted })
        });
        Self { jobs: jobs.collect(), total, sources, known: frames.drain_names_for_request() }
    }
}

/// The names that were found so far.
#[derive(Default)]
pub struct ResolvedNames {
    names: NameTable,
    diagnostics: Diagnostics,
}

impl ResolvedNames {
    /// Has the names of a request looked up by the parser process, except the kernel's, which are
    /// looked up here. `progress` is called with the number of frames done and of all frames.
    pub fn resolve(
        &mut self,
        request: NamingRequest,
        parser: &mut Parser,
        progress: &mut dyn FnMut(usize, usize),
    ) {
        let NamingRequest { jobs, total, sources, known } = request;
        self.add(known);
        let Self { names, diagnostics } = self;
        // Frames without a source of names count as done.
        let mut done = total - jobs.iter().map(|job| job.wanted.len()).sum::<usize>();
        progress(done, total);
        let maps = jobs.iter().filter(|job| matches!(job.open, OpenSource::PerfMap(_))).count();
        let mut budget = ReadBudget::for_maps(maps);
        for NamingJob { open, mut wanted, .. } in jobs {
            wanted.sort_unstable_by_key(|wanted| wanted.at);
            let mut client = NameClient { parser, sources: &sources, diagnostics, names };
            match open {
                OpenSource::Kernel => kernel::name_frames(&wanted, diagnostics, names),
                OpenSource::File(content) => client.name_file(&content, &wanted),
                OpenSource::PerfMap(file) => client.name_by_map(&file, &mut budget, &wanted),
            }
            done += wanted.len();
            progress(done, total);
        }
    }

    /// Adds names that were found elsewhere.
    pub fn add(&mut self, names: Vec<(FrameId, Vec<Function>)>) {
        for (frame, functions) in names {
            self.names.set(frame, functions);
        }
    }

    /// Adds the names that another one has.
    pub fn append(&mut self, other: Self) {
        add_all(&mut self.diagnostics, &other.diagnostics());
        self.add(other.names.into_vec());
    }

    /// The functions of a frame, innermost first; none if it has no name.
    #[must_use]
    pub fn get(&self, frame: FrameId) -> Option<&[Function]> {
        self.names.get(frame)
    }

    /// What could not be done.
    #[must_use]
    pub fn diagnostics(&self) -> BTreeMap<&'static str, u64> {
        let mut all = self.diagnostics.clone();
        self.names.add_diagnostics(&mut all);
        all
    }

    /// All names, in the order of the frames' ids.
    pub(crate) fn into_names(self) -> Vec<(FrameId, Vec<Function>)> {
        self.names.into_vec()
    }
}

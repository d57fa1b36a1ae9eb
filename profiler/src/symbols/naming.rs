//! Looking names up: apart from the rest, since it takes long and recording may go on meanwhile.

use std::{collections::BTreeMap, fs::File, iter};

use super::{
    NameSources, Shortfalls,
    asking::Asking,
    frames::{Frames, Source, Wanted},
    kernel,
    modules::{Content, Modules},
    names::Names,
    perf_map::{Budget, PerfMaps},
};
use crate::{
    parser::Parser,
    recording::{FrameId, Function, loss::add_all},
};

/// Frames that wait for their names, and all that is needed to find these: another thread may.
#[derive(Default)]
pub struct Naming {
    jobs: Vec<(Place, Vec<Wanted>)>,
    total: usize,
    sources: NameSources,
    /// Names that need not be looked up.
    told: Vec<(FrameId, Vec<Function>)>,
}

/// Where names are looked up, held.
enum Place {
    Kernel,
    File(Content),
    PerfMap(File),
}

impl Naming {
    /// The frames whose names were not asked for yet.
    pub(super) fn take(
        frames: &mut Frames,
        modules: &Modules,
        perf_maps: &PerfMaps,
        sources: NameSources,
    ) -> Self {
        let (by_source, total) = frames.take_nameless();
        let jobs = by_source.into_iter().filter_map(|(source, wanted)| {
            let place = match source {
                Source::Kernel => Place::Kernel,
                Source::File(id) => Place::File(modules.get(id)?.content.clone()),
                Source::PerfMap(id) => Place::PerfMap(perf_maps.file(id)?),
            };
            Some((place, wanted))
        });
        Self { jobs: jobs.collect(), total, sources, told: frames.take_told() }
    }

    /// In parts that can be looked up one after another, the quickest first: the kernel's frames, then
    /// each file's, those of which the fewest are wanted before others. Maps of processes share what may be
    /// read of them, and stay together.
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        let (maps, mut files): (Vec<_>, Vec<_>) =
            self.jobs.into_iter().partition(|(place, _)| matches!(place, Place::PerfMap(_)));
        files.sort_by_key(|(place, wanted)| (!matches!(place, Place::Kernel), wanted.len()));
        let of = |jobs: Vec<(Place, Vec<Wanted>)>| {
            let total = jobs.iter().map(|(_, wanted)| wanted.len()).sum();
            Self { jobs, total, sources: self.sources.clone(), told: Vec::new() }
        };
        let told = Self { told: self.told, ..Self::default() };
        let files = files.into_iter().map(|job| of(vec![job]));
        iter::once(told).chain(files).chain((!maps.is_empty()).then(|| of(maps))).collect()
    }
}

/// The names that were found so far.
#[derive(Default)]
pub struct NameBook {
    names: Names,
    shortfalls: Shortfalls,
}

impl NameBook {
    /// Has names looked up, but for the kernel's, which it tells itself. `progress` is called with the frames
    /// done and all of them.
    pub fn look_up(
        &mut self,
        naming: Naming,
        parser: &mut Parser,
        progress: &mut dyn FnMut(usize, usize),
    ) {
        let Naming { jobs, total, sources, told } = naming;
        self.add(told);
        let Self { names, shortfalls } = self;
        // What can't be looked up is done.
        let mut done = total - jobs.iter().map(|(_, wanted)| wanted.len()).sum::<usize>();
        progress(done, total);
        let maps = jobs.iter().filter(|(place, _)| matches!(place, Place::PerfMap(_))).count();
        let mut budget = Budget::of(maps);
        for (place, mut wanted) in jobs {
            wanted.sort_unstable_by_key(|wanted| wanted.at);
            let mut asking = Asking { parser, sources: &sources, shortfalls, names };
            match place {
                Place::Kernel => kernel::name(&wanted, shortfalls, names),
                Place::File(content) => asking.name_file(&content, &wanted),
                Place::PerfMap(file) => asking.name_by_map(&file, &mut budget, &wanted),
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

    /// Adds what another book has.
    pub fn append(&mut self, other: Self) {
        add_all(&mut self.shortfalls, &other.shortfalls());
        self.add(other.names.into_vec());
    }

    /// The functions of a frame, innermost first; none if it has no name.
    #[must_use]
    pub fn get(&self, frame: FrameId) -> Option<&[Function]> {
        self.names.get(frame)
    }

    /// What could not be done.
    #[must_use]
    pub fn shortfalls(&self) -> BTreeMap<&'static str, u64> {
        let mut all = self.shortfalls.clone();
        self.names.add_shortfalls(&mut all);
        all
    }

    /// All names in the order of the frames' ids, and what could not be done.
    pub(super) fn finish(self, shortfalls: &mut Shortfalls) -> Vec<(FrameId, Vec<Function>)> {
        add_all(shortfalls, &self.shortfalls());
        self.names.into_vec()
    }
}

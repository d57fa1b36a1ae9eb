//! Names that wait to be looked up while a recording goes on: what is asked for again and again is
//! gathered, so that a file is read once for all of it, and looked up one file at a time.

use std::collections::{BTreeMap, HashSet};

use offwake_recording::{FrameId, Function};
use rustix::fs::fstat;

use super::{
    request::{NamingJob, NamingRequest, OpenSource},
    sources::NameSources,
};
use crate::symbols::{
    address_spaces::modules::ModuleContent,
    frame_table::{NameSource, UnnamedFrame},
};

/// What it costs to look up anything at all, in bytes of a file that could be read meanwhile.
const BASE_COST: u64 = 1 << 20;
/// What it costs to read the kernel's symbols. They are made while they are read.
const KERNEL_COST: u64 = 16 << 20;

/// A frame of the target's own waits counts for as many of others.
const TARGET_WEIGHT: usize = 50;

/// Requests for names, put together by where the names are.
#[derive(Default)]
pub struct NamingQueue {
    jobs: BTreeMap<NameSource, NamingJob>,
    sources: NameSources,
    known: Vec<(FrameId, Vec<Function>)>,
    /// The frames of the target's own waits, until they are looked up.
    of_target: HashSet<FrameId>,
}

impl NamingQueue {
    /// Returns whether nothing is to be looked up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.known.is_empty()
    }

    /// Adds a request to those that wait already, and says which frames are of the target's waits.
    pub fn add(&mut self, request: NamingRequest, of_target: HashSet<FrameId>) {
        self.of_target.extend(of_target);
        let NamingRequest { jobs, sources, known, total: _ } = request;
        self.sources = sources;
        self.known.extend(known);
        for NamingJob { source, open, wanted } in jobs {
            let job = self.jobs.entry(source).or_insert_with(|| NamingJob {
                source,
                open,
                wanted: Vec::new(),
            });
            job.wanted.extend(wanted);
        }
    }

    /// Takes the part out that is to be looked up next: what is known already, then the file that
    /// has the most names for what it costs to read, those of the target's waits above all. So the
    /// large files wait until many names of theirs are wanted, and no file waits for ever.
    pub fn next_part(&mut self) -> Option<NamingRequest> {
        let sources = self.sources.clone();
        if !self.known.is_empty() {
            let known = std::mem::take(&mut self.known);
            return Some(NamingRequest { known, sources, ..NamingRequest::default() });
        }
        let (&next, _) = (self.jobs.iter())
            .max_by(|(_, one), (_, other)| self.worth(one).total_cmp(&self.worth(other)))?;
        let mut job = self.jobs.remove(&next)?;
        // Names of code that a JIT wrote are asked for each time.
        job.wanted.sort_unstable_by_key(|wanted| wanted.frame);
        job.wanted.dedup_by_key(|wanted| wanted.frame);
        for wanted in &job.wanted {
            self.of_target.remove(&wanted.frame);
        }
        let total = job.wanted.len();
        Some(NamingRequest { jobs: vec![job], total, sources, known: Vec::new() })
    }

    /// How many names a look-up may find for what it costs.
    fn worth(&self, job: &NamingJob) -> f64 {
        let cost = match &job.open {
            OpenSource::Kernel => KERNEL_COST,
            OpenSource::File(ModuleContent::Held { file, .. }) => size(fstat(file)),
            OpenSource::File(ModuleContent::Image(image)) => image.len() as u64,
            OpenSource::File(ModuleContent::Missing) => 0,
            OpenSource::PerfMap(file) => size(fstat(file)),
        };
        let is_of_target = |wanted: &&UnnamedFrame| self.of_target.contains(&wanted.frame);
        let of_target = job.wanted.iter().filter(is_of_target).count();
        let names = job.wanted.len() + of_target * TARGET_WEIGHT;
        names as f64 / (BASE_COST + cost) as f64
    }
}

/// The size of a file; 0 if it is not known.
fn size(stat: rustix::io::Result<rustix::fs::Stat>) -> u64 {
    stat.ok().and_then(|stat| u64::try_from(stat.st_size).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use offwake_recording::{FrameId, ModuleId};

    use super::{NamingJob, NamingQueue, NamingRequest, OpenSource};
    use crate::symbols::{
        address_spaces::modules::ModuleContent,
        frame_table::{NameSource, UnnamedFrame},
    };

    const MIB: usize = 1 << 20;

    /// A request for some frames of a file of so many bytes.
    fn request(file: u32, bytes: usize, frames: &[u32]) -> NamingRequest {
        let wanted = frames.iter().map(|&n| UnnamedFrame { frame: FrameId(n), at: n.into() });
        let job = NamingJob {
            source: NameSource::File(ModuleId(file)),
            open: OpenSource::File(ModuleContent::Image(Arc::from(vec![0; bytes]))),
            wanted: wanted.collect(),
        };
        NamingRequest { jobs: vec![job], total: frames.len(), ..NamingRequest::default() }
    }

    /// The file and the frames of the next part.
    fn next(queue: &mut NamingQueue) -> Option<(NameSource, Vec<u32>)> {
        let part = queue.next_part()?;
        assert_eq!(part.jobs.len(), 1);
        let job = part.jobs.into_iter().next()?;
        Some((job.source, job.wanted.into_iter().map(|wanted| wanted.frame.0).collect()))
    }

    #[test]
    fn a_file_is_read_once_for_all_that_waits_for_it() {
        let mut queue = NamingQueue::default();
        for frames in [&[1, 2][..], &[2, 3], &[4]] {
            queue.add(request(7, MIB, frames), HashSet::new());
        }
        assert_eq!(next(&mut queue), Some((NameSource::File(ModuleId(7)), vec![1, 2, 3, 4])));
        assert!(queue.is_empty() && queue.next_part().is_none());
    }

    #[test]
    fn what_costs_least_for_its_names_comes_first_and_nothing_waits_for_ever() {
        let (small, large) = (NameSource::File(ModuleId(1)), NameSource::File(ModuleId(2)));
        let mut queue = NamingQueue::default();
        queue.add(request(2, 9 * MIB, &[10, 11]), HashSet::new());
        queue.add(request(1, MIB, &[1]), HashSet::new());
        assert_eq!(next(&mut queue).map(|(source, _)| source), Some(small));
        // New names of the small file keep coming; those of the large one become more.
        queue.add(request(1, MIB, &[2]), HashSet::new());
        queue.add(request(2, 9 * MIB, &[12, 13, 14, 15]), HashSet::new());
        assert_eq!(next(&mut queue).map(|(source, _)| source), Some(large));
        assert_eq!(next(&mut queue).map(|(source, _)| source), Some(small));
    }

    #[test]
    fn names_of_the_targets_waits_come_before_others() {
        let mut queue = NamingQueue::default();
        queue.add(request(1, MIB, &[1, 2, 3]), HashSet::new());
        queue.add(request(2, 9 * MIB, &[10]), HashSet::from([FrameId(10)]));
        assert_eq!(next(&mut queue), Some((NameSource::File(ModuleId(2)), vec![10])));
        assert!(queue.of_target.is_empty());
    }
}

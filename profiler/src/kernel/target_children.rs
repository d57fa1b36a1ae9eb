//! Children of target processes that were forked before the programs were attached.

use std::collections::HashSet;

use aya::maps::{HashMap, MapError};
use offwake_recording::units::Tgid;
use profiler_ebpf::config::target_origin;

use super::{Kernel, KernelError, Survey};

const NAME: &str = "TARGETS";

impl Kernel {
    /// Makes the children of target processes part of the target, and their children, and returns
    /// how many there are.
    ///
    /// From the moment at which a process is in the map, its forks are followed. A process that is
    /// not in it may fork while the others are visited, so all are visited until nobody new is
    /// found: then whoever exists has its parent in the map, or is no relative.
    ///
    /// # Errors
    ///
    /// If the threads can't be visited, or the map can't be read.
    pub fn add_children_of_targets(&mut self) -> Result<usize, KernelError> {
        let mut children = HashSet::new();
        loop {
            let known = children.len();
            self.survey(Survey::Children)?;
            children.extend(self.children_forked_before()?);
            if children.len() == known {
                return Ok(known);
            }
        }
    }

    fn children_forked_before(&mut self) -> Result<Vec<Tgid>, KernelError> {
        let failed = |source: MapError| KernelError::Map { map: NAME, source };
        let map: HashMap<_, u32, u32> = HashMap::try_from(self.map_mut(NAME)?).map_err(failed)?;
        let mut children = Vec::new();
        for entry in map.iter() {
            let (tgid, origin) = entry.map_err(failed)?;
            if origin == target_origin::FORKED_BEFORE {
                children.push(Tgid(tgid));
            }
        }
        Ok(children)
    }
}

//! The processes whose threads' tags the kernel half reads.

use aya::{
    Ebpf, Pod,
    maps::{Array, HashMap, MapData},
};
use offwake_recording::units::Tgid;
use profiler_ebpf::tags::TagSource;

use super::KernelError;

const SOURCES: &str = "TAG_SOURCES";
const EPOCH: &str = "TAG_EPOCH";

/// [`TagSource`] is plain integers; the wrapper is what lets aya know.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodTagSource(TagSource);

// SAFETY: `TagSource` is `repr(C)`, holds integers alone and has no padding (asserted where it is defined).
unsafe impl Pod for PodTagSource {}

/// The processes whose threads' tags the kernel half reads.
pub struct TagSources {
    sources: HashMap<MapData, u32, PodTagSource>,
    epoch: Array<MapData, u64>,
    changes: u64,
}

impl TagSources {
    /// Takes them out of the loaded kernel half.
    pub(super) fn from_ebpf(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let sources = ebpf.take_map(SOURCES).ok_or(KernelError::Missing(SOURCES))?;
        let sources = HashMap::try_from(sources)
            .map_err(|source| KernelError::Map { map: SOURCES, source })?;
        let epoch = ebpf.take_map(EPOCH).ok_or(KernelError::Missing(EPOCH))?;
        let epoch =
            Array::try_from(epoch).map_err(|source| KernelError::Map { map: EPOCH, source })?;
        Ok(Self { sources, epoch, changes: 0 })
    }

    /// Sets where the threads of a process have their tags; none if they have none any more. Every
    /// thread looks once more where its own are. False if the kernel has no room for it.
    pub fn set(&mut self, tgid: Tgid, source: Option<TagSource>) -> bool {
        let has_room = match source {
            Some(source) => self.sources.insert(tgid.0, PodTagSource(source), 0).is_ok(),
            None => {
                let _absent = self.sources.remove(&tgid.0);
                true
            }
        };
        self.changes += 1;
        if let Err(error) = self.epoch.set(0, self.changes, 0) {
            // The index is inside the array, which is all that the kernel could refuse.
            log::error!("labels of process {tgid} are not read: {error}");
        }
        has_room
    }
}

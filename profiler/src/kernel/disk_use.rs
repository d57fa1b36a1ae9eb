//! Reading what each process reads from block devices, and writes to them.

use std::collections::HashMap;

use aya::{
    Ebpf, Pod,
    maps::{Array, HashMap as BpfHashMap, MapData, MapError, PerCpuArray},
};
use offwake_recording::{DiskUse, units::Tgid};
use profiler_ebpf::disk_use::{self, DirtySlot};

use super::KernelError;
use crate::decode::decode_comm;

const USES: &str = "DISK_USES";
const SLOTS: &str = "DIRTY_SLOTS";
const MET: &str = "DISK_USERS_MET";

/// [`disk_use::DiskUse`] as aya reads it: the wrapper can be [`Pod`].
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodUse(disk_use::DiskUse);

// SAFETY: `DiskUse` is `repr(C)` and holds integers alone, without a gap between them.
unsafe impl Pod for PodUse {}

/// [`DirtySlot`] as aya reads it.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodSlot(DirtySlot);

// SAFETY: `DirtySlot` is `repr(C)` and holds `u64`s alone.
unsafe impl Pod for PodSlot {}

/// What all processes have read and written since the programs were attached.
#[derive(Clone, Debug, Default)]
pub struct DiskUses {
    by_key: HashMap<u64, disk_use::DiskUse>,
    /// How many have been forgotten, since there were more than there is room for.
    pub evicted: u64,
}

impl DiskUses {
    /// Returns what has been read and written since an earlier reading. The devices have no names yet.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Vec<DiskUse> {
        let mut uses: Vec<DiskUse> = (self.by_key.iter())
            .map(|(key, now)| {
                let before = earlier.by_key.get(key).copied().unwrap_or_default();
                let (tgid, device) = disk_use::parts(*key);
                // One that was evicted meanwhile, and came back, counts from zero.
                let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
                DiskUse {
                    tgid: Tgid(tgid),
                    comm: decode_comm(&now.comm),
                    device,
                    read_bytes: since(now.read_bytes, before.read_bytes),
                    submitted_bytes: since(now.submitted_bytes, before.submitted_bytes),
                    dirtied_bytes: since(now.dirtied_bytes, before.dirtied_bytes),
                    block_device: String::new(),
                    disks: String::new(),
                }
            })
            .filter(|used| used.read_bytes > 0 || used.written_bytes() > 0)
            .collect();
        uses.sort_by_key(|used| (used.tgid, used.device));
        uses
    }
}

/// Reads what processes read and write.
pub struct DiskUseReader {
    uses: BpfHashMap<MapData, u64, PodUse>,
    slots: PerCpuArray<MapData, PodSlot>,
    met: Array<MapData, u64>,
}

impl DiskUseReader {
    /// Takes the counts out of the loaded kernel half.
    pub(super) fn from_ebpf(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let uses = ebpf.take_map(USES).ok_or(KernelError::Missing(USES))?;
        let slots = ebpf.take_map(SLOTS).ok_or(KernelError::Missing(SLOTS))?;
        let met = ebpf.take_map(MET).ok_or(KernelError::Missing(MET))?;
        Ok(Self {
            uses: BpfHashMap::try_from(uses).map_err(failed(USES))?,
            slots: PerCpuArray::try_from(slots).map_err(failed(SLOTS))?,
            met: Array::try_from(met).map_err(failed(MET))?,
        })
    }

    /// Reads all counts. What is counted meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand them out.
    pub fn read(&self) -> Result<DiskUses, KernelError> {
        let mut by_key: HashMap<u64, disk_use::DiskUse> = HashMap::new();
        // An iteration over a map that changes may begin anew, again and again.
        for key in self.uses.keys().take(4 * disk_use::MAX_USERS) {
            let key = key.map_err(failed(USES))?;
            match self.uses.get(&key, 0) {
                Ok(PodUse(used)) => _ = by_key.insert(key, used),
                // It was evicted just now.
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(failed(USES)(error)),
            }
        }
        // A CPU that adds its slot just now is missing with that.
        for PodSlot(slot) in self.slots.get(&0, 0).map_err(failed(SLOTS))?.iter() {
            if let Some(used) = by_key.get_mut(&slot.key) {
                used.dirtied_bytes += slot.bytes;
            }
        }
        let met = self.met.get(&0, 0).map_err(failed(MET))?;
        let evicted = met.saturating_sub(by_key.len() as u64);
        Ok(DiskUses { by_key, evicted })
    }
}

fn failed(map: &'static str) -> impl Fn(MapError) -> KernelError {
    move |source| KernelError::Map { map, source }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use profiler_ebpf::disk_use::{DiskUse, key};

    use super::DiskUses;

    fn uses(of: &[(u32, u64, u64)]) -> DiskUses {
        let by_key: HashMap<_, _> = (of.iter())
            .map(|&(tgid, read_bytes, dirtied_bytes)| {
                (key(tgid, 8), DiskUse { read_bytes, dirtied_bytes, ..DiskUse::default() })
            })
            .collect();
        DiskUses { by_key, evicted: 0 }
    }

    #[test]
    fn only_what_was_read_and_written_since_counts() {
        let before = uses(&[(7, 100, 5), (8, 10, 10), (9, 500, 0)]);
        // 8 did nothing since; 9 was evicted and came back; 10 is new.
        let now = uses(&[(7, 150, 25), (8, 10, 10), (9, 40, 0), (10, 0, 1)]);
        let since: Vec<_> = (now.since(&before).into_iter())
            .map(|used| (used.tgid.0, used.read_bytes, used.written_bytes()))
            .collect();
        assert_eq!(since, [(7, 50, 20), (9, 40, 0), (10, 0, 1)]);
    }
}

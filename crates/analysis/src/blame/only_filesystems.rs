//! Processes that used one filesystem alone: a wait of theirs for a disk was for that one, whether or not
//! the syscall names the file. A page fault names none, and neither does a path; `io_uring_enter` names its ring.

use std::collections::HashMap;

use offwake_recording::{DiskUse, Recording, units::Tgid};

/// The only filesystem that each process read from or wrote to.
pub(super) struct OnlyFilesystems(HashMap<Tgid, Option<u32>>);

impl OnlyFilesystems {
    pub(super) fn new(recording: &Recording) -> Self {
        let mut by_process: HashMap<Tgid, Vec<&DiskUse>> = HashMap::new();
        for used in &recording.disk_uses {
            by_process.entry(used.tgid).or_default().push(used);
        }
        let only = (by_process.into_iter())
            .map(|(process, uses)| (process, find_only_filesystem(&uses, recording)));
        Self(only.collect())
    }

    /// Returns the device of the only filesystem that a process used; none if it used several, or a device
    /// without a mounted filesystem.
    pub(super) fn get(&self, process: Tgid) -> Option<u32> {
        self.0.get(&process).copied().flatten()
    }
}

fn find_only_filesystem(uses: &[&DiskUse], recording: &Recording) -> Option<u32> {
    let mut known = uses.iter().filter_map(|used| recording.filesystems.get(&used.device));
    let only = known.next().filter(|_| known.next().is_none())?;
    // What goes through a mapped device is counted on the disks below as well.
    let is_below = |used: &DiskUse| only.disks().any(|disk| disk == used.block_device);
    uses.iter().all(|used| used.device == only.device || is_below(used)).then_some(only.device)
}

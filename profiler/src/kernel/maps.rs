//! The rings of records, and the stacks that the kernel half has sent.

use aya::maps::{HashMap, MapData, RingBuf};
use offwake_recording::units::StackId;

use super::{Kernel, KernelError};

const SENT_STACKS: &str = "SENT_STACKS";

/// The ring of one CPU, read from this side.
pub struct Ring(RingBuf<MapData>);

impl Ring {
    pub(super) fn new(ring: RingBuf<MapData>) -> Self {
        Self(ring)
    }

    /// Calls `handle_record` with every record that is there, oldest first, and returns how many
    /// there were.
    pub fn drain(&mut self, mut handle_record: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while let Some(record) = self.0.next() {
            handle_record(&record);
            count += 1;
        }
        count
    }
}

/// The stacks that the kernel half has sent, and does not send again.
pub struct SentStacks(HashMap<MapData, u64, u64>);

impl Kernel {
    /// Takes the map out of the loaded kernel half.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn take_sent_stacks(&mut self) -> Result<SentStacks, KernelError> {
        let map = self.ebpf.take_map(SENT_STACKS).ok_or(KernelError::Missing(SENT_STACKS))?;
        let map = HashMap::try_from(map)
            .map_err(|source| KernelError::Map { map: SENT_STACKS, source })?;
        Ok(SentStacks(map))
    }
}

impl SentStacks {
    /// Has each of these stacks sent again when it is seen again.
    pub fn forget(&mut self, stacks: &[StackId]) {
        for stack in stacks {
            // The kernel half itself has forgotten most of those that are old.
            let _absent = self.0.remove(&stack.0);
        }
    }
}

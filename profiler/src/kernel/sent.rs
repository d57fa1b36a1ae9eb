//! The stacks that the kernel half has sent, and does not send again.

use aya::maps::{HashMap, MapData};

use super::{Kernel, KernelError};
use crate::units::StackId;

const NAME: &str = "SENT_STACKS";

/// What the kernel half believes that user space has.
pub struct SentStacks(HashMap<MapData, u64, u64>);

impl Kernel {
    /// Takes the map out of the loaded kernel half.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn take_sent_stacks(&mut self) -> Result<SentStacks, KernelError> {
        let map = self.ebpf.take_map(NAME).ok_or(KernelError::Missing(NAME))?;
        let map =
            HashMap::try_from(map).map_err(|source| KernelError::Map { map: NAME, source })?;
        Ok(SentStacks(map))
    }
}

impl SentStacks {
    /// Each of these is sent again when it is seen again.
    pub fn forget(&mut self, stacks: &[StackId]) {
        for stack in stacks {
            // The kernel half has forgotten most of those that are old itself.
            let _absent = self.0.remove(&stack.0);
        }
    }
}

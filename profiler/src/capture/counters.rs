//! Counters that go on for as long as the programs are loaded, read when a window opens and from
//! then on.

use std::sync::Arc;

use offwake_recording::{LossTotals, StackCounts};

use super::user_stacks;
use crate::kernel::{KernelError, LossReader, StackCountReader};

/// Counters of the kernel half and of the look-ups, since the programs were loaded.
pub(super) struct Counters {
    pub losses: LossReader,
    pub stacks: StackCountReader,
    pub copies: Arc<user_stacks::Shared>,
}

impl Counters {
    /// Reads what was lost in the kernel half.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand its counters out.
    pub fn losses(&self) -> Result<LossTotals, KernelError> {
        self.losses.read()
    }

    /// Reads how stacks were obtained.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand its counters out.
    pub fn stacks(&self) -> Result<StackCounts, KernelError> {
        let mut stacks = self.stacks.read()?;
        let copies = self.copies.counted();
        stacks.user.disagreed += copies.disagreed;
        stacks.user.by_registers_disagreed += copies.disagreed_by_registers;
        stacks.distrusted += copies.given_up;
        Ok(stacks)
    }

    /// Copies of stacks that could not be read.
    pub fn undecodable_copies(&self) -> u64 {
        self.copies.counted().undecodable
    }
}

//! Running the iterator that visits every thread of the machine once.

use std::io::Read as _;

use aya::{maps::Array, programs::Iter};
use profiler_ebpf::record::survey;

use super::{Kernel, KernelError};

/// What a survey is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survey {
    /// The window opens: records which threads there are, and which are off the CPU already.
    Opening,
    /// The window closes: records which threads are still off the CPU.
    Closing,
    /// A snapshot is taken: records the same, and changes nothing that is stored with the threads.
    Snapshot,
    /// Before the window opens: records nothing, and makes children of target processes part of the
    /// target.
    Children,
}

/// The iterator.
pub(super) const PROGRAM: &str = "survey";

fn program(kernel: &mut Kernel) -> Result<&mut Iter, KernelError> {
    let failed = |source| KernelError::Program { action: "use", program: PROGRAM, source };
    let program = kernel.ebpf.program_mut(PROGRAM).ok_or(KernelError::Missing(PROGRAM))?;
    program.try_into().map_err(failed)
}

impl Kernel {
    /// Visits every thread. When this returns, the records of all of them are in the rings, or
    /// counted as lost. Another thread must drain the rings meanwhile.
    ///
    /// # Errors
    ///
    /// If the iterator can't be loaded or read.
    pub fn survey(&mut self, survey: Survey) -> Result<(), KernelError> {
        let which = match survey {
            Survey::Opening => survey::OPENING,
            Survey::Closing => survey::CLOSING,
            Survey::Snapshot => survey::SNAPSHOT,
            Survey::Children => survey::CHILDREN,
        };
        let failed = |source| KernelError::Map { map: "SURVEY", source };
        let mut map: Array<_, u32> = Array::try_from(self.map_mut("SURVEY")?).map_err(failed)?;
        map.set(0, which, 0).map_err(failed)?;

        let failed =
            |action| move |source| KernelError::Program { action, program: PROGRAM, source };
        let program = program(self)?;
        let link = program.attach().map_err(failed("attach"))?;
        let link = program.take_link(link).map_err(failed("attach"))?;
        let mut iterator =
            link.into_file().map_err(|error| KernelError::Survey(std::io::Error::other(error)))?;
        // The program writes to the rings alone; reading to the end is what runs it.
        let mut nothing = Vec::new();
        iterator.read_to_end(&mut nothing).map_err(KernelError::Survey)?;
        self.flush_messages();
        Ok(())
    }
}

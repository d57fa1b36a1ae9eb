//! Running the iterator that looks at every thread of the machine once.

use std::io::Read as _;

use aya::{Btf, maps::Array, programs::Iter};
use profiler_ebpf::record::survey;

use super::{Kernel, KernelError};

/// Which survey it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survey {
    /// As the window opens: who is there, and who is off the CPU already.
    Opening,
    /// As it closes: who is still off the CPU.
    Closing,
    /// The same while it stays open: the threads are none the wiser.
    Snapshot,
}

const NAME: &str = "survey";

/// Loads the iterator.
pub(super) fn load(kernel: &mut Kernel, btf: &Btf) -> Result<(), KernelError> {
    let failed = |source| KernelError::Program { action: "load", program: NAME, source };
    program(kernel)?.load("task", btf).map_err(failed)
}

fn program(kernel: &mut Kernel) -> Result<&mut Iter, KernelError> {
    let failed = |source| KernelError::Program { action: "use", program: NAME, source };
    let program = kernel.ebpf.program_mut(NAME).ok_or(KernelError::Missing(NAME))?;
    program.try_into().map_err(failed)
}

impl Kernel {
    /// Looks at every thread. When this is back, the records of all of them are in the rings, or
    /// counted as lost. Somebody must drain the rings meanwhile.
    ///
    /// # Errors
    ///
    /// If the iterator can't be loaded or read.
    pub fn survey(&mut self, survey: Survey) -> Result<(), KernelError> {
        let which = match survey {
            Survey::Opening => survey::OPENING,
            Survey::Closing => survey::CLOSING,
            Survey::Snapshot => survey::SNAPSHOT,
        };
        let failed = |source| KernelError::Map { map: "SURVEY", source };
        let mut map: Array<_, u32> = Array::try_from(self.map_mut("SURVEY")?).map_err(failed)?;
        map.set(0, which, 0).map_err(failed)?;

        let failed = |action| move |source| KernelError::Program { action, program: NAME, source };
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

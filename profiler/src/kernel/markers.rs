//! Attaching the program that records the markers which programs set.
//!
//! | attached to | costs |
//! |---|---|
//! | the function of the syscall | who calls `faccessat2` a little, nobody else anything |
//! | the tracepoint of all syscalls | every syscall, as the kernel takes its slow way into each |

use aya::Btf;

use super::{
    Kernel, KernelError,
    attach::{attach_function, attach_tracepoint, find_tracepoint},
};

/// Whether markers are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerMode {
    /// If that costs only those who set them.
    IfCheap,
    /// Even where every syscall of the machine becomes slower.
    Always,
    /// Not at all.
    Never,
}

impl MarkerMode {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IfCheap => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// How markers are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerSource {
    /// At the function of the one syscall.
    Function,
    /// At every syscall.
    EverySyscall,
}

/// The function of the syscall that programs set markers by. The calls of 32-bit programs go
/// elsewhere.
const FUNCTION: &str =
    if cfg!(target_arch = "aarch64") { "__arm64_sys_faccessat2" } else { "__x64_sys_faccessat2" };

/// Attaches what sees markers. A kernel without function tracing, or one that lets nobody use it,
/// is no error unless they are wanted in any case and its tracepoint can't be used either.
pub(super) fn attach(kernel: &mut Kernel, btf: &Btf, mode: MarkerMode) -> Result<(), KernelError> {
    if mode == MarkerMode::Never {
        return Ok(());
    }
    match attach_function(kernel, btf, "faccessat2", FUNCTION) {
        Ok(()) => kernel.marker_source = Some(MarkerSource::Function),
        Err(error) => {
            log::info!("the function of faccessat2 can't be followed: {error}");
            if mode == MarkerMode::Always {
                attach_to_every_syscall(kernel, btf)?;
                kernel.marker_source = Some(MarkerSource::EverySyscall);
            }
        }
    }
    Ok(())
}

fn attach_to_every_syscall(kernel: &mut Kernel, btf: &Btf) -> Result<(), KernelError> {
    const NAME: &str = "sys_enter";
    let failed = |source| KernelError::Program { action: "load", program: NAME, source };
    find_tracepoint(kernel, NAME)?.load(NAME, btf).map_err(failed)?;
    attach_tracepoint(kernel, NAME)
}

//! The only place that names aya: what the kernel offers, loading, attaching, the rings.
//!
//! ```text
//! Features::probe → Kernel::load → attach → survey (opening) ─ window ─ survey (closing) → losses
//! ```

mod attach;
mod btf;
mod clock;
mod counters;
mod error;
mod features;
mod load;
mod loss;
mod memory;
mod object;
mod program_info;
mod rings;
mod sent;
mod survey;
mod syscalls;
mod tracing_frames;
mod user_stacks;

pub use attach::required as required_tracepoints;
pub use btf::{KernelTypes, Machine};
pub use counters::{ProgramClock, StackCounting};
pub use error::KernelError;
pub use features::{Feature, Features, Need, Standing};
pub use load::{
    Budget, Kernel, Messages, ProgramSize, Settings, StackSettings, Started, TargetFilter,
    UserStacks,
};
pub use loss::Losses;
pub(crate) use memory::give_back;
pub use object::is_embedded;
pub use rings::Ring;
pub use sent::SentStacks;
pub use survey::Survey;
pub use user_stacks::{CallSites, CodeEpochs, PythonThreads, StackCopies, UserStackMaps};

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of every record.
#[must_use]
pub fn now() -> crate::units::Timestamp {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone; it can't fail with this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    crate::units::Timestamp(
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned(),
    )
}

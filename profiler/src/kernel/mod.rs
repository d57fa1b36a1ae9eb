//! The only place that names aya: what the kernel offers, loading, attaching, the rings.
//!
//! ```text
//! Features::probe → Kernel::load → attach → targets' children → survey (opening) ─ window ─ survey (closing) → losses
//! ```

mod attach;
mod btf;
mod detail;
mod disk_use;
mod error;
mod features;
mod load;
mod load_programs;
mod loss;
mod map_batch;
mod maps;
mod marker_probes;
mod markers;
mod object;
mod program_timer;
mod run_costs;
mod sampling_clock;
mod stack_counts;
mod survey;
mod syscalls;
mod tag_sources;
mod target_children;
mod tracing_frames;
mod user_stacks;

pub use attach::required_tracepoints;
pub use btf::{KernelTypes, Machine};
pub use detail::DetailControl;
pub use disk_use::{DiskUseReader, DiskUses};
pub use error::KernelError;
pub use features::{Feature, FeatureStatus, Features, Need};
pub use load::{
    DetailMode, Kernel, LogMessages, ProgramSize, Settings, StackBudget, StackSettings,
    StartedKernel, TargetFilter, UserStackMethod,
};
pub use loss::LossReader;
pub use maps::{Ring, SentStacks, keep_rings_from_children};
pub use markers::{MarkerMode, MarkerSource};
pub use object::is_embedded;
pub use program_timer::ProgramTimer;
pub use run_costs::{ProgramCostReader, ProgramCosts};
pub use stack_counts::StackCountReader;
pub use survey::Survey;
pub use tag_sources::TagSources;
pub use user_stacks::{CallSites, CodeEpochs, PythonThreads, StackCopies, UserStackMaps};

/// How many CPUs are online, whether this process may run on them or not.
///
/// # Errors
///
/// If the kernel does not say which.
pub fn count_online_cpus() -> Result<usize, KernelError> {
    Ok(sampling_clock::online_cpu_list()?.len())
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of every record.
#[must_use]
pub fn now() -> offwake_recording::units::Timestamp {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone; it can't fail with this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    offwake_recording::units::Timestamp(
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned(),
    )
}

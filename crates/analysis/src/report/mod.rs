//! The result of a run, and one writer for each format.
//!
//! Same recording and filter, same bytes.

mod build;
pub(crate) mod containers;
mod cost;
pub mod describe;
pub mod diff;
mod entry_limit;
pub(crate) mod first_screen;
pub mod flame;
pub mod folded;
mod hop_limit;
pub mod html;
mod integrity;
pub(crate) mod loss_line;
pub mod markdown;
mod marker_lines;
mod markers;
mod model;
mod overhead;
mod overview;
mod path_limit;
pub(crate) mod printed_lines;
mod quotas;
pub(crate) mod single_waits;
mod styled_lines;
pub mod summary;
pub mod svg;
mod wait_entries;
mod wait_groups;
pub(crate) mod wake_context;
mod warnings;

pub(crate) use build::{unix_time, window_entry};
pub use entry_limit::EntryLimits;
pub use integrity::{ClockStep, RecordingIntegrity, Suspension};
pub(crate) use loss_line::loss_line;
pub use markers::{MarkerEntry, MarkersEntry};
pub use model::{
    BlameEntry, CgroupEntry, ContainerEntry, ContainerProcess, FilterNote, HalfCountsEntry,
    HopEntry, LedgerEntry, LossNote, Meta, MistakenThread, ProcessEntry, ProgramsEntry,
    QuotaCountEntry, QuotaEntry, Report, RingFull, StackCountsEntry, ThreadEntry, ThreadName,
    ThrottledThread, UnansweredNote, WaitEntry, WakeEntry, WakerCallEntry, WakerEntry, WakerKind,
    WindowEntry,
};
pub use overhead::{DetailStretchEntry, OverheadEntry};
pub use overview::Overview;
pub(crate) use path_limit::{MAX_BYTES as MAX_PATH_BYTES, SmallPaths, most_summed_up};

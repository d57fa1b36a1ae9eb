//! The result of a run, and one writer for each format.
//!
//! Same recording and filter, same bytes.

mod build;
mod class;
pub(crate) mod containers;
mod cost;
pub mod describe;
pub mod diff;
mod entry_limit;
mod filter;
pub(crate) mod first_screen;
pub mod flame;
pub mod folded;
pub(crate) mod frames;
mod hop_limit;
pub mod html;
mod integrity;
pub(crate) mod label;
pub mod markdown;
mod model;
mod path_limit;
mod quotas;
pub mod summary;
pub mod svg;
pub mod text;
mod wait_entries;
mod wait_groups;
pub(crate) mod wait_sums;
pub(crate) mod waited_on;
pub(crate) mod wake_context;

pub use build::Overview;
pub(crate) use build::{NAMELESS, last_name, unix_time, window_entry};
pub use class::{BlameClass, BlameGroup};
pub use entry_limit::EntryLimits;
pub use filter::{Filter, IdleWaits, ThreadKinds};
pub use frames::{FrameName, Frames};
pub use integrity::{ClockStep, RecordingIntegrity, Suspension};
pub use label::{CodeOwner, Label};
pub use model::{
    BlameEntry, BlameEntryKind, CgroupEntry, ContainerEntry, ContainerProcess, FilterNote,
    HalfCountsEntry, HopEntry, LedgerEntry, LossNote, Meta, MistakenThread, ProcessEntry,
    ProgramsEntry, QuotaCountEntry, QuotaEntry, Report, RingFull, StackCountsEntry, ThreadEntry,
    ThreadName, ThrottledThread, WaitEntry, WaitedOnEntry, WakeEntry, WakerCallEntry, WakerEntry,
    WakerKind, WindowEntry,
};
pub(crate) use path_limit::{MAX_BYTES as MAX_PATH_BYTES, SmallPaths, most_summed_up};

//! The result of a run, and one writer for each format.
//!
//! Same recording and filter, same bytes.

pub(crate) mod best_fit;
mod build;
mod class;
mod containers;
mod cost;
pub mod diff;
mod filter;
pub mod flame;
pub mod folded;
pub(crate) mod frames;
pub mod html;
pub mod in_words;
mod model;
mod room;
mod soundness;
pub mod summary;
mod sums;
pub mod svg;
pub mod text;
pub(crate) mod waited_on;
mod waits;
pub(crate) mod waker;
mod worst;

pub use best_fit::{Label, Whose};
pub(crate) use build::{NAMELESS, unix_time, window_entry};
pub use class::{BlameGroup, Class};
pub use filter::{Filter, IdleWaits, Kinds};
pub use frames::{FrameName, Frames};
pub use model::{
    BlameEntry, BlameWord, CgroupEntry, ContainerEntry, ContainerProcess, FilterNote,
    HalfCountsEntry, HopEntry, Ledger, LossNote, Meta, MistakenThread, ProcessEntry, ProgramsEntry,
    Report, RingFull, StackCountsEntry, ThreadEntry, ThreadName, WaitEntry, WaitedOnEntry,
    WakeEntry, WakerCallEntry, WakerEntry, WakerKind, WindowEntry,
};
pub use soundness::{ClockStep, Soundness, Suspension};

//! What programs mark in their own code: ranges and instants.

use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

use crate::units::{Tgid, Tid, Timestamp};

/// What a marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum MarkerKind {
    /// A range begins.
    Begin,
    /// A range ends.
    End,
    /// Something happened.
    Instant,
}

/// One marker, as a thread set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// When.
    pub at: Timestamp,
    /// The thread.
    pub tid: Tid,
    /// The thread's process.
    pub tgid: Tgid,
    /// What it says.
    pub kind: MarkerKind,
    /// The row that it belongs to: what stands before the first colon. It comes from another
    /// program.
    pub track: Arc<str>,
    /// What begins, ends or happened. It comes from another program.
    pub name: Arc<str>,
}

impl Marker {
    /// The track of markers that name none.
    pub const DEFAULT_TRACK: &'static str = "Markers";
}

//! Files and processes that did not answer while somebody recorded.

use strum::{IntoStaticStr, VariantArray};

use crate::units::Tgid;

/// What was asked and did not answer in time: names or stacks that come from there are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// What was asked for.
    pub kind: UnansweredKind,
    /// Where files lie: a mount point, a directory, or `device 0:52` if it is mounted elsewhere. Empty
    /// if a process did not answer, and of what there was no room for.
    pub place: String,
    /// The process that did not answer.
    pub tgid: Option<Tgid>,
    /// How many there are of this kind.
    pub count: u64,
}

/// A kind of question that had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum UnansweredKind {
    /// What is in a file.
    File,
    /// What is in a directory.
    Directory,
    /// The memory of a process.
    Memory,
    /// What a process has mapped.
    Mappings,
    /// The arguments of a process.
    Arguments,
    /// The files below a process's root directory.
    Root,
    /// An open file of a process.
    Descriptor,
    /// Whatever there was no room for in the list.
    Other,
}

impl UnansweredKind {
    /// The kind's name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

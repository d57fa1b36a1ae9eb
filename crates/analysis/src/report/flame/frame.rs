//! The frames of a path.

use std::sync::Arc;

use crate::report::BlameClass;
use offwake_recording::Function;

/// What a frame stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// A process, cgroup or cause that waits are grouped by.
    Group,
    /// The waiting thread.
    Waiter,
    /// A function of a program or library, or what stands for a user stack that is missing.
    User,
    /// A function of the kernel, or what stands for a kernel stack that is missing.
    Kernel,
    /// Between a wait and who ended it.
    Separator,
    /// A thread that was waited for.
    Waker,
    /// Who had the CPU that a thread waited for.
    Holder,
    /// What the time is blamed on.
    Leaf(BlameClass),
}

/// One frame. The name is as it was recorded, and may hold anything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// What it stands for.
    pub kind: FrameKind,
    /// Its name.
    pub name: Arc<str>,
    /// The function that it is, where its source is known.
    pub function: Option<Arc<Function>>,
}

//! Who a thread was, and until when.

use strum::{IntoStaticStr, VariantArray};

use crate::units::{CgroupId, Tgid, Tid, Timestamp};

/// What kind of thread it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ThreadKind {
    /// A thread of a program.
    User,
    /// It runs a 32-bit program on a 64-bit kernel.
    User32,
    /// It lives in the kernel: no user stack, no syscalls.
    Kernel,
}

/// Why a thread event was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ThreadEventReason {
    /// The window opened, and the thread was there.
    Opening,
    /// Its first record, or the first after something about it was new.
    Seen,
    /// The thread was created.
    Fork,
    /// The thread became another program.
    Exec,
    /// The thread changed its name.
    Rename,
    /// The window closed, and the thread was there.
    Closing,
    /// Too many of its stacks were taken for others: a kind of them was walked every time from then on.
    Mistaken,
}

/// What a thread was doing when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Phase {
    /// Not known.
    Unknown,
    /// On a CPU.
    OnCpu,
    /// Waiting for a CPU.
    Runnable,
    /// Blocked.
    Blocked,
}

/// Who a thread is from a moment on, until its next thread event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadEvent {
    /// When it was looked at.
    pub at: Timestamp,
    /// Why.
    pub reason: ThreadEventReason,
    /// The thread.
    pub tid: Tid,
    /// The tid that it had until now, if an exec gave it the one of its process's first thread.
    pub old_tid: Option<Tid>,
    /// Its process.
    pub tgid: Tgid,
    /// The process that is its parent.
    pub parent: Tgid,
    /// What kind of thread it is.
    pub kind: ThreadKind,
    /// Whether it belongs to the target.
    pub in_target: bool,
    /// What it was doing.
    pub phase: Phase,
    /// The number of its newest wait or preemption, 0 if it has none yet.
    pub seq: u32,
    /// When it was created.
    pub created: Timestamp,
    /// Its cgroup.
    pub cgroup: CgroupId,
    /// Its name. From another program: it may hold anything but NUL.
    pub comm: String,
}

/// A thread's last switch-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadExit {
    /// When.
    pub at: Timestamp,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// Whether it belonged to the target.
    pub in_target: bool,
    /// The number of its newest wait or preemption.
    pub seq: u32,
    /// Its status as `wait4` would give it.
    pub status: u32,
}

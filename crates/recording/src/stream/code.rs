//! Enums as small numbers: append-only, a code's meaning never changes.

use crate::{
    AddressKind, Begin, ClosedBy, DeviceKind, End, FileKind, Phase, Scope, SightingReason,
    SocketRole, StackEnd, StackMode, SyscallTable, SystemVector, ThreadKind, WakeContext,
};

/// An enum that is stored as its place in a list.
pub trait Code: Copy + PartialEq + 'static {
    /// Every value with its name; the code is the index.
    const ALL: &'static [(Self, &'static str)];

    /// Its code.
    fn code(self) -> u8 {
        let index = Self::ALL.iter().position(|(value, _)| *value == self);
        index.and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX)
    }

    /// What a code stands for; none for a newer one.
    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).map(|(value, _)| *value)
    }

    /// Its name where people query.
    fn text(self) -> &'static str {
        Self::ALL.get(usize::from(self.code())).map_or("", |(_, name)| name)
    }
}

impl Code for ThreadKind {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::User, "user"), (Self::User32, "user32"), (Self::Kernel, "kernel")];
}

impl Code for Begin {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Seen, "seen"), (Self::BeforeWindow, "before_window"), (Self::Newborn, "newborn")];
}

impl Code for End {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Seen, "seen"), (Self::StillOff, "still_off"), (Self::Missed, "missed")];
}

impl Code for SyscallTable {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Native, "native"), (Self::Compat, "compat")];
}

impl Code for FileKind {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Socket, "socket"),
        (Self::Pipe, "pipe"),
        (Self::Regular, "regular"),
        (Self::Character, "character"),
        (Self::Block, "block"),
        (Self::Directory, "directory"),
        (Self::Anonymous, "anonymous"),
    ];
}

impl Code for SocketRole {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Serving, "serving"), (Self::Asking, "asking")];
}

impl Code for DeviceKind {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Storage, "storage"), (Self::Other, "other")];
}

impl Code for SightingReason {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Opening, "opening"),
        (Self::Seen, "seen"),
        (Self::Fork, "fork"),
        (Self::Exec, "exec"),
        (Self::Rename, "rename"),
        (Self::Closing, "closing"),
        (Self::Mistaken, "mistaken"),
    ];
}

impl Code for StackEnd {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Unknown, "unknown"),
        (Self::EntryPoint, "entry_point"),
        (Self::CopyTooShort, "copy_too_short"),
        (Self::PageMissing, "page_missing"),
        (Self::NoUnwindInfo, "no_unwind_info"),
        (Self::NotCode, "not_code"),
        (Self::Broken, "broken"),
        (Self::TooDeep, "too_deep"),
        (Self::OtherStack, "other_stack"),
        (Self::LostRegister, "lost_register"),
        (Self::WaitOver, "wait_over"),
        (Self::OtherMachine, "other_machine"),
        (Self::NotUnwound, "not_unwound"),
    ];
}

impl Code for Phase {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Unknown, "unknown"),
        (Self::OnCpu, "on_cpu"),
        (Self::Runnable, "runnable"),
        (Self::Blocked, "blocked"),
    ];
}

impl Code for Scope {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Machine, "machine"), (Self::Target, "target")];
}

impl Code for StackMode {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Exact, "exact"), (Self::Off, "off"), (Self::Cached, "cached")];
}

impl Code for ClosedBy {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Duration, "duration"),
        (Self::Signal, "signal"),
        (Self::Command, "command"),
        (Self::Memory, "memory"),
        (Self::CutOff, "cut_off"),
        (Self::DiskFull, "disk_full"),
        (Self::Snapshot, "snapshot"),
    ];
}

impl Code for AddressKind {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Instruction, "instruction"), (Self::Return, "return")];
}

impl Code for SystemVector {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Unknown, "unknown"),
        (Self::LocalTimer, "local_timer"),
        (Self::CallFunction, "call_function"),
        (Self::IrqWork, "irq_work"),
        (Self::Idle, "idle"),
    ];
}

/// In what kind of context a wake was made; [`WakeContext`] without its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextKind {
    /// A task.
    Task,
    /// A softirq.
    Softirq,
    /// A device's interrupt.
    Hardirq,
    /// The expiry of a high-resolution timer.
    Hrtimer,
    /// An interrupt of the machine's own.
    System,
}

impl Code for ContextKind {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Task, "task"),
        (Self::Softirq, "softirq"),
        (Self::Hardirq, "hardirq"),
        (Self::Hrtimer, "hrtimer"),
        (Self::System, "system"),
    ];
}

/// A context as its kind and its vector: the softirq's or interrupt's number, or the code of the
/// [`SystemVector`]; 0 where there is none.
pub fn split(context: WakeContext) -> (ContextKind, u16) {
    match context {
        WakeContext::Task => (ContextKind::Task, 0),
        WakeContext::Softirq(number) => (ContextKind::Softirq, number),
        WakeContext::Hardirq(number) => (ContextKind::Hardirq, number),
        WakeContext::Hrtimer => (ContextKind::Hrtimer, 0),
        WakeContext::System(vector) => (ContextKind::System, u16::from(vector.code())),
    }
}

/// The reverse of [`split`].
pub fn join(kind: ContextKind, vector: u16) -> Option<WakeContext> {
    Some(match kind {
        ContextKind::Task => WakeContext::Task,
        ContextKind::Softirq => WakeContext::Softirq(vector),
        ContextKind::Hardirq => WakeContext::Hardirq(vector),
        ContextKind::Hrtimer => WakeContext::Hrtimer,
        ContextKind::System => {
            WakeContext::System(SystemVector::from_code(u8::try_from(vector).ok()?)?)
        }
    })
}

//! Enums as small numbers: append-only, a code's meaning never changes.

use strum::{IntoStaticStr, VariantArray};

use crate::{
    AddressKind, Begin, ClosedBy, DetailStep, DeviceKind, End, FileKind, FileLockEventKind,
    LockKind, MarkerKind, Phase, PipeEnds, Scope, SocketRole, StackEnd, StackMode, SyscallTable,
    SystemVector, ThreadEventReason, ThreadKind, UnansweredKind, WakeContext,
};

/// An enum that is stored as the place of a value among its variants. So new variants come last, and none
/// ever goes.
pub trait Code: Copy + PartialEq + VariantArray + Into<&'static str> {
    /// The number that stands for the value in files.
    fn code(self) -> u8 {
        let index = Self::VARIANTS.iter().position(|variant| *variant == self);
        index.and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX)
    }

    /// Returns the value that a code stands for; none if a newer version wrote it.
    fn from_code(code: u8) -> Option<Self> {
        Self::VARIANTS.get(usize::from(code)).copied()
    }

    /// The value's name in tables for queries, and in the documents.
    fn text(self) -> &'static str {
        self.into()
    }
}

impl Code for AddressKind {}
impl Code for Begin {}
impl Code for ClosedBy {}
impl Code for ContextKind {}
impl Code for DetailStep {}
impl Code for DeviceKind {}
impl Code for End {}
impl Code for FileKind {}
impl Code for FileLockEventKind {}
impl Code for LockKind {}
impl Code for MarkerKind {}
impl Code for Phase {}
impl Code for PipeEnds {}
impl Code for Scope {}
impl Code for ThreadEventReason {}
impl Code for SocketRole {}
impl Code for StackEnd {}
impl Code for StackMode {}
impl Code for SyscallTable {}
impl Code for SystemVector {}
impl Code for ThreadKind {}
impl Code for UnansweredKind {}

/// In what kind of context a wake was made; [`WakeContext`] without its vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
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

/// The vector of [`WakeContext::TimerSignal`].
const TIMER_SIGNAL: u16 = 1;

/// A context as its kind and its vector: the softirq's or interrupt's number, or the code of the
/// [`SystemVector`]; 1 for a timer that sent a signal; 0 where there is none.
pub fn split(context: WakeContext) -> (ContextKind, u16) {
    match context {
        WakeContext::Task => (ContextKind::Task, 0),
        WakeContext::Softirq(number) => (ContextKind::Softirq, number),
        WakeContext::Hardirq(number) => (ContextKind::Hardirq, number),
        WakeContext::Hrtimer => (ContextKind::Hrtimer, 0),
        WakeContext::TimerSignal => (ContextKind::Hrtimer, TIMER_SIGNAL),
        WakeContext::System(vector) => (ContextKind::System, u16::from(vector.code())),
    }
}

/// The reverse of [`split`].
pub fn join(kind: ContextKind, vector: u16) -> Option<WakeContext> {
    Some(match kind {
        ContextKind::Task => WakeContext::Task,
        ContextKind::Softirq => WakeContext::Softirq(vector),
        ContextKind::Hardirq => WakeContext::Hardirq(vector),
        ContextKind::Hrtimer if vector == TIMER_SIGNAL => WakeContext::TimerSignal,
        ContextKind::Hrtimer => WakeContext::Hrtimer,
        ContextKind::System => {
            WakeContext::System(SystemVector::from_code(u8::try_from(vector).ok()?)?)
        }
    })
}

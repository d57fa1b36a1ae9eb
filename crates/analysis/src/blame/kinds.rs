//! What a wait's time can be blamed on.

use offwake_recording::units::Nanos;
use schemars::JsonSchema;
use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use crate::timeline::ThreadIndex;

use super::{ChainId, SleepId, StackPairId};

/// Something outside of every thread that a thread can wait for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    JsonSchema,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum External {
    /// A timer expired.
    Timer,
    /// A disk had finished.
    Disk,
    /// A packet came in that no local thread sent.
    Network,
    /// Some other device.
    Device,
    /// A CPU quota was used up.
    Throttled,
}

impl External {
    /// All variants, in order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why time can't be attributed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    JsonSchema,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// Nobody was seen to wake the thread.
    NoWakeup,
    /// The wait began before the window, and nobody was seen to end it.
    BeforeWindow,
    /// The wait had not ended when the window did.
    StillBlocked,
    /// Records were lost.
    Lost,
    /// The chain is deeper than it was followed.
    DepthLimit,
    /// More waits of one thread inside one wait than were followed.
    FanOutLimit,
    /// More waits below one wait than were followed.
    NodeLimit,
    /// The records contradict each other: a thread would wait for itself.
    Cycle,
    /// A signal cut the wait short.
    Signal,
    /// The waker is known, what it did was not recorded: another scope, or the profiler itself.
    NotRecorded,
    /// The waker did not exist yet.
    NotYetCreated,
    /// A packet that some local thread sent, delivered by an interrupt: not known who that was.
    LocalSoftirq,
    /// An interrupt that says nothing about who or what is behind it.
    Interrupt,
    /// TCP held back what a local thread had sent before, until a timer of its own.
    TcpTimer,
    /// The blame is known, but is one of so many small parts that the report's size limit leaves
    /// them out.
    ReportLimit,
    /// The thread serves several others, and nothing shows what it waited for on behalf of this
    /// one.
    EventLoop,
    /// The thread was stopped by a signal, or frozen: whoever had it go on did not keep it waiting.
    Stopped,
    /// Somebody held the lock that was waited for, and nothing tells who: not the thread that let go of
    /// it last.
    HolderUnknown,
    /// The thread was woken alone and slept again at once: nothing tells whether it had got what it waited
    /// for, or had only looked.
    UnclearWake,
    /// A thread's waits were so short, and so many, that they were summed up and not recorded one by one.
    ShortWaits,
}

impl Reason {
    /// All variants, in order.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns whether this tells what the time was spent on, though no thread is to blame: a process was
    /// stopped, or TCP held data back.
    #[must_use]
    pub fn is_cause(self) -> bool {
        matches!(self, Self::Stopped | Self::TcpTimer)
    }

    /// Returns the name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What some of a wait's time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlameKind {
    /// The thread worked.
    Work(ThreadIndex),
    /// The thread waited for a CPU.
    CpuQueue {
        /// Who waited.
        thread: ThreadIndex,
        /// Who ran there meanwhile, as far as that is known.
        holder: Option<ThreadIndex>,
    },
    /// Something outside of every thread.
    External(External),
    /// Why it is not known.
    Unattributed(Reason),
}

/// Whether a thread that waited had anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdleState {
    /// The thread waited in the middle of something.
    Busy,
    /// The thread waited for its next request.
    Idle,
}

/// What a wait itself tells about whether its thread was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleHint {
    /// The thread was in the middle of something, or nothing tells.
    Busy,
    /// The thread waited for what another thread hands over: it is as idle as that thread is.
    SameAsWaker,
    /// The thread waited for its next request.
    Idle,
}

/// A share of a wait's time, and what it was spent on: a leaf of the wait's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlamePart {
    /// What the time was spent on.
    pub kind: BlameKind,
    /// The number of hops from the wait; 0 if no waker is known.
    pub depth: u16,
    /// The hops from the wait to the thread that the part is about.
    pub chain: ChainId,
    /// That thread's stack at the time, if the part is its work.
    pub stack: StackPairId,
    /// How that thread slept, if the part is neither its work nor time in a CPU's queue.
    pub slept: SleepId,
    /// Whether some thread on the chain was idle.
    pub idle_state: IdleState,
    /// The length of the time.
    pub time: Nanos,
}

/// How far chains are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLimits {
    /// Hops from a wait.
    pub depth: u16,
    /// Waits of one thread within one wait.
    pub fan_out: u32,
    /// Waits below one wait, on all levels.
    pub nodes: u32,
}

impl ChainLimits {
    /// The most hops that are followed, whatever the limit: the walk is recursive, so each takes
    /// stack.
    pub const DEEPEST: u16 = 256;
}

impl Default for ChainLimits {
    fn default() -> Self {
        Self { depth: 16, fan_out: 100_000, nodes: 1_000_000 }
    }
}

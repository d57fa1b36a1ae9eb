//! Everything that the kernel half can lose, each with a counter of its own.

/// What was lost; the index into [`LossCounters::counts`]. Append-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Loss {
    /// A wait's record found no room in the ring.
    RingFullWait = 0,
    /// A preemption's record found no room in the ring.
    RingFullPreemption = 1,
    /// A thread's record found no room in the ring; it is sent again before the thread's next
    /// record.
    RingFullThread = 2,
    /// An exit's record found no room in the ring.
    RingFullExit = 3,
    /// A sample's record found no room in the ring.
    RingFullSample = 4,
    /// A stack's record found no room in the ring; it is sent when the stack is met again.
    RingFullStack = 5,
    /// The kernel gave no user stack.
    UserStackFailed = 6,
    /// The kernel gave no kernel stack.
    KernelStackFailed = 7,
    /// A blocked thread's kernel stack was not walked, as the thread had not yet quite left its
    /// CPU.
    KernelStackUnsettled = 8,
    /// The kernel skipped a program, as it was running on that CPU already (the kernel's own count,
    /// `recursion_misses`, read at the end).
    ProgramSkipped = 9,
    /// Two different stacks had one id; the newer one was sent under another.
    StackIdCollision = 10,
    /// Task storage could not be allocated; the hash map stood in for it.
    StorageFailed = 11,
    /// The hash map that stands in for task storage was full; the thread's wait is lost.
    StandInFull = 12,
    /// The map of target processes was full; a child is not followed.
    TargetsFull = 13,
    /// A switch-in of a thread that had no task-local storage yet.
    SwitchInUnmatched = 14,
    /// A switch-out of a thread that was off the CPU already: its switch-in was not seen.
    SwitchInMissed = 15,
    /// A wake of a thread that had no task-local storage yet.
    WakeUnmatched = 16,
    /// A time that ran backwards.
    TimeBackwards = 17,
    /// A switch-in of a thread that was on the CPU already: its switch-out was not seen.
    SwitchOutMissed = 18,
    /// An event of a thread beyond [`Config::max_threads`](crate::config::Config): nothing that the
    /// thread does is recorded.
    ThreadsFull = 19,
    /// The copy of a user stack found no room in the copies' ring.
    RingFullCopy = 20,
    /// A marker's record found no room in the ring.
    RingFullMarker = 21,
    /// A marker's name could not be read: its page was not in memory, or there is no such address.
    MarkerUnreadable = 22,
    /// A marker beyond [`MAX_PER_SECOND`](crate::marker::MAX_PER_SECOND).
    MarkerOverRate = 23,
    /// A thread's tags, or a change of them, found no room in the ring; what the thread had until the
    /// next change that found room is not known.
    RingFullTags = 24,
    /// A thread was in the middle of writing its tags, or said that they are not whole.
    TagsBeingWritten = 25,
    /// A thread's tags were too large, unreadable, or of a form that can't be.
    TagsRefused = 26,
    /// Of a thread's labels, some had no room or were cut off.
    LabelsCut = 27,
    /// The record of a file lock found no room in the ring.
    RingFullFileLock = 28,
    /// What happened to file locks beyond [`MAX_PER_SECOND`](crate::file_lock::MAX_PER_SECOND).
    FileLockOverRate = 29,
}

/// The loss of a record that found no room in its ring.
///
/// The verifier has to see that its index is inside the array, which a mask shows. A loss whose
/// number the mask would change does not compile:
///
/// ```compile_fail,E0080
/// use profiler_ebpf::loss::{Loss, RingLoss};
/// const COPY: RingLoss = RingLoss::new(Loss::RingFullCopy);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLoss(Loss);

impl RingLoss {
    /// A wait's record.
    pub const WAIT: Self = Self::new(Loss::RingFullWait);
    /// A preemption's record.
    pub const PREEMPTION: Self = Self::new(Loss::RingFullPreemption);
    /// A thread's record.
    pub const THREAD: Self = Self::new(Loss::RingFullThread);
    /// An exit's record.
    pub const EXIT: Self = Self::new(Loss::RingFullExit);
    /// A sample's record.
    pub const SAMPLE: Self = Self::new(Loss::RingFullSample);
    /// A stack's record.
    pub const STACK: Self = Self::new(Loss::RingFullStack);
    const MASK: usize = 0x7;

    /// Makes a loss that [`Self::index`] can stand for.
    ///
    /// # Panics
    ///
    /// If its number has bits outside of the mask: when it is compiled, since losses are constants.
    #[must_use]
    pub const fn new(loss: Loss) -> Self {
        assert!(loss as usize == loss as usize & Self::MASK, "the mask changes this loss's index");
        Self(loss)
    }

    /// The index into [`LossCounters::counts`].
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize & Self::MASK
    }
}

/// How many kinds of loss there are.
pub const LOSS_KINDS: usize = 30;

/// One CPU's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LossCounters {
    /// By [`Loss`].
    pub counts: [u64; LOSS_KINDS],
    /// When the ring was first found full; 0 if never.
    pub ring_full_first_ns: u64,
    /// When it was last found full.
    pub ring_full_last_ns: u64,
}

impl Default for LossCounters {
    fn default() -> Self {
        Self { counts: [0; LOSS_KINDS], ring_full_first_ns: 0, ring_full_last_ns: 0 }
    }
}

const _: () = {
    assert!(size_of::<LossCounters>() == (LOSS_KINDS + 2) * 8);
    assert!(Loss::FileLockOverRate as usize + 1 == LOSS_KINDS);
    assert!(RingLoss::MASK < LOSS_KINDS);
};

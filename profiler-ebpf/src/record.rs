//! The records. Each begins with a [`RecordHeader`]; kinds are append-only, a retired number is
//! never used again. Every field is an integer and there is no implicit padding, so that a record
//! may be read from, and written as, plain bytes.

/// Frames of one stack that are kept; the kernel's own limit is `PERF_MAX_STACK_DEPTH` (127).
pub const MAX_FRAMES: usize = 127;

/// Bytes of a thread's name, the closing NUL included (`TASK_COMM_LEN`).
pub const COMM_LEN: usize = 16;

/// The syscall number of a thread that was in none: a kernel thread, a page fault.
pub const NO_SYSCALL: i32 = -1;

/// A timeout that is absent, or that was not read.
pub const NO_TIMEOUT: u64 = u64::MAX;

/// Stands in place of the `seq` of a thread that the kernel half keeps nothing of.
pub const NO_SEQ: u32 = u32::MAX;

/// The stack id that stands for "no stack".
pub const NO_STACK: u64 = 0;

/// What a record is.
pub mod kind {
    /// [`super::WaitRecord`]
    pub const WAIT: u16 = 1;
    /// [`super::PreemptionRecord`]
    pub const PREEMPTION: u16 = 2;
    /// [`super::StackRecord`]
    pub const STACK: u16 = 3;
    /// [`super::ThreadRecord`]
    pub const THREAD: u16 = 4;
    /// [`super::ExitRecord`]
    pub const EXIT: u16 = 5;
    /// [`super::SampleRecord`]
    pub const SAMPLE: u16 = 6;
    /// [`StackCopy`](crate::user_stack::StackCopy), on a ring of its own.
    pub const STACK_COPY: u16 = 7;
    /// [`super::ThrottleRecord`]
    pub const THROTTLE: u16 = 8;
    /// [`super::SummedRecord`]
    pub const SUMMED: u16 = 9;
    /// [`TagSetRecord`](crate::tags::TagSetRecord)
    pub const TAG_SET: u16 = 10;
    /// [`TagChangeRecord`](crate::tags::TagChangeRecord)
    pub const TAG_CHANGE: u16 = 11;
    /// [`MarkerRecord`](crate::marker::MarkerRecord)
    pub const MARKER: u16 = 12;
    /// [`TagSetRecord`](crate::tags::TagSetRecord) of labels alone
    pub const LABEL_SET: u16 = 13;
    /// [`FileLockRecord`](crate::file_lock::FileLockRecord)
    pub const FILE_LOCK: u16 = 14;
}

/// In what context a wake was made ([`Wake::context`]).
pub mod wake_context {
    /// No wake was seen.
    pub const NONE: u16 = 0;
    /// The waker is a task, running its own code.
    pub const TASK: u16 = 1;
    /// A softirq; [`super::Wake::vector`] is its number (`enum` in `include/linux/interrupt.h`).
    pub const SOFTIRQ: u16 = 2;
    /// A device's interrupt handler; the vector is its number in `/proc/interrupts`.
    pub const HARDIRQ: u16 = 3;
    /// A high-resolution timer's callback, in whatever interrupt it ran. The vector is one of
    /// [`super::hrtimer_vector`].
    pub const HRTIMER: u16 = 4;
    /// An interrupt without a device: a local timer tick, an inter-processor interrupt, or one that
    /// is known only by the stack that it ran on. The vector is one of [`super::system_vector`].
    pub const SYSTEM: u16 = 5;
}

/// What a high-resolution timer was for ([`wake_context::HRTIMER`]).
pub mod hrtimer_vector {
    /// The thread's own timeout, or anything else.
    pub const ANY: u16 = 0;
    /// To send a signal to the thread: `alarm`, `setitimer`, `timer_create`.
    pub const SIGNAL: u16 = 1;
}

/// The interrupts without a device behind them ([`wake_context::SYSTEM`]).
pub mod system_vector {
    /// The program ran on an interrupt's stack, and no tracepoint had named the interrupt.
    pub const UNKNOWN: u16 = 0;
    /// The tick of the local timer.
    pub const LOCAL_TIMER: u16 = 1;
    /// A function call asked for by another CPU.
    pub const CALL_FUNCTION: u16 = 2;
    /// Work that was queued for interrupt context (`irq_work`).
    pub const IRQ_WORK: u16 = 3;
    /// No interrupt: the idle task, doing what another CPU asked of it before it sleeps again.
    pub const IDLE: u16 = 4;
}

/// Facts about a thread at the moment of a record (`flags` of several records).
pub mod thread_flags {
    /// The thread belongs to the target.
    pub const TARGET: u32 = 1 << 0;
    /// A kernel thread (`PF_KTHREAD`), or one that works for user space in the kernel
    /// (`PF_USER_WORKER`, `PF_IO_WORKER`): it has no user stack and no syscall.
    pub const KERNEL: u32 = 1 << 1;
    /// The syscall number and arguments are those of the 32-bit table.
    pub const COMPAT: u32 = 1 << 2;
}

/// Facts about one wait ([`WaitRecord::wait_flags`], [`PreemptionRecord::wait_flags`]).
pub mod wait_flags {
    /// The thread was off the CPU already when it was first surveyed: `off_ns` is the time of that
    /// survey, not of the switch-out.
    pub const BEFORE_WINDOW: u32 = 1 << 0;
    /// The thread has not come back: `on_ns` is when it was surveyed last.
    pub const STILL_OFF: u32 = 1 << 1;
    /// The thread was created, and this ends as it runs for the first time: `off_ns` and `wake_ns`
    /// are `sched_wakeup_new`.
    pub const NEWBORN: u32 = 1 << 3;
    /// The stack of the thread's user half was asked for and could not be had.
    pub const USER_STACK_FAILED: u32 = 1 << 4;
    /// The stack of the thread's kernel half was asked for and could not be had.
    pub const KERNEL_STACK_FAILED: u32 = 1 << 5;
    /// [`super::WaitRecord::file`] is the file that the syscall's first argument referred to.
    pub const HAS_FILE: u32 = 1 << 8;
    /// The thread came back and its switch-in was not seen; `on_ns` is when it was first seen on a
    /// CPU again: by the sampling clock, by a wake that it made, or when it left again.
    pub const SWITCH_IN_MISSED: u32 = 1 << 9;
    /// A CPU quota had the thread taken off the CPU. A [`super::ThrottleRecord`] says until when, if
    /// that is known.
    pub const THROTTLED: u32 = 1 << 10;
    /// [`super::WaitRecord::file`] is the only file that the thread polls, and
    /// [`super::WaitRecord::polled_fd`] its descriptor.
    pub const POLLS_ONE_FILE: u32 = 1 << 11;
}

/// Facts about one wake ([`Wake::flags`]). A wake may be made before the wait that it belongs to
/// begins, so it has flags of its own.
pub mod wake_flags {
    /// The stack of the current task's user half was asked for and could not be had.
    pub const USER_STACK_FAILED: u32 = 1 << 0;
    /// The stack of the current task's kernel half was asked for and could not be had.
    pub const KERNEL_STACK_FAILED: u32 = 1 << 1;
    /// [`super::Wake::file`] is the file that the syscall's first argument referred to.
    pub const HAS_FILE: u32 = 1 << 2;
    /// [`super::Wake::file`] is the file that made the wakee's `epoll` ready, and
    /// [`super::WaitRecord::polled_fd`] the descriptor by which it was added to that.
    pub const READY_FILE: u32 = 1 << 3;
}

/// Facts about short waits that were summed up ([`SummedRecord::flags`]).
pub mod summed_flags {
    /// A copy, made as the window closed or for a snapshot: what is sent later may begin as it does, and
    /// go on for longer.
    pub const OPEN: u32 = 1 << 0;
}

/// Why a [`ThreadRecord`] was written.
pub mod thread_event {
    /// The window opened, and the thread was there.
    pub const OPENING: u32 = 1;
    /// Another record names the thread, and user space does not know it yet, or knows it as it was
    /// before.
    pub const FIRST_RECORD: u32 = 2;
    /// The thread was created.
    pub const FORK: u32 = 3;
    /// The thread's process executed another program.
    pub const EXEC: u32 = 4;
    /// The thread's name changed.
    pub const RENAME: u32 = 5;
    /// The window closed, and the thread was there.
    pub const CLOSING: u32 = 6;
    /// Too many stacks of the thread were mismatched by the cache: a kind of them is walked every
    /// time from now on.
    pub const STACKS_DISTRUSTED: u32 = 7;
}

/// Why every thread is surveyed.
pub mod survey {
    /// The window opens.
    pub const OPENING: u32 = 1;
    /// The window closes.
    pub const CLOSING: u32 = 2;
    /// The records hold what they would if the window closed now
    /// ([`super::thread_event::CLOSING`]), and recording goes on.
    pub const SNAPSHOT: u32 = 3;
    /// The window has not opened yet: nothing is recorded, and the children of target processes
    /// become a part of the target. Each visit finds those whose parents were in it before.
    pub const CHILDREN: u32 = 4;
}

/// What a thread was doing at the moment of a record ([`ThreadRecord::phase`]).
pub mod phase {
    /// Not known.
    pub const UNKNOWN: u32 = 0;
    /// On a CPU.
    pub const ON_CPU: u32 = 1;
    /// Waiting for a CPU.
    pub const RUNNABLE: u32 = 2;
    /// Blocked.
    pub const BLOCKED: u32 = 3;
}

/// The first eight bytes of every record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RecordHeader {
    /// One of [`kind`].
    pub kind: u16,
    /// The CPU that wrote the record.
    pub cpu: u16,
    /// Bytes of the whole record, this header included.
    pub len: u32,
}

/// A syscall as the saved user registers show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Syscall {
    /// The syscall's number in the table of the thread's kind (see [`thread_flags::COMPAT`]), or
    /// [`NO_SYSCALL`].
    pub number: i32,
    /// The thread's [`thread_flags`].
    pub thread_flags: u32,
    /// The syscall's arguments, as they were at entry.
    pub args: [u64; 6],
}

/// An inode: the file that a descriptor refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Inode {
    /// The inode's number.
    pub number: u64,
    /// The inode's `st_mode`.
    pub mode: u32,
    /// The device that the number belongs to (`dev_t` of its superblock).
    pub device: u32,
}

/// The wake that ended a wait, recorded where the waker runs, at `sched_waking`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Wake {
    /// When; 0 if no wake was seen. Before the switch-out if the wake came while the thread still
    /// ran: such a wake may have ended this wait before it began, or have nothing to do with it.
    pub ns: u64,
    /// The task that was current. It is the waker only where `context` is [`wake_context::TASK`];
    /// in an interrupt it is a bystander.
    pub tid: u32,
    /// The current task's process.
    pub tgid: u32,
    /// One of [`wake_context`].
    pub context: u16,
    /// Which interrupt, by the context's own numbering.
    pub vector: u16,
    /// The CPU on which the wake was made.
    pub cpu: u32,
    /// [`wake_flags`].
    pub flags: u32,
    /// The [`WaitRecord::seq`] of the current task's newest record as it made this wake, or
    /// [`NO_SEQ`]. Only known in a task's own code and in the network's softirqs.
    pub current_seq: u32,
    /// The current task's syscall.
    pub syscall: Syscall,
    /// The file that the syscall's first argument referred to (with [`wake_flags::HAS_FILE`]), or the
    /// one that made the wakee's `epoll` ready (with [`wake_flags::READY_FILE`]).
    pub file: Inode,
    /// Stack id of the current task's user half, [`NO_STACK`] if there is none.
    pub user_stack: u64,
    /// Stack id of the current task's kernel half, interrupt frames included.
    pub kernel_stack: u64,
}

/// One whole wait: switch-out, asleep; wake; switch-in.
///
/// ```text
///   on-CPU   | blocked                 | runnable    | on-CPU
/// -----------+-------------------------+-------------+---------> time
///          off_ns                   wake.ns        on_ns
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct WaitRecord {
    /// [`kind::WAIT`].
    pub header: RecordHeader,
    /// The thread that waited.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// Counts this thread's waits and preemptions, lost ones included, from 1.
    pub seq: u32,
    /// [`wait_flags`].
    pub wait_flags: u32,
    /// When the thread left the CPU.
    pub off_ns: u64,
    /// When the thread was back on a CPU.
    pub on_ns: u64,
    /// When the thread was last moved to another CPU's queue since it left the CPU; 0 if it was
    /// not. The wake itself may move it, just after `wake.ns`.
    pub migrated_ns: u64,
    /// The thread's state at switch-out, as in `task_struct::__state`.
    pub state: u32,
    /// The CPU that the thread left, and (`>> 16`) the one that it came back to.
    pub cpus: u32,
    /// The thread's syscall, and its [`thread_flags`].
    pub syscall: Syscall,
    /// The timeout that the thread asked for, relative or absolute as the syscall has it;
    /// [`NO_TIMEOUT`] if none.
    pub timeout_ns: u64,
    /// The file waited on (with [`wait_flags::HAS_FILE`] or [`wait_flags::POLLS_ONE_FILE`]).
    pub file: Inode,
    /// The descriptor of the file (with [`wait_flags::POLLS_ONE_FILE`]), or of the one that ended the
    /// wait (with [`wake_flags::READY_FILE`]).
    pub polled_fd: u32,
    /// What the thread polls the file for (with [`wait_flags::POLLS_ONE_FILE`]): the `events` of its
    /// `struct pollfd`.
    pub polled_events: u32,
    /// Id of the thread's cgroup in the v2 hierarchy: the inode number of the cgroup's directory.
    pub cgroup: u64,
    /// Stack id of the thread's user half at switch-out.
    pub user_stack: u64,
    /// Stack id of the thread's kernel half while it was blocked.
    pub kernel_stack: u64,
    /// The wake that ended the wait.
    pub wake: Wake,
}

/// The time off the CPU of a thread that could have gone on: it was preempted, or it yielded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PreemptionRecord {
    /// [`kind::PREEMPTION`].
    pub header: RecordHeader,
    /// The thread.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// As [`WaitRecord::seq`], from the same count.
    pub seq: u32,
    /// [`wait_flags`].
    pub wait_flags: u32,
    /// [`thread_flags`].
    pub thread_flags: u32,
    /// The CPU that the thread left, and (`>> 16`) the one that it came back to.
    pub cpus: u32,
    /// When the thread left the CPU.
    pub off_ns: u64,
    /// When the thread was back on a CPU.
    pub on_ns: u64,
    /// As [`WaitRecord::migrated_ns`].
    pub migrated_ns: u64,
    /// The thread that the CPU went to; 0 is the idle task.
    pub next_tid: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Short waits and preemptions of a thread that were summed up instead of being sent: of all in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SummedRecord {
    /// [`kind::SUMMED`].
    pub header: RecordHeader,
    /// The thread.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// The number of the last of them, from the same count as [`WaitRecord::seq`].
    pub seq: u32,
    /// [`thread_flags`].
    pub thread_flags: u32,
    /// How many waits there were.
    pub waits: u32,
    /// How many preemptions there were.
    pub preemptions: u32,
    /// The CPU that the thread left at first, and (`>> 16`) the one that it came back to at last.
    pub cpus: u32,
    /// [`summed_flags`].
    pub flags: u32,
    /// When the thread left the CPU at first.
    pub from_ns: u64,
    /// When it was back on a CPU at last.
    pub until_ns: u64,
    /// How long it was blocked in all.
    pub blocked_ns: u64,
    /// How long it waited for a CPU in all.
    pub runnable_ns: u64,
    /// The longest that it was blocked at once.
    pub longest_ns: u64,
}

/// A stretch in which a thread could have run, and a CPU quota kept it from that. It lies inside
/// the time off the CPU of the thread's next [`WaitRecord`] or [`PreemptionRecord`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ThrottleRecord {
    /// [`kind::THROTTLE`].
    pub header: RecordHeader,
    /// The thread.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// [`thread_flags`].
    pub thread_flags: u32,
    /// Always 0.
    pub reserved: u32,
    /// When it began.
    pub from_ns: u64,
    /// When it ended: the thread was in a CPU's queue again, or the window closed.
    pub until_ns: u64,
    /// Id of the cgroup that had used up its quota, in the hierarchy that has the cpu controller:
    /// the inode number of the cgroup's directory. 0 if it is not known.
    pub cgroup: u64,
}

/// The frames of a stack that has not been sent yet, or that the kernel half has forgotten having
/// sent.
///
/// On the ring the record ends after `depth` frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StackRecord {
    /// [`kind::STACK`]; `len` is [`StackRecord::len_for_depth`].
    pub header: RecordHeader,
    /// The id that other records refer to it by.
    pub id: u64,
    /// When the stack was walked.
    pub ns: u64,
    /// The process that user addresses belong to; 0 for a kernel stack.
    pub tgid: u32,
    /// How many of `frames` are filled.
    pub depth: u32,
    /// Addresses, leaf first.
    pub frames: [u64; MAX_FRAMES],
}

impl StackRecord {
    /// Bytes of a record that holds `depth` frames.
    #[must_use]
    #[inline(always)]
    pub const fn len_for_depth(depth: usize) -> usize {
        size_of::<Self>() - (MAX_FRAMES - depth) * size_of::<u64>()
    }
}

/// Identity and properties of a thread, from `ns` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadRecord {
    /// [`kind::THREAD`].
    pub header: RecordHeader,
    /// The thread.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// The parent process (`real_parent`).
    pub parent_tgid: u32,
    /// [`thread_flags`].
    pub thread_flags: u32,
    /// One of [`thread_event`].
    pub event: u32,
    /// One of [`phase`].
    pub phase: u32,
    /// The `seq` of the thread's newest record.
    pub seq: u32,
    /// With [`thread_event::EXEC`], the tid that the thread had before: exec gives a thread that is
    /// not its process's first the tid of that one. 0 otherwise.
    pub old_tid: u32,
    /// When the record was made.
    pub ns: u64,
    /// When the thread was created (`task_struct::start_time`).
    pub start_ns: u64,
    /// Id of the thread's cgroup in the v2 hierarchy.
    pub cgroup: u64,
    /// The thread's name, padded with NULs.
    pub comm: [u8; COMM_LEN],
}

/// A thread's last switch-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ExitRecord {
    /// [`kind::EXIT`].
    pub header: RecordHeader,
    /// The thread.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// When.
    pub ns: u64,
    /// The `seq` of the thread's newest record.
    pub seq: u32,
    /// [`thread_flags`].
    pub thread_flags: u32,
    /// `task_struct::exit_code`: the status as `wait4` would give it.
    pub exit_code: u32,
    /// Always 0.
    pub reserved: u32,
}

/// What a CPU was doing when the sampling clock ticked. The idle task is not sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SampleRecord {
    /// [`kind::SAMPLE`].
    pub header: RecordHeader,
    /// The thread that was on the CPU.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// When.
    pub ns: u64,
    /// The [`WaitRecord::seq`] of the thread's newest record, or [`NO_SEQ`].
    pub seq: u32,
    /// Always 0.
    pub reserved: u32,
    /// Stack id of the thread's user half.
    pub user_stack: u64,
    /// Stack id of the thread's kernel half.
    pub kernel_stack: u64,
}

const _: () = {
    assert!(size_of::<RecordHeader>() == 8);
    assert!(size_of::<Syscall>() == 56);
    assert!(size_of::<Inode>() == 16);
    assert!(size_of::<Wake>() == 120);
    assert!(size_of::<WaitRecord>() == 288);
    assert!(size_of::<PreemptionRecord>() == 64);
    assert!(size_of::<SummedRecord>() == 80);
    assert!(size_of::<ThrottleRecord>() == 48);
    assert!(size_of::<StackRecord>() == 32 + MAX_FRAMES * 8);
    assert!(size_of::<ThreadRecord>() == 80);
    assert!(size_of::<ExitRecord>() == 40);
    assert!(size_of::<SampleRecord>() == 48);
    assert!(StackRecord::len_for_depth(0) == 32);
};

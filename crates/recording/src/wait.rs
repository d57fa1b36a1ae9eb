//! Waits, wakes, preemptions and samples.

use strum::{IntoStaticStr, VariantArray};

use super::{FileId, StackRef, ThreadKind};
use crate::units::{CgroupId, Cpu, Nanos, Tgid, Tid, Timestamp};

/// A thread's state as the scheduler saw it at switch-out (`task_struct::__state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskState(pub u32);

impl TaskState {
    /// The letter that `ps` shows (`S`, `D`, `T`, …).
    ///
    /// Bits as in [`include/linux/sched.h`](https://github.com/torvalds/linux/blob/v6.12/include/linux/sched.h#L99).
    #[must_use]
    pub fn letter(self) -> char {
        const IDLE: u32 = 0x2 | 0x400;
        match self.0 {
            0 => 'R',
            state if state & IDLE == IDLE => 'I',
            state if state & 0x1 != 0 => 'S',
            state if state & 0x2 != 0 => 'D',
            state if state & 0x4 != 0 => 'T',
            state if state & 0x8 != 0 => 't',
            state if state & (0x10 | 0x80) != 0 => 'X',
            state if state & 0x20 != 0 => 'Z',
            state if state & 0x40 != 0 => 'P',
            // TASK_FREEZABLE, TASK_FROZEN, TASK_RTLOCK_WAIT: the task is in the kernel and deaf.
            _ => 'D',
        }
    }
}

/// Which table a syscall number belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SyscallTable {
    /// The machine's own.
    Native,
    /// The table of 32-bit programs.
    Compat,
}

/// A syscall and its arguments at entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Syscall {
    /// The table that the number is from.
    pub table: SyscallTable,
    /// Its number.
    pub number: u32,
    /// Its arguments, those that it does not take included.
    pub args: [u64; 6],
}

/// A thread and its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadRef {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
}

/// How a wait's beginning is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Begin {
    /// Its switch-out was seen.
    Seen,
    /// The thread was off the CPU when it was first looked at: it had waited for longer.
    BeforeWindow,
    /// The thread was just created, and has not run yet.
    Newborn,
}

/// How a wait's end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum End {
    /// Its switch-in was seen.
    Seen,
    /// It was off the CPU when it was last looked at.
    StillOff,
    /// It came back, and that was not seen; the time given is when it was first found on a CPU again.
    Missed,
}

/// An interrupt with no device behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SystemVector {
    /// Known to be an interrupt by the stack that it ran on, not which.
    Unknown,
    /// The local timer's tick.
    LocalTimer,
    /// A function call that another CPU asked for.
    CallFunction,
    /// Work queued for interrupt context.
    IrqWork,
    /// No interrupt: the idle task, doing what another CPU asked of it.
    Idle,
}

/// In what context a wake was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WakeContext {
    /// A task woke it.
    Task,
    /// A softirq, by its number.
    Softirq(u16),
    /// A device's interrupt, by its number in `/proc/interrupts`.
    Hardirq(u16),
    /// A high-resolution timer.
    Hrtimer,
    /// A high-resolution timer that sent the thread a signal: `alarm`, `setitimer`, `timer_create`.
    TimerSignal,
    /// An interrupt with no device.
    System(SystemVector),
}

/// The wake that ended a wait, and its waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// When.
    pub at: Timestamp,
    /// In what context.
    pub context: WakeContext,
    /// The CPU on which the wake was made.
    pub cpu: Cpu,
    /// The task that was current: the waker if the context is [`WakeContext::Task`], otherwise
    /// whatever was interrupted.
    pub current: ThreadRef,
    /// What kind of thread that is.
    pub current_kind: ThreadKind,
    /// Number of its newest wait or preemption; 0 if it had none yet. It was on `cpu`, so all of them
    /// were over. None if nobody looked: interrupts do so in the network's softirqs alone.
    pub current_seq: Option<u32>,
    /// Its syscall.
    pub syscall: Option<Syscall>,
    /// The file that the syscall's first argument stood for: of a sender, its own end of the socket.
    pub file: Option<FileId>,
    /// What made the `epoll` ready that the woken thread waits for: its own end of a socket. Only known
    /// where a packet came in a softirq, and not while whoever was current was in a call on a socket.
    pub ready: Option<ReadyFile>,
    /// Its user half.
    pub user_stack: StackRef,
    /// Its kernel half; in an interrupt, that of the interrupt too.
    pub kernel_stack: StackRef,
}

/// One of the files that an `epoll` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadyFile {
    /// The descriptor by which it was added to the `epoll`.
    pub descriptor: u32,
    /// The file.
    pub file: FileId,
}

/// What a thread polls a file for: the `events` of its `struct pollfd`
/// ([poll(2)](https://man7.org/linux/man-pages/man2/poll.2.html)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollEvents(pub u16);

impl PollEvents {
    /// `POLLIN`, `POLLPRI`, `POLLRDNORM`, `POLLRDBAND` and `POLLRDHUP`: there is something to read.
    const TO_READ: u16 = 0x1 | 0x2 | 0x40 | 0x80 | 0x2000;
    /// `POLLOUT`, `POLLWRNORM` and `POLLWRBAND`: there is room to write, or a connection is made.
    const TO_WRITE: u16 = 0x4 | 0x100 | 0x200;

    /// Returns whether the thread waits until it can write, and for nothing to read.
    #[must_use]
    pub const fn is_to_write_alone(self) -> bool {
        self.0 & Self::TO_WRITE != 0 && self.0 & Self::TO_READ == 0
    }
}

/// One wait: from the switch-out of a sleeping thread to its switch-in.
///
/// ```text
///   on-CPU   | blocked                 | runnable    | on-CPU
/// -----------+-------------------------+-------------+---------> time
///           off                     wake.at         on
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// What kind of thread it is.
    pub kind: ThreadKind,
    /// Whether it belongs to the target.
    pub in_target: bool,
    /// Counts the thread's waits and preemptions, lost ones included, from 1.
    pub seq: u32,
    /// How its beginning is known.
    pub begin: Begin,
    /// How its end is known.
    pub end: End,
    /// When it left the CPU, or was first seen off it.
    pub off: Timestamp,
    /// When it was back, or was last seen off it.
    pub on: Timestamp,
    /// When it was moved to another CPU's queue, for the last time since it left the CPU: the wake
    /// may do that just after `wake.at`. None if it was not moved, or nobody looked.
    pub migrated: Option<Timestamp>,
    /// The CPU that it left.
    pub off_cpu: Cpu,
    /// The CPU that it came back to.
    pub on_cpu: Cpu,
    /// Its state at switch-out.
    pub state: TaskState,
    /// The syscall that it was in.
    pub syscall: Option<Syscall>,
    /// The timeout that it asked for, relative or absolute as the syscall has it.
    pub timeout: Option<Nanos>,
    /// The file that the syscall's first argument stood for, or the only one that it polls.
    pub file: Option<FileId>,
    /// The descriptor of that file, where the syscall polls it: the first argument is not it.
    pub polled_fd: Option<u32>,
    /// What it polls that file for; none if that was not recorded.
    pub polled_events: Option<PollEvents>,
    /// Its cgroup.
    pub cgroup: CgroupId,
    /// Its user half at switch-out.
    pub user_stack: StackRef,
    /// Its kernel half while it was blocked.
    pub kernel_stack: StackRef,
    /// Who ended it; none if nobody was seen to. It may lie shortly before `off`: then the thread
    /// never was blocked.
    pub wake: Option<Wake>,
}

/// A time off the CPU of a thread that could have gone on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// What kind of thread it is.
    pub kind: ThreadKind,
    /// Whether it belongs to the target.
    pub in_target: bool,
    /// As [`Wait::seq`], from the same count.
    pub seq: u32,
    /// How its beginning is known.
    pub begin: Begin,
    /// How its end is known.
    pub end: End,
    /// When it left the CPU, or was first seen off it.
    pub off: Timestamp,
    /// When it was back, or was last seen off it.
    pub on: Timestamp,
    /// As [`Wait::migrated`].
    pub migrated: Option<Timestamp>,
    /// The CPU that it left.
    pub off_cpu: Cpu,
    /// The CPU that it came back to.
    pub on_cpu: Cpu,
    /// The thread that the CPU went to; tid 0 is the idle task.
    pub next: Tid,
}

/// What a CPU was doing when the sampling clock struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// The CPU.
    pub cpu: Cpu,
    /// The thread that was on it.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// Number of its newest wait or preemption; 0 if it had none yet. None if that is not known.
    pub seq: Option<u32>,
    /// Its user half.
    pub user_stack: StackRef,
    /// Its kernel half.
    pub kernel_stack: StackRef,
}

#[cfg(test)]
mod tests {
    use super::TaskState;

    #[test]
    fn states_have_the_letters_of_ps() {
        // Values from include/linux/sched.h v6.12; 0x2000 is TASK_FREEZABLE on top of S.
        for (state, letter) in [
            (0, 'R'),
            (1, 'S'),
            (0x2001, 'S'),
            (2, 'D'),
            (0x102, 'D'),
            (0x402, 'I'),
            (4, 'T'),
            (8, 't'),
            (0x80, 'X'),
        ] {
            assert_eq!(TaskState(state).letter(), letter, "{state:#x}");
        }
    }
}

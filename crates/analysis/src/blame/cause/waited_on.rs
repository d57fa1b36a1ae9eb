//! The object that a wait was on (a certain futex, a certain socket), and the one it was ended
//! through.

use offwake_recording::{FileId, Wait, Wake};
use serde::Serialize;
use strum::IntoStaticStr;

use super::{Cause, syscalls};

/// What a thread does to a futex
/// ([`include/uapi/linux/futex.h`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/futex.h#L11)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FutexOp {
    /// Waits until it is woken.
    Wait,
    /// Waits for wakers that share a bit with the waiter's mask.
    WaitBitset,
    /// Waits for ownership of a lock with priority inheritance.
    LockPi,
    /// Waits to be requeued to a lock with priority inheritance.
    WaitRequeuePi,
    /// Waits for several futexes at once; the address is that of their list.
    WaitVector,
    /// Any other operation.
    Unknown,
}

impl FutexOp {
    /// Returns the operation's name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn from_command(op: u64) -> Self {
        const COMMAND: u64 = 0x7f;
        match op & COMMAND {
            0 => Self::Wait,
            6 | 13 => Self::LockPi,
            9 => Self::WaitBitset,
            11 => Self::WaitRequeuePi,
            _ => Self::Unknown,
        }
    }
}

/// The object that a wait was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitedOn {
    /// A futex.
    Futex {
        /// The futex's address in the process.
        address: u64,
        /// What the thread did to the futex.
        op: FutexOp,
        /// Whether the thread asked for a futex that no other process shares.
        private: bool,
    },
    /// An open file.
    File {
        /// The descriptor's number in the process at that time.
        fd: u32,
        /// The file.
        file: FileId,
    },
}

/// Finds the object that a wait was on, as far as its syscall tells.
#[must_use]
pub fn waited_on(wait: &Wait, cause: Cause) -> Option<WaitedOn> {
    const PRIVATE: u64 = 128;
    let syscall = wait.syscall.as_ref()?;
    let name = syscalls::name(syscall)?;
    let [first, op, _, flags, ..] = syscall.args;
    if cause == Cause::Futex {
        let (op, private) = match name {
            "futex" | "futex_time64" => (FutexOp::from_command(op), op & PRIVATE != 0),
            "futex_wait" => (FutexOp::Wait, flags & PRIVATE != 0),
            "futex_waitv" => (FutexOp::WaitVector, false),
            // A futex that the kernel waits for on the way: there is no address to tell.
            _ => return None,
        };
        return Some(WaitedOn::Futex { address: first, op, private });
    }
    let fd = syscalls::descriptor(syscall, wait.polled_fd)?;
    Some(WaitedOn::File { fd, file: wait.file? })
}

/// What a waker's syscall named: the other end of what was waited on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WokenThrough {
    /// A futex in the waker's process. The same address as the waiter's, unless the memory is shared
    /// between processes.
    Futex {
        /// The futex's address in the waker's process.
        address: u64,
    },
    /// A descriptor of the waker's process.
    File {
        /// The descriptor's number in the waker's process.
        fd: u32,
        /// The file that the descriptor stood for, if that was recorded.
        file: Option<FileId>,
    },
}

/// Finds the object that a task woke another through, as far as its syscall tells.
#[must_use]
pub fn woken_through(wake: &Wake) -> Option<WokenThrough> {
    let syscall = wake.syscall.as_ref()?;
    let name = syscalls::name(syscall)?;
    match name {
        "futex" | "futex_time64" | "futex_wake" | "futex_requeue" => {
            Some(WokenThrough::Futex { address: syscall.args[0] })
        }
        // As above: the upper half of the register is not part of it.
        _ => syscalls::takes_fd(name)
            .then(|| WokenThrough::File { fd: syscall.args[0] as u32, file: wake.file }),
    }
}

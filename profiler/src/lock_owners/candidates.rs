//! What the arguments of a futex call say of the lock that it may be for.

use offwake_analysis::blame::cause::syscalls;
use offwake_recording::{LockKind, SyscallTable, ThreadKind, Wait};

/// Whether processes may share a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The caller said that it is of its own process alone (`FUTEX_PRIVATE_FLAG`).
    Private,
    /// It did not.
    Shared,
}

/// A call that waits for a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FutexWait {
    /// The futex's address.
    pub(super) address: u64,
    /// The operation as the call had it.
    pub(super) op: u32,
    /// The value that the futex had to have.
    pub(super) value: u32,
    /// Whether processes may share it.
    pub(super) sharing: Sharing,
}

/// Bits of a futex that holds its owner, and of operations
/// ([`include/uapi/linux/futex.h`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/futex.h#L11)).
pub(super) const FUTEX_WAITERS: u32 = 0x8000_0000;
pub(super) const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
pub(super) const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
const FUTEX_PRIVATE_FLAG: u32 = 128;
const FUTEX_CLOCK_REALTIME: u32 = 256;

/// What waiters for a mutex of the GNU C library demand of its futex
/// ([`lowlevellock.c`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/lowlevellock.c;hb=glibc-2.36)).
pub(super) const MUTEX_CONTENDED: u32 = 2;
/// What waiters for a writer demand of a readers-writer lock's futexes: 1, with
/// `PTHREAD_RWLOCK_FUTEX_USED`
/// ([`pthread_rwlock_common.c`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/pthread_rwlock_common.c;hb=glibc-2.36)).
pub(super) const RWLOCK_AWAITED: u32 = 3;

impl FutexWait {
    /// Reads a wait's syscall; none if it is no wait for one futex of a 64-bit process.
    pub(super) fn from_wait(wait: &Wait) -> Option<Self> {
        let syscall = wait.syscall.as_ref()?;
        let is_futex = syscall.table == SyscallTable::Native
            && wait.kind == ThreadKind::User
            && syscalls::name(syscall) == Some("futex");
        let [address, op, value, ..] = syscall.args;
        // The kernel takes the lower halves of the registers for an `int` and a `u32`.
        is_futex.then(|| Self::new(address, op as u32, value as u32))
    }

    pub(super) fn new(address: u64, op: u32, value: u32) -> Self {
        let sharing = match op & FUTEX_PRIVATE_FLAG {
            0 => Sharing::Shared,
            _ => Sharing::Private,
        };
        Self { address, op, value, sharing }
    }

    /// Returns the kinds of lock that this may be a wait for. Condition variables, semaphores and
    /// most others wait for other values: their memory is not even read.
    pub(super) fn kinds(self) -> impl Iterator<Item = LockKind> {
        [
            LockKind::Mutex,
            LockKind::RobustMutex,
            LockKind::PiLock,
            LockKind::Rwlock,
            LockKind::ThreadEnd,
        ]
        .into_iter()
        .filter(move |&kind| self.may_be(kind))
    }

    /// The operation without its flags.
    fn command(self) -> u32 {
        self.op & !(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)
    }

    /// Returns whether the call waits until the futex is woken (`FUTEX_WAIT`, `FUTEX_WAIT_BITSET`).
    pub(super) fn is_plain_wait(self) -> bool {
        matches!(self.command(), 0 | 9)
    }

    fn may_be(self, kind: LockKind) -> bool {
        let Self { value, sharing, .. } = self;
        let is_wait = self.is_plain_wait();
        // FUTEX_LOCK_PI, FUTEX_LOCK_PI2.
        let is_pi = matches!(self.command(), 6 | 13);
        let tid = value & FUTEX_TID_MASK;
        match kind {
            LockKind::Mutex => is_wait && value == MUTEX_CONTENDED,
            LockKind::Rwlock => is_wait && value == RWLOCK_AWAITED,
            LockKind::RobustMutex => is_wait && tid != 0 && value == tid | FUTEX_WAITERS,
            LockKind::PiLock => is_pi,
            // The kernel wakes whoever waits for a thread's end without the private flag.
            LockKind::ThreadEnd => {
                is_wait && tid != 0 && value == tid && sharing == Sharing::Shared
            }
            // What their runtimes keep says so, and not the futex.
            LockKind::PythonLock | LockKind::JavaMonitor | LockKind::JavaLock => false,
        }
    }
}

//! Where locks have their owners: the structures of the GNU C library 2.36, the same on x86-64 and
//! aarch64, and since 2.25 (readers-writer locks) and long before that (mutexes) the same in all versions.
//!
//! Whatever does not fit names nobody: a lock that was let go of meanwhile, one of another library, memory
//! that is no lock at all.

use offwake_recording::LockKind;

use super::candidates::{
    FUTEX_OWNER_DIED, FUTEX_TID_MASK, FutexWait, MUTEX_CONTENDED, RWLOCK_AWAITED, Sharing,
};
use crate::symbols::python::memory::Memory;

/// A thread as a lock names it: by its number in its own PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NamedTid(pub(super) u32);

/// Bits of `__kind` beside the type of the mutex, which the lowest two say
/// ([`pthreadP.h`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/pthreadP.h;hb=glibc-2.36)).
const KIND_TYPE: u32 = 3;
const KIND_RECURSIVE: u32 = 1;
const KIND_ROBUST: u32 = 16;
const KIND_PI: u32 = 32;
const KIND_SHARED: u32 = 128;
const KIND_ELISION: u32 = 256 | 512;

/// Bits of `__readers`.
const RWLOCK_WRITE_PHASE: u32 = 1;
const RWLOCK_WRITE_LOCKED: u32 = 2;

/// Reads the owner of the lock that a futex is a part of, if it is a lock of this kind that somebody
/// has.
pub(super) fn read_owner(
    kind: LockKind,
    futex: &FutexWait,
    memory: &impl Memory,
) -> Option<NamedTid> {
    let tid = match kind {
        LockKind::Mutex | LockKind::RobustMutex => {
            read_mutex_owner(kind, futex, &read_words(memory, futex.address)?)
        }
        LockKind::PiLock => held_by(memory.half(futex.address)?),
        LockKind::Rwlock => RWLOCK_FUTEXES.iter().find_map(|&(place, offset)| {
            let words = read_words(memory, futex.address.checked_sub(offset)?)?;
            read_writer(place, futex, &words)
        }),
        LockKind::ThreadEnd => Some(memory.half(futex.address)?).filter(|&tid| tid == futex.value),
        LockKind::PythonLock | LockKind::JavaMonitor | LockKind::JavaLock => None,
    }?;
    (tid != 0).then_some(NamedTid(tid))
}

/// Returns the thread in a futex that holds its owner, unless that died with the lock.
fn held_by(word: u32) -> Option<u32> {
    (word & FUTEX_OWNER_DIED == 0).then_some(word & FUTEX_TID_MASK)
}

/// [`struct __pthread_mutex_s`](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_mutex.h;hb=glibc-2.36).
fn read_mutex_owner(kind: LockKind, futex: &FutexWait, words: &[u32; 5]) -> Option<u32> {
    let &[lock, count, owner, users, bits] = words;
    if users == 0 {
        return None;
    }
    match kind {
        LockKind::Mutex => {
            // Mutexes of other types do not count how often their owner has locked them.
            let is_recursive = bits & KIND_TYPE == KIND_RECURSIVE;
            let is_one = bits & !(KIND_TYPE | KIND_SHARED | KIND_ELISION) == 0
                && (count != 0) == is_recursive
                && (bits & KIND_SHARED != 0) == (futex.sharing == Sharing::Shared);
            (is_one && lock == MUTEX_CONTENDED).then_some(owner)
        }
        _ => {
            let is_one = bits & KIND_ROBUST != 0
                && bits & !(KIND_TYPE | KIND_ROBUST | KIND_PI | KIND_SHARED) == 0;
            // The owner is there twice, and in the futex first.
            held_by(lock).filter(|&tid| is_one && tid == owner)
        }
    }
}

/// The words of a readers-writer lock, in their order
/// ([`struct __pthread_rwlock_arch_t`](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86/nptl/bits/struct_rwlock.h;hb=glibc-2.36)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RwlockFutex {
    /// `__wrphase_futex`: readers wait for the writers to be done.
    WritePhase,
    /// `__writers_futex`: writers wait for the one before them.
    Writers,
}

/// The futexes that somebody waits on as long as a writer has the lock, and their offsets in bytes.
const RWLOCK_FUTEXES: [(RwlockFutex, u64); 2] =
    [(RwlockFutex::WritePhase, 8), (RwlockFutex::Writers, 12)];

/// Returns the writer that has a lock.
fn read_writer(place: RwlockFutex, futex: &FutexWait, words: &[u32; 8]) -> Option<u32> {
    let &[readers, _waiting_writers, write_phase, writers, pad3, pad4, writer, shared] = words;
    let awaited = match place {
        RwlockFutex::WritePhase => write_phase,
        RwlockFutex::Writers => writers,
    };
    let is_held = readers & (RWLOCK_WRITE_PHASE | RWLOCK_WRITE_LOCKED)
        == RWLOCK_WRITE_PHASE | RWLOCK_WRITE_LOCKED;
    // Both futexes are 0 or 1, and 2 is added for those who wait.
    let is_lock = write_phase <= RWLOCK_AWAITED
        && writers <= RWLOCK_AWAITED
        && (pad3, pad4) == (0, 0)
        && shared <= 1
        && (shared == 1) == (futex.sharing == Sharing::Shared);
    (is_held && is_lock && awaited == RWLOCK_AWAITED).then_some(writer)
}

/// Reads words that lie behind each other, all at once.
fn read_words<const N: usize>(memory: &impl Memory, address: u64) -> Option<[u32; N]> {
    let mut bytes = [0; 32];
    let bytes = bytes.get_mut(..4 * N)?;
    memory.read(address, bytes)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

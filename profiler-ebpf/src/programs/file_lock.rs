//! Who was refused a lock on a file, who had it, and who had it next.
//!
//! The locks on a file are in lists, of which one is searched for a lock that stood in the way
//! ([`posix_lock_inode`](https://github.com/torvalds/linux/blob/v6.12/fs/locks.c#L1130),
//! [`flock_lock_inode`](https://github.com/torvalds/linux/blob/v6.12/fs/locks.c#L1058)):
//!
//! ```text
//! struct inode --i_flctx--> struct file_lock_context
//!                             flc_posix <------> c.flc_list   struct file_lock
//!                             flc_flock          c.flc_pid    the process that took it
//! ```
//!
//! The list's lock is given back by then, so that it may change as it is searched: what is read is memory of
//! the kernel's, and a lock that is gone names nobody or the process that had it just now.

use core::ffi::c_void;

use profiler_ebpf::{
    file_lock::{CONTENDED_NS, FileLockRecord, MAX_PER_SECOND, MAX_SEARCHED, file_lock_event},
    loss::Loss,
    record::{kind, phase},
};

use super::{
    config::{CONFIG, offset},
    file,
    maps::CONTENDED_FILE_LOCKS,
    rate::{self, Rate},
    ring::{count_full_ring, count_loss, header, now, try_send},
    target,
    task::{Task, field, peek},
    task_local,
};

/// The results of a request for a lock: it was refused, and the thread does not wait for it.
const GRANTED: i32 = 0;
const EAGAIN: i32 = -11;

/// `include/uapi/asm-generic/fcntl.h`
const F_RDLCK: u8 = 0;
const F_WRLCK: u8 = 1;
const F_UNLCK: u8 = 2;

/// The lock belongs to an open file, and not to a process
/// (<https://github.com/torvalds/linux/blob/v6.12/include/linux/filelock.h#L23>).
const FL_OFDLCK: u32 = 1024;

/// A lock that somebody was refused.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ContendedLock {
    /// 0 if nobody has it now who is known.
    holder_tgid: u32,
    access: u32,
    first_byte: u64,
    last_byte: u64,
    /// When somebody was refused it last.
    refused_ns: u64,
}

/// Whose the locks are that are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Owner {
    /// `fcntl`
    Process,
    /// `flock`: whoever has the open file has its lock. The process counts that took it.
    OpenFile,
}

/// The bytes of a file.
#[derive(Clone, Copy)]
struct Bytes {
    first: u64,
    last: u64,
}

impl Bytes {
    #[inline(always)]
    fn from_request(request: u64) -> Self {
        let offsets = &CONFIG.offsets.file_lock;
        Self {
            first: peek(request + offset(&offsets.first_byte) as u64),
            last: peek(request + offset(&offsets.last_byte) as u64),
        }
    }
}

/// A process asked for a lock on a file, or gave one back.
#[inline(always)]
pub fn on_lock(inode: *const c_void, request: *const c_void, result: i32, owner: Owner) {
    if inode.is_null() || request.is_null() {
        return;
    }
    // SAFETY: the tracepoint's argument is a typed pointer.
    let access: u8 = unsafe { field(request, offset(&CONFIG.offsets.file_lock.access)) };
    let inode = inode as u64;
    match result {
        EAGAIN => record_refusal(inode, request as u64, access, owner),
        GRANTED if CONTENDED_FILE_LOCKS.get_ptr(inode).is_some() => {
            record_change(inode, request as u64, access);
        }
        _ => {}
    }
}

/// Sends who was refused a lock, if the thread's waits are recorded, and who had it.
///
/// A function of its own: few requests are refused.
#[inline(never)]
fn record_refusal(inode: u64, request: u64, access: u8, owner: Owner) {
    let task = Task::current();
    if target::is_profiler(task) {
        return;
    }
    let Some(local) = task_local::find_or_create(task) else { return };
    if !target::is_in_scope(local.thread_flags) {
        return;
    }
    let ns = now();
    if !rate::is_below_limit(Rate::FileLock, ns, MAX_PER_SECOND) {
        return count_loss(Loss::FileLockOverRate);
    }
    let mut holder_tgid = 0;
    if let Some(lock) = find_conflict(inode, request, access, owner) {
        holder_tgid = lock.holder_tgid;
        let _full = CONTENDED_FILE_LOCKS.insert(inode, lock, 0);
    }
    task_local::send_thread_info_once(local, task, phase::ON_CPU);
    send(task, ns, file_lock_event::REFUSED, holder_tgid, inode);
}

/// Finds the lock of another process that stands in the way of a request.
#[inline(always)]
fn find_conflict(inode: u64, request: u64, access: u8, owner: Owner) -> Option<ContendedLock> {
    let offsets = &CONFIG.offsets.file_lock;
    let own: u64 = peek(request + offset(&offsets.owner) as u64);
    let wanted = Bytes::from_request(request);
    let locks: u64 = peek(inode + offset(&offsets.inode_locks) as u64);
    let list = match owner {
        Owner::Process => offset(&offsets.locks_of_processes),
        Owner::OpenFile => offset(&offsets.locks_of_open_files),
    };
    let list = locks + list as u64;
    let mut link: u64 = peek(list);
    for _ in 0..MAX_SEARCHED {
        if link == list || link == 0 || locks == 0 {
            return None;
        }
        let lock = link - offset(&offsets.link) as u64;
        let other: u64 = peek(lock + offset(&offsets.owner) as u64);
        let held: u8 = peek(lock + offset(&offsets.access) as u64);
        if other != own && (held == F_WRLCK || access == F_WRLCK) {
            let found = ContendedLock {
                holder_tgid: peek(lock + offset(&offsets.process) as u64),
                access: u32::from(held),
                first_byte: peek(lock + offset(&offsets.first_byte) as u64),
                last_byte: peek(lock + offset(&offsets.last_byte) as u64),
                refused_ns: now(),
            };
            if found.first_byte <= wanted.last && wanted.first <= found.last_byte {
                // A process's lock that belongs to an open file, whichever process took it.
                let flags: u32 = peek(lock + offset(&offsets.flags) as u64);
                return if flags & FL_OFDLCK == 0 { Some(found) } else { None };
            }
        }
        link = peek(link);
    }
    None
}

/// Sends that a lock was given back that somebody was refused, or that another one took it. It counts also if the
/// waits of whoever does that are not recorded.
#[inline(never)]
fn record_change(inode: u64, request: u64, access: u8) {
    // SAFETY: an entry's memory is the map's own, and stays so. Another CPU may give it to another lock
    // meanwhile, as others do with locks that are evicted.
    let Some(lock) = CONTENDED_FILE_LOCKS.get_ptr_mut(inode).map(|lock| unsafe { &mut *lock })
    else {
        return;
    };
    let task = Task::current();
    let (process, ns) = (task.tgid(), now());
    let bytes = Bytes::from_request(request);
    let event = if lock.holder_tgid == process {
        // A lock is given back also by asking for less.
        let is_less = access == F_UNLCK || access == F_RDLCK && lock.access == u32::from(F_WRLCK);
        if !is_less || lock.first_byte < bytes.first || bytes.last < lock.first_byte {
            return;
        }
        lock.holder_tgid = 0;
        file_lock_event::RELEASED
    } else {
        let is_other = lock.last_byte < bytes.first || bytes.last < lock.first_byte;
        if access != F_WRLCK || is_other || ns - lock.refused_ns > CONTENDED_NS {
            return;
        }
        lock.holder_tgid = process;
        lock.access = u32::from(access);
        (lock.first_byte, lock.last_byte) = (bytes.first, bytes.last);
        file_lock_event::ACQUIRED
    };
    if !rate::is_below_limit(Rate::FileLock, ns, MAX_PER_SECOND) {
        return count_loss(Loss::FileLockOverRate);
    }
    send(task, ns, event, process, inode);
}

/// Sends a record.
///
/// A function of its own: a record and what is read of an inode take a quarter of the stack that a program and
/// all that it calls may have together.
#[inline(never)]
fn send(task: Task, ns: u64, event: u32, holder_tgid: u32, inode: u64) {
    let record = FileLockRecord {
        header: header(kind::FILE_LOCK, size_of::<FileLockRecord>()),
        tid: task.tid(),
        tgid: task.tgid(),
        ns,
        event,
        holder_tgid,
        file: file::describe_inode(inode),
    };
    if try_send((&raw const record).cast(), size_of::<FileLockRecord>()).is_err() {
        count_full_ring(Loss::RingFullFileLock as usize);
    }
}

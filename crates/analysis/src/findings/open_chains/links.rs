//! Who could end an open wait, as far as it is known for sure.

use offwake_recording::{
    AwaitedFileLock, FileId, LockKind, PeerProcess, Wait,
    units::{Tgid, Tid},
};

use crate::{
    blame::cause::{Cause, syscalls},
    timeline::{ThreadIndex, WaitIndex},
};

use super::{Awaited, Link, OpenWaitGraph, Owner, lock_calls};

impl OpenWaitGraph<'_> {
    /// Finds who could end the wait in which a thread was at the end.
    pub(in crate::findings) fn find_link(&self, thread: ThreadIndex) -> Option<Link> {
        self.find_link_of_generation(thread, 0)
    }

    /// Finds the same of a thread so many generations below the one that was asked for.
    pub(super) fn find_link_of_generation(
        &self,
        thread: ThreadIndex,
        generation: usize,
    ) -> Option<Link> {
        let index = self.open_wait(thread)?;
        // Whatever it slept for, it does not go on before it is thawed.
        if self.is_frozen_asleep(thread) {
            return None;
        }
        let wait = self.recording.waits.get(index.0 as usize)?;
        let cause = self.blame.cause(index);
        if let Some(link) = self.filesystem_link(thread, &wait, cause) {
            return Some(link);
        }
        match cause {
            Cause::FileLock => self.file_lock_link(&wait),
            Cause::Timer if self.polls_for_lock(thread) => self.polled_lock_link(wait.tgid),
            Cause::Child => self.child_link(&wait, generation),
            Cause::Socket => self.answer_link(&wait),
            Cause::Pipe => self.pipe_link(&wait),
            Cause::Poll => (self.answer_link(&wait))
                .or_else(|| self.pipe_link(&wait))
                .or_else(|| self.loop_link(thread, &wait)),
            Cause::IoUring => self.loop_link(thread, &wait),
            Cause::KernelLock => self.kernel_lock_link(&wait),
            _ => self.lock_link(&wait).or_else(|| self.last_acquirer_link(index)),
        }
    }

    /// A lock in memory, whose owner was read from there.
    fn lock_link(&self, wait: &Wait) -> Option<Link> {
        let syscall = wait.syscall.as_ref()?;
        let [futex, op, ..] = syscall.args;
        if !matches!(syscalls::name(syscall)?, "futex" | "futex_time64") {
            return None;
        }
        let call = lock_calls::find_lock_call(&self.recording.stacks, wait.user_stack);
        let mut owners = (self.lock_owners.get(&wait.tid)?.iter())
            .filter(|owner| owner.futex == futex && lock_calls::is_for(call, op, owner.kind));
        let first = owners.next()?;
        if !owners.all(|other| other.owner == first.owner) {
            return None;
        }
        let awaited = match first.kind {
            LockKind::Mutex
            | LockKind::RobustMutex
            | LockKind::PiLock
            | LockKind::PythonLock
            | LockKind::JavaLock => Awaited::Lock,
            LockKind::JavaMonitor => Awaited::Monitor,
            LockKind::Rwlock => Awaited::WriteLock,
            LockKind::ThreadEnd => Awaited::ThreadEnd,
        };
        let known = self.living_thread(first.owner.tid, first.owner.tgid);
        let owner = known.map_or_else(
            || Owner::Unrecorded(first.owner, first.owner_comm.clone()),
            Owner::Thread,
        );
        Some(Link { awaited, owner })
    }

    /// A lock in memory that names no owner: who got it last, as far as its releases show that. A thread
    /// whose waits were not recorded may have got it since.
    fn last_acquirer_link(&self, open: WaitIndex) -> Option<Link> {
        let last = self.blame.find_last_acquirer(open)?;
        let threads = self.living.get(&last.tgid)?;
        if !threads.iter().all(|&thread| self.timeline.are_waits_recorded(thread)) {
            return None;
        }
        let owner = Owner::Thread(self.living_thread(last.tid, last.tgid)?);
        Some(Link { awaited: Awaited::Lock, owner })
    }

    /// A lock on a file, by the kernel's list. It has no process where the lock is one of an open file;
    /// then it is enough that somebody waits for that file.
    fn file_lock_link(&self, wait: &Wait) -> Option<Link> {
        let file = wait.file?;
        let is_waited_for = |lock: &&AwaitedFileLock| {
            lock.waiter.is_none_or(|waiter| waiter == wait.tgid)
                && (lock.device, lock.inode) == (file.device, file.inode)
        };
        let mut holders =
            self.recording.file_locks.iter().filter(is_waited_for).map(|lock| &lock.holder);
        let holder = holders.next()?.as_ref()?;
        let is_one = holders.all(|other| other.as_ref() == Some(holder));
        is_one.then(|| Link { awaited: Awaited::FileLock, owner: self.process_owner(holder) })
    }

    /// A lock on a file that the thread asks for now and then. The recorder names the process, and the
    /// file that it has open and that somebody else has locked; nothing but the process tells that
    /// it is this thread's, so no other of its threads may wait for such a lock in the kernel.
    pub(super) fn polled_lock_link(&self, process: Tgid) -> Option<Link> {
        let is_in_kernel = |lock: &AwaitedFileLock| {
            let threads = self.living.get(&process).map_or(&[][..], Vec::as_slice);
            threads.iter().filter_map(|&thread| self.open_wait(thread)).any(|open| {
                let file = self.recording.waits.get(open.0 as usize).and_then(|open| open.file);
                self.blame.cause(open) == Cause::FileLock
                    && file
                        .is_some_and(|file| (lock.device, lock.inode) == (file.device, file.inode))
            })
        };
        let mut holders = (self.recording.file_locks.iter())
            .filter(|lock| lock.waiter == Some(process) && !is_in_kernel(lock))
            .map(|lock| &lock.holder);
        let holder = holders.next()?.as_ref()?;
        let is_one = holders.all(|other| other.as_ref() == Some(holder));
        is_one.then(|| Link { awaited: Awaited::FileLock, owner: self.process_owner(holder) })
    }

    /// Who serves the other end of a connection, if that is known, or who listens for it.
    fn answer_link(&self, wait: &Wait) -> Option<Link> {
        let (awaited, file) = awaited_at_socket(wait)?;
        let holders = &self.recording.files.socket(file)?.peers;
        Some(Link { awaited, owner: self.find_answerer(wait, file, holders)? })
    }

    /// The only thread of a process, or the process. Of one that is stopped as a whole, the first
    /// thread stands for all. Of one whose waits were not recorded, there may be
    /// threads that nobody has seen.
    pub(super) fn process_owner(&self, process: &PeerProcess) -> Owner {
        match self.living.get(&process.tgid).map(Vec::as_slice) {
            Some(&[thread]) if self.timeline.are_waits_recorded(thread) => Owner::Thread(thread),
            Some(threads) if threads.iter().all(|&thread| self.is_stopped(thread)) => {
                let leader = self.living_thread(Tid(process.tgid.0), process.tgid);
                leader
                    .or(threads.first().copied())
                    .map_or_else(|| Owner::Process(process.clone()), Owner::Thread)
            }
            _ => Owner::Process(process.clone()),
        }
    }

    fn living_thread(&self, tid: Tid, tgid: Tgid) -> Option<ThreadIndex> {
        let has_tid = |thread: &&ThreadIndex| {
            self.timeline.thread(**thread).is_some_and(|life| life.tid == tid)
        };
        self.living.get(&tgid)?.iter().find(has_tid).copied()
    }
}

/// What a wait at a socket is for, as its call says, and the socket.
pub(super) fn awaited_at_socket(wait: &Wait) -> Option<(Awaited, FileId)> {
    let call = wait.syscall.as_ref()?;
    syscalls::descriptor(call, wait.polled_fd)?;
    let awaited = match syscalls::name(call)? {
        // Anybody may come.
        "accept" | "accept4" => return None,
        "connect" => Awaited::Accept,
        call if syscalls::writes(call) => Awaited::Room,
        _ => Awaited::Answer,
    };
    Some((awaited, wait.file?))
}

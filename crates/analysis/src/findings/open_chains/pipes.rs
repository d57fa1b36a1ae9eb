//! Who could end a wait at a pipe: whoever has its other end open.
//!
//! ```text
//! reader 7 ──▶ pipe:[771] ◀── writer 60                          60 has to write
//! reader 7 ──▶ pipe:[771] ◀── sh 60, tar 61 (child of 60)        60 gave 61 what it has: 60
//! reader 7 ──▶ pipe:[771] ◀── 60, 61 (children of another)       one of the two: not known
//! reader 7 ──▶ pipe:[771] ◀── 7 itself, make 60                  a signal may have 7 write: not known
//! reader 7 ──▶ pipe:[771] ◀── writer 60, perhaps agent 1         60 can write, and perhaps 1 as well
//! ```
//!
//! The last one is where the machine's first process lets nobody see its descriptors.

use std::collections::BTreeSet;

use offwake_recording::{FileId, FileKind, PeerProcess, PipeEnds, PipeHolder, Wait, units::Tgid};

use crate::{blame::cause::syscalls, timeline::ThreadIndex};

use super::{Awaited, Link, MAX_GENERATIONS, OpenWaitGraph};

impl OpenWaitGraph<'_> {
    /// The process that has the other end of a pipe, if that is one alone, or if all others inherited
    /// that end from it.
    pub(super) fn pipe_link(&self, wait: &Wait) -> Option<Link> {
        let pipe = wait.file.filter(|file| file.kind == FileKind::Pipe)?;
        let holders = self.holders_of_pipe(pipe);
        // Who does not find the waiter has not seen everybody.
        let own = holders.iter().find(|holder| holder.holder.tgid == wait.tgid)?.ends;
        if own == PipeEnds::NotSeen {
            return None;
        }
        let awaited = awaited_at(wait, own)?;
        let can_end: fn(PipeEnds) -> bool = match awaited {
            Awaited::Data => PipeEnds::can_write,
            _ => PipeEnds::can_read,
        };
        // Other threads of the process, or its signal handlers, could end the wait as well. A job of
        // `make` that waits for a token waits for its own children, which make it put theirs back.
        if can_end(own) {
            return None;
        }
        let others: BTreeSet<Tgid> = (holders.iter())
            .filter(|holder| can_end(holder.ends))
            .map(|holder| holder.holder.tgid)
            .collect();
        let first = self.first_of_family(&others, wait.tgid)?;
        let holder = holders.iter().find(|holder| holder.holder.tgid == first)?;
        Some(Link { awaited, owner: self.process_owner(&holder.holder) })
    }

    /// Returns the process that may have the other end as well of the pipe at which a thread waits: nobody
    /// could see its descriptors.
    pub(in super::super) fn unseen_holder(&self, thread: ThreadIndex) -> Option<&PeerProcess> {
        let wait = self.open_wait_record(thread)?;
        let pipe = wait.file.filter(|file| file.kind == FileKind::Pipe)?;
        let mut holders = self.holders_of_pipe(pipe).into_iter();
        holders.find(|holder| holder.ends == PipeEnds::NotSeen).map(|holder| &holder.holder)
    }

    fn holders_of_pipe(&self, pipe: FileId) -> Vec<&PipeHolder> {
        (self.recording.pipe_holders.iter())
            .filter(|holder| (holder.device, holder.inode) == (pipe.device, pipe.inode))
            .collect()
    }

    /// Returns the only one of these processes that did not inherit from another of them what they
    /// have. Where several have it, and the first of them made `waiter` as well, it made the pipe for
    /// them, and may just have forgotten to close its ends: it is none.
    fn first_of_family(&self, processes: &BTreeSet<Tgid>, waiter: Tgid) -> Option<Tgid> {
        let inherited = |process: &Tgid| {
            self.parents.get(process).is_some_and(|parent| processes.contains(parent))
        };
        let mut firsts = processes.iter().copied().filter(|process| !inherited(process));
        let first = firsts.next().filter(|_| firsts.next().is_none())?;
        (processes.len() == 1 || self.descends_from(waiter, first) == Some(false)).then_some(first)
    }

    /// Returns whether a process descends from another one, if its ancestors are known.
    fn descends_from(&self, process: Tgid, ancestor: Tgid) -> Option<bool> {
        let mut process = process;
        for _ in 0..MAX_GENERATIONS {
            match *self.parents.get(&process)? {
                parent if parent == ancestor => return Some(true),
                // The first process of the machine, and the kernel.
                Tgid(0 | 1) => return Some(false),
                parent => process = parent,
            }
        }
        None
    }
}

/// What a wait at a pipe is for: data or room, as its call says. Who polls the only end that it has
/// waits for what that end is for.
fn awaited_at(wait: &Wait, own: PipeEnds) -> Option<Awaited> {
    let call = wait.syscall.as_ref().and_then(syscalls::name)?;
    match own {
        _ if syscalls::reads(call) => Some(Awaited::Data),
        _ if syscalls::writes(call) => Some(Awaited::Room),
        PipeEnds::Reading if syscalls::polls(call) => Some(Awaited::Data),
        PipeEnds::Writing if syscalls::polls(call) => Some(Awaited::Room),
        _ => None,
    }
}

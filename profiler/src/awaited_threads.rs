//! The threads that the target's open waits lead to, by all that is known of who could end a wait.
//!
//! ```text
//! client (target) ──answer──▶ postgres 812, asleep since before the recording: its stack is wanted
//! cron   (not the target)     asleep as well: nobody of the target waits for it, and it is left alone
//! ```
//!
//! What leads further here is wider than what the analysis believes in the end: all threads of a
//! process, all holders of a lock. A stack too many costs a read; one too few is a function that is
//! not named.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use offwake_analysis::blame::cause::syscalls;
use offwake_recording::{
    FileId, FuseServer, PipeEnds, PipeHolder, Wait,
    units::{Tgid, Tid},
};

use crate::{
    capture::OpenRecords,
    fuse_servers,
    pipe_holders::{self, PipeId},
    polled_files::PolledFile,
};

/// The most processes whose titles are read once more: a title takes some 0.1 ms.
const MAX_TITLES: usize = 256;

/// The open waits of a recording's end, as far as they tell whom they are for.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenWaits {
    waits: BTreeMap<Tid, OpenWait>,
    threads: BTreeMap<Tgid, BTreeSet<Tid>>,
    /// From who waits for a lock to who has it, or had it when somebody looked.
    lock_owners: Vec<(Tid, Tid)>,
    file_locks: Vec<FileLock>,
    pipes: BTreeSet<PipeId>,
    /// The processes that have a pipe open.
    pipe_holders: BTreeMap<PipeId, Vec<Tgid>>,
    /// From parents to their children.
    children: BTreeMap<Tgid, BTreeSet<Tgid>>,
    parents: BTreeMap<Tgid, Tgid>,
    /// The names of the first threads of processes.
    names: BTreeMap<Tgid, String>,
}

/// What one thread waits for.
#[derive(Clone, Copy, Debug)]
struct OpenWait {
    tgid: Tgid,
    in_target: bool,
    file: Option<FileId>,
    may_be_for_filesystem: bool,
    is_for_child: bool,
}

/// A lock on a file that somebody waits for.
#[derive(Clone, Copy, Debug)]
struct FileLock {
    device: u32,
    inode: u64,
    waiter: Option<Tgid>,
    holder: Tgid,
}

/// What was found out about files while they were open.
pub(crate) struct KnownFiles<'a, F> {
    /// The processes that hold the other end of a file.
    pub(crate) peers: F,
    /// The files that threads poll since before anybody looked.
    pub(crate) polled: &'a [PolledFile],
    /// Who serves FUSE filesystems.
    pub(crate) fuse_servers: &'a [FuseServer],
}

impl OpenWaits {
    pub(crate) fn from_records(open: &OpenRecords) -> Self {
        let mut waits = Self::default();
        for event in &open.thread_events {
            waits.threads.entry(event.tgid).or_default().insert(event.tid);
            waits.children.entry(event.parent).or_default().insert(event.tgid);
            waits.parents.insert(event.tgid, event.parent);
            if event.tid.0 == event.tgid.0 {
                waits.names.insert(event.tgid, event.comm.clone());
            }
        }
        // Who is awake again waits for a CPU, if for anything.
        for wait in open.waits.iter().filter(|wait| wait.wake.is_none()) {
            waits.threads.entry(wait.tgid).or_default().insert(wait.tid);
            waits.waits.insert(wait.tid, OpenWait::from_wait(wait));
        }
        waits.lock_owners =
            open.lock_owners.iter().map(|lock| (lock.waiter, lock.owner.tid)).collect();
        waits.file_locks = (open.file_locks.iter())
            .filter_map(|lock| {
                let holder = lock.holder.as_ref()?.tgid;
                let (device, inode, waiter) = (lock.device, lock.inode, lock.waiter);
                Some(FileLock { device, inode, waiter, holder })
            })
            .collect();
        waits.pipes = pipe_holders::awaited_pipes(&open.waits);
        waits.add_pipe_holders(&open.pipe_holders);
        waits
    }

    /// The pipes at which threads wait.
    pub(crate) fn pipes(&self) -> &BTreeSet<PipeId> {
        &self.pipes
    }

    /// Adds who has these pipes open, as far as that was seen.
    pub(crate) fn add_pipe_holders(&mut self, holders: &[PipeHolder]) {
        for holder in holders.iter().filter(|holder| holder.ends != PipeEnds::NotSeen) {
            let pipe = (holder.device, holder.inode);
            self.pipe_holders.entry(pipe).or_default().push(holder.holder.tgid);
        }
    }

    /// Finds the threads that the target's waits lead to, each once, the nearest first. Those of
    /// the target that others of the target wait for are among them.
    pub(crate) fn find_awaited(
        &self,
        files: &KnownFiles<'_, impl Fn(FileId) -> Vec<Tgid>>,
    ) -> Vec<Tid> {
        let polled: HashMap<Tid, FileId> =
            files.polled.iter().map(|polled| (polled.tid(), polled.file)).collect();
        let mut queue: VecDeque<Tid> =
            self.waits.iter().filter(|(_, wait)| wait.in_target).map(|(tid, _)| *tid).collect();
        let mut followed: BTreeSet<Tid> = queue.iter().copied().collect();
        let (mut named, mut processes) = (BTreeSet::new(), BTreeSet::new());
        let mut awaited = Vec::new();
        while let Some(tid) = queue.pop_front() {
            let Some(wait) = self.waits.get(&tid) else { continue };
            let mut next: Vec<Tid> = (self.lock_owners.iter())
                .filter(|(waiter, _)| *waiter == tid)
                .map(|(_, owner)| *owner)
                .collect();
            let wait = OpenWait { file: wait.file.or(polled.get(&tid).copied()), ..*wait };
            for process in self.processes_that_could_end(&wait, files) {
                if !processes.insert(process) {
                    continue;
                }
                // The first thread stands for the process in most programs.
                let threads = self.threads.get(&process).into_iter().flatten().copied();
                let (first, others): (Vec<Tid>, Vec<Tid>) =
                    threads.partition(|tid| tid.0 == process.0);
                next.extend(first.into_iter().chain(others));
            }
            for tid in next {
                if named.insert(tid) {
                    awaited.push(tid);
                }
                if followed.insert(tid) {
                    queue.push_back(tid);
                }
            }
        }
        awaited
    }

    /// Finds the processes whose titles may say what the target waits for: those of the threads
    /// that it waits for (`awaited`), its own that wait, and the other processes of the same
    /// servers, which may have what is waited for. Each once, and at most [`MAX_TITLES`].
    pub(crate) fn find_titled(&self, awaited: &[Tid]) -> Vec<Tgid> {
        let of_target = self.waits.iter().filter(|(_, wait)| wait.in_target);
        let chain = awaited.iter().filter_map(|tid| Some(self.waits.get(tid)?.tgid));
        let mut titled: Vec<Tgid> = Vec::new();
        let mut known = BTreeSet::new();
        for process in chain.chain(of_target.map(|(_, wait)| wait.tgid)) {
            if known.insert(process) {
                titled.push(process);
            }
        }
        let named: Vec<Tgid> = titled.clone();
        let siblings = named.iter().flat_map(|process| self.siblings(*process));
        titled.extend(siblings.filter(|sibling| known.insert(*sibling)));
        titled.truncate(MAX_TITLES);
        titled
    }

    /// Returns the processes that have the parent and the name of another one: a server's that has
    /// one for each client. The first process has children that have nothing to do with each other.
    fn siblings(&self, process: Tgid) -> impl Iterator<Item = Tgid> + '_ {
        let parent = self.parents.get(&process).filter(|parent| parent.0 > 1);
        let all = parent.and_then(|parent| self.children.get(parent)).into_iter().flatten();
        let name = self.names.get(&process);
        all.copied().filter(move |other| name.is_some() && self.names.get(other) == name)
    }

    fn processes_that_could_end(
        &self,
        wait: &OpenWait,
        files: &KnownFiles<'_, impl Fn(FileId) -> Vec<Tgid>>,
    ) -> BTreeSet<Tgid> {
        let mut processes = BTreeSet::new();
        if let Some(file) = wait.file {
            processes.extend((files.peers)(file));
            let holders = self.pipe_holders.get(&(file.device, file.inode));
            processes.extend(holders.into_iter().flatten().filter(|&&holder| holder != wait.tgid));
        }
        let is_waited_for = |lock: &&FileLock| match lock.waiter {
            Some(waiter) => waiter == wait.tgid,
            None => wait.file.is_some_and(|f| (f.device, f.inode) == (lock.device, lock.inode)),
        };
        processes.extend(self.file_locks.iter().filter(is_waited_for).map(|lock| lock.holder));
        if wait.is_for_child {
            processes.extend(self.children.get(&wait.tgid).into_iter().flatten());
        }
        if wait.may_be_for_filesystem {
            let may_serve = |server: &&FuseServer| match (wait.file, server.device) {
                (Some(file), Some(device)) => file.device == device,
                _ => server.unanswered != Some(0),
            };
            let servers = files.fuse_servers.iter().filter(may_serve);
            processes.extend(servers.map(|server| server.server.tgid));
        }
        processes
    }
}

impl OpenWait {
    fn from_wait(wait: &Wait) -> Self {
        let call = wait.syscall.as_ref().and_then(syscalls::name);
        Self {
            tgid: wait.tgid,
            in_target: wait.in_target,
            file: wait.file,
            may_be_for_filesystem: fuse_servers::may_be_for_filesystem(wait),
            is_for_child: matches!(
                call,
                Some("wait4" | "waitpid" | "waitid" | "vfork" | "clone" | "clone3")
            ),
        }
    }
}

#[cfg(test)]
mod tests;

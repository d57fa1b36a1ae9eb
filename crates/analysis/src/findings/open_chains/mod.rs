//! Chains of waits that had not ended: from a thread to who could end its wait, from that one on to who
//! could end its own, and so on.
//!
//! ```text
//! T1 ──lock──▶ T2 ──child──▶ T3 sleeps             the end is a thread that waits for nobody that is known
//! T1 ──lock──▶ T2 ──lock──▶ T3 ──file lock──▶ T2   the end is a cycle: a deadlock
//! ```
//!
//! Whose turn it is comes from what is known of locks, children and connections at the window's end. Where a process
//! is known and has several threads, the chain ends with that process: any of its threads could be the one. Only who
//! has the request that came through a connection is told by earlier waits ([`answerers`]).

mod answerers;
mod children;
mod closed_processes;
mod connection_ends;
mod fifos;
mod filesystems;
mod kernel_locks;
mod links;
mod lock_calls;
mod loop_asks;
mod pipes;

use std::{
    collections::{BTreeSet, HashMap},
    sync::OnceLock,
};

use offwake_recording::{
    LockOwner, PeerProcess, Recording, SocketRole, StopOrigin, ThreadKind, ThreadRef, Wait,
    units::{Nanos, Tgid, Tid},
};

use crate::{
    blame::{
        Blame,
        cause::{Cause, kernel_locks::KernelLock, syscalls},
    },
    timeline::{State, ThreadIndex, Timeline, WaitIndex},
};

use connection_ends::ConnectionEnds;

pub(super) use fifos::FifoEnd;
pub(super) use filesystems::find_servers;
pub(super) use lock_calls::LockCall;

/// The most hops that are followed.
const MAX_HOPS: usize = 64;

/// The most generations between a process and another one that it descends from.
const MAX_GENERATIONS: usize = 64;

/// What a thread waits for in whoever could end its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Awaited {
    /// The release of a lock in memory.
    Lock,
    /// The same, of a monitor of Java's: the futex is the waiter's own.
    Monitor,
    /// The same, of a readers-writer lock that a writer has.
    WriteLock,
    /// The release of a lock on a file.
    FileLock,
    /// The release of a lock of the kernel's own.
    KernelLock(KernelLock),
    /// A thread's end.
    ThreadEnd,
    /// A child's end.
    Child,
    /// Data from the other end of a connection.
    Answer,
    /// The same, in an event loop, which waits for whatever comes.
    AnswerToLoop,
    /// Data from whoever can write to a pipe.
    Data,
    /// That whoever is at the other end of a connection or a pipe reads, so that there is room.
    Room,
    /// That whoever listens accepts a connection.
    Accept,
    /// That a program answers that serves a FUSE filesystem.
    Filesystem,
}

impl Awaited {
    /// Returns whether it is a lock, which nobody waits for who has nothing to do.
    pub(super) fn is_lock(self) -> bool {
        matches!(
            self,
            Self::Lock | Self::Monitor | Self::WriteLock | Self::FileLock | Self::KernelLock(_)
        )
    }

    /// Returns whether it is something that comes over a connection or a pipe, which also who has nothing
    /// to do waits for. Who waits for room has something to say.
    pub(super) fn is_message(self) -> bool {
        matches!(self, Self::Answer | Self::AnswerToLoop | Self::Data | Self::Accept)
    }

    /// Says what the owner of the other end of a connection or a pipe has not done.
    pub(super) fn describe_missing(self) -> Option<&'static str> {
        match self {
            Self::Answer | Self::AnswerToLoop | Self::Filesystem => Some("has not answered"),
            Self::Data => Some("has not written"),
            Self::Room => Some("has not read"),
            Self::Accept => Some("has not accepted it"),
            Self::Lock
            | Self::Monitor
            | Self::WriteLock
            | Self::FileLock
            | Self::KernelLock(_)
            | Self::ThreadEnd
            | Self::Child => None,
        }
    }
}

/// Who could end a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A thread that the recording knows.
    Thread(ThreadIndex),
    /// A thread that it does not know.
    Unrecorded(ThreadRef, String),
    /// Any thread of a process.
    Process(PeerProcess),
}

/// One step of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) awaited: Awaited,
    pub(super) owner: Owner,
}

/// Where a chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenChainEnd {
    /// At its last thread, which waits for nobody that is known, or does not wait.
    Thread,
    /// At the owner of the last link, whose waits are not known.
    Owner,
    /// At the thread with this index in the chain, which the last one waits for.
    Cycle(usize),
}

/// A chain from a thread on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenChain {
    /// The threads, each waiting for the next.
    pub(super) threads: Vec<ThreadIndex>,
    /// What each of them waits for; the last thread has none if the chain ends there.
    pub(super) links: Vec<Link>,
    pub(super) end: OpenChainEnd,
    /// Whether the threads of a cycle have something to do.
    cycle: CycleKind,
}

/// What is known of the threads of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CycleKind {
    /// One of them can't go on, though it would: it waits for a lock, an end, or room for what it has
    /// to say. Or all of them have asked, and wait for the answer.
    Stuck,
    /// They listen to each other.
    Listening,
}

impl OpenChain {
    /// Returns the threads that wait for each other, if that is a deadlock: nobody but themselves
    /// could end their waits. Two that only listen to each other may both be waiting for what
    /// neither has to say yet.
    pub(super) fn deadlock(&self) -> Option<&[ThreadIndex]> {
        let OpenChainEnd::Cycle(from) = self.end else { return None };
        (self.cycle == CycleKind::Stuck).then(|| self.threads.get(from..)).flatten()
    }
}

/// The waits that had not ended, and what is known of who could end them.
pub(super) struct OpenWaitGraph<'a> {
    blame: &'a Blame<'a>,
    recording: &'a Recording,
    timeline: &'a Timeline,
    /// The threads that lived at the end, by process.
    living: HashMap<Tgid, Vec<ThreadIndex>>,
    /// The kernel's own threads that lived then.
    kernel_threads: Vec<ThreadIndex>,
    parents: HashMap<Tgid, Tgid>,
    lock_owners: HashMap<Tid, Vec<&'a LockOwner>>,
    stop_origins: HashMap<Tid, &'a StopOrigin>,
    /// Made when it is needed first.
    connection_ends: OnceLock<ConnectionEnds>,
}

impl<'a> OpenWaitGraph<'a> {
    pub(super) fn new(blame: &'a Blame<'a>) -> Self {
        let (recording, timeline) = (blame.recording(), blame.timeline());
        let mut living: HashMap<Tgid, Vec<ThreadIndex>> = HashMap::new();
        let mut kernel_threads = Vec::new();
        for (thread, n) in timeline.threads.iter().zip(0..) {
            let lives = thread.until >= recording.meta.window.end;
            match thread.kind {
                _ if !lives => {}
                ThreadKind::Kernel => kernel_threads.push(ThreadIndex(n)),
                ThreadKind::User | ThreadKind::User32 => {
                    living.entry(thread.tgid).or_default().push(ThreadIndex(n));
                }
            }
        }
        let mut parents = HashMap::new();
        parents.extend(recording.thread_events.iter().map(|event| (event.tgid, event.parent)));
        parents
            .extend(recording.processes.iter().filter_map(|info| Some((info.tgid, info.parent?))));
        let mut lock_owners: HashMap<Tid, Vec<&LockOwner>> = HashMap::new();
        for owner in &recording.lock_owners {
            lock_owners.entry(owner.waiter).or_default().push(owner);
        }
        let stopped = recording.stopped_threads.iter();
        let stop_origins = stopped.map(|stopped| (stopped.tid, &stopped.origin)).collect();
        Self {
            blame,
            recording,
            timeline,
            living,
            kernel_threads,
            parents,
            lock_owners,
            stop_origins,
            connection_ends: OnceLock::new(),
        }
    }

    /// Returns the wait in which a thread was at the end.
    pub(super) fn open_wait(&self, thread: ThreadIndex) -> Option<WaitIndex> {
        let life = self.timeline.thread(thread)?;
        let last = life.track.iter().next_back()?;
        match last.state {
            State::Blocked(wait) if last.to >= self.recording.meta.window.end => Some(wait),
            _ => None,
        }
    }

    /// Returns that wait's record.
    fn open_wait_record(&self, thread: ThreadIndex) -> Option<Wait> {
        self.recording.waits.get(self.open_wait(thread)?.0 as usize)
    }

    /// Returns the threads of a process that lived at the end, and whose waits were recorded.
    pub(super) fn threads_of_process(&self, process: Tgid) -> Vec<ThreadIndex> {
        let threads = self.living.get(&process).map_or(&[][..], Vec::as_slice);
        let is_recorded = |thread: &ThreadIndex| self.timeline.are_waits_recorded(*thread);
        threads.iter().copied().filter(is_recorded).collect()
    }

    /// Returns the first thread of a process that lived at the end, if its waits were recorded.
    fn first_thread(&self, process: Tgid) -> Option<ThreadIndex> {
        let mut threads = self.threads_of_process(process).into_iter();
        threads.find(|&thread| {
            self.timeline.thread(thread).is_some_and(|life| life.tid == Tid(process.0))
        })
    }

    /// Returns the threads of the other processes that have the same parent as a thread's, unless that is the
    /// first process: a server's, if a process of the server forks one for each of its clients.
    pub(super) fn threads_of_siblings(&self, thread: ThreadIndex) -> Vec<ThreadIndex> {
        let process = self.timeline.thread(thread).map(|life| life.tgid);
        let parent = process.and_then(|process| self.parents.get(&process));
        let Some(parent) = parent.filter(|parent| parent.0 > 1) else { return Vec::new() };
        let mut siblings: Vec<Tgid> = (self.living.keys().copied())
            .filter(|other| Some(*other) != process && self.parents.get(other) == Some(parent))
            .collect();
        siblings.sort_unstable();
        siblings.into_iter().flat_map(|process| self.threads_of_process(process)).collect()
    }

    /// Returns whether a wait is at the end of a connection that connected to the other.
    pub(super) fn asks(&self, wait: WaitIndex) -> bool {
        let file = self.recording.waits.get(wait.0 as usize).and_then(|wait| wait.file);
        file.and_then(|file| self.recording.files.role(file)) == Some(SocketRole::Asking)
    }

    /// Returns whether a thread was stopped at the end, by a signal or a tracer, or frozen.
    pub(super) fn is_stopped(&self, thread: ThreadIndex) -> bool {
        self.is_frozen_asleep(thread)
            || self.open_wait(thread).is_some_and(|wait| self.blame.cause(wait) == Cause::Stopped)
    }

    /// Returns whether a thread was frozen in its sleep, of which its stack says nothing.
    pub(super) fn is_frozen_asleep(&self, thread: ThreadIndex) -> bool {
        self.open_wait(thread).is_some()
            && matches!(self.stop_origin(thread), Some(StopOrigin::FrozenAsleep(_)))
    }

    /// Returns what kept a thread stopped at the end, as far as anybody saw.
    pub(super) fn stop_origin(&self, thread: ThreadIndex) -> Option<&'a StopOrigin> {
        let life = self.timeline.thread(thread)?;
        self.stop_origins.get(&life.tid).copied()
    }

    /// Returns whether a thread was asleep at the end until it would ask for a lock once more.
    pub(super) fn polls_for_lock(&self, thread: ThreadIndex) -> bool {
        self.open_wait(thread).is_some_and(|wait| {
            self.blame.cause(wait) == Cause::Timer && self.blame.frame_evidence(wait).is_lock()
        })
    }

    /// Returns how long a thread had waited at the end, as far as the window shows: since the first piece
    /// of its wait, if it began that anew whenever a timeout was over. `MariaDB` asks for a metadata
    /// lock once a second.
    pub(super) fn open_time(&self, thread: ThreadIndex) -> Nanos {
        let Some(open) = self.open_wait(thread) else { return Nanos(0) };
        let track =
            self.timeline.thread(thread).into_iter().flat_map(|life| life.track.iter().rev());
        let pieces = track.filter_map(|interval| match interval.state {
            State::Blocked(wait) => Some((wait, interval.from)),
            _ => None,
        });
        let first = pieces
            .take_while(|(wait, _)| *wait == open || self.blame.is_piece_before(*wait, open))
            .map(|(_, from)| from)
            .last();
        first.map_or(Nanos(0), |from| self.recording.meta.window.end.since(from))
    }

    /// Returns whether a thread's open wait ends by itself when its time is up.
    pub(super) fn has_timeout(&self, thread: ThreadIndex) -> bool {
        self.open_wait_record(thread).is_some_and(|wait| wait.timeout.is_some())
    }

    /// Returns whether a thread waits until it can write to a pipe or a socket: it has something to say.
    pub(super) fn waits_for_room(&self, thread: ThreadIndex) -> bool {
        let Some(open) = self.open_wait(thread) else { return false };
        let wait = self.recording.waits.get(open.0 as usize);
        let call = wait.and_then(|wait| syscalls::name(&wait.syscall?));
        matches!(self.blame.cause(open), Cause::Pipe | Cause::Socket)
            && call.is_some_and(syscalls::writes)
    }

    /// Returns what call for a lock a thread waits in, by its stack.
    pub(super) fn lock_call(&self, thread: ThreadIndex) -> Option<LockCall> {
        let wait = self.open_wait_record(thread)?;
        lock_calls::find_lock_call(&self.recording.stacks, wait.user_stack)
    }

    /// Follows the chain from a thread on.
    pub(super) fn follow(&self, first: ThreadIndex) -> OpenChain {
        let (mut threads, mut links) = (vec![first], Vec::new());
        let mut thread = first;
        let end = loop {
            let Some(link) = self.find_link(thread) else { break OpenChainEnd::Thread };
            let next = match link.owner {
                Owner::Thread(next) => Some(next),
                Owner::Unrecorded(..) | Owner::Process(_) => None,
            };
            links.push(link);
            let Some(next) = next else { break OpenChainEnd::Owner };
            if let Some(place) = threads.iter().position(|&known| known == next) {
                break OpenChainEnd::Cycle(place);
            }
            if threads.len() >= MAX_HOPS {
                break OpenChainEnd::Owner;
            }
            threads.push(next);
            thread = next;
        };
        let cycle = self.cycle_kind(&threads, &links, end);
        OpenChain { threads, links, end, cycle }
    }

    /// Finds out whether the threads of a cycle have something to do. If all that they wait for are
    /// messages, each has to be at the end of its connection that asks, and no two of them at the
    /// same connection.
    ///
    /// ```text
    /// shop   connects to stock, asks, and waits     neither answers the other one
    /// stock  connects to shop, asks, and waits      before it is answered itself
    /// ```
    fn cycle_kind(&self, threads: &[ThreadIndex], links: &[Link], end: OpenChainEnd) -> CycleKind {
        let OpenChainEnd::Cycle(from) = end else { return CycleKind::Listening };
        let threads = threads.get(from..).unwrap_or_default();
        let links = links.get(from..).unwrap_or_default();
        if links.iter().any(|link| !link.awaited.is_message()) {
            return CycleKind::Stuck;
        }
        let mut connections = BTreeSet::new();
        let has_asked = |thread: &ThreadIndex| {
            let wait = self.open_wait(*thread).filter(|wait| self.asks(*wait));
            let file = wait.and_then(|_| self.open_wait_record(*thread)?.file);
            file.is_some_and(|file| connections.insert(file))
        };
        let is_for_answers = links.iter().all(|link| link.awaited == Awaited::Answer);
        match is_for_answers && threads.iter().all(has_asked) {
            true => CycleKind::Stuck,
            false => CycleKind::Listening,
        }
    }

    /// Follows the chain from who has the lock at the end that a thread asked for now and then. At the end, the thread
    /// may do something else.
    ///
    /// ```text
    /// booking  asks, sleeps, asks, sleeps, has it, sleeps 200 ms |  the window's end
    /// import   has the lock ---------------------- ) ( has it ---|--
    /// ```
    pub(super) fn follow_polled_lock(&self, asking: ThreadIndex) -> Option<OpenChain> {
        let process = self.timeline.thread(asking)?.tgid;
        let link = self.polled_lock_link(process)?;
        let (mut threads, mut links) = (vec![asking], vec![link]);
        let Some(&Link { owner: Owner::Thread(holder), .. }) = links.first() else {
            let (end, cycle) = (OpenChainEnd::Owner, CycleKind::Listening);
            return Some(OpenChain { threads, links, end, cycle });
        };
        let rest = self.follow(holder);
        threads.extend(rest.threads);
        links.extend(rest.links);
        let end = match rest.end {
            OpenChainEnd::Cycle(place) => OpenChainEnd::Cycle(place + 1),
            end => end,
        };
        Some(OpenChain { threads, links, end, cycle: rest.cycle })
    }

    /// Finds the deadlocks that threads of the target are in, or wait for: a chain into each, and the
    /// threads of the target whose chains lead there.
    pub(super) fn find_deadlocks(&self) -> Vec<Deadlock> {
        let mut deadlocks: Vec<Deadlock> = Vec::new();
        let targets = (self.timeline.threads.iter().zip(0..))
            .filter(|(thread, _)| thread.in_target)
            .map(|(_, n)| ThreadIndex(n));
        for thread in targets {
            let chain = self.follow(thread);
            let Some(cycle) = chain.deadlock() else { continue };
            let members: BTreeSet<ThreadIndex> = cycle.iter().copied().collect();
            let is_member = members.contains(&thread);
            let known = deadlocks.iter().position(|known| known.members == members);
            let place = known.unwrap_or_else(|| {
                let chain = chain.clone();
                let (blocked, queued) = (Vec::new(), Vec::new());
                deadlocks.push(Deadlock { members, chain, blocked, queued });
                deadlocks.len() - 1
            });
            let Some(deadlock) = deadlocks.get_mut(place) else { continue };
            if is_member {
                // A chain that begins inside has nothing but the cycle.
                if deadlock.blocked.is_empty() {
                    deadlock.chain = chain;
                }
                deadlock.blocked.push(thread);
            } else {
                deadlock.queued.push(thread);
            }
        }
        self.add_waiters_for_dead_processes(&mut deadlocks);
        deadlocks
    }

    /// Adds the threads of the target that wait for a process of which no thread can go on.
    fn add_waiters_for_dead_processes(&self, deadlocks: &mut [Deadlock]) {
        if deadlocks.is_empty() {
            return;
        }
        let targets = (self.timeline.threads.iter().zip(0..))
            .filter(|(thread, _)| thread.in_target)
            .map(|(_, n)| ThreadIndex(n));
        for thread in targets {
            let chain = self.follow(thread);
            let Some(Link { owner: Owner::Process(process), .. }) = chain.links.last() else {
                continue;
            };
            let Some(threads) = self.living.get(&process.tgid) else { continue };
            let chains: Vec<OpenChain> =
                threads.iter().map(|&thread| self.follow(thread)).collect();
            let is_behind = |deadlock: &&mut Deadlock| {
                chains.iter().all(|chain| {
                    let cycle = chain.deadlock();
                    cycle.is_some_and(|cycle| cycle.iter().all(|t| deadlock.members.contains(t)))
                })
            };
            if let Some(deadlock) = deadlocks.iter_mut().find(is_behind) {
                deadlock.queued.push(thread);
            }
        }
    }
}

/// Threads that wait for each other.
pub(super) struct Deadlock {
    /// All of them.
    members: BTreeSet<ThreadIndex>,
    /// A chain into the cycle; it is nothing but the cycle if one of the target is in it.
    pub(super) chain: OpenChain,
    /// Those of the target among them.
    pub(super) blocked: Vec<ThreadIndex>,
    /// Threads of the target that wait for them.
    pub(super) queued: Vec<ThreadIndex>,
}

impl Deadlock {
    /// Returns the target's threads that can't go on.
    pub(super) fn threads(&self) -> impl Iterator<Item = ThreadIndex> + '_ {
        self.blocked.iter().chain(&self.queued).copied()
    }
}

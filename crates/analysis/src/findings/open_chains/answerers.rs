//! Who could end a wait at a connection: of the processes that hold its other end, the one that serves it, and of that
//! one's threads the one that has the request.
//!
//! ```text
//! client ──▶ G ◀── server 60                                     60
//! client ──▶ G ◀── server 60: thread 61 read G, then sleeps       61
//! client ──▶ G ◀── parent 60, child 61, which read G and sleeps   61
//! client ──▶ G ◀── parent 60, which waits for its child 61        61
//! client ──▶ G ◀── 60, 61, of which nobody saw more               one of the two: not known
//! ```
//!
//! A thread that may have handed the request over and waits for its next one is not the one that has it: then the
//! process alone is known.

use std::collections::BTreeSet;

use offwake_recording::{
    FileId, PeerProcess, Wait,
    units::{Tgid, Timestamp},
};

use crate::{
    blame::{
        FrameEvidence, IdleHint,
        cause::{Cause, syscalls},
    },
    timeline::{RunnableSince, State, ThreadIndex, WaitIndex},
};

use super::{
    Awaited, LockCall, MAX_GENERATIONS, OpenWaitGraph, Owner,
    connection_ends::{ConnectionEnds, EndUse, SeenUse},
    links::awaited_at_socket,
    lock_calls,
};

/// Whether a process has one thread alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// It has.
    Alone,
    /// There are others, or nobody knows.
    Others,
}

impl OpenWaitGraph<'_> {
    /// Finds who could end a thread's wait on a socket whose other end these processes hold.
    pub(super) fn find_answerer(
        &self,
        wait: &Wait,
        file: FileId,
        holders: &[PeerProcess],
    ) -> Option<Owner> {
        let uses = self.connection_ends().uses(file);
        let busy = self.find_busy_server(uses);
        let holder = match holders {
            [holder] => holder,
            several => {
                let process = (uses.last().filter(|last| self.is_seen_beside_all(last, several)))
                    .and(busy)
                    .and_then(|thread| self.timeline.process_of_thread(thread))
                    .or_else(|| self.find_serving_process(several, uses))
                    .or_else(|| self.find_awaited_child(several, wait.tgid))?;
                several.iter().find(|holder| holder.tgid == process)?
            }
        };
        Some(match self.process_owner(holder) {
            Owner::Process(process) => {
                let is_its = |thread: &ThreadIndex| {
                    self.timeline.process_of_thread(*thread) == Some(process.tgid)
                };
                busy.filter(is_its).map_or(Owner::Process(process), Owner::Thread)
            }
            owner => owner,
        })
    }

    /// Returns what a thread waits for at a socket, and the processes of which one has to end that wait, if nobody
    /// knows which.
    pub(in super::super) fn possible_answerers(
        &self,
        thread: ThreadIndex,
    ) -> Option<(Awaited, &[PeerProcess])> {
        let index = self.open_wait(thread).filter(|_| self.find_link(thread).is_none())?;
        let is_at_socket = matches!(self.blame.cause(index), Cause::Socket | Cause::Poll);
        let wait = self.recording.waits.get(index.0 as usize).filter(|_| is_at_socket)?;
        let (awaited, file) = awaited_at_socket(&wait)?;
        let holders = self.recording.files.socket(file)?.peers.as_slice();
        (holders.len() > 1 && !self.is_frozen_asleep(thread)).then_some((awaited, holders))
    }

    pub(super) fn connection_ends(&self) -> &ConnectionEnds {
        self.connection_ends.get_or_init(|| {
            let threads = (0..).take(self.timeline.threads.len()).map(ThreadIndex);
            let files: BTreeSet<FileId> = threads
                .filter_map(|thread| self.recording.waits.get(self.open_wait(thread)?.0 as usize))
                .filter_map(|wait| wait.file)
                .collect();
            ConnectionEnds::new(self.blame, files, &self.sleeping_loops())
        })
    }

    /// Returns the thread that was the last at the other end of a connection, if it has a request from there: it
    /// has read there, or was made for the connection, and has waited for nothing new since.
    pub(super) fn find_busy_server(&self, uses: &[SeenUse]) -> Option<ThreadIndex> {
        let last = uses.last()?;
        let thread = last.thread;
        let company = self.company_of(thread);
        // Who sends there, or waits for others as well, may work for many connections, and have begun with another
        // one's request. The only thread of a process has this one's all the same.
        let is_its_own =
            (uses.iter().filter(|seen| seen.thread == thread)).any(|seen| match seen.how {
                EndUse::Waited | EndUse::MadeFor => true,
                EndUse::Polled => company == Company::Alone,
                EndUse::StillWaits | EndUse::Sent => false,
            });
        let lives = self.timeline.thread(thread)?.until >= self.recording.meta.window.end;
        let is_busy = lives
            && is_its_own
            && last.how != EndUse::StillWaits
            && self.is_busy_since(thread, last.at);
        is_busy.then_some(thread)
    }

    fn company_of(&self, thread: ThreadIndex) -> Company {
        let process = self.timeline.process_of_thread(thread);
        match process.and_then(|process| self.living.get(&process)).map(Vec::len) {
            Some(1) => Company::Alone,
            _ => Company::Others,
        }
    }

    /// Returns whether a thread has been in the middle of something from `since` to the end: it waited for no
    /// request, and for nothing that another thread might hand over.
    fn is_busy_since(&self, thread: ThreadIndex, since: Timestamp) -> bool {
        let Some(life) = self.timeline.thread(thread) else { return false };
        let company = self.company_of(thread);
        let mut later = life.track.iter().rev().take_while(|interval| interval.to > since);
        self.timeline.are_waits_recorded(thread)
            && later.all(|interval| match interval.state {
                State::Blocked(wait) => self.is_in_the_middle(wait, company),
                // It was over before the thread had left its CPU. A thread's birth is no wait.
                State::Runnable(RunnableSince::Woken(wait))
                    if self.timeline.blocked_interval(wait).is_none()
                        && !self.blame.is_birth(wait) =>
                {
                    self.is_in_the_middle(wait, company)
                }
                State::Runnable(_) | State::OnCpu | State::Throttled(_) => true,
                State::Lost | State::Summed(_) => false,
            })
    }

    /// Returns whether a thread that waits does so in the middle of something. A condition variable may be that of a
    /// queue, from which it gets its next job.
    fn is_in_the_middle(&self, wait: WaitIndex, company: Company) -> bool {
        let (hint, evidence) = (self.blame.idle_hint(wait), self.blame.frame_evidence(wait));
        if hint == IdleHint::Idle || self.blame.waits_for_work(wait) {
            return false;
        }
        let whole = || self.recording.waits.get(wait.0 as usize);
        match self.blame.cause(wait) {
            // Over a connection it may be its client that it waits for.
            Cause::Socket | Cause::Poll | Cause::IoUring | Cause::Pipe => {
                let call = whole().and_then(|whole| syscalls::name(&whole.syscall?));
                self.asks(wait) || evidence.is_request() || call.is_some_and(syscalls::writes)
            }
            Cause::Futex => {
                let joins = || {
                    let call = whole().and_then(|whole| {
                        lock_calls::find_lock_call(&self.recording.stacks, whole.user_stack)
                    });
                    call == Some(LockCall::Join)
                };
                // Within its process, nobody can hand anything over to an only thread.
                company == Company::Alone
                    || evidence.is_lock()
                    || matches!(evidence, FrameEvidence::Sleep | FrameEvidence::Safepoint)
                    || joins()
            }
            Cause::Disk
            | Cause::PageFault
            | Cause::Memory
            | Cause::KernelLock
            | Cause::FileLock
            | Cause::Timer
            | Cause::Throttled
            | Cause::Stopped
            | Cause::Child => hint == IdleHint::Busy,
            // Processes of one thread have their locks there; others may have their queues there.
            Cause::SysvSem => company == Company::Alone,
            // A filesystem may be what does not answer.
            Cause::Other => whole().is_some_and(|whole| whole.state.letter() == 'D'),
            Cause::Eventfd
            | Cause::Signal
            | Cause::Tty
            | Cause::SysvMsg
            | Cause::Mqueue
            | Cause::Inotify => false,
        }
    }

    /// Returns whether all holders existed when a thread was seen at its end of the connection. Before, it may
    /// have read there, and then made another one, which serves since.
    fn is_seen_beside_all(&self, seen: &SeenUse, holders: &[PeerProcess]) -> bool {
        let process = self.timeline.process_of_thread(seen.thread);
        let others = holders.iter().filter(|holder| Some(holder.tgid) != process);
        others
            .map(|holder| self.birth(holder.tgid))
            .all(|born| born.is_some_and(|born| born <= seen.at))
    }

    /// Returns the only one of several holders that was seen at its end of the connection since all of them
    /// exist.
    fn find_serving_process(&self, holders: &[PeerProcess], uses: &[SeenUse]) -> Option<Tgid> {
        let process_of = |seen: &SeenUse| self.timeline.process_of_thread(seen.thread);
        let mut late = uses.iter().filter(|seen| self.is_seen_beside_all(seen, holders)).peekable();
        let process = process_of(late.peek()?)?;
        let mut last = None;
        for seen in late {
            if process_of(seen) != Some(process) {
                return None;
            }
            last = Some(seen);
        }
        // The only thread of a process serves if it waits for more of the request.
        let is_one = self.living.get(&process).is_some_and(|threads| threads.len() == 1);
        let is_served = !is_one || last.is_some_and(|seen| seen.how == EndUse::StillWaits);
        is_served.then_some(process)
    }

    /// Returns since when a process is known to exist.
    fn birth(&self, process: Tgid) -> Option<Timestamp> {
        let threads = self.living.get(&process)?.iter();
        threads.filter_map(|&thread| self.timeline.thread(thread)).map(|life| life.from).min()
    }

    /// Returns the only one of several holders that does not wait for the end of another one of them.
    fn find_awaited_child(&self, holders: &[PeerProcess], waiter: Tgid) -> Option<Tgid> {
        let processes: BTreeSet<Tgid> = holders.iter().map(|holder| holder.tgid).collect();
        // A signal handler of the waiter's own may be what ends its wait.
        if processes.contains(&waiter) {
            return None;
        }
        let mut others = processes
            .iter()
            .copied()
            .filter(|&process| !self.waits_for_one_of(process, &processes));
        others.next().filter(|_| others.next().is_none())
    }

    /// Returns whether the only thread of a process waits for the end of a child that is one of these, or waits for one
    /// of these in the same way.
    fn waits_for_one_of(&self, process: Tgid, processes: &BTreeSet<Tgid>) -> bool {
        let awaited_child = |process: Tgid| {
            let [thread] = *self.living.get(&process)?.as_slice() else { return None };
            let open = self.open_wait(thread)?;
            let wait = self.recording.waits.get(open.0 as usize)?;
            let is_for_child = self.blame.cause(open) == Cause::Child;
            match self.certain_child_link(&wait).filter(|_| is_for_child)?.owner {
                Owner::Thread(thread) => self.timeline.process_of_thread(thread),
                Owner::Process(process) => Some(process.tgid),
                Owner::Unrecorded(thread, _) => Some(thread.tgid),
            }
        };
        let mut child = process;
        for _ in 0..MAX_GENERATIONS {
            match awaited_child(child) {
                Some(next) if next == process => return false,
                Some(next) if processes.contains(&next) => return true,
                Some(next) => child = next,
                None => return false,
            }
        }
        false
    }
}

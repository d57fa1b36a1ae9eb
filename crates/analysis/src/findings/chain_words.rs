//! Says in words what the threads on a chain of open waits do.

use std::collections::BTreeSet;

use offwake_recording::{OpenFile, units::Nanos};

use crate::{
    blame::{
        Blame, BlameClass, FrameEvidence, Stop,
        cause::{self, Cause, WaitedOn},
    },
    text,
    timeline::{State, ThreadIndex},
    words,
};

use super::{
    kernel_waits::KernelWait,
    meaning::{SharedMeaning, SleepMeaning},
    model::{FindingHop, FindingLine},
    open_chains::{
        Awaited, FifoEnd, Link, LockCall, OpenChain, OpenChainEnd, OpenWaitGraph, Owner,
    },
    who,
    write::{FindingWriter, describe_hop, describe_hop_without_function, function_of_hop},
};

/// The most characters of what a lock is on, behind the function that wants it.
const MAX_THING: usize = 32;

/// The most hops of a chain that are told.
const MAX_TOLD: usize = 16;

/// What chains are told from.
#[derive(Clone, Copy)]
pub(super) struct ChainTeller<'a> {
    pub(super) blame: &'a Blame<'a>,
    pub(super) graph: &'a OpenWaitGraph<'a>,
}

/// How a hop is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// It begins the finding, which says itself that it still waits.
    First,
    Later,
}

impl ChainTeller<'_> {
    /// Describes what one thread of a chain does: the one with this index.
    pub(super) fn hop(
        &self,
        chain: &OpenChain,
        place: usize,
        writer: &mut FindingWriter<'_>,
    ) -> Option<FindingHop> {
        let thread = *chain.threads.get(place)?;
        let position = if place == 0 { Position::First } else { Position::Later };
        let (what, function) = match chain.links.get(place) {
            Some(link) => {
                let what = self.link(thread, link, position, writer);
                (what, self.wait_function(thread, writer))
            }
            None => self.last_thread(thread, chain, writer),
        };
        let program = writer.words.programs.program_of_thread(thread);
        let time = self.graph.open_time(thread);
        let hop = writer.words.hop_at_end(program, &BTreeSet::from([thread]), function, what, time);
        let tid = writer.words.timeline.thread(thread).map(|life| life.tid);
        // A stop is one of the whole process.
        let is_stopped = place > 0 && self.graph.is_stopped(thread);
        let thread_name = hop.thread_name.clone().filter(|_| !is_stopped);
        let lock = chain.links.get(place).filter(|link| link.awaited.is_lock());
        let thing = lock.and_then(|link| self.locked_thing(thread, link.awaited));
        let addition = thing.as_deref().map(|thing| text::cut_path(thing, MAX_THING));
        let waited_on = thing;
        Some(FindingHop { tid, thread_name, waited_on, addition, ..hop })
    }

    /// Names what the lock is on that a thread waits for: the file, or the futex by its address, as a debugger
    /// tells which lock that is.
    fn locked_thing(&self, thread: ThreadIndex, awaited: Awaited) -> Option<String> {
        let wait = self.graph.open_wait(thread)?;
        let whole = self.blame.recording().waits.get(wait.0 as usize)?;
        match cause::waited_on(&whole, self.blame.cause(wait))? {
            WaitedOn::Futex { .. } if awaited == Awaited::Monitor => None,
            WaitedOn::Futex { address, .. } => Some(format!("futex {address:#x}")),
            WaitedOn::File { file, .. } if awaited == Awaited::FileLock => {
                match self.blame.recording().files.files.get(&file)? {
                    OpenFile::Named(name) => Some(text::terminal(name)),
                    OpenFile::Socket(_) => None,
                }
            }
            WaitedOn::File { .. } => None,
        }
    }

    /// Says what a thread waits for: `waits for a lock held by thread ledger`.
    pub(super) fn link(
        &self,
        thread: ThreadIndex,
        link: &Link,
        position: Position,
        writer: &FindingWriter<'_>,
    ) -> String {
        let verb = match position {
            Position::First => "waits",
            Position::Later => "still waits",
        };
        let on_itself = link.owner == Owner::Thread(thread);
        let owner = self.owner(thread, &link.owner, writer);
        let what = match (link.awaited, on_itself) {
            (Awaited::Lock | Awaited::Monitor | Awaited::WriteLock, true) => {
                format!("{verb} for a lock that it holds itself")
            }
            (Awaited::Lock | Awaited::Monitor, false) => {
                format!("{verb} for a lock held by {owner}")
            }
            (Awaited::WriteLock, false) => format!("{verb} for a lock held for writing by {owner}"),
            (Awaited::FileLock, _) => format!("{verb} for a file lock held by {owner}"),
            (Awaited::KernelLock(lock), _) => {
                format!("{verb} for {}, held by {owner}", lock.describe())
            }
            (Awaited::ThreadEnd, _) => format!("{verb} for the end of {owner}"),
            (Awaited::Child, _) => format!("{verb} for its child {owner}"),
            (Awaited::Answer, true) => format!("{verb} for an answer of its own"),
            (Awaited::Answer, false) => format!("{verb} for an answer of {owner}"),
            (Awaited::AnswerToLoop, _) => {
                format!("{verb} in its event loop for an answer of {owner}")
            }
            (Awaited::Data, _) => format!("{verb} for {owner} to write to a pipe or close it"),
            (Awaited::Room, _) => format!("{verb} for {owner} to read"),
            (Awaited::Accept, _) => format!("{verb} for {owner} to accept its connection"),
            (Awaited::Filesystem, true) => {
                format!("{verb} for a FUSE filesystem that it serves itself")
            }
            (Awaited::Filesystem, false) => format!("{verb} for the FUSE server {owner}"),
        };
        let what = match self.graph.unseen_holder(thread) {
            Some(unseen) if matches!(link.awaited, Awaited::Data | Awaited::Room) => {
                let name = self.owner(thread, &Owner::Process(unseen.clone()), writer);
                format!("{what}, unless {name} has that end too, whose files nobody can see")
            }
            _ => what,
        };
        // The JVM begins to wait for a monitor anew when its own timeout is over.
        match self.graph.has_timeout(thread) && link.awaited != Awaited::Monitor {
            true => format!("{what}, with a timeout"),
            false => what,
        }
    }

    /// Names whom a thread waits for: `thread ledger` of the same process, `backup 812`.
    pub(super) fn owner(
        &self,
        waiter: ThreadIndex,
        owner: &Owner,
        writer: &FindingWriter<'_>,
    ) -> String {
        let words = &writer.words;
        match owner {
            Owner::Thread(thread) => {
                let process_of = |thread| words.timeline.thread(thread).map(|life| life.tgid);
                if process_of(waiter) == process_of(*thread) {
                    return words.thread_of_process(*thread);
                }
                let program = words.programs.program_of_thread(*thread);
                let threads = BTreeSet::from([*thread]);
                who::who(&words.hop_at_end(program, &threads, None, String::new(), Nanos(0)))
            }
            Owner::Unrecorded(thread, comm) => {
                let name = text::terminal(comm);
                format!("{name} {} (thread {}, not recorded)", thread.tgid, thread.tid)
            }
            Owner::Process(process) => format!("{} {}", words.process_name(process), process.tgid),
        }
    }

    /// Says what the last thread of a chain does, which waits for nobody that is known, and in which
    /// function.
    fn last_thread(
        &self,
        thread: ThreadIndex,
        chain: &OpenChain,
        writer: &mut FindingWriter<'_>,
    ) -> (String, Option<String>) {
        let (what, function) = self.state(thread, writer);
        match chain.links.last().and_then(|link| link.awaited.describe_missing()) {
            // That a thread is stopped says why.
            Some(missing) if !self.graph.is_stopped(thread) => {
                (format!("{missing}: {what}"), function)
            }
            _ => (what, function),
        }
    }

    /// Returns what the time goes to that the first thread of a chain waits: what the last one does, as
    /// far as that is known.
    pub(super) fn class(&self, chain: &OpenChain, writer: &mut FindingWriter<'_>) -> BlameClass {
        let Some(&last) = chain.threads.last() else { return BlameClass::Unattributed };
        if chain.deadlock().is_some() || chain.threads.iter().any(|it| self.graph.is_stopped(*it)) {
            return BlameClass::HeldBack;
        }
        // What the first one waits for is the question.
        if chain.threads.len() == 1 || chain.end != OpenChainEnd::Thread {
            return BlameClass::Unattributed;
        }
        self.class_of_thread(last, writer)
    }

    /// Returns what the time goes to of whoever waits for a thread, by what that one did at the end.
    pub(super) fn class_of_thread(
        &self,
        thread: ThreadIndex,
        writer: &mut FindingWriter<'_>,
    ) -> BlameClass {
        match self.last_state(thread) {
            Some(State::OnCpu) => BlameClass::Work,
            Some(State::Runnable(_)) => BlameClass::CpuQueue,
            Some(State::Throttled(_)) => BlameClass::Throttled,
            Some(State::Blocked(_)) => match self.meaning(thread, writer).map(|it| it.cause) {
                Some(Cause::Timer) => BlameClass::Timer,
                Some(Cause::Disk) => BlameClass::Disk,
                _ => BlameClass::Unattributed,
            },
            Some(State::Lost | State::Summed(_)) | None => BlameClass::Unattributed,
        }
    }

    /// Returns what a thread did at the end. Of one that did not sleep, the very last moment says little: it
    /// works if it has been on a CPU for longer than in line for one since it last slept, and is throttled if
    /// it has been so for longer than either.
    fn last_state(&self, thread: ThreadIndex) -> Option<State> {
        let track = &self.blame.timeline().thread(thread)?.track;
        let last = track.iter().next_back()?.state;
        let (mut on_cpu, mut queued, mut throttled) = (Nanos(0), Nanos(0), Nanos(0));
        let mut throttle = None;
        for interval in track.iter().rev() {
            let length = interval.to.since(interval.from);
            match interval.state {
                State::OnCpu => on_cpu += length,
                State::Runnable(_) => queued += length,
                State::Throttled(_) => {
                    throttled += length;
                    throttle = throttle.or(Some(interval.state));
                }
                State::Blocked(_) | State::Lost | State::Summed(_) => break,
            }
        }
        let mostly_throttled = throttle.filter(|_| throttled > on_cpu.max(queued));
        Some(mostly_throttled.unwrap_or(match last {
            State::Blocked(_) | State::Lost | State::Summed(_) => last,
            State::Runnable(_) if on_cpu < queued => last,
            State::OnCpu | State::Runnable(_) | State::Throttled(_) => State::OnCpu,
        }))
    }

    /// Says what a thread did at the end that waits for nobody that is known, and in which function.
    pub(super) fn state(
        &self,
        thread: ThreadIndex,
        writer: &mut FindingWriter<'_>,
    ) -> (String, Option<String>) {
        if !self.blame.timeline().are_waits_recorded(thread) {
            return ("was not recorded".to_owned(), None);
        }
        match self.last_state(thread) {
            Some(State::Blocked(_)) => {
                let program = writer.words.programs.program_of_thread(thread);
                let Some(meaning) = self.meaning(thread, writer) else {
                    return ("waits".to_owned(), None);
                };
                let stop = match self.graph.is_frozen_asleep(thread) {
                    true => Some(Stop::Frozen),
                    false => meaning.stop,
                };
                let what = match self.graph.lock_call(thread) {
                    Some(LockCall::Condition)
                        if stop.is_none()
                            && meaning.cause == Cause::Futex
                            && meaning.lock().is_none()
                            && meaning.evidence != FrameEvidence::Sleep =>
                    {
                        format!("waits {AT_CONDITION}")
                    }
                    _ => match (stop, self.awaited_fifo_end(thread, &meaning)) {
                        (Some(stop), _) => stop.describe(self.graph.stop_origin(thread)),
                        (None, Some(end)) => end.describe().to_owned(),
                        (None, None) => writer.words.sleep(&meaning, program, None, None),
                    },
                };
                // Where a thread was stopped does not say why.
                let function = label_of(&meaning).filter(|_| stop.is_none());
                (what, function)
            }
            Some(State::Runnable(_)) => (format!("waits {}", words::for_a_cpu(None)), None),
            Some(State::Throttled(_)) => {
                (writer.words.throttled_by(std::iter::once(&thread)), None)
            }
            Some(State::OnCpu) => {
                let label = writer.meanings.work_label(self.blame.sampled_work(thread));
                ("runs on a CPU".to_owned(), label.map(|label| label.function.to_string()))
            }
            Some(State::Lost | State::Summed(_)) | None => {
                ("did what was not recorded".to_owned(), None)
            }
        }
    }

    /// Says that nobody knows who has the lock that the last thread of a chain waits for, if there are
    /// threads before it and it waits for one: it is held up itself.
    pub(super) fn say_unknown_holder(
        &self,
        chain: &OpenChain,
        writer: &mut FindingWriter<'_>,
    ) -> Option<&'static str> {
        let last = *chain.threads.get(1..)?.last()?;
        let is_end = chain.end == OpenChainEnd::Thread;
        let meaning = self.meaning(last, writer)?;
        // Where a thread was stopped does not say why.
        let waits_for_lock = meaning.lock().is_some() && meaning.stop.is_none();
        (is_end && waits_for_lock).then_some(UNKNOWN_HOLDER)
    }

    /// Returns which end of a FIFO somebody has to open, if a thread waits for that.
    pub(super) fn awaited_fifo_end(
        &self,
        thread: ThreadIndex,
        meaning: &SleepMeaning,
    ) -> Option<FifoEnd> {
        let is_for_fifo = meaning.kernel == Some(KernelWait::OpenFifo);
        is_for_fifo.then(|| self.graph.awaited_fifo_end(thread)).flatten()
    }

    pub(super) fn wait_function(
        &self,
        thread: ThreadIndex,
        writer: &mut FindingWriter<'_>,
    ) -> Option<String> {
        label_of(&*self.meaning(thread, writer)?)
    }

    /// Returns how a thread sleeps that has not woken.
    pub(super) fn meaning(
        &self,
        thread: ThreadIndex,
        writer: &mut FindingWriter<'_>,
    ) -> Option<SharedMeaning> {
        let wait = self.graph.open_wait(thread)?;
        Some(writer.meanings.wait(self.blame, wait, None))
    }

    /// Tells the hops behind the first one as lines, the last of them the cause. If the chain ends with
    /// a process or thread whose waits are not known, the line before it names that already.
    pub(super) fn later_lines(
        &self,
        chain: &OpenChain,
        share: f64,
        writer: &mut FindingWriter<'_>,
    ) -> (Vec<FindingLine>, Vec<FindingHop>) {
        let (mut lines, mut hops) = (Vec::new(), Vec::new());
        for place in 1..chain.threads.len().min(MAX_TOLD) {
            let Some(hop) = self.hop(chain, place, writer) else { break };
            lines.push(self.line(&hop, u16::try_from(place).unwrap_or(u16::MAX), share));
            hops.push(hop);
        }
        if let (Some(last), true) = (lines.last_mut(), !matches!(chain.end, OpenChainEnd::Cycle(_)))
        {
            last.is_cause = true;
        }
        (lines, hops)
    }

    /// Writes a hop as a line.
    pub(super) fn line(&self, hop: &FindingHop, depth: u16, share: f64) -> FindingLine {
        FindingLine {
            depth,
            text: describe_hop_without_function(hop),
            function: function_of_hop(hop),
            addition: hop.addition.clone(),
            detail: match hop.ns {
                Nanos(0) => String::new(),
                time => format!("≥{time}"),
            },
            share,
            is_cause: false,
        }
    }
}

/// What is said of a thread at a condition variable.
pub(super) const AT_CONDITION: &str =
    "for a signal of another thread (a condition variable has no owner)";

/// What is said of a lock of whose holder nothing is known.
pub(super) const UNKNOWN_HOLDER: &str = "who holds the lock is not known";

/// Describes hops in one line: `bank 7 [a] waits for a lock held by thread b in transfer → bank 7 [b] …`.
pub(super) fn join_hops(hops: &[FindingHop]) -> String {
    hops.iter().map(describe_hop).collect::<Vec<_>>().join(" → ")
}

fn label_of(meaning: &SleepMeaning) -> Option<String> {
    meaning.label.as_ref().map(|label| label.function.to_string())
}

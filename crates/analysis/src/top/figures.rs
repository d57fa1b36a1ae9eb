//! The figures of a report by row of the live view, to which those of later stretches can be added.

use std::{collections::HashMap, sync::Arc};

use offwake_recording::units::{Nanos, Tgid, Tid, Timestamp};

use crate::{
    blame::{BlameEntryKind, Reason, cause::Cause},
    frames::Frames,
    label::Label,
    report::{BlameEntry, HopEntry, LedgerEntry, Report, ThreadName, WaitEntry},
};

use super::rows::{BoundedSums, Summable};

/// Rows of each kind that are kept of sums; the rest is in one row.
const MAX_ROWS: usize = 4_096;
/// Stacks of a wait, and leaves of its chains, that are kept.
const MAX_PARTS: usize = 64;

/// The figures of a stretch of time, or of several that follow one another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The time that it covers.
    pub length: Nanos,
    /// The target's processes, by number and name: the number alone comes again.
    pub processes: BoundedSums<(Tgid, String), ThreadFigures>,
    /// The target's threads.
    pub threads: BoundedSums<ThreadKey, ThreadFigures>,
    /// What they waited for.
    pub waits: BoundedSums<WaitKey, WaitFigures>,
    /// The threads that they waited for.
    pub blocking: BoundedSums<(ThreadName, Blocker), BlockingTime>,
}

/// A thread: its number alone comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ThreadKey {
    pub tgid: Tgid,
    pub tid: Tid,
    pub created: Option<Timestamp>,
}

/// A thread's or process's time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadFigures {
    /// The last known name. It comes from another program, and may contain anything.
    pub comm: String,
    /// What its container is called, if it lives in one; from another program as well.
    pub container: Option<String>,
    /// Threads of the process.
    pub threads: u64,
    /// The ledger.
    pub ledger: LedgerEntry,
}

/// One thing that a thread waits on, at one place of its program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub struct WaitKey {
    pub waiter: ThreadName,
    pub cause: Cause,
    /// What the wait was on, as text; empty if it is unknown, and for a disk, for which waits on
    /// hundreds of files are one.
    pub on: String,
    pub label: Option<Label>,
}

/// Waits that are alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WaitFigures {
    /// The number of waits. One that spans two stretches counts in both.
    pub count: u64,
    /// How long they were blocked, added up.
    pub blocked: Nanos,
    /// The part of it that was idle by design.
    pub idle: Nanos,
    /// The part of it in waits that had not ended when their stretch did.
    pub still_blocked: Nanos,
    /// The longest of them.
    pub longest: Nanos,
    /// Where they waited.
    pub stacks: BoundedSums<Frames, SummedTime>,
    /// What their time was spent on; adds up to `blocked`.
    pub chain_ends: BoundedSums<ChainEnd, SummedTime>,
}

/// The end of a wait's chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "as in the report's blame")]
pub struct ChainEnd {
    pub kind: BlameEntryKind,
    pub reason: Option<Reason>,
    pub is_idle: bool,
    pub holder: Option<ThreadName>,
    pub label: Option<Label>,
    pub stack: Frames,
    pub chain: Vec<Arc<HopEntry>>,
}

/// A length of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummedTime(pub Nanos);

/// The thread, or the thing outside of every thread, that a thread waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocker {
    /// A thread that worked, or waited for a CPU itself.
    Thread(ThreadName),
    /// Something outside of every thread, and the thread that waited for it itself, if that is another.
    External(BlameEntryKind, Option<ThreadName>),
}

/// How long a thread waited for another, or for something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockingTime {
    /// The whole time.
    pub time: Nanos,
    /// The part of it that was idle by design.
    pub idle: Nanos,
}

impl Figures {
    /// Creates the figures of one report.
    #[must_use]
    pub fn from_report(report: &Report) -> Self {
        let mut figures = Self { length: report.window.duration_ns, ..Self::default() };
        let mut containers = HashMap::new();
        for process in &report.processes {
            let (comm, ledger) = (process.comm.clone(), process.ledger.clone());
            let container = process.container.clone();
            containers.insert(process.tgid, container.clone());
            let account = ThreadFigures { comm, container, threads: process.threads, ledger };
            figures.processes.add((process.tgid, process.comm.clone()), account);
        }
        for thread in &report.threads {
            let (tgid, tid, created) = (thread.tgid, thread.tid, thread.created_ns);
            let (comm, ledger) = (thread.comm.clone(), thread.ledger.clone());
            let container = containers.get(&tgid).cloned().flatten();
            let account = ThreadFigures { comm, container, threads: 1, ledger };
            figures.threads.add(ThreadKey { tgid, tid, created }, account);
        }
        for wait in &report.waits {
            let key = WaitKey::new(wait);
            for part in &wait.blame {
                if let Some(culprit) = Blocker::new(part) {
                    let idle = if part.idle { part.ns } else { Nanos(0) };
                    let blocking = BlockingTime { time: part.ns, idle };
                    figures.blocking.add((key.waiter.clone(), culprit), blocking);
                }
            }
            figures.waits.add(key, WaitFigures::new(wait));
        }
        figures
    }

    /// Adds the figures of a later stretch.
    pub fn append(&mut self, later: Self) {
        let Self { length, processes, threads, waits, blocking } = later;
        self.length += length;
        self.processes.append(processes, MAX_ROWS);
        self.threads.append(threads, MAX_ROWS);
        self.waits.append(waits, MAX_ROWS);
        self.blocking.append(blocking, MAX_ROWS);
    }

    /// Finds a wait by the key that it once had: its label may have become known since.
    #[must_use]
    pub fn wait(&self, key: &WaitKey) -> Option<(&WaitKey, &WaitFigures)> {
        let is_same = |(other, _): &(&WaitKey, &WaitFigures)| {
            (&other.waiter, other.cause, &other.on) == (&key.waiter, key.cause, &key.on)
        };
        match self.waits.get_key_value(key) {
            None => self.waits.iter().filter(is_same).max_by_key(|(_, waited)| waited.blocked),
            found => found,
        }
    }

    /// Returns the whole target's ledger.
    #[must_use]
    pub fn ledger(&self) -> LedgerEntry {
        let mut sum = LedgerEntry::default();
        let (rest, _) = self.processes.rest();
        for account in self.processes.iter().map(|(_, account)| account).chain([rest]) {
            sum.add(&account.ledger);
        }
        sum
    }
}

impl WaitKey {
    fn new(wait: &WaitEntry) -> Self {
        let on = match (&wait.waited_on, wait.cause) {
            (Some(on), cause) if cause != Cause::Disk => on.text.clone(),
            _ => String::new(),
        };
        let WaitEntry { tid, tgid, ref comm, ref container, cause, ref label, .. } = *wait;
        Self {
            waiter: ThreadName { tid, tgid, comm: comm.clone(), container: container.clone() },
            cause,
            on,
            label: label
                .clone()
                .filter(|label| label.is_own_or_library() && cause != Cause::PageFault),
        }
    }
}

impl WaitFigures {
    fn new(wait: &WaitEntry) -> Self {
        let mut waited = Self {
            count: wait.count,
            blocked: wait.blocked_ns,
            idle: wait.idle_ns,
            longest: wait.longest_ns,
            ..Self::default()
        };
        waited.stacks.add(wait.stack.clone(), SummedTime(wait.blocked_ns));
        for part in &wait.blame {
            if part.reason == Some(Reason::StillBlocked) && part.depth == 0 {
                waited.still_blocked += part.ns;
            }
            waited.chain_ends.add(ChainEnd::new(part), SummedTime(part.ns));
        }
        waited
    }

    /// Returns the time for which the thread had something to do, as far as the chain tells:
    /// neither idle nor asleep throughout.
    #[must_use]
    pub fn busy_time(&self, length: Nanos) -> Nanos {
        if self.still_blocked >= length { Nanos(0) } else { self.blocked - self.idle }
    }
}

impl ChainEnd {
    fn new(part: &BlameEntry) -> Self {
        let BlameEntry { kind, reason, idle, holder, label, stack, chain, .. } = part;
        Self {
            kind: *kind,
            reason: *reason,
            is_idle: *idle,
            holder: holder.clone(),
            label: label.clone(),
            stack: stack.clone(),
            chain: chain.clone(),
        }
    }
}

impl Blocker {
    fn new(part: &BlameEntry) -> Option<Self> {
        match part.kind {
            BlameEntryKind::Work | BlameEntryKind::CpuQueue => {
                part.chain.last().map(|hop| Self::Thread(hop.thread.clone()))
            }
            BlameEntryKind::Timer
            | BlameEntryKind::Disk
            | BlameEntryKind::Network
            | BlameEntryKind::Device
            | BlameEntryKind::Throttled => {
                let sleeper = part.chain.last().map(|hop| hop.thread.clone());
                Some(Self::External(part.kind, sleeper))
            }
            BlameEntryKind::Unattributed => None,
        }
    }
}

impl Summable for ThreadFigures {
    fn add(&mut self, other: Self) {
        if !other.comm.is_empty() {
            self.comm = other.comm;
        }
        // It may have become known only later what that is called.
        if other.container.is_some() {
            self.container = other.container;
        }
        self.threads = self.threads.max(other.threads);
        self.ledger.add(&other.ledger);
    }

    fn weight(&self) -> Nanos {
        let ledger = &self.ledger;
        ledger.on_cpu_ns + ledger.runnable_ns + ledger.blocked_ns - ledger.idle_ns
    }
}

impl Summable for WaitFigures {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.blocked += other.blocked;
        self.idle += other.idle;
        self.still_blocked += other.still_blocked;
        self.longest = self.longest.max(other.longest);
        self.stacks.append(other.stacks, MAX_PARTS);
        self.chain_ends.append(other.chain_ends, MAX_PARTS);
    }

    fn weight(&self) -> Nanos {
        self.blocked - self.idle
    }
}

impl Summable for BlockingTime {
    fn add(&mut self, other: Self) {
        self.time += other.time;
        self.idle += other.idle;
    }

    fn weight(&self) -> Nanos {
        self.time
    }
}

impl Summable for SummedTime {
    fn add(&mut self, other: Self) {
        self.0 += other.0;
    }

    fn weight(&self) -> Nanos {
        self.0
    }
}

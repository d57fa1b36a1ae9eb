//! Threads that take requests of several others out of one mailbox, and what else comes into it.
//!
//! An actor, a coroutine's scheduler, a server of datagrams: such a thread is an event loop without
//! `epoll`. It waits for whatever comes next, on a condition variable, a semaphore, a pipe, a queue.
//!
//! ```text
//! A     --asks--+================= waits =================+--
//! loop  ..wait..[ asks U ]..wait..[ B ]..wait..[ B ]..wait..[ answers A ]..
//! ```
//!
//! That B's requests end its waits says nothing about A. A mailbox is known by one of its clients, who put
//! something into it, and was woken by the loop in the very slice that this began; or by somebody whose
//! messages nobody waits for: the loop wakes nobody in the slices that they begin.
//!
//! Another kind of thread passes on what comes: the results of a pool's workers, each to whoever waits for
//! it. It has no clients, but wakes now one, now another thread.
//!
//! ```text
//! A         ======================= waits ==================+--
//! passes on ..wait..[ to B ]..wait..[ to B ]..wait..[ to A ]..
//! ```

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;
use offwake_recording::{
    FileId, Recording, StackRef, ThreadKind, ThreadRef, Wait,
    units::{StackId, Tgid, Tid, Timestamp},
};

use crate::timeline::{ThreadIndex, Timeline, WakeUse, wake_use};

use super::{
    ConnectionSide, FrameEvidence, WakeSource,
    cause::{Cause, FutexOp, WaitedOn, syscalls, waited_on},
    gangs::Gangs,
    locks::FutexWait,
    pattern_analysis::PatternAnalysis,
    wake_source::PatternWakeSource,
    work_waits::{self, WorkWait},
};

/// What a process waits on for whatever others put into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MailboxKey {
    process: Tgid,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// A condition variable or a semaphore.
    Futex(u64),
    /// An epoll, or a ring of `io_uring`, by its descriptor.
    Ring(u32),
    /// Whatever a thread polls.
    Polled(Tid),
    /// The signals that the process waits for: `sigwait`, a `signalfd`.
    Signals,
    /// A pipe, an eventfd, a socket, a POSIX message queue. The number has to do for an eventfd: all of
    /// them have one inode.
    File(u32, FileId),
    /// The messages of one kind in a System V message queue.
    Messages { queue: u64, kind: u64 },
}

impl MailboxKey {
    /// Reads it from a wait; none if the thread waits for a lock, or in the middle of something.
    pub(super) fn from_wait(
        wait: &Wait,
        cause: Cause,
        futex: Option<FutexWait>,
        evidence: FrameEvidence,
    ) -> Option<Self> {
        if wait.kind != ThreadKind::User || evidence != FrameEvidence::None {
            return None;
        }
        let reads = || wait.syscall.as_ref().and_then(syscalls::name).is_some_and(syscalls::reads);
        let place = match cause {
            Cause::Futex if !futex?.looks_like_lock() => match waited_on(wait, cause)? {
                // The waiters of a condition variable of glibc's use two words in turn, beside each other.
                WaitedOn::Futex {
                    address,
                    op: FutexOp::Wait | FutexOp::WaitBitset,
                    private: true,
                } => Place::Futex(address & !7),
                WaitedOn::Futex { .. } | WaitedOn::File { .. } => return None,
            },
            Cause::Pipe | Cause::Eventfd | Cause::Mqueue | Cause::Socket | Cause::Inotify
                if reads() =>
            {
                match waited_on(wait, cause)? {
                    WaitedOn::File { fd, file } => Place::File(fd, file),
                    WaitedOn::Futex { .. } => return None,
                }
            }
            Cause::Signal => Place::Signals,
            Cause::Poll | Cause::IoUring if work_waits::is_event_loop(wait, cause, evidence) => {
                let descriptor = (wait.syscall.as_ref())
                    .and_then(|syscall| syscalls::descriptor(syscall, wait.polled_fd));
                descriptor.map_or(Place::Polled(wait.tid), Place::Ring)
            }
            Cause::SysvMsg if reads() => {
                let [queue, _, _, kind, ..] = wait.syscall?.args;
                Place::Messages { queue, kind }
            }
            _ => return None,
        };
        Some(Self { process: wait.tgid, place })
    }
}

/// Identifies a mailbox of several clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MailboxId(u32);

/// A mailbox of several clients.
#[derive(Debug, Default)]
struct Mailbox {
    process: Option<Tgid>,
    /// Who put something into it, and so ended a wait.
    senders: HashSet<ThreadRef>,
    /// Those of them that were answered.
    clients: HashSet<Tid>,
    /// Those of them upon whose messages nobody was woken.
    unheeded: HashSet<Tid>,
    /// Who else was woken first of all when something had come.
    recipients: HashSet<Tid>,
}

/// The mailboxes of a recording from which threads serve several others.
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    all: Vec<Mailbox>,
    /// What each thread did that passes on what comes, in order of time.
    slices: SlicesByThread,
}

/// What the threads behind each mailbox did for each thread.
type AnswersByThread = HashMap<(u32, Tid), Answers>;
/// What each thread with a mailbox did, in order of time.
type SlicesByThread = HashMap<Tid, Vec<Slice>>;

/// How often something must be seen to count: once may be by chance.
const MIN_SEEN: u32 = 2;

/// What the threads behind a mailbox did for one thread.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// How often they woke it first of all in slices that it had begun.
    in_own_slice: u32,
    /// How often they did later, or in slices that others had begun.
    in_other_slice: u32,
    /// How often they woke it first of all in slices that others had begun.
    first_in_other_slice: u32,
    /// The number of slices that it began.
    begun: u32,
    /// The number of those in which they woke nobody.
    silent: u32,
}

impl Mailboxes {
    /// Finds them, and makes the waits on them waits for work.
    pub(super) fn new(recording: &Recording, patterns: &mut [PatternAnalysis]) -> Self {
        let (mut mailboxes, by_pattern) = find_shared(recording, patterns);
        if mailboxes.is_empty() {
            return Self::default();
        }
        let (answers, mut slices) = count_answers(recording, patterns, &by_pattern);
        for ((mailbox, tid), answers) in answers {
            let Some(mailbox) = mailboxes.get_mut(mailbox as usize) else { continue };
            // A server that is asked for more in the slice that its own answer began is mostly asked in
            // others.
            if answers.in_own_slice >= MIN_SEEN && answers.in_own_slice >= answers.in_other_slice {
                mailbox.clients.insert(tid);
            } else if answers.silent >= MIN_SEEN && answers.silent > answers.begun / 2 {
                mailbox.unheeded.insert(tid);
            } else if answers.first_in_other_slice >= MIN_SEEN {
                mailbox.recipients.insert(tid);
            }
        }
        for (analysis, number) in patterns.iter_mut().zip(by_pattern) {
            let Some(number) = number else { continue };
            let Some(mailbox) = mailboxes.get(number as usize) else { continue };
            if analysis.work_wait != WorkWait::No {
                continue;
            }
            if mailbox.is_of_several() {
                analysis.mailbox = Some(MailboxId(number));
                analysis.work_wait = mailbox.work_wait(analysis);
            } else if mailbox.is_passed_on() && analysis.waker().is_some() {
                analysis.mailbox = Some(MailboxId(number));
                analysis.work_wait = WorkWait::PassedOn;
            }
        }
        let passes_on = |slice: &Slice| {
            (mailboxes.get(slice.mailbox as usize)).is_some_and(Mailbox::is_passed_on)
        };
        slices.retain(|_, slices| slices.iter().any(passes_on));
        Self { all: mailboxes, slices }
    }

    /// Returns whom a thread that passes on what comes woke first of all in the slice that began at `at`.
    pub(super) fn first_woken(&self, thread: Tid, at: Timestamp) -> Option<Tid> {
        let slices = self.slices.get(&thread)?;
        let place = slices.binary_search_by_key(&at, |slice| slice.begun).ok()?;
        slices.get(place)?.first_woken
    }

    /// Returns whether a thread that passes on what comes did so mostly for others than `waiter` in the
    /// slices that began after `from` and before `to`. What it got from them is nothing that `waiter`
    /// waited for.
    pub(super) fn passed_on_to_others(
        &self,
        (thread, waiter): (Tid, Tid),
        (from, to): (Timestamp, Timestamp),
    ) -> bool {
        let slices = self.slices.get(&thread).map_or([].as_slice(), Vec::as_slice);
        let first = slices.partition_point(|slice| slice.begun <= from);
        let end = slices.partition_point(|slice| slice.begun < to);
        let between = slices.get(first..end).unwrap_or_default();
        let is_for_other = |slice: &&Slice| slice.first_woken.is_some_and(|tid| tid != waiter);
        let for_others = between.iter().filter(is_for_other).count();
        for_others > 0 && for_others * 2 >= between.len()
    }

    /// Returns whether the threads behind a mailbox serve `waiter`, and others beside it. One that asked
    /// for nothing waits for whatever comes out of the loop: for what the loop itself waits for.
    pub(super) fn serves(
        &self,
        mailbox: MailboxId,
        timeline: &Timeline,
        waiter: ThreadIndex,
    ) -> bool {
        let (Some(mailbox), Some(waiter)) =
            (self.all.get(mailbox.0 as usize), timeline.thread(waiter))
        else {
            return false;
        };
        let is_of_waiter = |sender: &ThreadRef| match mailbox.process == Some(waiter.tgid) {
            true => sender.tid == waiter.tid,
            false => sender.tgid == waiter.tgid,
        };
        let mut others = mailbox.clients.iter().chain(&mailbox.unheeded);
        mailbox.senders.iter().any(is_of_waiter) && others.any(|&other| other != waiter.tid)
    }
}

impl Mailbox {
    fn is_of_several(&self) -> bool {
        !self.clients.is_empty() || !self.unheeded.is_empty()
    }

    /// Returns whether what comes is passed on, now to one thread, now to another.
    fn is_passed_on(&self) -> bool {
        !self.is_of_several() && self.recipients.len() > 1
    }

    /// Decides what the waits of a pattern were ended by.
    fn work_wait(&self, analysis: &PatternAnalysis) -> WorkWait {
        match analysis.source {
            Some(PatternWakeSource::Known(WakeSource::Task(sender))) => {
                match (self.clients.contains(&sender.tid), analysis.side) {
                    (true, _) => WorkWait::Request,
                    (false, _) if self.process == Some(sender.tgid) => WorkWait::OwnProcess,
                    (false, ConnectionSide::Serving) => WorkWait::Request,
                    (false, ConnectionSide::Asking) => WorkWait::Answer,
                    (false, ConnectionSide::Unknown) => WorkWait::Unclear,
                }
            }
            Some(PatternWakeSource::Known(WakeSource::External(_))) => WorkWait::External,
            _ => WorkWait::No,
        }
    }
}

/// Finds the mailboxes into which several threads put something, and to which of them the waits of each
/// pattern belong. Whoever puts something into a mailbox does not wait on it: semaphores, barriers and
/// batons are handed round among those that wait on them. Nor do all of them work for whoever does.
fn find_shared(
    recording: &Recording,
    patterns: &[PatternAnalysis],
) -> (Vec<Mailbox>, Vec<Option<u32>>) {
    let waits = &recording.waits;
    let mut waiters: HashMap<MailboxKey, HashSet<Tid>> = HashMap::new();
    for ((_, pattern), analysis) in waits.patterns().iter().zip(patterns) {
        if let Some(key) = analysis.mailbox_key {
            waiters.entry(key).or_default().insert(waits.waiters()[pattern.waiter].tid);
        }
    }
    let mut senders: IndexMap<MailboxKey, HashSet<ThreadRef>> = IndexMap::new();
    for analysis in patterns {
        if let (Some(key), Some(sender)) = (analysis.mailbox_key, analysis.waker()) {
            senders.entry(key).or_default().insert(sender);
        }
    }
    let places = PlacesInCode::new(recording, patterns);
    let gangs = Gangs::new(recording, patterns);
    senders.retain(|key, senders| {
        let own = waiters.get(key);
        let waits_on_it = |sender: &ThreadRef| own.is_some_and(|own| own.contains(&sender.tid));
        let works_for_own =
            |sender: &ThreadRef| own.is_some_and(|own| gangs.has_member(own, sender.tid));
        senders.len() > 1
            && !senders.iter().any(waits_on_it)
            && !senders.iter().all(works_for_own)
            && !own.is_some_and(|own| places.is_handed_round(*key, own, senders))
    });
    let by_pattern = patterns
        .iter()
        .map(|analysis| u32::try_from(senders.get_index_of(&analysis.mailbox_key?)?).ok())
        .collect();
    let mailboxes = senders
        .into_iter()
        .map(|(key, senders)| Mailbox { process: Some(key.process), senders, ..Mailbox::default() })
        .collect();
    (mailboxes, by_pattern)
}

/// Where in the program threads wait for what others hand over, each on a word of its own, and who wakes
/// them there.
///
/// A thread of Java's has one such word, on which it waits in `LockSupport.park` for whatever it waits
/// for: its next job, an answer, its turn.
#[derive(Default)]
struct PlacesInCode {
    /// The user stacks of the waits on a word.
    stacks: HashMap<MailboxKey, HashSet<StackId>>,
    wakers: HashMap<(Tid, StackId), HashSet<Tid>>,
}

impl PlacesInCode {
    fn new(recording: &Recording, patterns: &[PatternAnalysis]) -> Self {
        let waits = &recording.waits;
        let mut places = Self::default();
        for ((_, pattern), analysis) in waits.patterns().iter().zip(patterns) {
            let waiter = &waits.waiters()[pattern.waiter];
            let (Some(key), StackRef::Id(stack), Some(waker)) =
                (analysis.mailbox_key, waiter.user_stack, analysis.waker())
            else {
                continue;
            };
            if matches!(key.place, Place::Futex(_)) && waker.tgid == waiter.tgid {
                places.stacks.entry(key).or_default().insert(stack);
                places.wakers.entry((waiter.tid, stack)).or_default().insert(waker.tid);
            }
        }
        places
    }

    /// Returns whether those that put something into a mailbox hand round what it is, the connections of
    /// a pool for example: most of them wait in the same place of the program as whoever waits on the
    /// mailbox, and are woken there by several of all these. Clients wait for their answers elsewhere, and
    /// wake the loop rather than each other.
    ///
    /// ```text
    /// a pool     A ⇄ B ⇄ C ⇄ A        all in Pool.borrow
    /// a mailbox  A ⇄ loop ⇄ B         the loop in Queue.take, A and B in Future.get
    /// ```
    fn is_handed_round(
        &self,
        mailbox: MailboxKey,
        waiters: &HashSet<Tid>,
        senders: &HashSet<ThreadRef>,
    ) -> bool {
        let Some(stacks) = self.stacks.get(&mailbox) else { return false };
        let tids: HashSet<Tid> = senders.iter().map(|sender| sender.tid).collect();
        let is_peer = |sender: &&Tid| {
            let wakers = stacks.iter().filter_map(|&stack| self.wakers.get(&(**sender, stack)));
            let among = |waker: &&Tid| tids.contains(*waker) || waiters.contains(*waker);
            wakers.flatten().filter(among).collect::<HashSet<_>>().len() > 1
        };
        tids.iter().filter(is_peer).count() * 2 >= tids.len()
    }
}

/// Counts what the threads behind each mailbox did for each thread.
fn count_answers(
    recording: &Recording,
    patterns: &[PatternAnalysis],
    by_pattern: &[Option<u32>],
) -> (AnswersByThread, SlicesByThread) {
    let waits = &recording.waits;
    let rows = || waits.rows().iter().filter(|row| wake_use(row) != WakeUse::Stale);
    // What began the slices of each thread.
    let mut slices = SlicesByThread::new();
    for row in rows() {
        let place = row.pattern.index();
        if let (Some(Some(mailbox)), Some(at), Some(sender)) = (
            by_pattern.get(place),
            row.woken_at(),
            patterns.get(place).and_then(PatternAnalysis::waker),
        ) {
            slices.entry(waits.waiter(row).tid).or_default().push(Slice {
                begun: at,
                mailbox: *mailbox,
                giver: sender.tid,
                first_woken: None,
            });
        }
    }
    for slices in slices.values_mut() {
        slices.sort_unstable_by_key(|slice| slice.begun);
    }
    let mut wakes: Vec<(Timestamp, Tid, Tid)> = rows()
        .filter_map(|row| {
            let analysis = patterns.get(row.pattern.index()).filter(|it| !it.is_on_lock())?;
            let waker = analysis.waker().filter(|waker| slices.contains_key(&waker.tid))?;
            Some((row.woken_at()?, waker.tid, waits.waiter(row).tid))
        })
        .collect();
    wakes.sort_unstable();
    let mut answers = AnswersByThread::new();
    for (at, waker, woken) in wakes {
        let Some(slices) = slices.get_mut(&waker) else { continue };
        let begun = slices.partition_point(|slice| slice.begun <= at);
        let Some(slice) = begun.checked_sub(1).and_then(|n| slices.get_mut(n)) else { continue };
        let is_first = slice.first_woken.is_none();
        slice.first_woken.get_or_insert(woken);
        let counted = answers.entry((slice.mailbox, woken)).or_default();
        // What comes after an answer to somebody else may be asked for a request that came meanwhile.
        match is_first && slice.giver == woken {
            true => counted.in_own_slice += 1,
            false => counted.in_other_slice += 1,
        }
        counted.first_in_other_slice += u32::from(is_first && slice.giver != woken);
    }
    for slice in slices.values().flatten() {
        let counted = answers.entry((slice.mailbox, slice.giver)).or_default();
        counted.begun += 1;
        counted.silent += u32::from(slice.first_woken.is_none());
    }
    (answers, slices)
}

/// What a thread did after it had something out of its mailbox.
#[derive(Debug)]
struct Slice {
    begun: Timestamp,
    mailbox: u32,
    giver: Tid,
    /// Whom it woke first of all.
    first_woken: Option<Tid>,
}

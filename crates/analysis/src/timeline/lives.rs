//! Splits the records of one tid into those of the threads that had it, one after another.

use std::{collections::VecDeque, sync::Arc};

use indexmap::IndexMap;
use offwake_recording::{
    Begin, Recording, ThreadEvent, ThreadEventReason, ThreadExit, ThreadKind, Waits, Window,
    units::{CgroupId, Tgid, Tid, Timestamp},
};

use super::{NameSince, PreemptionIndex, ThrottleIndex, WaitIndex};

/// A record of a time off the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum OffCpuRecord {
    /// A wait.
    Wait(WaitIndex),
    /// A preemption.
    Preemption(PreemptionIndex),
}

/// The records of one thread, and what is known of it from them.
#[derive(Debug)]
pub(super) struct ThreadLife<'a> {
    pub tid: Tid,
    pub tgid: Tgid,
    pub kind: ThreadKind,
    pub in_target: bool,
    pub cgroup: Option<CgroupId>,
    pub created: Option<Timestamp>,
    pub from: Timestamp,
    pub until: Timestamp,
    pub names: Vec<NameSince>,
    /// In order of their switch-outs.
    pub records: Vec<OffCpuRecord>,
    /// In order of their beginnings.
    pub throttles: Vec<ThrottleIndex>,
    pub opening: Option<&'a ThreadEvent>,
    pub closing: Option<&'a ThreadEvent>,
    pub exit: Option<&'a ThreadExit>,
}

#[derive(Clone, Copy)]
enum TidEntry {
    ThreadEvent(u32),
    Record(OffCpuRecord),
    Exit(u32),
}

/// All records of one tid, as indices into the recording's lists, in order of time.
#[derive(Debug, Default)]
pub(super) struct TidRecords {
    pub(super) tid: Tid,
    waits: Vec<u32>,
    preemptions: Vec<u32>,
    throttles: Vec<u32>,
    thread_events: Vec<u32>,
    exits: Vec<u32>,
}

/// Sorts a recording's records by tid. Those of the idle task are left out.
pub(super) fn records_by_tid(recording: &Recording) -> Vec<TidRecords> {
    let mut tids = IndexMap::<Tid, TidRecords, foldhash::fast::RandomState>::default();
    let waits = &recording.waits;
    // Many waits share a pattern: its tid is looked up once.
    let by_pattern: Vec<usize> = (waits.patterns().iter())
        .map(|(_, pattern)| {
            let entry = tids.entry(waits.waiters()[pattern.waiter].tid);
            let index = entry.index();
            entry.or_default();
            index
        })
        .collect();
    for (row, n) in waits.rows().iter().zip(0..) {
        tids[by_pattern[row.pattern.index()]].waits.push(n);
    }
    for (preemption, n) in recording.preemptions.iter().zip(0..) {
        tids.entry(preemption.tid).or_default().preemptions.push(n);
    }
    for (throttle, n) in recording.throttles.iter().zip(0..) {
        tids.entry(throttle.tid).or_default().throttles.push(n);
    }
    for (thread_event, n) in recording.thread_events.iter().zip(0..) {
        tids.entry(thread_event.tid).or_default().thread_events.push(n);
    }
    for (exit, n) in recording.exits.iter().zip(0..) {
        tids.entry(exit.tid).or_default().exits.push(n);
    }
    tids.swap_remove(&Tid(0));
    tids.sort_unstable_keys();
    tids.into_iter().map(|(tid, records)| TidRecords { tid, ..records }).collect()
}

impl TidRecords {
    /// Returns the records in order of time; at one moment first thread events, then waits, preemptions
    /// and exits.
    fn entries(&self, recording: &Recording) -> impl Iterator<Item = (Timestamp, TidEntry)> {
        let rows = recording.waits.rows();
        let waits = (self.waits.chunks(Waits::FETCHED))
            .flat_map(|waits| {
                recording.waits.fetch(waits.iter().copied());
                waits
            })
            .filter_map(move |&n| {
                Some((rows.get(n as usize)?.off, OffCpuRecord::Wait(WaitIndex(n))))
            });
        let preemptions = (self.preemptions.iter()).filter_map(move |&n| {
            let preemption = recording.preemptions.get(n as usize)?;
            Some((preemption.off, OffCpuRecord::Preemption(PreemptionIndex(n))))
        });
        let records = merge(waits, preemptions, |&(at, _)| at)
            .map(|(at, record)| (at, TidEntry::Record(record)));
        let thread_events = (self.thread_events.iter()).filter_map(move |&n| {
            Some((recording.thread_events.get(n as usize)?.at, TidEntry::ThreadEvent(n)))
        });
        let exits = (self.exits.iter())
            .filter_map(move |&n| Some((recording.exits.get(n as usize)?.at, TidEntry::Exit(n))));
        let living = merge(thread_events, records, |&(at, _)| at);
        merge(living, exits, |&(at, _)| at)
    }
}

/// A life that is still being gathered.
struct LifeDraft<'a> {
    life: ThreadLife<'a>,
    /// The beginning of the life; 0 if unknown.
    start: Timestamp,
    /// The time of the newest record so far.
    newest: Timestamp,
}

impl<'a> LifeDraft<'a> {
    fn new(tid: Tid, created: Option<Timestamp>, start: Timestamp) -> Self {
        Self {
            life: ThreadLife {
                tid,
                tgid: Tgid(tid.0),
                kind: ThreadKind::User,
                in_target: false,
                cgroup: None,
                created,
                from: start,
                until: start,
                names: Vec::new(),
                records: Vec::new(),
                throttles: Vec::new(),
                opening: None,
                closing: None,
                exit: None,
            },
            start,
            newest: Timestamp(0),
        }
    }

    /// Returns whether the thread still lived when the window opened. A thread that was seen before
    /// that, but not when all threads were listed at the opening, had ended while the programs were
    /// still being attached, so that its exit was not seen.
    fn was_in(&self, window: Window) -> bool {
        self.life.opening.is_some() || self.newest >= window.start
    }

    fn is_over(&self, at: Timestamp) -> bool {
        self.life.exit.is_some_and(|exit| exit.at <= at)
    }

    fn describe(&mut self, tgid: Tgid, kind: ThreadKind, in_target: bool) {
        self.life.tgid = tgid;
        self.life.kind = kind;
        self.life.in_target |= in_target;
    }

    fn add_thread_event(&mut self, thread_event: &'a ThreadEvent) {
        self.newest = self.newest.max(thread_event.at);
        self.describe(thread_event.tgid, thread_event.kind, thread_event.in_target);
        self.life.cgroup = Some(thread_event.cgroup);
        if self.life.names.last().is_none_or(|name| *name.comm != *thread_event.comm) {
            let comm = Arc::from(thread_event.comm.as_str());
            self.life.names.push(NameSince { since: thread_event.at, comm });
        }
        match thread_event.reason {
            ThreadEventReason::Opening => self.life.opening = Some(thread_event),
            ThreadEventReason::Closing => self.life.closing = Some(thread_event),
            _ => {}
        }
    }
}

/// ```text
///            created 1      exit         created 2
/// tid 7   ------+-------------+---------------+----------------> time
///   (unknown)   |  first life |   successor   |  second life
/// ```
///
/// The unknown life and the successor are there only if some record says so. A successor is what
/// `exec` from a thread that is not its process's first leaves behind: it takes over the tid, and
/// the time of creation, of the first one, which has ended
/// ([`de_thread`](https://github.com/torvalds/linux/blob/v6.12/fs/exec.c#L968)).
pub(super) fn split_into_lives<'a>(
    recording: &'a Recording,
    of_tid: &TidRecords,
) -> Vec<ThreadLife<'a>> {
    let window = recording.meta.window;
    let mut pending = draft_lives(recording, of_tid);
    let mut drafts: Vec<LifeDraft<'a>> = pending.pop_front().into_iter().collect();
    for (at, entry) in of_tid.entries(recording) {
        while pending.front().is_some_and(|next| next.start <= at) {
            drafts.extend(pending.pop_front());
        }
        let Some(current) = drafts.last() else { break };
        let opens_successor = match entry {
            TidEntry::ThreadEvent(n) => {
                recording.thread_events.get(n as usize).is_some_and(|thread_event| {
                    // A zombie is still there to be looked at.
                    !matches!(
                        thread_event.reason,
                        ThreadEventReason::Opening | ThreadEventReason::Closing
                    ) && current.life.created == Some(thread_event.created)
                })
            }
            TidEntry::Record(_) => true,
            TidEntry::Exit(_) => false,
        };
        if opens_successor && current.is_over(at) {
            drafts.push(LifeDraft::new(of_tid.tid, current.life.created, at));
        }
        let Some(draft) = drafts.last_mut() else { break };
        match entry {
            TidEntry::ThreadEvent(n) => {
                let Some(thread_event) = recording.thread_events.get(n as usize) else { continue };
                if let Some(owner) = find_owner(thread_event, &mut drafts, &mut pending) {
                    owner.add_thread_event(thread_event);
                }
            }
            TidEntry::Record(OffCpuRecord::Wait(index)) => {
                let waits = &recording.waits;
                let Some(wait) = waits.rows().get(index.0 as usize) else { continue };
                let waiter = waits.waiter(wait);
                draft.describe(waiter.tgid, waiter.kind, waiter.in_target);
                draft.life.cgroup = Some(waiter.cgroup);
                draft.newest = draft.newest.max(wait.on);
                draft.life.records.push(OffCpuRecord::Wait(index));
            }
            TidEntry::Record(OffCpuRecord::Preemption(index)) => {
                let preemption = recording.preemptions.get(index.0 as usize);
                let Some(preemption) = preemption else { continue };
                draft.describe(preemption.tgid, preemption.kind, preemption.in_target);
                draft.newest = draft.newest.max(preemption.on);
                draft.life.records.push(OffCpuRecord::Preemption(index));
            }
            TidEntry::Exit(n) => {
                let Some(exit) = recording.exits.get(n as usize) else { continue };
                draft.life.tgid = exit.tgid;
                draft.newest = draft.newest.max(exit.at);
                draft.life.in_target |= exit.in_target;
                draft.life.exit.get_or_insert(exit);
            }
        }
    }
    drafts.extend(pending);
    let mut lives = clip_to_window(recording, window, drafts);
    for life in &mut lives {
        let throttles = of_tid.throttles.iter().copied().map(ThrottleIndex);
        life.throttles.extend(throttles.filter(|throttle| {
            let throttle = recording.throttles.get(throttle.0 as usize);
            throttle.is_some_and(|t| t.from < life.until && life.from < t.until)
        }));
    }
    lives
}

/// Finds the life that a thread event belongs to. Both lists are in order of creation.
fn find_owner<'d, 'a>(
    thread_event: &ThreadEvent,
    drafts: &'d mut [LifeDraft<'a>],
    pending: &'d mut VecDeque<LifeDraft<'a>>,
) -> Option<&'d mut LifeDraft<'a>> {
    let created = Some(thread_event.created);
    if drafts.last().is_some_and(|current| current.life.created < created) {
        let next = pending.partition_point(|draft| draft.life.created < created);
        return pending.get_mut(next).filter(|draft| draft.life.created == created);
    }
    // Of several that took over from each other, the newest.
    let next = drafts.partition_point(|draft| draft.life.created <= created);
    drafts.get_mut(next.checked_sub(1)?).filter(|draft| draft.life.created == created)
}

/// Creates a draft for each time of creation, and one before them if there are older records.
fn draft_lives<'a>(recording: &Recording, of_tid: &TidRecords) -> VecDeque<LifeDraft<'a>> {
    let mut created: Vec<Timestamp> = (of_tid.thread_events.iter())
        .filter_map(|&n| {
            recording.thread_events.get(n as usize).map(|thread_event| thread_event.created)
        })
        .collect();
    created.sort_unstable();
    created.dedup();
    let known_since = created.first().copied().unwrap_or(Timestamp(u64::MAX));
    let first_record = of_tid
        .entries(recording)
        .find(|(_, entry)| !matches!(entry, TidEntry::ThreadEvent(_)))
        .map(|(at, _)| at);
    let unknown = first_record
        .is_some_and(|at| at < known_since)
        .then(|| LifeDraft::new(of_tid.tid, None, Timestamp(0)));
    (unknown.into_iter())
        .chain(created.into_iter().map(|at| LifeDraft::new(of_tid.tid, Some(at), at)))
        .collect()
}

/// Clips the lives to the window, and drops those outside it.
fn clip_to_window<'a>(
    recording: &Recording,
    window: Window,
    mut drafts: Vec<LifeDraft<'a>>,
) -> Vec<ThreadLife<'a>> {
    let mut next_start = window.end;
    for draft in drafts.iter_mut().rev() {
        let life = &mut draft.life;
        let end = life.exit.map_or(next_start, |exit| exit.at.min(next_start));
        if life.created.is_none()
            && let Some(born) = birth_time(recording, life.records.first())
        {
            draft.start = born;
        }
        next_start = draft.start.min(window.end);
        (life.from, life.until) = window.clip(draft.start, end);
    }
    drafts
        .into_iter()
        .filter(|draft| draft.was_in(window))
        .map(|draft| draft.life)
        .filter(|life| life.from < life.until)
        .collect()
}

/// Returns when a thread was created, if its first record tells.
fn birth_time(recording: &Recording, first: Option<&OffCpuRecord>) -> Option<Timestamp> {
    let (begin, off) = match *first? {
        OffCpuRecord::Wait(n) => {
            recording.waits.rows().get(n.0 as usize).map(|w| (w.begin(), w.off))
        }
        OffCpuRecord::Preemption(n) => {
            recording.preemptions.get(n.0 as usize).map(|p| (p.begin, p.off))
        }
    }?;
    (begin == Begin::Newborn).then_some(off)
}

/// Goes through two sorted iterators in the order of `key`; of equals, those of `first` come first.
fn merge<T, K: Ord>(
    first: impl Iterator<Item = T>,
    second: impl Iterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> impl Iterator<Item = T> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    std::iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some(a), Some(b)) if key(b) < key(a) => second.next(),
        (Some(_), _) => first.next(),
        (None, _) => second.next(),
    })
}

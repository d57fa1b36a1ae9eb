//! Splits the records of one tid into those of the threads that had it, one after another.

use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

use indexmap::IndexMap;
use offwake_recording::{
    Begin, Recording, ThreadEvent, ThreadEventReason, ThreadExit, ThreadKind, Waits, Window,
    units::{CgroupId, Tgid, Tid, Timestamp},
};

use super::{
    NameSince, PreemptionIndex, SummedIndex, ThrottleIndex, WaitIndex,
    tid_changes::{TidChange, TidChanges},
};

/// A record of a time off the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum OffCpuRecord {
    /// A wait.
    Wait(WaitIndex),
    /// A preemption.
    Preemption(PreemptionIndex),
    /// Several short ones of both, summed up.
    Summed(SummedIndex),
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
    /// Its beginning, if it is the life of a thread that had another tid before.
    pub begun_by_exec: Option<TidChange<'a>>,
    /// Its end, if the thread has another tid since.
    pub ended_by_exec: Option<TidChange<'a>>,
}

impl ThreadLife<'_> {
    /// Returns when the life was seen to end, and the number of its newest record by then.
    pub(super) fn seen_ends(&self) -> impl Iterator<Item = (Timestamp, u32)> {
        let exit = self.exit.map(|exit| (exit.at, exit.seq));
        let exec = self.ended_by_exec.map(|change| (change.at, change.seq));
        exit.into_iter().chain(exec)
    }
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
    summed: Vec<u32>,
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
    for (summed, n) in recording.summed.iter().zip(0..) {
        tids.entry(summed.tid).or_default().summed.push(n);
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
                let wait = rows.get(n as usize)?;
                Some(((wait.off, wait.seq), OffCpuRecord::Wait(WaitIndex(n))))
            });
        let preemptions = (self.preemptions.iter()).filter_map(move |&n| {
            let preemption = recording.preemptions.get(n as usize)?;
            let (off, seq) = (preemption.off, preemption.seq);
            Some(((off, seq), OffCpuRecord::Preemption(PreemptionIndex(n))))
        });
        let summed = (self.summed.iter()).filter_map(move |&n| {
            let summed = recording.summed.get(n as usize)?;
            Some(((summed.from, summed.seq), OffCpuRecord::Summed(SummedIndex(n))))
        });
        // By number where times are the same: a return that nobody saw may be told with the time of the
        // record before.
        let one_by_one = merge(waits, preemptions, |&(key, _)| key);
        let records = merge(one_by_one, summed, |&(key, _)| key)
            .map(|((at, _), record)| (at, TidEntry::Record(record)));
        let thread_events = (self.thread_events.iter()).filter_map(move |&n| {
            Some((recording.thread_events.get(n as usize)?.at, TidEntry::ThreadEvent(n)))
        });
        let exits = (self.exits.iter())
            .filter_map(move |&n| Some((recording.exits.get(n as usize)?.at, TidEntry::Exit(n))));
        let living = merge(thread_events, records, |&(at, _)| at);
        merge(living, exits, |&(at, _)| at)
    }

    /// Returns when the thread was last switched in before `before`; 0 if no record says so.
    pub(super) fn last_switch_in(&self, recording: &Recording, before: Timestamp) -> Timestamp {
        let rows = recording.waits.rows();
        let wait = (self.waits.iter().rev().filter_map(|&n| rows.get(n as usize)))
            .find(|wait| wait.on <= before)
            .map(|wait| wait.on);
        let preemption = (self.preemptions.iter().rev())
            .filter_map(|&n| recording.preemptions.get(n as usize))
            .find(|preemption| preemption.on <= before)
            .map(|preemption| preemption.on);
        let summed = (self.summed.iter().rev())
            .filter_map(|&n| recording.summed.get(n as usize))
            .find(|summed| summed.until <= before)
            .map(|summed| summed.until);
        wait.max(preemption).max(summed).unwrap_or(Timestamp(0))
    }

    /// Returns the last exit in `from..=to`.
    pub(super) fn last_exit<'r>(
        &self,
        recording: &'r Recording,
        (from, to): (Timestamp, Timestamp),
    ) -> Option<&'r ThreadExit> {
        (self.exits.iter().rev())
            .filter_map(|&n| recording.exits.get(n as usize))
            .find(|exit| exit.at <= to)
            .filter(|exit| from <= exit.at)
    }

    /// Returns the switch-outs and the thread events before `before`, the last one first.
    pub(super) fn entries_before(
        &self,
        recording: &Recording,
        before: Timestamp,
    ) -> impl Iterator<Item = CountedEntry> {
        let rows = recording.waits.rows();
        let wait = |&n: &u32| {
            let wait = rows.get(n as usize)?;
            Some(CountedEntry { at: wait.off, seq: wait.seq, kind: CountedKind::Record(1) })
        };
        let preemption = |&n: &u32| {
            let p = recording.preemptions.get(n as usize)?;
            Some(CountedEntry { at: p.off, seq: p.seq, kind: CountedKind::Record(1) })
        };
        let summed = |&n: &u32| {
            let summed = recording.summed.get(n as usize)?;
            let records = summed.waits.saturating_add(summed.preemptions);
            Some(CountedEntry {
                at: summed.from,
                seq: summed.seq,
                kind: CountedKind::Record(records),
            })
        };
        let event = |&n: &u32| {
            let event = recording.thread_events.get(n as usize)?;
            Some(CountedEntry { at: event.at, seq: event.seq, kind: CountedKind::Event })
        };
        let at = |entry: &CountedEntry| Reverse(entry.at);
        let records = merge(
            entries_backwards(&self.waits, wait, before),
            entries_backwards(&self.preemptions, preemption, before),
            at,
        );
        let records = merge(records, entries_backwards(&self.summed, summed, before), at);
        merge(entries_backwards(&self.thread_events, event, before), records, at)
    }
}

/// Reads the entries of a list in order of time that lie before `before`, the last one first.
fn entries_backwards(
    list: &[u32],
    read: impl Fn(&u32) -> Option<CountedEntry>,
    before: Timestamp,
) -> impl Iterator<Item = CountedEntry> {
    let end = list.partition_point(|n| read(n).is_some_and(|entry| entry.at < before));
    list.iter().take(end).rev().filter_map(read)
}

/// Something that a thread did or that was seen of it, and the number of its newest record: of a
/// record, its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedEntry {
    pub(super) at: Timestamp,
    pub(super) seq: u32,
    pub(super) kind: CountedKind,
}

/// Whether an entry has a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedKind {
    /// So many times off the CPU, which were counted.
    Record(u32),
    /// A thread event, which was not.
    Event,
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
                begun_by_exec: None,
                ended_by_exec: None,
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
/// ([`de_thread`](https://github.com/torvalds/linux/blob/v6.12/fs/exec.c#L968)). If the thread event
/// of the exec was not lost, `changes` says when, and under which tid the successor lived before.
pub(super) fn split_into_lives<'a>(
    recording: &'a Recording,
    of_tid: &TidRecords,
    changes: &TidChanges<'a>,
) -> Vec<ThreadLife<'a>> {
    let window = recording.meta.window;
    let mut pending = draft_lives(recording, of_tid);
    let mut drafts: Vec<LifeDraft<'a>> = pending.pop_front().into_iter().collect();
    let mut taken_over = changes.arriving_at(of_tid.tid).iter().peekable();
    for (at, entry) in of_tid.entries(recording) {
        while pending.front().is_some_and(|next| next.start <= at) {
            drafts.extend(pending.pop_front());
        }
        while let Some(&change) = taken_over.next_if(|change| change.at <= at) {
            let Some(first) = drafts.last_mut() else { break };
            first.life.exit = first.life.exit.or(change.exit_of_first);
            let mut successor = LifeDraft::new(of_tid.tid, first.life.created, change.at);
            successor.life.begun_by_exec = Some(change);
            drafts.push(successor);
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
            TidEntry::Record(OffCpuRecord::Summed(index)) => {
                let Some(summed) = recording.summed.get(index.0 as usize) else { continue };
                draft.describe(summed.tgid, summed.kind, summed.in_target);
                draft.newest = draft.newest.max(summed.until);
                draft.life.records.push(OffCpuRecord::Summed(index));
            }
            TidEntry::Exit(n) => {
                let Some(exit) = recording.exits.get(n as usize) else { continue };
                let is_of_first = |change: &TidChange<'_>| {
                    change.exit_of_first.is_some_and(|first| std::ptr::eq(first, exit))
                };
                if changes.leaving(of_tid.tid).iter().any(is_of_first) {
                    continue;
                }
                draft.life.tgid = exit.tgid;
                draft.newest = draft.newest.max(exit.at);
                draft.life.in_target |= exit.in_target;
                draft.life.exit.get_or_insert(exit);
            }
        }
    }
    drafts.extend(pending);
    for &change in changes.leaving(of_tid.tid) {
        let started = drafts.partition_point(|draft| draft.start < change.at);
        if let Some(last) = started.checked_sub(1).and_then(|n| drafts.get_mut(n)) {
            last.life.ended_by_exec = Some(change);
        }
    }
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
        let end = life.seen_ends().map(|(at, _)| at).fold(next_start, Timestamp::min);
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
        OffCpuRecord::Summed(_) => None,
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

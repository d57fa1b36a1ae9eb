//! Splits the records of one tid into those of the threads that had it, one after another.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use offwake_recording::{
    Begin, Recording, Sighting, SightingReason, ThreadExit, ThreadKind, Waits, Window,
    units::{CgroupId, Tgid, Tid, Timestamp},
};

use super::{Name, PreemptionIndex, WaitIndex, merge::merge};

/// A record of a time off the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum Record {
    /// A wait.
    Wait(WaitIndex),
    /// A preemption.
    Preemption(PreemptionIndex),
}

/// The records of one thread, and what is known of it from them.
#[derive(Debug)]
pub(super) struct Life<'a> {
    pub tid: Tid,
    pub tgid: Tgid,
    pub kind: ThreadKind,
    pub in_target: bool,
    pub cgroup: Option<CgroupId>,
    pub created: Option<Timestamp>,
    pub from: Timestamp,
    pub until: Timestamp,
    pub names: Vec<Name>,
    /// In order of their switch-outs.
    pub records: Vec<Record>,
    pub opening: Option<&'a Sighting>,
    pub closing: Option<&'a Sighting>,
    pub exit: Option<&'a ThreadExit>,
}

#[derive(Clone, Copy)]
enum Entry {
    Sighting(u32),
    Record(Record),
    Exit(u32),
}

/// All records of one tid, as indices into the recording's lists, in order of time.
#[derive(Debug, Default)]
pub(super) struct OfTid {
    pub(super) tid: Tid,
    waits: Vec<u32>,
    preemptions: Vec<u32>,
    sightings: Vec<u32>,
    exits: Vec<u32>,
}

/// Sorts a recording's records by tid. Those of the idle task are left out.
pub(super) fn of_tids(recording: &Recording) -> Vec<OfTid> {
    let mut tids = Tids::default();
    let waits = &recording.waits;
    // Many waits share a pattern: its tid is looked up once.
    let of_patterns: Vec<usize> = (waits.patterns().iter())
        .map(|(_, pattern)| tids.place(waits.waiters()[pattern.waiter].tid))
        .collect();
    for (row, n) in waits.rows().iter().zip(0..) {
        tids.list[of_patterns[row.pattern.index()]].waits.push(n);
    }
    for (preemption, n) in recording.preemptions.iter().zip(0..) {
        tids.get(preemption.tid).preemptions.push(n);
    }
    for (sighting, n) in recording.sightings.iter().zip(0..) {
        tids.get(sighting.tid).sightings.push(n);
    }
    for (exit, n) in recording.exits.iter().zip(0..) {
        tids.get(exit.tid).exits.push(n);
    }
    let mut tids = tids.list;
    tids.retain(|of_tid| of_tid.tid != Tid(0));
    tids.sort_unstable_by_key(|of_tid| of_tid.tid);
    tids
}

/// The tids in order of their first record.
#[derive(Default)]
struct Tids {
    list: Vec<OfTid>,
    places: HashMap<Tid, usize, foldhash::fast::RandomState>,
}

impl Tids {
    fn place(&mut self, tid: Tid) -> usize {
        *self.places.entry(tid).or_insert_with(|| {
            self.list.push(OfTid { tid, ..OfTid::default() });
            self.list.len() - 1
        })
    }

    fn get(&mut self, tid: Tid) -> &mut OfTid {
        let place = self.place(tid);
        &mut self.list[place]
    }
}

impl OfTid {
    /// Returns the records in order of time; at one moment first sightings, then waits, preemptions
    /// and exits.
    fn entries(&self, recording: &Recording) -> impl Iterator<Item = (Timestamp, Entry)> {
        let rows = recording.waits.rows();
        let waits = (self.waits.chunks(Waits::FETCHED))
            .flat_map(|waits| {
                recording.waits.fetch(waits.iter().copied());
                waits
            })
            .filter_map(move |&n| Some((rows.get(n as usize)?.off, Record::Wait(WaitIndex(n)))));
        let preemptions = (self.preemptions.iter()).filter_map(move |&n| {
            let preemption = recording.preemptions.get(n as usize)?;
            Some((preemption.off, Record::Preemption(PreemptionIndex(n))))
        });
        let records = merge(waits, preemptions, |&(at, _)| at)
            .map(|(at, record)| (at, Entry::Record(record)));
        let sightings = (self.sightings.iter()).filter_map(move |&n| {
            Some((recording.sightings.get(n as usize)?.at, Entry::Sighting(n)))
        });
        let exits = (self.exits.iter())
            .filter_map(move |&n| Some((recording.exits.get(n as usize)?.at, Entry::Exit(n))));
        let living = merge(sightings, records, |&(at, _)| at);
        merge(living, exits, |&(at, _)| at)
    }
}

/// A life that is still being gathered.
struct Draft<'a> {
    life: Life<'a>,
    /// The beginning of the life; 0 if unknown.
    start: Timestamp,
    /// The time of the newest record so far.
    newest: Timestamp,
}

impl<'a> Draft<'a> {
    fn new(tid: Tid, created: Option<Timestamp>, start: Timestamp) -> Self {
        Self {
            life: Life {
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

    fn see(&mut self, sighting: &'a Sighting) {
        self.newest = self.newest.max(sighting.at);
        self.describe(sighting.tgid, sighting.kind, sighting.in_target);
        self.life.cgroup = Some(sighting.cgroup);
        if self.life.names.last().is_none_or(|name| *name.comm != *sighting.comm) {
            let comm = Arc::from(sighting.comm.as_str());
            self.life.names.push(Name { since: sighting.at, comm });
        }
        match sighting.reason {
            SightingReason::Opening => self.life.opening = Some(sighting),
            SightingReason::Closing => self.life.closing = Some(sighting),
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
pub(super) fn split<'a>(recording: &'a Recording, of_tid: &OfTid) -> Vec<Life<'a>> {
    let window = recording.meta.window;
    let mut pending = drafts_of(recording, of_tid);
    let mut drafts: Vec<Draft<'a>> = pending.pop_front().into_iter().collect();
    for (at, entry) in of_tid.entries(recording) {
        while pending.front().is_some_and(|next| next.start <= at) {
            drafts.extend(pending.pop_front());
        }
        let Some(current) = drafts.last() else { break };
        let opens_successor = match entry {
            Entry::Sighting(n) => recording.sightings.get(n as usize).is_some_and(|sighting| {
                // A zombie is still there to be looked at.
                !matches!(sighting.reason, SightingReason::Opening | SightingReason::Closing)
                    && current.life.created == Some(sighting.created)
            }),
            Entry::Record(_) => true,
            Entry::Exit(_) => false,
        };
        if opens_successor && current.is_over(at) {
            drafts.push(Draft::new(of_tid.tid, current.life.created, at));
        }
        let Some(draft) = drafts.last_mut() else { break };
        match entry {
            Entry::Sighting(n) => {
                let Some(sighting) = recording.sightings.get(n as usize) else { continue };
                if let Some(owner) = owner_of(sighting, &mut drafts, &mut pending) {
                    owner.see(sighting);
                }
            }
            Entry::Record(Record::Wait(index)) => {
                let waits = &recording.waits;
                let Some(wait) = waits.rows().get(index.0 as usize) else { continue };
                let waiter = waits.waiter(wait);
                draft.describe(waiter.tgid, waiter.kind, waiter.in_target);
                draft.life.cgroup = Some(waiter.cgroup);
                draft.newest = draft.newest.max(wait.on);
                draft.life.records.push(Record::Wait(index));
            }
            Entry::Record(Record::Preemption(index)) => {
                let preemption = recording.preemptions.get(index.0 as usize);
                let Some(preemption) = preemption else { continue };
                draft.describe(preemption.tgid, preemption.kind, preemption.in_target);
                draft.newest = draft.newest.max(preemption.on);
                draft.life.records.push(Record::Preemption(index));
            }
            Entry::Exit(n) => {
                let Some(exit) = recording.exits.get(n as usize) else { continue };
                draft.life.tgid = exit.tgid;
                draft.newest = draft.newest.max(exit.at);
                draft.life.in_target |= exit.in_target;
                draft.life.exit.get_or_insert(exit);
            }
        }
    }
    drafts.extend(pending);
    bound(recording, window, drafts)
}

/// Finds the life that a sighting belongs to. Both lists are in order of creation.
fn owner_of<'d, 'a>(
    sighting: &Sighting,
    drafts: &'d mut [Draft<'a>],
    pending: &'d mut VecDeque<Draft<'a>>,
) -> Option<&'d mut Draft<'a>> {
    let created = Some(sighting.created);
    if drafts.last().is_some_and(|current| current.life.created < created) {
        let next = pending.partition_point(|draft| draft.life.created < created);
        return pending.get_mut(next).filter(|draft| draft.life.created == created);
    }
    // Of several that took over from each other, the newest.
    let next = drafts.partition_point(|draft| draft.life.created <= created);
    drafts.get_mut(next.checked_sub(1)?).filter(|draft| draft.life.created == created)
}

/// Creates a draft for each time of creation, and one before them if there are older records.
fn drafts_of<'a>(recording: &Recording, of_tid: &OfTid) -> VecDeque<Draft<'a>> {
    let mut created: Vec<Timestamp> = (of_tid.sightings.iter())
        .filter_map(|&n| recording.sightings.get(n as usize).map(|sighting| sighting.created))
        .collect();
    created.sort_unstable();
    created.dedup();
    let known_since = created.first().copied().unwrap_or(Timestamp(u64::MAX));
    let first_record = of_tid
        .entries(recording)
        .find(|(_, entry)| !matches!(entry, Entry::Sighting(_)))
        .map(|(at, _)| at);
    let unknown = first_record
        .is_some_and(|at| at < known_since)
        .then(|| Draft::new(of_tid.tid, None, Timestamp(0)));
    (unknown.into_iter())
        .chain(created.into_iter().map(|at| Draft::new(of_tid.tid, Some(at), at)))
        .collect()
}

/// Clips the lives to the window, and drops those outside it.
fn bound<'a>(recording: &Recording, window: Window, mut drafts: Vec<Draft<'a>>) -> Vec<Life<'a>> {
    let mut next_start = window.end;
    for draft in drafts.iter_mut().rev() {
        let life = &mut draft.life;
        let end = life.exit.map_or(next_start, |exit| exit.at.min(next_start));
        if life.created.is_none()
            && let Some(born) = born(recording, life.records.first())
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
fn born(recording: &Recording, first: Option<&Record>) -> Option<Timestamp> {
    let (begin, off) = match *first? {
        Record::Wait(n) => recording.waits.rows().get(n.0 as usize).map(|w| (w.begin(), w.off)),
        Record::Preemption(n) => recording.preemptions.get(n.0 as usize).map(|p| (p.begin, p.off)),
    }?;
    (begin == Begin::Newborn).then_some(off)
}

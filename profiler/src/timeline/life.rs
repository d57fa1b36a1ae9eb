//! One tid → the threads that bore it.

use std::sync::Arc;

use crate::{
    recording::{Begin, Recording, Sighting, SightingReason, ThreadExit, ThreadKind, Window},
    units::{Tgid, Tid, Timestamp},
};

use super::{Name, WaitIndex};

/// A time off the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum Record {
    /// A wait.
    Wait(WaitIndex),
    /// Index into the recording's preemptions.
    Preemption(u32),
}

/// What is known of one thread.
#[derive(Debug)]
pub(super) struct Life<'a> {
    pub tid: Tid,
    pub tgid: Tgid,
    pub kind: ThreadKind,
    pub in_target: bool,
    pub created: Option<Timestamp>,
    pub from: Timestamp,
    pub until: Timestamp,
    pub names: Vec<Name>,
    /// By switch-out.
    pub records: Vec<Record>,
    pub opening: Option<&'a Sighting>,
    pub closing: Option<&'a Sighting>,
    pub exit: Option<&'a ThreadExit>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    Sighting(u32),
    Wait(u32),
    Preemption(u32),
    Exit(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tid: Tid,
    at: Timestamp,
    what: Evidence,
}

/// Every thread of the recording that lived inside the window, by tid, then by time.
pub(super) fn split(recording: &Recording) -> Vec<Life<'_>> {
    let mut entries = entries(recording);
    entries.sort_unstable();
    entries
        .chunk_by(|a, b| a.tid == b.tid)
        .flat_map(|of_one_tid| lives_of(recording, of_one_tid))
        .collect()
}

/// Everything that speaks of a thread. The idle task is none.
fn entries(recording: &Recording) -> Vec<Entry> {
    let index = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let sightings = (recording.sightings.iter().enumerate()).map(|(n, s)| Entry {
        tid: s.tid,
        at: s.at,
        what: Evidence::Sighting(index(n)),
    });
    let waits = (recording.waits.iter().enumerate()).map(|(n, w)| Entry {
        tid: w.tid,
        at: w.off,
        what: Evidence::Wait(index(n)),
    });
    let preemptions = (recording.preemptions.iter().enumerate()).map(|(n, p)| Entry {
        tid: p.tid,
        at: p.off,
        what: Evidence::Preemption(index(n)),
    });
    let exits = (recording.exits.iter().enumerate()).map(|(n, e)| Entry {
        tid: e.tid,
        at: e.at,
        what: Evidence::Exit(index(n)),
    });
    sightings
        .chain(waits)
        .chain(preemptions)
        .chain(exits)
        .filter(|entry| entry.tid != Tid(0))
        .collect()
}

/// A life in the making.
struct Draft<'a> {
    life: Life<'a>,
    /// When it began; 0 if that is not known.
    start: Timestamp,
    /// The newest thing that speaks of it.
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

    /// Whether it was still there when the window opened. What was seen before that and not when
    /// everybody was looked at had ended, while the programs were still being attached and nobody
    /// saw it.
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
fn lives_of<'a>(recording: &'a Recording, entries: &[Entry]) -> Vec<Life<'a>> {
    let window = recording.meta.window;
    let Some(first) = entries.first() else { return Vec::new() };
    let mut drafts = drafts_of(recording, entries, first.tid);
    let mut current = 0;
    for entry in entries {
        while drafts.get(current + 1).is_some_and(|next| next.start <= entry.at) {
            current += 1;
        }
        let opens_successor = match entry.what {
            Evidence::Sighting(n) => recording.sightings.get(n as usize).is_some_and(|sighting| {
                // A zombie is still there to be looked at.
                !matches!(sighting.reason, SightingReason::Opening | SightingReason::Closing)
                    && drafts.get(current).is_some_and(|d| d.life.created == Some(sighting.created))
            }),
            Evidence::Wait(_) | Evidence::Preemption(_) => true,
            Evidence::Exit(_) => false,
        };
        if opens_successor && drafts.get(current).is_some_and(|draft| draft.is_over(entry.at)) {
            let created = drafts.get(current).and_then(|draft| draft.life.created);
            drafts.insert(current + 1, Draft::new(entry.tid, created, entry.at));
            current += 1;
        }
        let Some(draft) = drafts.get_mut(current) else { continue };
        match entry.what {
            Evidence::Sighting(n) => {
                let Some(sighting) = recording.sightings.get(n as usize) else { continue };
                let owner = if draft.life.created == Some(sighting.created) {
                    Some(draft)
                } else {
                    // They are in the order of creation.
                    let next = drafts.partition_point(|d| d.life.created <= Some(sighting.created));
                    drafts.get_mut(next.saturating_sub(1))
                };
                let owner = owner.filter(|draft| draft.life.created == Some(sighting.created));
                if let Some(owner) = owner {
                    owner.see(sighting);
                }
            }
            Evidence::Wait(n) => {
                let Some(wait) = recording.waits.get(n as usize) else { continue };
                draft.describe(wait.tgid, wait.kind, wait.in_target);
                draft.newest = draft.newest.max(wait.on);
                draft.life.records.push(Record::Wait(WaitIndex(n)));
            }
            Evidence::Preemption(n) => {
                let Some(preemption) = recording.preemptions.get(n as usize) else { continue };
                draft.describe(preemption.tgid, preemption.kind, preemption.in_target);
                draft.newest = draft.newest.max(preemption.on);
                draft.life.records.push(Record::Preemption(n));
            }
            Evidence::Exit(n) => {
                let Some(exit) = recording.exits.get(n as usize) else { continue };
                draft.life.tgid = exit.tgid;
                draft.newest = draft.newest.max(exit.at);
                draft.life.in_target |= exit.in_target;
                draft.life.exit.get_or_insert(exit);
            }
        }
    }
    bound(recording, window, drafts)
}

/// One draft for each time of creation, and one before them if something is older than they are.
fn drafts_of<'a>(recording: &Recording, entries: &[Entry], tid: Tid) -> Vec<Draft<'a>> {
    let mut created: Vec<Timestamp> = (entries.iter())
        .filter_map(|entry| match entry.what {
            Evidence::Sighting(n) => recording.sightings.get(n as usize).map(|s| s.created),
            _ => None,
        })
        .collect();
    created.sort_unstable();
    created.dedup();
    let known_since = created.first().copied().unwrap_or(Timestamp(u64::MAX));
    let older = entries
        .iter()
        .any(|entry| !matches!(entry.what, Evidence::Sighting(_)) && entry.at < known_since);
    let unknown = older.then(|| Draft::new(tid, None, Timestamp(0)));
    unknown.into_iter().chain(created.into_iter().map(|at| Draft::new(tid, Some(at), at))).collect()
}

/// Clips the lives to the window, and leaves out those that lie outside.
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

/// When a thread was born, if its first record says so.
fn born(recording: &Recording, first: Option<&Record>) -> Option<Timestamp> {
    let (begin, off) = match *first? {
        Record::Wait(n) => recording.waits.get(n.0 as usize).map(|w| (w.begin, w.off)),
        Record::Preemption(n) => recording.preemptions.get(n as usize).map(|p| (p.begin, p.off)),
    }?;
    (begin == Begin::Newborn).then_some(off)
}

//! Stretches of threads' time that the chains of many waits go through, walked once.
//!
//! Who queues for a lock waits for all those before: sixty waits end in the same few transactions.
//!
//! ```text
//! A  -- works, waits for a disk --+--
//! B  --+== waits for A ===========^-- works, waits for a client --+--
//! C  --+== waits for B ===========================================^-- works --+--
//! D  --+== waits for C =======================================================^--
//!      |  shared walk of A        |  shared walk of B             |  of C     |
//! ```
//!
//! The blame of C's wait has A and B, that of D's has A, B and C, and so on. A *shared walk* is what a thread did
//! back from the end of a hop: the intervals that lie wholly in what is walked, with all that was waited for in
//! them. To readers who add chains up by groups ([`super::HopGroups`]) it is the same for all waits in the same
//! queue. It is kept when it is met for the second time, and from then on a walk names it.
//!
//! What it comes to may depend on who waits ([`super::threads`]). So it is noted which threads were looked for
//! among the waiters. An interval in which one of them was found is no part of it, and who has one of the
//! others among its waiters walks by itself. The limits of chains count for it as if it were walked.

use std::{hash::BuildHasher as _, ops::Range};

use offwake_recording::units::Timestamp;

use crate::timeline::ThreadIndex;

use super::{
    super::{
        BlameKind, BlamePart, BlameParts, ChainId, IdleState, StackPairId, work_waits::Expects,
    },
    ChainPosition, GroupId, KindSum, Leg, TimeRange, Walker,
    threads::{Dependence, ThreadSet},
};

/// How many can be found again: those of a queue are met again soon, or not at all.
const SLOTS: usize = 1 << 15;

/// The fewest parts that are worth it.
const FEWEST_PARTS: usize = 3;

/// The most parts that all of a walker have: 10 MB of them.
const MOST_PARTS: usize = 1 << 18;

/// Identifies a shared walk of one walker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedWalkId(u32);

impl SharedWalkId {
    /// Returns its place among all shared walks of the walker.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What walks must have in common to have a shared walk in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SharedWalkKey {
    pub(super) thread: ThreadIndex,
    pub(super) to: Timestamp,
    pub(super) done: Timestamp,
    pub(super) chain: ChainId,
    pub(super) left_with: StackPairId,
    /// The group of the wait's own thread.
    pub(super) root: GroupId,
    pub(super) idle_state: IdleState,
    pub(super) only_hand_overs: bool,
    pub(super) expects: Expects,
}

/// A stretch of a thread's time that several walks have in common.
pub struct SharedWalk {
    key: SharedWalkKey,
    parts: Box<[BlamePart]>,
    sums: Box<[KindSum]>,
    pub(super) end: SharedWalkEnd,
    /// The threads that were looked for among the waiters, and are not there.
    pub(super) not_waiting: ThreadSet,
}

impl SharedWalk {
    /// Returns the blame of this time.
    #[must_use]
    pub fn parts(&self) -> &[BlamePart] {
        &self.parts
    }

    /// Returns the same added up by kind.
    #[must_use]
    pub(crate) fn sums(&self) -> &[KindSum] {
        &self.sums
    }
}

/// Where a walk back through a thread's time has come to.
#[derive(Clone, Copy)]
pub(super) struct SharedWalkEnd {
    /// The number of intervals before it.
    pub(super) place: usize,
    /// When it begins.
    pub(super) from: Timestamp,
    pub(super) left_with: StackPairId,
    /// The thread's own waits in it.
    pub(super) waits: u32,
    /// All waits below it that were followed.
    pub(super) followed: u32,
    /// How many hops there are below it.
    pub(super) hops: u16,
}

/// A shared walk that is being walked for the first time.
pub(super) struct SharedWalkDraft {
    key: SharedWalkKey,
    slot: Slot,
    /// What the walk depended on before.
    before: Dependence,
    waiters: usize,
    depth: u16,
    followed_before: u32,
    /// The places of its parts in the log.
    log: Range<usize>,
    end: Option<SharedWalkEnd>,
    not_waiting: ThreadSet,
}

/// Where a shared walk can be found.
#[derive(Clone, Copy)]
struct Slot {
    place: usize,
    half_hash: u32,
}

/// What is in a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// It was walked once.
    Seen,
    /// It has next to no parts.
    Small,
    SharedWalk(SharedWalkId),
}

/// What is known of a stretch that is to be walked.
pub(super) enum SharedWalkSearch {
    /// It has to be walked.
    Unknown,
    /// It is met again: it has to be walked, and is to be kept.
    MetAgain(SharedWalkDraft),
    /// It need not be walked back to here.
    Walked(SharedWalkEnd),
}

/// The shared walks of a walker.
pub(super) struct SharedWalks {
    slots: Vec<(u32, Known)>,
    list: Vec<SharedWalk>,
    count_of_parts: usize,
    /// Those that the blame of the current wait has.
    used: Vec<SharedWalkId>,
    /// How many are being walked for the first time, one inside of the other.
    open: u32,
    /// The parts that were added since the first of these was begun.
    log: Vec<BlamePart>,
    merged: BlameParts,
    hasher: foldhash::fast::RandomState,
}

impl SharedWalks {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            list: Vec::new(),
            count_of_parts: 0,
            used: Vec::new(),
            open: 0,
            log: Vec::new(),
            merged: BlameParts::default(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }

    pub(super) fn begin_wait(&mut self) {
        self.used.clear();
    }

    /// Returns those of the current wait, and all.
    pub(super) fn used(&self) -> (&[SharedWalkId], &[SharedWalk]) {
        (&self.used, &self.list)
    }

    /// Notes a part for the shared walks that are being walked.
    pub(super) fn note_part(&mut self, part: BlamePart) {
        if self.open > 0 {
            self.log.push(part);
        }
    }

    fn find(&mut self, key: &SharedWalkKey) -> (Slot, Known) {
        if self.slots.is_empty() {
            self.slots = vec![(0, Known::Nothing); SLOTS];
        }
        let hash = self.hasher.hash_one(key);
        let half_hash = u32::try_from(hash >> 32).unwrap_or(0);
        let slot = Slot { place: usize::try_from(hash).unwrap_or(0) % SLOTS, half_hash };
        let known = &mut self.slots[slot.place];
        if known.1 == Known::Nothing || known.0 != half_hash {
            *known = (half_hash, Known::Seen);
            return (slot, Known::Nothing);
        }
        match known.1 {
            Known::SharedWalk(id)
                if self.list.get(id.index()).is_none_or(|walk| walk.key != *key) =>
            {
                (slot, Known::Nothing)
            }
            known => (slot, known),
        }
    }
}

impl Walker<'_> {
    /// Looks for the shared walk of a hop's thread, and adds it to the blame if it is known.
    pub(super) fn find_shared_walk(&mut self, leg: &Leg, stretch: TimeRange) -> SharedWalkSearch {
        let Some(root) = self.root else { return SharedWalkSearch::Unknown };
        let ChainPosition { chain, depth, idle_state, only_hand_overs, expects, .. } = leg.at;
        let (thread, left_with) = (leg.thread, leg.left_with);
        let key = SharedWalkKey {
            thread,
            to: stretch.to,
            done: leg.done,
            chain,
            left_with,
            root,
            idle_state,
            only_hand_overs,
            expects,
        };
        match self.shared.find(&key) {
            (_, Known::Nothing | Known::Small) => SharedWalkSearch::Unknown,
            (slot, Known::Seen) => {
                let before = self.threads.replace_dependence(Dependence::NONE);
                self.shared.open += 1;
                let logged = self.shared.log.len();
                SharedWalkSearch::MetAgain(SharedWalkDraft {
                    key,
                    slot,
                    before,
                    waiters: self.threads.count_waiters(),
                    depth,
                    followed_before: self.waits_followed,
                    log: logged..logged,
                    end: None,
                    not_waiting: ThreadSet::default(),
                })
            }
            (_, Known::SharedWalk(id)) => match self.use_shared_walk(id, depth, stretch) {
                Some(end) => SharedWalkSearch::Walked(end),
                None => SharedWalkSearch::Unknown,
            },
        }
    }

    /// Adds a shared walk to the blame, unless it would be another one here.
    fn use_shared_walk(
        &mut self,
        id: SharedWalkId,
        depth: u16,
        stretch: TimeRange,
    ) -> Option<SharedWalkEnd> {
        let walk = self.shared.list.get(id.index())?;
        let (end, limits) = (walk.end, self.blame.limits);
        if end.from < stretch.from
            || depth + end.hops >= limits.depth
            || self.waits_followed.saturating_add(end.followed) >= limits.nodes
            || self.threads.may_have_waiter_among(walk.not_waiting)
        {
            return None;
        }
        let noted = Dependence {
            not_waiting: walk.not_waiting,
            deepest: depth + end.hops,
            ..Dependence::NONE
        };
        self.threads.add_dependence(noted);
        self.waits_followed += end.followed;
        if self.shared.open == 0 {
            self.shared.used.push(id);
        } else {
            for &part in &walk.parts {
                self.shared.log.push(part);
                self.parts.push(part);
            }
        }
        Some(end)
    }

    /// Makes the interval that was walked last a part of a shared walk, if it would be the same for other waiters;
    /// returns whether it is.
    pub(super) fn extend_shared_walk(
        &self,
        draft: &mut SharedWalkDraft,
        end: SharedWalkEnd,
    ) -> bool {
        let noted = self.threads.dependence();
        let is_same_for_all = noted.found >= draft.waiters;
        if is_same_for_all {
            draft.end = Some(SharedWalkEnd {
                followed: self.waits_followed - draft.followed_before,
                hops: noted.deepest.saturating_sub(draft.depth),
                ..end
            });
            draft.log.end = self.shared.log.len();
            draft.not_waiting = noted.not_waiting;
        }
        is_same_for_all
    }

    /// Keeps a shared walk.
    pub(super) fn close_shared_walk(&mut self, draft: SharedWalkDraft) {
        let SharedWalkDraft { key, slot, before, log, end, not_waiting, .. } = draft;
        let noted = self.threads.replace_dependence(before);
        self.threads.add_dependence(noted);
        let SharedWalks { slots, list, count_of_parts, open, log: all, merged, .. } =
            &mut self.shared;
        merged.clear();
        all.get(log).unwrap_or_default().iter().for_each(|&part| merged.push(part));
        let parts = merged.as_slice();
        let known = match end {
            Some(end)
                if parts.len() >= FEWEST_PARTS && *count_of_parts + parts.len() <= MOST_PARTS =>
            {
                let id = SharedWalkId(u32::try_from(list.len()).unwrap_or(u32::MAX));
                *count_of_parts += parts.len();
                list.push(SharedWalk {
                    key,
                    parts: parts.into(),
                    sums: sum_up(parts),
                    end,
                    not_waiting,
                });
                Known::SharedWalk(id)
            }
            _ => Known::Small,
        };
        if let Some(place) = slots.get_mut(slot.place) {
            *place = (slot.half_hash, known);
        }
        *open -= 1;
        if *open == 0 {
            all.clear();
        }
    }
}

/// Adds parts up by kind.
fn sum_up(parts: &[BlamePart]) -> Box<[KindSum]> {
    let mut sums: Vec<KindSum> = Vec::new();
    for &BlamePart { kind, idle_state, time, .. } in parts {
        let kind = match kind {
            BlameKind::Work(_) => BlameKind::Work(ThreadIndex(0)),
            BlameKind::CpuQueue { .. } => {
                BlameKind::CpuQueue { thread: ThreadIndex(0), holder: None }
            }
            BlameKind::External(_) | BlameKind::Unattributed(_) => kind,
        };
        match sums.iter_mut().find(|sum| (sum.kind, sum.idle_state) == (kind, idle_state)) {
            Some(sum) => sum.time += time,
            None => sums.push(KindSum { kind, idle_state, time }),
        }
    }
    sums.into()
}

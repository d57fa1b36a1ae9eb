//! Adds up the blame of waits by the paths that findings tell apart, while the waits are walked.
//!
//! A machine's ten seconds have millions of parts of blame. What all of them have in common on a screen is
//! little: the program that waited and what for, and so on along the chain. So a part costs one search for
//! its place and one for its end, and the trees are built of the few distinct ones at last.
//!
//! ```text
//! waits of postgres in LockAcquire      root: the first place
//! ├── postgres waits for its client     place: threads went on from here
//! │   └── python3 cron.py: timer        end: time of one thread that ends chains here
//! └── postgres: work                    end
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{Hash, Hasher},
    ops::Range,
};

use indexmap::IndexMap;
use offwake_recording::{
    FileId,
    units::{Nanos, Tgid},
};

use crate::{
    blame::{
        BlameEntryKind, BlameKind, BlamePart, ChainId, Chains, IdleState, KindSum, Reason,
        SharedWalk, SharedWalkId, StackPairId, WakeSource, WalkedWait,
    },
    timeline::{NamedThread, ThreadIndex, WaitIndex},
};

use super::{
    open_waits::OpenWaits,
    programs::ProgramId,
    root::{RootKey, WaitRoot},
    tree::{ChainEnd, Node, NodeKey, chain_end},
    wait_meanings::{MeaningId, WaitMeanings},
};

/// Of how many files the time is kept for one root.
const MAX_FILES: usize = 256;

type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The waits of findings, added up.
#[derive(Default)]
pub(crate) struct WaitTrees {
    pub(super) roots: IndexMap<RootKey, WaitRoot>,
    pub(super) open: OpenWaits,
}

impl WaitTrees {
    /// Adds those of later waits.
    pub(crate) fn append(&mut self, later: Self) {
        for (key, root) in later.roots {
            self.roots.entry(key).or_default().merge(root);
        }
        self.open.append(later.open);
    }
}

/// What roots have to have in common to be one.
type RootIds = (ProgramId, MeaningId);

/// Identifies a place within one [`PathSums`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PlaceId(u32);

/// Where threads were waited for that waited themselves; or the waiters, at a root.
struct Place {
    /// The place of those who waited for them; none for a root.
    before: Option<PlaceId>,
    program: ProgramId,
    slept: MeaningId,
    /// The thread. Places of other threads may mean the same.
    thread: ThreadIndex,
    /// The number of the first end behind it.
    first_end: usize,
}

/// What times at the ends of chains have in common that are one sum.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EndKey {
    place: PlaceId,
    thread: ThreadIndex,
    program: ProgramId,
    slept: MeaningId,
    end: ChainEnd,
    /// Of work.
    stack: StackPairId,
    /// Who had the CPU that the thread waited for.
    holder: Option<ProgramId>,
}

/// Hashes what tells most ends apart, in as few steps as will do: every part of blame is looked up.
impl Hash for EndKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { place, thread, slept, end, stack, .. } = self;
        state.write_u64(u64::from(place.0) << 32 | u64::from(thread.0));
        (slept, stack).hash(state);
        state.write_u8(end.kind as u8);
    }
}

/// The waits of a root.
struct RootSum {
    place: PlaceId,
    count: u64,
    longest: Nanos,
    waiters: FastMap<ThreadIndex, Nanos>,
    /// Stopped processes that have the other end of what was waited on.
    stopped_peers: BTreeSet<Tgid>,
    /// How long the waits on each file were.
    files: BTreeMap<FileId, Nanos>,
}

/// The blame of waits by path.
#[derive(Default)]
pub(crate) struct PathSums {
    roots: IndexMap<RootIds, RootSum, foldhash::fast::RandomState>,
    /// Each place after the one before it.
    places: Vec<Place>,
    /// The places from which the last hops of chains begin, by the root's place.
    by_chain: FastMap<(PlaceId, ChainId), PlaceId>,
    by_hop: FastMap<(PlaceId, ThreadIndex, ProgramId, MeaningId), PlaceId>,
    /// In the order in which they were met, so that the order of all trees is stable.
    ends: IndexMap<EndKey, Nanos, foldhash::fast::RandomState>,
    open: Vec<OpenPart>,
    /// By [`SharedWalkId::index`].
    shared: Vec<SharedWalkUse>,
    /// What the shared walks add to the ends, by the number of the end.
    shared_parts: Vec<(u32, Nanos)>,
}

/// How often waits had a shared walk.
#[derive(Clone, Default)]
struct SharedWalkUse {
    count: u64,
    /// Its places in `shared_parts`, from when it is used first.
    parts: Range<usize>,
}

/// A part of a wait that had not ended when the window did.
struct OpenPart {
    root: RootIds,
    thread: ThreadIndex,
    wait: WaitIndex,
    time: Nanos,
}

/// A wait of the target.
#[derive(Clone, Copy)]
pub(crate) struct TargetWait {
    pub(crate) index: WaitIndex,
    pub(crate) waiter: NamedThread,
    pub(crate) blocked: Nanos,
}

impl PathSums {
    /// Adds the blame of a wait.
    pub(crate) fn add(
        &mut self,
        meanings: &WaitMeanings<'_>,
        wait: TargetWait,
        walked: WalkedWait<'_>,
    ) {
        let WalkedWait { parts, chains, .. } = walked;
        let program = meanings.programs.program_under_name(wait.waiter);
        if meanings.is_left_out(program) {
            return;
        }
        let thread = wait.waiter.thread;
        let root_ids = (program, meanings.meaning_of_wait(wait.index));
        let mut root_place = None;
        let mut all = Nanos(0);
        for part in parts.iter().filter(|part| part.idle_state == IdleState::Busy) {
            if is_open(meanings, wait.index, part) {
                let time = part.time;
                self.open.push(OpenPart { root: root_ids, thread, wait: wait.index, time });
                continue;
            }
            let root = *root_place.get_or_insert_with(|| self.count_wait(meanings, root_ids, wait));
            all += part.time;
            let end = self.end_of_part(meanings, (root, root_ids, thread), part, chains);
            *self.ends.entry(end).or_default() += part.time;
        }
        for (id, walk) in walked.shared() {
            let is_busy = |sum: &&KindSum| sum.idle_state == IdleState::Busy;
            let busy: Nanos = walk.sums().iter().filter(is_busy).map(|sum| sum.time).sum();
            if busy > Nanos(0) {
                let root =
                    *root_place.get_or_insert_with(|| self.count_wait(meanings, root_ids, wait));
                all += busy;
                self.count_shared_walk(meanings, (root, root_ids, thread), (id, walk), chains);
            }
        }
        if root_place.is_some()
            && let Some(root) = self.roots.get_mut(&root_ids)
        {
            *root.waiters.entry(thread).or_default() += all;
        }
    }

    /// Counts a shared walk of a wait. It is added to the ends at last, as many times.
    fn count_shared_walk(
        &mut self,
        meanings: &WaitMeanings<'_>,
        root: (PlaceId, RootIds, ThreadIndex),
        (id, walk): (SharedWalkId, &SharedWalk),
        chains: &Chains,
    ) {
        if self.shared.len() <= id.index() {
            self.shared.resize(id.index() + 1, SharedWalkUse::default());
        }
        if self.shared[id.index()].count == 0 {
            let begin = self.shared_parts.len();
            for part in walk.parts().iter().filter(|part| part.idle_state == IdleState::Busy) {
                let end = self.end_of_part(meanings, root, part, chains);
                let entry = self.ends.entry(end);
                self.shared_parts
                    .push((u32::try_from(entry.index()).unwrap_or(u32::MAX), part.time));
                entry.or_default();
            }
            self.shared[id.index()].parts = begin..self.shared_parts.len();
        }
        self.shared[id.index()].count += 1;
    }

    /// Adds the shared walks to the ends.
    fn add_shared_walks(&mut self) {
        for SharedWalkUse { count, parts } in std::mem::take(&mut self.shared) {
            for &(end, time) in self.shared_parts.get(parts).unwrap_or_default() {
                if let Some((_, sum)) = self.ends.get_index_mut(end as usize) {
                    *sum += Nanos(time.0 * count);
                }
            }
        }
        self.shared_parts = Vec::new();
    }

    /// Counts a wait for its root; returns the root's place.
    fn count_wait(
        &mut self,
        meanings: &WaitMeanings<'_>,
        ids: RootIds,
        wait: TargetWait,
    ) -> PlaceId {
        let Self { roots, places, ends, .. } = self;
        let root = roots.entry(ids).or_insert_with(|| RootSum {
            place: push_place(
                places,
                Place {
                    before: None,
                    program: ids.0,
                    slept: ids.1,
                    thread: wait.waiter.thread,
                    first_end: ends.len(),
                },
            ),
            count: 0,
            longest: Nanos(0),
            waiters: FastMap::default(),
            stopped_peers: BTreeSet::new(),
            files: BTreeMap::new(),
        });
        root.stopped_peers.extend(meanings.stopped_peers(wait.index));
        if let Some(file) = meanings.file_of_wait(wait.index)
            && (root.files.len() < MAX_FILES || root.files.contains_key(&file))
        {
            *root.files.entry(file).or_default() += wait.blocked;
        }
        root.count += 1;
        root.longest = root.longest.max(wait.blocked);
        root.place
    }

    fn end_of_part(
        &mut self,
        meanings: &WaitMeanings<'_>,
        (root, (own_program, _), waiter): (PlaceId, RootIds, ThreadIndex),
        part: &BlamePart,
        chains: &Chains,
    ) -> EndKey {
        let end = chain_end(part);
        let Some((_, last)) = chains.last_hop(part.chain) else {
            // What ended the wait is no thread: the waiter itself ends the chain.
            return EndKey {
                place: root,
                thread: waiter,
                program: own_program,
                slept: MeaningId::NONE,
                end,
                stack: StackPairId::NONE,
                holder: None,
            };
        };
        let place = self.place_before_last_hop(meanings, root, part.chain, chains);
        let program = meanings.programs.program_under_name(last.thread);
        if end.kind == BlameEntryKind::Timer
            && let Some(coroutine) = self.places.get(place.0 as usize)
            && coroutine.program == program
            && meanings.is_of_own_coroutine(coroutine.slept)
        {
            // Whichever thread of the runtime ran the timer, it is the coroutine that waited for it.
            let (place, thread, slept) = match coroutine.before {
                Some(before) => (before, coroutine.thread, coroutine.slept),
                None => (place, waiter, MeaningId::NONE),
            };
            let (stack, holder) = (StackPairId::NONE, None);
            return EndKey { place, thread, program, slept, end, stack, holder };
        }
        EndKey {
            place,
            thread: last.thread.thread,
            program,
            slept: meanings.meaning_of_sleep(part.slept),
            end,
            stack: match end.kind {
                BlameEntryKind::Work => part.stack,
                _ => StackPairId::NONE,
            },
            holder: match part.kind {
                BlameKind::CpuQueue { holder, .. } => {
                    holder.map(|thread| meanings.programs.program_of_thread(thread))
                }
                _ => None,
            },
        }
    }

    /// Returns the place that the last hop of a chain begins from.
    fn place_before_last_hop(
        &mut self,
        meanings: &WaitMeanings<'_>,
        root: PlaceId,
        chain: ChainId,
        chains: &Chains,
    ) -> PlaceId {
        let Some((shorter, last)) = chains.last_hop(chain) else { return root };
        let Some((_, hop)) = chains.last_hop(shorter) else { return root };
        if let Some(&known) = self.by_chain.get(&(root, chain)) {
            return known;
        }
        let before = self.place_before_last_hop(meanings, root, shorter, chains);
        // How a thread slept is told by the hop that woke it.
        let place =
            self.place_behind(meanings, before, hop.thread, meanings.meaning_of_sleep(last.slept));
        self.by_chain.insert((root, chain), place);
        place
    }

    /// Returns the place that a hop to a thread leads to, which slept there.
    fn place_behind(
        &mut self,
        meanings: &WaitMeanings<'_>,
        before: PlaceId,
        named: NamedThread,
        slept: MeaningId,
    ) -> PlaceId {
        let program = meanings.programs.program_under_name(named);
        if meanings.is_messenger(program) {
            return before;
        }
        let Self { places, by_hop, ends, .. } = self;
        // Threads that wait for each other in the same function are one group: who comes first in a
        // queue for a lock waits for the holder, and all others wait for those before them. Its wait
        // is shown already, as one of the group's own.
        let process = |thread| meanings.find_process_apart(thread, slept);
        let is_of_group = (places.get(before.0 as usize)).is_some_and(|place| {
            (place.program, place.slept) == (program, slept)
                && process(place.thread) == process(named.thread)
        });
        if slept != MeaningId::NONE && is_of_group {
            return before;
        }
        let thread = named.thread;
        *by_hop.entry((before, thread, program, slept)).or_insert_with(|| {
            let first_end = ends.len();
            push_place(places, Place { before: Some(before), program, slept, thread, first_end })
        })
    }

    /// Makes trees of the sums.
    pub(crate) fn into_trees(mut self, meanings: &WaitMeanings<'_>) -> WaitTrees {
        self.add_shared_walks();
        let Self { roots, places, by_chain, by_hop, ends, open, .. } = self;
        drop((by_chain, by_hop));
        let mut times = vec![Nanos(0); places.len()];
        for (end, &time) in &ends {
            times[end.place.0 as usize] += time;
        }
        for (n, place) in places.iter().enumerate().rev() {
            if let Some(before) = place.before {
                let time = times[n];
                times[before.0 as usize] += time;
            }
        }
        let mut forest = Forest::default();
        let mut nodes: Vec<u32> = Vec::with_capacity(places.len());
        for (number, (end, &time)) in ends.iter().enumerate() {
            // Places and ends in the order in which they were met.
            while let Some(place) = places.get(nodes.len()).filter(|p| p.first_end <= number) {
                let time = times[nodes.len()];
                let node = match place.before {
                    None => forest.plant(),
                    Some(before) => {
                        let key = (nodes[before.0 as usize], place.program, place.slept, None);
                        let (id, node) = forest.child(key);
                        node.add(place.thread, time);
                        id
                    }
                };
                nodes.push(node);
            }
            let key = (nodes[end.place.0 as usize], end.program, end.slept, Some(end.end));
            let (_, node) = forest.child(key);
            node.add(end.thread, time);
            match end.end.kind {
                BlameEntryKind::Work => *node.work.entry(end.stack).or_default() += time,
                BlameEntryKind::CpuQueue => *node.holders.entry(end.holder).or_default() += time,
                _ => {}
            }
        }
        let mut grown = forest.grow(meanings);
        let mut trees = WaitTrees::default();
        for ((program, meaning), root) in roots {
            let Some(meaning) = meanings.get(meaning) else { continue };
            let mut node = grown.remove(&nodes[root.place.0 as usize]).unwrap_or_default();
            for (&thread, &time) in &root.waiters {
                node.add(thread, time);
            }
            let RootSum { count, longest, stopped_peers, files, .. } = root;
            let root = WaitRoot { node, count, longest, stopped_peers, files };
            trees.roots.insert((program, meaning.clone()), root);
        }
        for OpenPart { root: (program, meaning), thread, wait, time } in open {
            if let (Some(meaning), Some((state, waited_on))) =
                (meanings.get(meaning), meanings.state_and_object(wait))
            {
                trees.open.insert((program, meaning.clone()), thread, (state, waited_on), time);
            }
        }
        trees
    }
}

/// Returns whether a part is that of a wait which had not ended when the window did.
pub(super) fn is_open(meanings: &WaitMeanings<'_>, wait: WaitIndex, part: &BlamePart) -> bool {
    if part.depth > 0 {
        return false;
    }
    match part.kind {
        BlameKind::Unattributed(Reason::StillBlocked) => true,
        // The profiler ends the command that it started when the window is over.
        BlameKind::Unattributed(Reason::NotRecorded) => {
            let profiler = meanings.blame.recording().meta.profiler;
            matches!(
                meanings.blame.wake_source(wait),
                WakeSource::Task(task) if Some(task.tgid) == profiler
            )
        }
        _ => false,
    }
}

fn push_place(places: &mut Vec<Place>, place: Place) -> PlaceId {
    places.push(place);
    PlaceId(u32::try_from(places.len() - 1).unwrap_or(u32::MAX))
}

/// What tells the nodes of a [`Forest`] apart: the node above, and what [`NodeKey`] has.
type ForestKey = (u32, ProgramId, MeaningId, Option<ChainEnd>);

/// Trees whose nodes are in one list while they grow, each after the one above it.
#[derive(Default)]
struct Forest {
    nodes: Vec<(Option<ForestKey>, Node)>,
    by_key: FastMap<ForestKey, u32>,
}

impl Forest {
    /// Adds a root.
    fn plant(&mut self) -> u32 {
        self.push(None)
    }

    /// Returns the node with a key.
    fn child(&mut self, key: ForestKey) -> (u32, &mut Node) {
        let id = match self.by_key.get(&key) {
            Some(&known) => known,
            None => {
                let id = self.push(Some(key));
                self.by_key.insert(key, id);
                id
            }
        };
        (id, &mut self.nodes[id as usize].1)
    }

    fn push(&mut self, key: Option<ForestKey>) -> u32 {
        self.nodes.push((key, Node::default()));
        u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
    }

    /// Puts all nodes where they belong; returns the roots.
    fn grow(self, meanings: &WaitMeanings<'_>) -> FastMap<u32, Node> {
        let mut nodes = self.nodes;
        let mut roots = FastMap::default();
        while let Some((key, mut node)) = nodes.pop() {
            // They came the last one first.
            node.children.reverse();
            match key {
                None => _ = roots.insert(u32::try_from(nodes.len()).unwrap_or(u32::MAX), node),
                Some((above, program, slept, end)) => {
                    let key = NodeKey { program, slept: meanings.get(slept).cloned(), end };
                    nodes[above as usize].1.children.insert(key, node);
                }
            }
        }
        roots
    }
}

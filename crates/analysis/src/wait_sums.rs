//! Adds up waits that are alike.

use indexmap::{IndexMap, IndexSet};
use offwake_recording::{
    Id, Pattern, ThreadRef, Wait, WakeContext,
    units::{Nanos, Timestamp},
};
use rayon::prelude::*;

use crate::{
    blame::{
        Blame, BlamePart, BlameParts, Chains, HopDetail, IdleState, ImportedChains, StackPairId,
        WakeSource,
        cause::{self, Cause, WaitedOn, WokenThrough, syscalls},
    },
    filter::{Filter, WaitFilter},
    timeline::{NamedThread, WaitIndex},
};

/// Who made a wake, as a part of keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum WakerKey {
    Unknown,
    Task { task: ThreadRef, named: Option<NamedThread>, context: WakeContext },
    Interrupt(WakeContext),
}

/// The syscall in which a task made a wake, and what it named.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WakerSyscall {
    pub(crate) syscall: &'static str,
    pub(crate) through: Option<WokenThrough>,
}

/// The attributes that waits of a pattern show in the report, except for the waker.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WaitAttributes {
    pub(crate) cause: Cause,
    pub(crate) state: char,
    pub(crate) syscall: Option<&'static str>,
    pub(crate) waited_on: Option<WaitedOn>,
    pub(crate) stack: StackPairId,
    pub(crate) waker_stack: StackPairId,
    pub(crate) waker_call: Option<WakerSyscall>,
}

/// What waits have to have in common to be one entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WaitSumKey {
    pub(crate) waiter: NamedThread,
    pub(crate) waker: WakerKey,
    /// Index into [`WaitAttributesTable`].
    attributes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WakeKey {
    pub(crate) waker: WakerKey,
    pub(crate) wakee: NamedThread,
    pub(crate) cause: Cause,
}

#[derive(Default)]
pub(crate) struct WaitTotals {
    pub(crate) count: u64,
    pub(crate) retries: u64,
    pub(crate) blocked: Nanos,
    pub(crate) longest: Nanos,
    pub(crate) idle: Nanos,
    pub(crate) timeout: Timeout,
    pub(crate) parts: BlameParts,
    /// When the first of them ended.
    pub(crate) ended: Timestamp,
}

impl WaitTotals {
    /// Adds the sums of later waits of the same key.
    fn append(&mut self, later: Self, imported: &ImportedChains) {
        if self.count == 0 {
            self.ended = later.ended;
        }
        self.timeout = self.timeout.and(later.timeout);
        self.count += later.count;
        self.retries += later.retries;
        self.blocked += later.blocked;
        self.longest = self.longest.max(later.longest);
        self.idle += later.idle;
        self.parts.append(later.parts, imported);
    }
}

/// The timeout that several waits had.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Timeout {
    #[default]
    NoneYet,
    All(Option<Nanos>),
    Differs,
}

impl Timeout {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::NoneYet, only) | (only, Self::NoneYet) => only,
            (one, other) if one == other => one,
            _ => Self::Differs,
        }
    }
}

/// Sums in the order of their keys' first appearance, so that every order derived from it is
/// stable.
pub(crate) type Sums<K, V> = IndexMap<K, V, foldhash::fast::RandomState>;

/// The distinct attributes of all patterns, each pattern's with its wake and without it.
pub(crate) struct WaitAttributesTable {
    list: Vec<WaitAttributes>,
    /// The index of a pattern's attributes, by the pattern's index.
    woken: Vec<u32>,
    without_waker: Vec<u32>,
    timeouts: Vec<Option<Nanos>>,
}

impl WaitAttributesTable {
    fn new(blame: &Blame<'_>) -> Self {
        let waits = &blame.recording().waits;
        let mut distinct = IndexSet::<WaitAttributes, foldhash::fast::RandomState>::default();
        let mut by_pattern = vec![(0, 0, None); waits.patterns().len()];
        let mut is_done = vec![false; by_pattern.len()];
        for (row, n) in waits.rows().iter().zip(0..) {
            let pattern = row.pattern.index();
            if std::mem::replace(&mut is_done[pattern], true) {
                continue;
            }
            let Some(wait) = waits.get(n as usize) else { continue };
            let mut index = |attributes| {
                let (index, _) = distinct.insert_full(attributes);
                u32::try_from(index).unwrap_or(u32::MAX)
            };
            let woken = wait_attributes(blame, WaitIndex(n), &wait);
            let without_waker =
                WaitAttributes { waker_stack: StackPairId::NONE, waker_call: None, ..woken };
            by_pattern[pattern] = (index(woken), index(without_waker), wait.timeout);
        }
        Self {
            list: distinct.into_iter().collect(),
            woken: by_pattern.iter().map(|pattern| pattern.0).collect(),
            without_waker: by_pattern.iter().map(|pattern| pattern.1).collect(),
            timeouts: by_pattern.iter().map(|pattern| pattern.2).collect(),
        }
    }

    pub(crate) fn get(&self, key: &WaitSumKey) -> &WaitAttributes {
        &self.list[key.attributes as usize]
    }

    fn index_for(&self, pattern: Id<Pattern>, waker: WakerKey) -> u32 {
        match waker {
            WakerKey::Task { .. } => self.woken[pattern.index()],
            WakerKey::Unknown | WakerKey::Interrupt(_) => self.without_waker[pattern.index()],
        }
    }
}

fn wait_attributes(blame: &Blame<'_>, index: WaitIndex, wait: &Wait) -> WaitAttributes {
    let cause = blame.cause(index);
    let (stack, waker_stack) = blame.wait_and_waker_stacks(index);
    WaitAttributes {
        cause,
        state: wait.state.letter(),
        syscall: wait.syscall.as_ref().and_then(syscalls::name),
        waited_on: cause::waited_on(wait, cause),
        stack,
        waker_stack,
        waker_call: wait.wake.as_ref().and_then(|wake| {
            let syscall = syscalls::name(wake.syscall.as_ref()?)?;
            Some(WakerSyscall { syscall, through: cause::woken_through(wake) })
        }),
    }
}

/// A wait of the target that the filter keeps.
#[derive(Clone, Copy)]
pub(crate) struct KeptWait {
    pub(crate) waiter: NamedThread,
    pub(crate) blocked: Nanos,
    /// Of that, what was idle by design.
    pub(crate) idle: Nanos,
    ended: Timestamp,
}

/// What a filter makes of a wait.
pub(crate) enum FilteredWait {
    Kept(KeptWait),
    LeftOut(Nanos),
}

/// Filters a wait; none if it has no time inside the window.
pub(crate) fn filter_wait(
    blame: &Blame<'_>,
    filter: &WaitFilter<'_>,
    wait: WaitIndex,
    parts: &[BlamePart],
) -> Option<FilteredWait> {
    let timeline = blame.timeline();
    let waits = &blame.recording().waits;
    let place = timeline.blocked_interval(wait)?;
    let row = waits.rows().get(wait.0 as usize)?;
    let blocked = place.to.since(place.from);
    let is_idle = |part: &&BlamePart| part.idle_state == IdleState::Idle;
    let idle: Nanos = parts.iter().filter(is_idle).map(|part| part.time).sum();
    // What was idle for the better part of it.
    let idle_state = if idle > blocked - idle { IdleState::Idle } else { IdleState::Busy };
    if !filter.keeps(row, blocked, idle_state) {
        return Some(FilteredWait::LeftOut(blocked));
    }
    let waiter = timeline.named_thread(place.thread, place.from);
    Some(FilteredWait::Kept(KeptWait { waiter, blocked, idle, ended: place.to }))
}

/// Returns whether a wait is one of the target's.
pub(crate) fn is_of_target(blame: &Blame<'_>, wait: WaitIndex) -> bool {
    let timeline = blame.timeline();
    let thread = timeline.blocked_interval(wait).and_then(|place| timeline.thread(place.thread));
    thread.is_some_and(|thread| thread.in_target)
}

/// The sums of the target's waits that the filter keeps, told apart by everything that entries show.
#[derive(Default)]
pub(crate) struct WaitSums {
    pub(crate) waits: Sums<WaitSumKey, WaitTotals>,
    pub(crate) wakes: Sums<WakeKey, (u64, Nanos)>,
}

impl WaitSums {
    fn add(
        &mut self,
        blame: &Blame<'_>,
        attributes: &WaitAttributesTable,
        filter: &WaitFilter<'_>,
        wait: WaitIndex,
        parts: &[BlamePart],
    ) {
        let Some(FilteredWait::Kept(kept)) = filter_wait(blame, filter, wait, parts) else {
            return;
        };
        let waits = &blame.recording().waits;
        let Some(row) = waits.rows().get(wait.0 as usize) else { return };
        let KeptWait { waiter, blocked, idle, ended } = kept;
        let waker = waker_key(blame, wait, waits.waker(row).map(|waker| waker.context));
        let timeout = attributes.timeouts.get(row.pattern.index()).copied().flatten();
        let attributes = attributes.index_for(row.pattern, waker);
        let sum = self.waits.entry(WaitSumKey { waiter, waker, attributes }).or_default();
        if sum.count == 0 {
            sum.ended = ended;
        }
        sum.timeout = sum.timeout.and(Timeout::All(timeout));
        sum.count += 1;
        sum.retries += u64::from(blame.is_retry(wait));
        sum.blocked += blocked;
        sum.longest = sum.longest.max(blocked);
        sum.idle += idle;
        parts.iter().for_each(|&part| sum.parts.push(part));
        if waker != WakerKey::Unknown {
            let cause = blame.cause(wait);
            let key = WakeKey { waker, wakee: waiter, cause };
            let (count, time) = self.wakes.entry(key).or_default();
            *count += 1;
            *time += blocked;
        }
    }

    /// Adds the sums of later waits.
    fn append(&mut self, later: Self, chains: &mut Chains, their_chains: &Chains) {
        let imported = chains.import(their_chains);
        // The keys in their order on one CPU, the millions of parts on all.
        let mut later_by_place: Vec<Option<WaitTotals>> = Vec::new();
        for (key, more) in later.waits {
            let entry = self.waits.entry(key);
            let place = entry.index();
            entry.or_default();
            later_by_place.resize_with(later_by_place.len().max(place + 1), || None);
            later_by_place[place] = Some(more);
        }
        let pairs: Vec<_> = (self.waits.values_mut().zip(later_by_place))
            .filter_map(|(sum, more)| Some((sum, more?)))
            .collect();
        pairs.into_par_iter().for_each(|(sum, more)| sum.append(more, &imported));
        for (key, (count, time)) in later.wakes {
            let (all, all_time) = self.wakes.entry(key).or_default();
            *all += count;
            *all_time += time;
        }
    }
}

/// Adds up the target's waits that the filter keeps.
pub(crate) fn sum_waits(
    blame: &Blame<'_>,
    filter: &Filter,
) -> (WaitSums, WaitAttributesTable, Chains) {
    let attributes = WaitAttributesTable::new(blame);
    let filter = filter.for_recording(blame.recording());
    let visited = blame.visit_waits(
        HopDetail::WakerStacks,
        WaitSums::default,
        |wait| is_of_target(blame, wait),
        |sums, wait, parts, _| sums.add(blame, &attributes, &filter, wait, parts),
    );
    let mut visited = visited.into_iter();
    let (mut sums, mut chains) = visited.next().unwrap_or_default();
    for (later, their_chains) in visited {
        sums.append(later, &mut chains, &their_chains);
    }
    (sums, attributes, chains)
}

/// Returns who made a wake. A task that an interrupt ran on top of did not make it.
fn waker_key(blame: &Blame<'_>, wait: WaitIndex, context: Option<WakeContext>) -> WakerKey {
    match (blame.wake_source(wait), context) {
        (WakeSource::Task(task), Some(context)) => {
            let named = (blame.waker_thread(wait))
                .map(|(thread, woken)| blame.timeline().named_thread(thread, woken));
            WakerKey::Task { task, named, context }
        }
        (WakeSource::External(_) | WakeSource::Interrupt(_), Some(context)) => {
            WakerKey::Interrupt(context)
        }
        (WakeSource::Unknown(_), _) | (_, None) => WakerKey::Unknown,
    }
}

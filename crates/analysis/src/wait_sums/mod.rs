//! Adds up waits that are alike.
//!
//! Waits that may be alike are walked one after another, group by group ([`groups`]), so that the sums of
//! a group are whole when it is over. What has no room then is summed up at once ([`small_parts`]): of
//! millions of parts, those of a few groups are told apart at a time.
//!
//! ```text
//! CPU 0   group 3 | group 1 | …      parts told apart   ──▶ those that have room
//! CPU 1   group 2 | group 0 | …                          └─▶ small parts, by their first hop
//! ```

mod groups;
mod label_values;
mod small_parts;

use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use offwake_recording::{
    Id, Pattern, ThreadRef, Wait, WakeContext,
    units::{Nanos, Timestamp},
};

use crate::{
    blame::{
        Blame, BlamePart, BlameParts, Chains, HopDetail, IdleState, KindSum, StackPairId,
        WakeSource, WalkedWait,
        cause::{self, Cause, WaitedOn, WokenThrough, syscalls},
    },
    filter::{Filter, WaitFilter},
    markers::MarkerPathId,
    timeline::{NamedThread, WaitIndex},
};

use label_values::LabelValues;
use small_parts::SharedRoom;
pub(crate) use small_parts::{SmallParts, worth, worth_of_hops};

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
    /// In which ranges of its own the waiter was.
    pub(crate) markers: MarkerPathId,
    /// Index into [`WaitAttributesTable`].
    attributes: u32,
    /// Number of the label's value; 0 if waits are not told apart by one, or without it.
    label: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WakeKey {
    pub(crate) waker: WakerKey,
    pub(crate) wakee: NamedThread,
    pub(crate) cause: Cause,
}

/// The sums of waits that are alike.
pub(crate) struct WaitTotals {
    pub(crate) count: u64,
    pub(crate) retries: u64,
    pub(crate) blocked: Nanos,
    pub(crate) longest: Nanos,
    pub(crate) idle: Nanos,
    pub(crate) timeout: Timeout,
    /// The parts of their blame, but for the small ones.
    pub(crate) parts: Vec<BlamePart>,
    pub(crate) small: Vec<SmallParts>,
    pub(crate) first: WaitIndex,
    /// When the first of them ended.
    pub(crate) ended: Timestamp,
}

impl WaitTotals {
    fn beginning_with(first: WaitIndex, ended: Timestamp) -> Self {
        Self {
            count: 0,
            retries: 0,
            blocked: Nanos(0),
            longest: Nanos(0),
            idle: Nanos(0),
            timeout: Timeout::NoneYet,
            parts: Vec::new(),
            small: Vec::new(),
            first,
            ended,
        }
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

type Sums<K, V> = IndexMap<K, V, foldhash::fast::RandomState>;

/// The distinct attributes of all patterns, each pattern's with its wake and without it.
pub(crate) struct WaitAttributesTable {
    list: Vec<WaitAttributes>,
    /// The index of a pattern's attributes, by the pattern's index.
    woken: Vec<u32>,
    without_waker: Vec<u32>,
    timeouts: Vec<Option<Nanos>>,
    /// The values of the label by which waits are told apart, if they are.
    labels: Option<LabelValues>,
}

impl WaitAttributesTable {
    pub(crate) fn new(blame: &Blame<'_>, told_apart_by: Option<&Arc<str>>) -> Self {
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
            labels: told_apart_by.map(|name| LabelValues::find(blame.recording(), name)),
        }
    }

    pub(crate) fn get(&self, key: &WaitSumKey) -> &WaitAttributes {
        &self.list[key.attributes as usize]
    }

    /// The label by which these waits are told apart from others; none without it.
    pub(crate) fn label(&self, key: &WaitSumKey) -> Option<(String, String)> {
        self.labels.as_ref()?.label(key.label)
    }

    /// Returns what a wait has in common with others of its entry; none if it has no time inside the window.
    fn key(&self, blame: &Blame<'_>, wait: WaitIndex) -> Option<WaitSumKey> {
        let place = blame.timeline().blocked_interval(wait)?;
        let waits = &blame.recording().waits;
        let row = waits.rows().get(wait.0 as usize)?;
        let waker = waker_key(blame, wait, waits.waker(row).map(|waker| waker.context));
        let waiter = blame.timeline().named_thread(place.thread, place.from);
        let markers = blame.markers().path_at(place.thread, place.from);
        let label = self.labels.as_ref().map_or(0, |labels| labels.number(wait));
        let attributes = self.index_for(row.pattern, waker);
        Some(WaitSumKey { waiter, waker, markers, attributes, label })
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
    sums: impl Iterator<Item = KindSum>,
) -> Option<FilteredWait> {
    let timeline = blame.timeline();
    let waits = &blame.recording().waits;
    let place = timeline.blocked_interval(wait)?;
    let row = waits.rows().get(wait.0 as usize)?;
    let blocked = place.to.since(place.from);
    let is_idle = |sum: &KindSum| sum.idle_state == IdleState::Idle;
    let idle: Nanos = sums.filter(is_idle).map(|sum| sum.time).sum();
    // What was idle for the better part of it.
    let idle_state = if idle > blocked - idle { IdleState::Idle } else { IdleState::Busy };
    if !filter.keeps(wait, row, blocked, idle_state) {
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
pub(crate) struct WaitSums {
    /// In the order of their first waits, so that every order derived from it is stable.
    pub(crate) waits: Vec<WaitSum>,
    /// In the same order.
    pub(crate) wakes: Vec<(WakeKey, WakeTotals)>,
    pub(crate) attributes: WaitAttributesTable,
    /// The chains of the walkers.
    chains: Vec<Chains>,
    /// Which parts have room for their hops are among those that are worth as much or more.
    pub(crate) least_with_room: u64,
}

/// What is shown each wait that is walked, its parts and the chains that they refer to.
pub(crate) type WatchWait<'w> = &'w (dyn Fn(WaitIndex, &[BlamePart], &Chains) + Sync);

/// Waits that are one entry.
pub(crate) struct WaitSum {
    pub(crate) key: WaitSumKey,
    pub(crate) totals: WaitTotals,
    /// Which walker's chains the parts refer to.
    walker: usize,
}

impl WaitSum {
    /// The sum of one wait alone, of which `parts` are told apart and `small` are not.
    pub(crate) fn from_wait(
        blame: &Blame<'_>,
        attributes: &WaitAttributesTable,
        wait: WaitIndex,
        kept: KeptWait,
        (parts, small): (Vec<BlamePart>, Vec<SmallParts>),
    ) -> Option<Self> {
        let KeptWait { blocked, idle, ended, .. } = kept;
        let row = blame.recording().waits.rows().get(wait.0 as usize)?;
        let timeout = attributes.timeouts.get(row.pattern.index()).copied().flatten();
        let totals = WaitTotals {
            count: 1,
            retries: u64::from(blame.is_retry(wait)),
            blocked,
            longest: blocked,
            idle,
            timeout: Timeout::All(timeout),
            parts,
            small,
            ..WaitTotals::beginning_with(wait, ended)
        };
        Some(Self { key: attributes.key(blame, wait)?, totals, walker: 0 })
    }
}

/// Wakes of one key.
#[derive(Clone, Copy)]
pub(crate) struct WakeTotals {
    pub(crate) count: u64,
    pub(crate) time: Nanos,
    first: WaitIndex,
}

impl WakeTotals {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.time += more.time;
        self.first = self.first.min(more.first);
    }
}

impl WaitSums {
    /// Adds up the target's waits that the filter keeps. All parts are told apart that have room for their
    /// hops among `hops` hops. Some others are, too: which depends on who was the first to be added up.
    /// Each of the target's waits is shown to `watch`, with its parts, before it is added.
    pub(crate) fn new(
        blame: &Blame<'_>,
        filter: &Filter,
        hops: usize,
        watch: WatchWait<'_>,
    ) -> Self {
        let attributes = WaitAttributesTable::new(blame, filter.told_apart_by.as_ref());
        let filter = filter.for_recording(blame.recording());
        let groups = groups::group_waits(blame.recording().waits.len(), |wait| {
            is_of_target(blame, wait).then(|| attributes.key(blame, wait)).flatten()
        });
        let room = SharedRoom::new(hops);
        let visited = blame.visit_groups(
            HopDetail::WakerStacks,
            &groups.list(),
            VisitedSums::default,
            |sums, group, walker| {
                for &wait in *group {
                    let walked = walker.walk(wait);
                    watch(wait, walked.parts, walked.chains);
                    sums.add(blame, &attributes, &filter, wait, walked);
                }
                sums.close_group(&room, walker.chains());
            },
        );
        let mut sums = Self {
            waits: Vec::new(),
            wakes: Vec::new(),
            attributes,
            chains: Vec::new(),
            least_with_room: room.least_with_room(),
        };
        let mut wakes = Sums::default();
        for (walker, (visited, chains)) in visited.into_iter().enumerate() {
            let closed = visited.closed.into_iter();
            sums.waits.extend(closed.map(|(key, totals)| WaitSum { key, totals, walker }));
            sums.chains.push(chains);
            for (key, more) in visited.wakes {
                add_wakes(&mut wakes, key, more);
            }
        }
        sums.waits.sort_unstable_by_key(|sum| sum.totals.first);
        sums.wakes.extend(wakes);
        // One wait has one wake.
        sums.wakes.sort_unstable_by_key(|(_, totals)| totals.first);
        sums
    }

    /// The chains that the parts of a sum refer to.
    pub(crate) fn chains(&self, sum: &WaitSum) -> &Chains {
        &self.chains[sum.walker]
    }
}

fn add_wakes(wakes: &mut Sums<WakeKey, WakeTotals>, key: WakeKey, more: WakeTotals) {
    wakes.entry(key).and_modify(|totals| totals.add(more)).or_insert(more);
}

/// The sums of the groups that one walker has visited.
#[derive(Default)]
struct VisitedSums {
    /// Those of the group that is being visited. Their parts are in lists with tables of their own.
    open: Sums<WaitSumKey, (WaitTotals, BlameParts)>,
    closed: Vec<(WaitSumKey, WaitTotals)>,
    wakes: Sums<WakeKey, WakeTotals>,
}

impl VisitedSums {
    fn add(
        &mut self,
        blame: &Blame<'_>,
        attributes: &WaitAttributesTable,
        filter: &WaitFilter<'_>,
        wait: WaitIndex,
        walked: WalkedWait<'_>,
    ) {
        let Some(FilteredWait::Kept(kept)) = filter_wait(blame, filter, wait, walked.sums()) else {
            return;
        };
        let Some(row) = blame.recording().waits.rows().get(wait.0 as usize) else { return };
        let Some(key) = attributes.key(blame, wait) else { return };
        let KeptWait { blocked, idle, ended, .. } = kept;
        let timeout = attributes.timeouts.get(row.pattern.index()).copied().flatten();
        let (sum, sum_parts) = (self.open.entry(key))
            .or_insert_with(|| (WaitTotals::beginning_with(wait, ended), BlameParts::default()));
        sum.timeout = sum.timeout.and(Timeout::All(timeout));
        sum.count += 1;
        sum.retries += u64::from(blame.is_retry(wait));
        sum.blocked += blocked;
        sum.longest = sum.longest.max(blocked);
        sum.idle += idle;
        walked.parts.iter().for_each(|&part| sum_parts.push(part));
        let WaitSumKey { waiter, waker, .. } = key;
        if waker != WakerKey::Unknown {
            let wake = WakeKey { waker, wakee: waiter, cause: blame.cause(wait) };
            let totals = WakeTotals { count: 1, time: blocked, first: wait };
            add_wakes(&mut self.wakes, wake, totals);
        }
    }

    /// Sums up what has no room, now that the sums of this group are whole.
    fn close_group(&mut self, room: &SharedRoom, chains: &Chains) {
        let Self { open, closed, .. } = self;
        room.add(open.values().flat_map(|(_, parts)| parts.as_slice()));
        let least = room.least_with_room();
        for (key, (totals, parts)) in open.drain(..) {
            let (parts, small) = small_parts::split_off(parts.into_list(), least, chains);
            closed.push((key, WaitTotals { parts, small, ..totals }));
        }
    }
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

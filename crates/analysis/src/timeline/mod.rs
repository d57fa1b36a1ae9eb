//! The timeline: what each thread was doing at every moment of its life inside the window.
//!
//! ```text
//!          window.start                                             window.end
//! thread        |  on-CPU | blocked      | runnable | on-CPU | lost ... |
//! ------------+-+---------+--------------+----------+--------+----------+--> time
//!        created         off          wake.at       on
//! ```
//!
//! A life has no holes and no overlaps: time that no record covers is [`State::Lost`], never
//! guessed.

mod evidence;
mod interval;
mod layout;
mod lives;
mod tid_changes;

use std::{collections::BTreeSet, sync::Arc};

use offwake_recording::{
    Recording, SummedWaits, ThreadKind,
    units::{CgroupId, Nanos, Tgid, Tid, Timestamp},
};
use rayon::prelude::*;

use lives::ThreadLife;
use tid_changes::TidChanges;

pub use interval::{Interval, RunnableSince, State, StateTimes, Track};
pub use layout::EARLY_WAKE;
use layout::GapPolicy;
pub use layout::{WakeUse, wake_use};

/// Index into [`Recording::waits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitIndex(pub u32);

/// Index into [`Recording::preemptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreemptionIndex(pub u32);

/// Index into [`Recording::throttles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThrottleIndex(pub u32);

/// Index into [`Recording::summed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SummedIndex(pub u32);

/// Index into [`Timeline::threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIndex(pub u32);

/// Whether a thread's waits were recorded: with [`offwake_recording::Scope::Target`], others than the target's were not,
/// and all that is known of such a thread is whom it woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitScope {
    /// They were.
    Recorded,
    /// They were not.
    OutOfScope,
}

/// A thread's name, and since when it had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameSince {
    /// When the thread got the name.
    pub since: Timestamp,
    /// The name. It comes from another program, and may contain anything but NUL.
    pub comm: Arc<str>,
}

/// How the time divides in which a thread's short waits were summed up. What is left of it, the thread was
/// on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummedTimes {
    /// All of it.
    pub time: Nanos,
    /// Time blocked.
    pub blocked: Nanos,
    /// Time in which the thread waited for a CPU.
    pub runnable: Nanos,
    /// The longest time that it was blocked at once.
    pub longest: Nanos,
    /// How many waits there were.
    pub waits: u64,
    /// How many preemptions there were.
    pub preemptions: u64,
}

impl SummedTimes {
    /// The time on a CPU.
    #[must_use]
    pub fn on_cpu(self) -> Nanos {
        Nanos(self.time.0.saturating_sub(self.blocked.0).saturating_sub(self.runnable.0))
    }

    /// Adds a stretch of which `visible` is part of the thread's track: all of it, unless it begins or ends
    /// outside of the window. Then its sums are divided as if they were spread evenly.
    fn add(&mut self, stretch: &SummedWaits, visible: Nanos) {
        let whole = stretch.until.since(stretch.from);
        let share = |of: Nanos| {
            let part = u128::from(of.0) * u128::from(visible.0) / u128::from(whole.0.max(1));
            Nanos(u64::try_from(part).unwrap_or(u64::MAX))
        };
        // What contradicts itself must not make the parts more than the whole.
        let blocked = Nanos(share(stretch.blocked).0.min(visible.0));
        let runnable = Nanos(share(stretch.runnable).0.min(visible.0 - blocked.0));
        self.time += visible;
        self.blocked += blocked;
        self.runnable += runnable;
        self.longest = self.longest.max(Nanos(stretch.longest.0.min(blocked.0)));
        self.waits += u64::from(stretch.waits);
        self.preemptions += u64::from(stretch.preemptions);
    }
}

/// Threads that become the target of a report in place of the recording's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SelectedThreads {
    /// Whether each thread of the timeline is selected.
    pub threads: Vec<bool>,
    /// The selection in words.
    pub words: String,
}

/// What stands for the name of a thread or process of which no name was recorded.
pub const NAMELESS: &str = "[unknown]";

/// One thread's life inside the window.
///
/// The kernel uses a tid again, so that one tid may name several of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread's id.
    pub tid: Tid,
    /// The thread's process.
    pub tgid: Tgid,
    /// The kind of thread.
    pub kind: ThreadKind,
    /// Whether the thread belonged to the target at any time.
    pub in_target: bool,
    /// Whether the thread's waits were recorded.
    pub waits_recorded: WaitScope,
    /// The thread's last cgroup, as far as it is known.
    pub cgroup: Option<CgroupId>,
    /// When the thread was created; none if no thread event of it arrived.
    pub created: Option<Timestamp>,
    /// The beginning of the thread's life, or of the window if that is later.
    pub from: Timestamp,
    /// The end of the thread's life, or of the window if that is earlier.
    pub until: Timestamp,
    /// The thread's names in order of time. Empty if no thread event of the thread arrived.
    pub names: Vec<NameSince>,
    /// What the thread did.
    pub track: Track,
    /// How the time divides in which its short waits were summed up.
    pub summed: SummedTimes,
    /// The times of which the thread's own records tell nothing, because some were lost, but which
    /// the records of other threads prove.
    pub inferred: Vec<(Timestamp, Timestamp)>,
}

impl Thread {
    /// Returns the index into `names` of the thread's name at `at`; of the first name if the thread
    /// was first seen later than that.
    #[must_use]
    pub fn name_at(&self, at: Timestamp) -> Option<usize> {
        let borne = self.names.partition_point(|name| name.since <= at);
        (!self.names.is_empty()).then(|| borne.saturating_sub(1))
    }

    /// Returns the thread's last name, or [`NAMELESS`].
    #[must_use]
    pub fn last_comm(&self) -> &str {
        self.names.last().map_or(NAMELESS, |name| &name.comm)
    }

    /// Returns the thread's name at `at`.
    #[must_use]
    pub fn comm_at(&self, at: Timestamp) -> Option<&str> {
        self.name_at(at).and_then(|index| self.names.get(index)).map(|name| &*name.comm)
    }
}

/// A thread under one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedThread {
    /// The thread.
    pub thread: ThreadIndex,
    /// The index of the name in the thread's names; none if no name is known.
    pub name: Option<u32>,
}

/// A wait's blocked part inside the window, `from..to`, and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedInterval {
    /// The thread.
    pub thread: ThreadIndex,
    /// Where the blocked part begins.
    pub from: Timestamp,
    /// Where it ends.
    pub to: Timestamp,
}

/// The position of a wait's blocked interval: its thread, and the index in the thread's track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrackPosition {
    thread: ThreadIndex,
    interval: u32,
}

impl TrackPosition {
    /// The position of a wait without a blocked part inside the window.
    const NOWHERE: Self = Self { thread: ThreadIndex(u32::MAX), interval: u32::MAX };
}

/// Counts of records that contradict each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anomalies {
    /// Records that began before the one before them had ended; they were clipped.
    pub overlaps: u64,
    /// Records whose times or numbers run backwards; they were clipped.
    pub backwards: u64,
    /// Wakes that were too old for their wait, and were ignored.
    pub stale_wakes: u64,
}

impl Anomalies {
    fn add(&mut self, other: Self) {
        let Self { overlaps, backwards, stale_wakes } = other;
        self.overlaps += overlaps;
        self.backwards += backwards;
        self.stale_wakes += stale_wakes;
    }
}

/// Every thread's life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Sorted by tid, then by time.
    pub threads: Vec<Thread>,
    /// The interval of each wait of the recording, by [`WaitIndex`].
    wait_positions: Vec<TrackPosition>,
    /// Counts of records that contradict each other.
    pub anomalies: Anomalies,
    /// The target in words, if it is another than the recording's.
    selected_target: Option<String>,
}

impl Timeline {
    /// Lays out every thread's life. The lists of the recording have to be sorted
    /// ([`Recording::sort`]).
    ///
    /// The lives without gaps are laid out first, then the others, with what the records of
    /// everybody else say of them.
    #[must_use]
    pub fn build(recording: &Recording) -> Self {
        let tids = lives::records_by_tid(recording);
        let changes = TidChanges::find(recording, &tids);
        let lives: Vec<TidLives<'_>> =
            tids.par_iter().map(|of_tid| TidLives::new(recording, of_tid, &changes)).collect();
        let gapped = lives.iter().filter_map(|lives| match lives {
            TidLives::LaidOut(_) => None,
            TidLives::Gapped(tid, _) => Some(*tid),
        });
        let evidence = evidence::gather(recording, &gapped.collect::<Vec<Tid>>());
        let laid: Vec<LaidOut> =
            lives.into_par_iter().map(|lives| lives.lay_out(recording, &evidence)).collect();
        let mut threads = Vec::with_capacity(laid.iter().map(|(threads, _)| threads.len()).sum());
        let mut anomalies = Anomalies::default();
        for (more, more_anomalies) in laid {
            threads.extend(more);
            anomalies.add(more_anomalies);
        }
        let wait_positions = locate_waits(recording, &threads);
        Self { threads, wait_positions, anomalies, selected_target: None }
    }

    /// Makes the selected threads the target.
    pub(crate) fn set_target(&mut self, selected: SelectedThreads) {
        for (thread, is_selected) in self.threads.iter_mut().zip(selected.threads) {
            thread.in_target = is_selected;
        }
        self.selected_target = Some(selected.words);
    }

    /// Takes processes out of the target.
    pub(crate) fn remove_from_target(&mut self, processes: &BTreeSet<Tgid>) {
        for thread in self.threads.iter_mut().filter(|thread| processes.contains(&thread.tgid)) {
            thread.in_target = false;
        }
    }

    /// Returns the target in words, if it is another than the recording's.
    #[must_use]
    pub fn selected_target(&self) -> Option<&str> {
        self.selected_target.as_deref()
    }

    /// Returns whether a thread belongs to the target.
    #[must_use]
    pub fn is_in_target(&self, thread: ThreadIndex) -> bool {
        self.thread(thread).is_some_and(|thread| thread.in_target)
    }

    /// Returns whether a thread's own waits were recorded.
    #[must_use]
    pub fn are_waits_recorded(&self, thread: ThreadIndex) -> bool {
        self.thread(thread).is_some_and(|thread| thread.waits_recorded == WaitScope::Recorded)
    }

    /// Returns a thread; none if there is no such index.
    #[must_use]
    pub fn thread(&self, index: ThreadIndex) -> Option<&Thread> {
        self.threads.get(index.0 as usize)
    }

    /// Returns a thread under its name at `at`.
    #[must_use]
    pub fn named_thread(&self, thread: ThreadIndex, at: Timestamp) -> NamedThread {
        let name = self.thread(thread).and_then(|life| life.name_at(at));
        NamedThread { thread, name: name.and_then(|name| u32::try_from(name).ok()) }
    }

    /// Returns the name of a thread; none if it is not known.
    #[must_use]
    pub fn comm(&self, named: NamedThread) -> Option<&str> {
        let name = self.thread(named.thread)?.names.get(named.name? as usize)?;
        Some(&name.comm)
    }

    /// Returns a wait's blocked part. None if it has none: its thread was woken before it left the
    /// CPU, or was just created, or did not live inside the window.
    #[must_use]
    pub fn blocked_interval(&self, wait: WaitIndex) -> Option<BlockedInterval> {
        let TrackPosition { thread, interval } = *self.wait_positions.get(wait.0 as usize)?;
        let Interval { from, to, .. } = self.thread(thread)?.track.get(interval as usize)?;
        Some(BlockedInterval { thread, from, to })
    }

    /// Returns the track of a wait's thread, and the index of the wait's blocked interval in it.
    #[must_use]
    pub fn track_position(&self, wait: WaitIndex) -> Option<(&Track, usize)> {
        let TrackPosition { thread, interval } = *self.wait_positions.get(wait.0 as usize)?;
        Some((&self.thread(thread)?.track, interval as usize))
    }

    /// Returns the process of a thread.
    #[must_use]
    pub fn process_of_thread(&self, thread: ThreadIndex) -> Option<Tgid> {
        self.thread(thread).map(|thread| thread.tgid)
    }

    /// Returns the thread that had `tid` at `at`.
    #[must_use]
    pub fn find_thread(&self, tid: Tid, at: Timestamp) -> Option<ThreadIndex> {
        let next = self.threads.partition_point(|thread| (thread.tid, thread.from) <= (tid, at));
        let index = next.checked_sub(1)?;
        let thread = self.threads.get(index)?;
        (thread.tid == tid && at <= thread.until).then(|| thread_index(index))
    }
}

fn thread_index(index: usize) -> ThreadIndex {
    ThreadIndex(u32::try_from(index).unwrap_or(u32::MAX))
}

/// The laid-out lives of one tid, in order of time.
type LaidOut = (Vec<Thread>, Anomalies);

/// The lives of one tid, laid out as far as its own records suffice.
enum TidLives<'a> {
    /// The lives have no gaps, and are laid out.
    LaidOut(LaidOut),
    /// Some life has gaps: they are laid out when the evidence of others has been gathered.
    Gapped(Tid, Vec<ThreadLife<'a>>),
}

impl<'a> TidLives<'a> {
    fn new(recording: &'a Recording, of_tid: &lives::TidRecords, changes: &TidChanges<'a>) -> Self {
        let lives = lives::split_into_lives(recording, of_tid, changes);
        match lay_out_all(recording, &lives, None, GapPolicy::Reject) {
            Some(laid) => Self::LaidOut(laid),
            None => Self::Gapped(of_tid.tid, lives),
        }
    }

    fn lay_out(self, recording: &Recording, evidence: &evidence::OthersEvidence) -> LaidOut {
        match self {
            Self::LaidOut(laid) => laid,
            Self::Gapped(tid, lives) => {
                lay_out_all(recording, &lives, evidence.get(tid), GapPolicy::Allow)
                    .unwrap_or_default()
            }
        }
    }
}

fn lay_out_all(
    recording: &Recording,
    lives: &[ThreadLife<'_>],
    known: Option<&evidence::TidEvidence>,
    gaps: GapPolicy,
) -> Option<LaidOut> {
    let mut anomalies = Anomalies::default();
    let threads: Option<Vec<Thread>> = lives
        .iter()
        .map(|life| layout::lay_out(recording, life, known, gaps, &mut anomalies))
        .collect();
    Some((threads?, anomalies))
}

fn locate_waits(recording: &Recording, threads: &[Thread]) -> Vec<TrackPosition> {
    let mut places = vec![TrackPosition::NOWHERE; recording.waits.len()];
    for (index, thread) in threads.iter().enumerate() {
        for (interval, Interval { state, .. }) in thread.track.iter().enumerate() {
            if let State::Blocked(wait) = state
                && let Some(place) = places.get_mut(wait.0 as usize)
            {
                let interval = u32::try_from(interval).unwrap_or(u32::MAX);
                *place = TrackPosition { thread: thread_index(index), interval };
            }
        }
    }
    places
}

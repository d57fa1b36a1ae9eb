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
mod lay;
mod life;
mod merge;

use std::sync::Arc;

use life::Life;
use rayon::prelude::*;

pub use interval::{Interval, Queued, Split, State, Track};
pub use lay::EARLY_WAKE;
use lay::Gaps;
pub use lay::{WakeUse, wake_use};

use offwake_recording::{
    Recording, ThreadKind,
    units::{CgroupId, Tgid, Tid, Timestamp},
};

/// Index into [`Recording::waits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitIndex(pub u32);

/// Index into [`Recording::preemptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreemptionIndex(pub u32);

/// Index into [`Timeline::threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIndex(pub u32);

/// A thread's name, and since when it had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// When the thread got the name.
    pub since: Timestamp,
    /// The name. It comes from another program, and may contain anything but NUL.
    pub comm: Arc<str>,
}

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
    /// The thread's last cgroup, as far as it is known.
    pub cgroup: Option<CgroupId>,
    /// When the thread was created; none if no sighting of it arrived.
    pub created: Option<Timestamp>,
    /// The beginning of the thread's life, or of the window if that is later.
    pub from: Timestamp,
    /// The end of the thread's life, or of the window if that is earlier.
    pub until: Timestamp,
    /// The thread's names in order of time. Empty if no sighting of the thread arrived.
    pub names: Vec<Name>,
    /// What the thread did.
    pub track: Track,
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

    /// Returns the thread's name at `at`.
    #[must_use]
    pub fn comm_at(&self, at: Timestamp) -> Option<&str> {
        self.name_at(at).and_then(|index| self.names.get(index)).map(|name| &*name.comm)
    }
}

/// A wait's blocked part inside the window, `from..to`, and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The thread.
    pub thread: ThreadIndex,
    /// Where the blocked part begins.
    pub from: Timestamp,
    /// Where it ends.
    pub to: Timestamp,
}

/// The position of a wait's blocked interval: its thread, and the index in the thread's track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    thread: ThreadIndex,
    interval: u32,
}

impl Place {
    /// The position of a wait without a blocked part inside the window.
    const NOWHERE: Self = Self { thread: ThreadIndex(u32::MAX), interval: u32::MAX };
}

/// Counts of records that contradict each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misfits {
    /// Records that began before the one before them had ended; they were clipped.
    pub overlaps: u64,
    /// Records whose times or numbers run backwards; they were clipped.
    pub backwards: u64,
    /// Wakes that were too old for their wait, and were ignored.
    pub stale_wakes: u64,
}

impl Misfits {
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
    places: Vec<Place>,
    /// Counts of records that contradict each other.
    pub misfits: Misfits,
}

impl Timeline {
    /// Lays out every thread's life. The lists of the recording have to be sorted
    /// ([`Recording::sort`]).
    ///
    /// The lives without gaps are laid out first, then the others, with what the records of
    /// everybody else say of them.
    #[must_use]
    pub fn build(recording: &Recording) -> Self {
        let tids = life::of_tids(recording);
        let lives: Vec<Lives<'_>> =
            tids.into_par_iter().map(|of_tid| Lives::of(recording, &of_tid)).collect();
        let gapped = lives.iter().filter_map(|lives| match lives {
            Lives::Laid(_) => None,
            Lives::Gapped(tid, _) => Some(*tid),
        });
        let evidence = evidence::of(recording, &gapped.collect::<Vec<Tid>>());
        let laid: Vec<Laid> =
            lives.into_par_iter().map(|lives| lives.lay(recording, &evidence)).collect();
        let mut threads = Vec::with_capacity(laid.iter().map(|(threads, _)| threads.len()).sum());
        let mut misfits = Misfits::default();
        for (more, mismatched) in laid {
            threads.extend(more);
            misfits.add(mismatched);
        }
        let places = places(recording, &threads);
        Self { threads, places, misfits }
    }

    /// Returns a thread; none if there is no such index.
    #[must_use]
    pub fn thread(&self, index: ThreadIndex) -> Option<&Thread> {
        self.threads.get(index.0 as usize)
    }

    /// Returns a wait's blocked part. None if it has none: its thread was woken before it left the
    /// CPU, or was just created, or did not live inside the window.
    #[must_use]
    pub fn place(&self, wait: WaitIndex) -> Option<Placed> {
        let Place { thread, interval } = *self.places.get(wait.0 as usize)?;
        let Interval { from, to, .. } = self.thread(thread)?.track.get(interval as usize)?;
        Some(Placed { thread, from, to })
    }

    /// Returns the track of a wait's thread, and the index of the wait's blocked interval in it.
    #[must_use]
    pub fn interval(&self, wait: WaitIndex) -> Option<(&Track, usize)> {
        let Place { thread, interval } = *self.places.get(wait.0 as usize)?;
        Some((&self.thread(thread)?.track, interval as usize))
    }

    /// Returns the thread that had `tid` at `at`.
    #[must_use]
    pub fn find(&self, tid: Tid, at: Timestamp) -> Option<ThreadIndex> {
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
type Laid = (Vec<Thread>, Misfits);

/// The lives of one tid, laid out as far as its own records suffice.
enum Lives<'a> {
    /// The lives have no gaps, and are laid out.
    Laid(Laid),
    /// Some life has gaps: they are laid out when the evidence of others has been gathered.
    Gapped(Tid, Vec<Life<'a>>),
}

impl<'a> Lives<'a> {
    fn of(recording: &'a Recording, of_tid: &life::OfTid) -> Self {
        let lives = life::split(recording, of_tid);
        match lay_all(recording, &lives, None, Gaps::Forbidden) {
            Some(laid) => Self::Laid(laid),
            None => Self::Gapped(of_tid.tid, lives),
        }
    }

    fn lay(self, recording: &Recording, evidence: &evidence::Evidence) -> Laid {
        match self {
            Self::Laid(laid) => laid,
            Self::Gapped(tid, lives) => {
                lay_all(recording, &lives, evidence.of(tid), Gaps::Stay).unwrap_or_default()
            }
        }
    }
}

fn lay_all(
    recording: &Recording,
    lives: &[Life<'_>],
    known: Option<&evidence::OfTid>,
    gaps: Gaps,
) -> Option<Laid> {
    let mut misfits = Misfits::default();
    let threads: Option<Vec<Thread>> =
        lives.iter().map(|life| lay::lay(recording, life, known, gaps, &mut misfits)).collect();
    Some((threads?, misfits))
}

fn places(recording: &Recording, threads: &[Thread]) -> Vec<Place> {
    let mut places = vec![Place::NOWHERE; recording.waits.len()];
    for (index, thread) in threads.iter().enumerate() {
        for (interval, Interval { state, .. }) in thread.track.iter().enumerate() {
            if let State::Blocked(wait) = state
                && let Some(place) = places.get_mut(wait.0 as usize)
            {
                let interval = u32::try_from(interval).unwrap_or(u32::MAX);
                *place = Place { thread: thread_index(index), interval };
            }
        }
    }
    places
}

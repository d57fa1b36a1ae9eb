//! Records → what each thread was doing, at every moment of its life inside the window.
//!
//! ```text
//!          window.start                                             window.end
//! thread        |  on-CPU | blocked      | runnable | on-CPU | lost ... |
//! ------------+-+---------+--------------+----------+--------+----------+--> time
//!        created         off          wake.at       on
//! ```
//!
//! A life has no holes and no overlaps: what no record speaks for is [`State::Lost`], never guessed.

mod interval;
mod lay;
mod life;

use std::sync::Arc;

pub use interval::{Split, State, Track};
pub(crate) use lay::EARLY_WAKE;

use crate::{
    recording::{Recording, ThreadKind},
    units::{Tgid, Tid, Timestamp},
};

/// Index into [`Recording::waits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitIndex(pub u32);

/// Index into [`Timeline::threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIndex(pub u32);

/// A name, and since when a thread bore it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Since when.
    pub since: Timestamp,
    /// The name. From another program: it may hold anything but NUL.
    pub comm: Arc<str>,
}

/// One thread's life inside the window.
///
/// The kernel uses a tid again, so that one tid may name several of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its id.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// What kind of thread it is.
    pub kind: ThreadKind,
    /// Whether it belonged to the target, if only for a time.
    pub in_target: bool,
    /// When it was created; none if no sighting of it arrived.
    pub created: Option<Timestamp>,
    /// The beginning of its life, or of the window if that is later.
    pub from: Timestamp,
    /// The end of its life, or of the window if that is earlier.
    pub until: Timestamp,
    /// The names that it bore, in order. Empty if no sighting of it arrived.
    pub names: Vec<Name>,
    /// What it did.
    pub track: Track,
}

impl Thread {
    /// The index into `names` of the name that it bore at `at`; of the first, if it was first seen
    /// later than that.
    #[must_use]
    pub fn name_at(&self, at: Timestamp) -> Option<usize> {
        let borne = self.names.partition_point(|name| name.since <= at);
        (!self.names.is_empty()).then(|| borne.saturating_sub(1))
    }

    /// The name that it bore at `at`.
    #[must_use]
    pub fn comm_at(&self, at: Timestamp) -> Option<&str> {
        self.name_at(at).and_then(|index| self.names.get(index)).map(|name| &*name.comm)
    }
}

/// What became of a wait's wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUse {
    /// Nobody was seen to wake the thread.
    None,
    /// It ended the blocked part.
    Ended,
    /// It came before the switch-out: the thread never was blocked.
    Early,
    /// It came too long before the switch-out to belong to this wait, and is not believed.
    Stale,
}

/// Where a wait lies in its thread's life: `from..to` is its blocked part inside the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The thread; none for the idle task, or outside every life.
    pub thread: Option<ThreadIndex>,
    /// Where the blocked part begins.
    pub from: Timestamp,
    /// Where it ends.
    pub to: Timestamp,
    /// What became of its wake.
    pub wake: WakeUse,
}

impl Placed {
    const NOWHERE: Self =
        Self { thread: None, from: Timestamp(0), to: Timestamp(0), wake: WakeUse::None };
}

/// What did not fit together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misfits {
    /// Records that began before the one before them had ended; they were clipped.
    pub overlaps: u64,
    /// Records whose times or numbers ran backwards; they were clipped.
    pub backwards: u64,
    /// Wakes that were too old for their wait, and not believed.
    pub stale_wakes: u64,
}

/// Every thread's life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Sorted by tid, then by time.
    pub threads: Vec<Thread>,
    /// By [`WaitIndex`], one for each wait of the recording.
    pub waits: Vec<Placed>,
    /// What did not fit together.
    pub misfits: Misfits,
}

impl Timeline {
    /// Lays out every thread's life. The lists of the recording have to be sorted
    /// ([`Recording::sort`]).
    #[must_use]
    pub fn build(recording: &Recording) -> Self {
        let mut timeline =
            Self { waits: vec![Placed::NOWHERE; recording.waits.len()], ..Self::default() };
        for life in life::split(recording) {
            let index = ThreadIndex(u32::try_from(timeline.threads.len()).unwrap_or(u32::MAX));
            let track = lay::lay(recording, &life, index, &mut timeline);
            timeline.threads.push(Thread {
                tid: life.tid,
                tgid: life.tgid,
                kind: life.kind,
                in_target: life.in_target,
                created: life.created,
                from: life.from,
                until: life.until,
                names: life.names,
                track,
            });
        }
        timeline
    }

    /// A thread. None if there is no such index.
    #[must_use]
    pub fn thread(&self, index: ThreadIndex) -> Option<&Thread> {
        self.threads.get(index.0 as usize)
    }

    /// Who bore `tid` at `at`.
    #[must_use]
    pub fn find(&self, tid: Tid, at: Timestamp) -> Option<ThreadIndex> {
        let next = self.threads.partition_point(|thread| (thread.tid, thread.from) <= (tid, at));
        let index = next.checked_sub(1)?;
        let thread = self.threads.get(index)?;
        (thread.tid == tid && at <= thread.until)
            .then(|| ThreadIndex(u32::try_from(index).unwrap_or(u32::MAX)))
    }
}

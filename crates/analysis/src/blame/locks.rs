//! Futexes that are locks: who released one, and when, and so who held it before.
//!
//! ```text
//! releases      ---- by X ------ by B ------ by X -->
//! holder        X  |      B     |     X    |
//! ```
//!
//! While somebody waits for a lock, each release wakes a waiter: it shows as the end of some wait
//! on that futex.

use std::collections::HashMap;

use offwake_recording::{
    Recording, ThreadRef, Wait,
    units::{Tgid, Timestamp},
};

use crate::timeline::{State, WaitIndex, WakeUse, wake_use};

use super::{
    Blame, External, IdleHint, Reason, WakeSource,
    cause::{self, Cause, FutexOp, WaitedOn, WokenThrough},
    frame_evidence::FrameEvidence,
    gaps::Gaps,
    pattern_analysis::PatternAnalysis,
};

/// Identifies a futex: its address, and for a private one its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FutexKey {
    process: Option<Tgid>,
    address: u64,
}

impl FutexKey {
    /// Returns the process that the futex belongs to; none if several may share it.
    pub(super) fn process(self) -> Option<Tgid> {
        self.process
    }
}

/// The value that a waiter expects in the futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedValue {
    /// The value of a lock that others wait for already.
    Contended,
    /// None: the kernel itself keeps the owner of a lock with priority inheritance, so the futex can
    /// be nothing else.
    Owner,
    /// Anything else: a counter, a flag.
    Other,
}

/// How a wait on a futex was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FutexWake {
    /// Another thread woke the waiter through that futex.
    ByRelease,
    /// The wait was ended in another way.
    Otherwise,
}

/// What a wait on a futex tells about that futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FutexWait {
    key: FutexKey,
    expects: ExpectedValue,
    ended: FutexWake,
}

/// What glibc, Rust and Go write into a lock that somebody waits for:
/// [glibc](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/lowlevellock.c;hb=glibc-2.40),
/// [Rust](https://github.com/rust-lang/rust/blob/1.88.0/library/std/src/sys/sync/mutex/futex.rs#L10),
/// [Go](https://github.com/golang/go/blob/go1.23.0/src/runtime/lock_futex.go#L24).
const CONTENDED: u32 = 2;
/// What [musl](https://git.musl-libc.org/cgit/musl/tree/src/thread/pthread_mutex_timedlock.c?h=v1.2.5) does:
/// `EBUSY` with the highest bit.
const CONTENDED_MUSL: u32 = 0x8000_0010;

impl FutexWait {
    /// Reads it from a wait; none if the wait's syscall does not name a futex.
    pub(super) fn from_wait(wait: &Wait, cause: Cause) -> Option<Self> {
        let Some(WaitedOn::Futex { address, op, private }) = cause::waited_on(wait, cause) else {
            return None;
        };
        // The kernel compares 32 bits.
        let value = wait.syscall.map_or(0, |syscall| syscall.args[2] as u32);
        let expects = match op {
            FutexOp::LockPi => ExpectedValue::Owner,
            FutexOp::Wait | FutexOp::WaitBitset
                if value == CONTENDED || value == CONTENDED_MUSL =>
            {
                ExpectedValue::Contended
            }
            _ => ExpectedValue::Other,
        };
        let through = wait.wake.as_ref().and_then(cause::woken_through);
        let ended = match through {
            Some(WokenThrough::Futex { address: woken }) if woken == address => {
                FutexWake::ByRelease
            }
            _ => FutexWake::Otherwise,
        };
        let key = FutexKey { process: private.then_some(wait.tgid), address };
        Some(Self { key, expects, ended })
    }

    /// Returns whether the waiter expects the value of a contended lock, or asked for a lock with
    /// priority inheritance.
    pub(super) fn looks_like_lock(self) -> bool {
        match self.expects {
            ExpectedValue::Contended | ExpectedValue::Owner => true,
            ExpectedValue::Other => false,
        }
    }

    /// Returns whether the waiter asked the kernel for a lock with priority inheritance, whose owner
    /// the kernel keeps.
    pub(super) fn is_owned(self) -> bool {
        self.expects == ExpectedValue::Owner
    }

    /// Returns the process that the futex belongs to; none if several may share it.
    pub(super) fn process(self) -> Option<Tgid> {
        self.key.process
    }

    /// Returns the condition variable that the futex may belong to. The waiters of one of glibc's use two
    /// words in turn, beside each other.
    pub(super) fn condition(self) -> FutexKey {
        FutexKey { address: self.key.address & !7, ..self.key }
    }

    /// Returns the futex if another thread ended the wait through it.
    pub(super) fn released(self) -> Option<FutexKey> {
        (self.ended == FutexWake::ByRelease).then_some(self.key)
    }
}

/// Returns whether a wait is on a futex that looks like a lock, by the value that the waiter
/// expects.
#[must_use]
pub fn is_lock_wait(wait: &Wait, cause: Cause) -> bool {
    FutexWait::from_wait(wait, cause).is_some_and(FutexWait::looks_like_lock)
}

/// The end of a wait that shows a release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    pub(super) at: Timestamp,
    pub(super) wait: WaitIndex,
}

/// The releases of locks that threads waited for.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Those of each lock, in order of time.
    of_locks: Vec<Vec<Release>>,
    /// The index into `of_locks` of the lock that waits of a pattern are on, by the pattern's
    /// index.
    by_pattern: Vec<Option<u32>>,
}

impl Releases {
    /// Gathers the ends of the waits whose pattern is on a lock, as far as those of such a pattern show
    /// releases.
    pub(super) fn new(
        recording: &Recording,
        by_pattern: Vec<Option<u32>>,
        locks: usize,
        shows_release: impl Fn(usize) -> bool,
    ) -> Self {
        let mut of_locks = vec![Vec::new(); locks];
        for (row, n) in recording.waits.rows().iter().zip(0..) {
            let place = row.pattern.index();
            if let (Some(at), Some(Some(number))) = (row.woken_at(), by_pattern.get(place))
                && shows_release(place)
                && wake_use(row) != WakeUse::Stale
                && let Some(releases) = of_locks.get_mut(*number as usize)
            {
                releases.push(Release { at, wait: WaitIndex(n) });
            }
        }
        for releases in &mut of_locks {
            releases.sort_by_key(|release| release.at);
        }
        Self { of_locks, by_pattern }
    }

    fn of_pattern(&self, pattern: usize) -> Option<&[Release]> {
        let number = self.by_pattern.get(pattern).copied().flatten()?;
        self.of_locks.get(number as usize).map(Vec::as_slice)
    }

    /// Returns the first release at or after `from` of the lock that waits of this pattern are on.
    fn first_since(&self, pattern: usize, from: Timestamp) -> Option<Release> {
        let releases = self.of_pattern(pattern)?;
        let next = releases.partition_point(|release| release.at < from);
        releases.get(next).copied()
    }

    /// Returns the releases after `from` and before `to` of that lock; none if they are on no lock.
    pub(super) fn between(&self, pattern: usize, from: Timestamp, to: Timestamp) -> &[Release] {
        let releases = self.of_pattern(pattern).unwrap_or_default();
        let first = releases.partition_point(|release| release.at <= from);
        let end = releases.partition_point(|release| release.at < to);
        releases.get(first..end).unwrap_or_default()
    }
}

/// The releases of every lock in memory that several waited for.
#[derive(Debug, Default)]
pub(super) struct Locks(Releases);

/// What the waits on a futex that were seen so far tell about it.
struct FutexUse {
    first_wake: Option<Timestamp>,
    waits: u32,
    /// All waits so far expect the value of a contended lock.
    looks_like_lock: bool,
    /// A wait that expects that value began after a wake on the same address: a counter would have
    /// moved on. Or a wait asked for a lock with priority inheritance, which no counter is.
    is_no_counter: bool,
}

impl Locks {
    /// Finds the futexes that are locks, and their releases.
    ///
    /// A futex whose waits all look like waits for a lock counts as one if a record proves it, or
    /// if the record that would prove it may be among the lost ones. Otherwise such a wait would be
    /// blamed on the waker for all of its time, although others may have held the lock.
    pub(super) fn new(recording: &Recording, patterns: &[PatternAnalysis], gaps: &Gaps) -> Self {
        let waits = &recording.waits;
        if !patterns.iter().any(|v| v.lock.is_some_and(FutexWait::looks_like_lock)) {
            return Self::default();
        }
        let lock_of = |place: usize| patterns.get(place).and_then(|pattern| pattern.lock);
        let mut drafts: HashMap<FutexKey, FutexUse> = HashMap::new();
        for row in waits.rows() {
            let Some(lock) = lock_of(row.pattern.index()) else { continue };
            let draft = drafts.entry(lock.key).or_insert(FutexUse {
                first_wake: None,
                waits: 0,
                looks_like_lock: true,
                is_no_counter: false,
            });
            draft.waits += 1;
            draft.looks_like_lock &= lock.looks_like_lock();
            draft.is_no_counter |= lock.expects == ExpectedValue::Owner
                || draft.first_wake.is_some_and(|woken| woken <= row.off);
            if lock.ended == FutexWake::ByRelease && wake_use(row) != WakeUse::Stale {
                let woken = row.woken_at();
                draft.first_wake =
                    draft.first_wake.map_or(woken, |first| woken.map(|w| w.min(first)));
            }
        }
        let mut numbers: HashMap<FutexKey, u32> = HashMap::new();
        for (key, draft) in drafts {
            let is_proven = draft.is_no_counter || gaps.has_any(key.process);
            if draft.looks_like_lock && is_proven {
                numbers.insert(key, u32::try_from(numbers.len()).unwrap_or(u32::MAX));
            }
        }
        let of_patterns: Vec<Option<u32>> =
            (patterns.iter()).map(|pattern| numbers.get(&pattern.lock?.key).copied()).collect();
        let is_released =
            |place: usize| lock_of(place).is_some_and(|lock| lock.ended == FutexWake::ByRelease);
        Self(Releases::new(recording, of_patterns, numbers.len(), is_released))
    }

    /// Returns whether the waits of a pattern are on a lock.
    pub(super) fn is_lock(&self, pattern: usize) -> bool {
        self.0.of_pattern(pattern).is_some()
    }

    /// Makes waits for locks that nobody was seen to end busy: whoever waits for a lock has
    /// something to do, also where the wait's own timeout ended it.
    pub(super) fn mark_waits_busy(&self, patterns: &mut [PatternAnalysis]) {
        for (pattern, is_on_lock) in patterns.iter_mut().zip(&self.0.by_pattern) {
            if is_on_lock.is_some() && pattern.evidence != FrameEvidence::WorkerLoop {
                pattern.idle_hint = IdleHint::Busy;
            }
        }
    }

    /// Returns the releases after `from` and before `to` of the lock that waits of this pattern are
    /// on; none if they are on no lock.
    pub(super) fn releases_between(
        &self,
        pattern: usize,
        from: Timestamp,
        to: Timestamp,
    ) -> &[Release] {
        self.0.between(pattern, from, to)
    }
}

impl Blame<'_> {
    /// Returns the releases after `from` and before `to` of the lock, in memory or of the kernel's own,
    /// that waits of this pattern are on; none if they are on no lock.
    pub(super) fn releases_between(
        &self,
        pattern: usize,
        (from, to): (Timestamp, Timestamp),
    ) -> &[Release] {
        match self.locks.releases_between(pattern, from, to) {
            [] => self.kernel_locks.between(pattern, from, to),
            releases => releases,
        }
    }

    /// Returns the thread that the last release of a lock woke, if it must have the lock: another thread
    /// waits for the lock since before, so no release goes unseen, and the one that was woken has not begun
    /// to wait again.
    ///
    /// ```text
    /// waiter   -------------- blocked ------------------------------> the end
    /// A        - blocked -^ released by X      has it since
    /// A        - blocked -^ released by X |--- blocked -------------> somebody was faster: not known
    /// ```
    #[must_use]
    pub(crate) fn find_last_acquirer(&self, open: WaitIndex) -> Option<ThreadRef> {
        let (row, analysis) = self.pattern(open)?;
        let key = analysis.lock?.key;
        let last = *self.locks.0.of_pattern(row.pattern.index())?.last()?;
        // Nobody knows what a thread did of which records are missing. Who gives up after a timeout may
        // have been woken at that very moment.
        let woken = self.recording.waits.get(last.wait.0 as usize)?;
        if row.off >= last.at || self.gaps.has_any(key.process) || woken.timeout.is_some() {
            return None;
        }
        let thread = self.timeline.find_thread(woken.tid, last.at)?;
        let later = self.timeline.thread(thread)?.track.iter().rev();
        let waits_again = later.take_while(|interval| interval.to > last.at).any(|interval| {
            let State::Blocked(wait) = interval.state else { return false };
            let of = |wait| self.pattern(wait).and_then(|(_, analysis)| analysis.lock);
            wait != last.wait && of(wait).is_some_and(|lock| lock.key == key)
        });
        (!waits_again).then_some(ThreadRef { tid: woken.tid, tgid: woken.tgid })
    }

    /// Returns the next release of a lock after a wait for it that its timeout or a signal ended, if
    /// whoever made it held the lock at that end already. It did if the wait that the release ended
    /// had begun by then: while somebody waits, no release goes unseen.
    ///
    /// ```text
    /// gives up     ---- blocked ----^ timeout
    /// patient           ---- blocked -----------------^ released by X
    /// holder       ... held by X ---------------------'
    /// ```
    pub(super) fn release_after(&self, wait: WaitIndex) -> Option<Release> {
        let (row, _) = self.pattern(wait)?;
        if !matches!(
            self.wake_source(wait),
            WakeSource::External(External::Timer) | WakeSource::Unknown(Reason::Signal)
        ) {
            return None;
        }
        let end = row.woken_at()?;
        let pattern = row.pattern.index();
        let next = (self.locks.0.first_since(pattern, end))
            .or_else(|| self.kernel_locks.first_since(pattern, end))?;
        let (patient, _) = self.pattern(next.wait)?;
        (patient.off <= end).then_some(next)
    }
}

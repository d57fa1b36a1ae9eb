//! The threads of a chain, and what a walk depends on besides those that it came to itself.
//!
//! What a walk finds may depend on who waits: no thread waits for itself, and a loop asks on behalf of somebody.
//!
//! ```text
//! waiters              walked             looked for among the waiters
//! D ── C ── B      ──  A ── disk          A, the disk's thread: none of the waiters, so that others
//!                                         than D, C and B get the same of A, unless they are one of these
//! ```

use std::cell::Cell;

use crate::timeline::ThreadIndex;

/// Some threads, and possibly others.
#[derive(Clone, Copy, Default)]
pub(super) struct ThreadSet([u64; 4]);

impl ThreadSet {
    fn bit(thread: ThreadIndex) -> (usize, u64) {
        ((thread.0 as usize / 64) % 4, 1 << (thread.0 % 64))
    }

    fn insert(&mut self, thread: ThreadIndex) {
        let (word, bit) = Self::bit(thread);
        self.0[word] |= bit;
    }

    fn may_contain(self, thread: ThreadIndex) -> bool {
        let (word, bit) = Self::bit(thread);
        self.0[word] & bit != 0
    }

    fn union(self, other: Self) -> Self {
        let (Self([a, b, c, d]), Self([e, f, g, h])) = (self, other);
        Self([a | e, b | f, c | g, d | h])
    }
}

/// What some part of a walk depends on besides its own threads.
#[derive(Clone, Copy)]
pub(super) struct Dependence {
    /// The threads that were looked for among the waiters, and are not there.
    pub(super) not_waiting: ThreadSet,
    /// The place of the first thread that was found, among those of the chain.
    pub(super) found: usize,
    /// The most hops from the wait at which there was one more.
    pub(super) deepest: u16,
}

impl Dependence {
    pub(super) const NONE: Self =
        Self { not_waiting: ThreadSet([0; 4]), found: usize::MAX, deepest: 0 };

    fn and(self, other: Self) -> Self {
        Self {
            not_waiting: self.not_waiting.union(other.not_waiting),
            found: self.found.min(other.found),
            deepest: self.deepest.max(other.deepest),
        }
    }
}

/// The threads from a wait's own to the one that is being walked.
pub(super) struct ThreadsOnChain {
    threads: Vec<ThreadIndex>,
    dependence: Cell<Dependence>,
}

impl ThreadsOnChain {
    pub(super) fn new() -> Self {
        Self { threads: Vec::new(), dependence: Cell::new(Dependence::NONE) }
    }

    pub(super) fn clear(&mut self) {
        self.threads.clear();
        self.dependence.set(Dependence::NONE);
    }

    pub(super) fn push(&mut self, thread: ThreadIndex) {
        self.threads.push(thread);
    }

    pub(super) fn pop(&mut self) {
        self.threads.pop();
    }

    /// Returns the thread that is being walked.
    pub(super) fn current(&self) -> Option<ThreadIndex> {
        self.threads.last().copied()
    }

    /// Has another thread walked in place of the one that is.
    pub(super) fn replace_current(&mut self, thread: ThreadIndex) {
        if let Some(current) = self.threads.last_mut() {
            *current = thread;
        }
    }

    /// Returns the thread that waits for the one that is being walked.
    pub(super) fn last_waiter(&self) -> Option<ThreadIndex> {
        self.threads.get(self.count_waiters().checked_sub(1)?).copied()
    }

    /// Returns whether a thread waits for the one that is being walked, or is that one.
    pub(super) fn contains(&self, thread: ThreadIndex) -> bool {
        self.find_among(self.threads.len(), thread)
    }

    /// Returns whether a thread waits for the one that is being walked.
    pub(super) fn is_waiter(&self, thread: ThreadIndex) -> bool {
        self.find_among(self.count_waiters(), thread)
    }

    /// Returns whether one of a set may wait for the thread that is being walked.
    pub(super) fn may_have_waiter_among(&self, set: ThreadSet) -> bool {
        let waiters = self.threads.get(..self.count_waiters()).unwrap_or_default();
        waiters.iter().any(|&waiter| set.may_contain(waiter))
    }

    /// Returns what the walk has depended on since that was last replaced.
    pub(super) fn dependence(&self) -> Dependence {
        self.dependence.get()
    }

    /// Begins anew to note what the walk depends on; returns what was noted until now.
    pub(super) fn replace_dependence(&self, new: Dependence) -> Dependence {
        self.dependence.replace(new)
    }

    /// Adds what a part of the walk depends on.
    pub(super) fn add_dependence(&self, more: Dependence) {
        self.dependence.set(self.dependence.get().and(more));
    }

    /// Notes that what is walked depends on how far the walk has come.
    pub(super) fn note_limit(&self) {
        self.add_dependence(Dependence { found: 0, ..Dependence::NONE });
    }

    /// Notes that there is a hop so many hops from the wait.
    pub(super) fn note_hop(&self, depth: u16) {
        let noted = self.dependence.get();
        self.dependence.set(Dependence { deepest: noted.deepest.max(depth), ..noted });
    }

    pub(super) fn count_waiters(&self) -> usize {
        self.threads.len().saturating_sub(1)
    }

    fn find_among(&self, first: usize, thread: ThreadIndex) -> bool {
        let among = self.threads.get(..first).unwrap_or_default();
        let found = among.iter().position(|&one| one == thread);
        let mut noted = self.dependence.get();
        match found {
            Some(place) => noted.found = noted.found.min(place),
            None => noted.not_waiting.insert(thread),
        }
        self.dependence.set(noted);
        found.is_some()
    }
}

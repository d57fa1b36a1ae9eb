//! In which places of programs threads ask for a lock on a file, sleep, and ask again.
//!
//! ```text
//! #### asks, refused |-- sleeps --| asks, refused |-- sleeps --| asks, refused |-- sleeps --
//!                    '- counts ---'                '- counts ---'
//! ```
//!
//! A program that is refused a lock and goes on with its work sleeps for something else. So nearly every
//! sleep in that place must follow a refusal at once, and another refusal of the same lock must follow
//! the sleep at once.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Begin, FileLockEvent, FileLockEventKind, Recording, StackRef, WaitRow,
    units::{Nanos, Tid},
};

/// How long a thread may be awake between a sleep and its request, and the other way round: interpreters take
/// some 100 us, and a busy machine lets them wait.
const AT_ONCE: Nanos = Nanos(5_000_000);

/// The fewest sleeps between two refusals of one lock that show what a place is for.
const MIN_POLLS: usize = 3;

/// Of all sleeps in a place, the part that may not follow a refusal.
const OTHERS: f64 = 0.1;

/// The user stacks in which threads sleep until they ask for a lock on a file once more.
#[derive(Debug, Default)]
pub(super) struct PolledFileLocks(HashSet<StackRef>);

/// What happened around the sleeps in one place.
#[derive(Default)]
struct Sleeps {
    /// A refusal just before and just after.
    polls: usize,
    /// A refusal just before: this may be the last of some polls.
    last: usize,
    others: usize,
}

/// Returns the locks that each thread was refused, in order of time.
pub(super) fn find_refusals(recording: &Recording) -> HashMap<Tid, Vec<&FileLockEvent>> {
    let mut refusals: HashMap<Tid, Vec<&FileLockEvent>> = HashMap::new();
    for event in &recording.file_lock_events {
        if event.kind == FileLockEventKind::Refused {
            refusals.entry(event.tid).or_default().push(event);
        }
    }
    refusals
}

impl PolledFileLocks {
    pub(super) fn new(recording: &Recording) -> Self {
        let refusals = find_refusals(recording);
        if refusals.is_empty() {
            return Self::default();
        }
        let waits = &recording.waits;
        let mut sleeps: HashMap<StackRef, Sleeps> = HashMap::new();
        for row in waits.rows() {
            let waiter = waits.waiter(row);
            let Some(refusals) = refusals.get(&waiter.tid) else { continue };
            let stack = waiter.user_stack;
            // What was asked before the window nobody saw.
            let is_seen = row.begin() == Begin::Seen;
            if is_seen && matches!(stack, StackRef::Id(_)) {
                sleeps.entry(stack).or_default().count(row, refusals);
            }
        }
        Self(sleeps.into_iter().filter(|(_, it)| it.are_polls()).map(|(stack, _)| stack).collect())
    }

    /// Returns whether threads that sleep in this user stack ask for a lock on a file then.
    pub(super) fn contains(&self, stack: StackRef) -> bool {
        self.0.contains(&stack)
    }
}

impl Sleeps {
    fn count(&mut self, row: &WaitRow, refusals: &[&FileLockEvent]) {
        let after = refusals.partition_point(|refusal| refusal.at <= row.off);
        let before = after.checked_sub(1).and_then(|n| refusals.get(n));
        let Some(before) = before.filter(|it| row.off.since(it.at) <= AT_ONCE) else {
            self.others += 1;
            return;
        };
        let is_same = |it: &&&FileLockEvent| {
            it.at >= row.on
                && it.at.since(row.on) <= AT_ONCE
                && (it.device, it.inode) == (before.device, before.inode)
        };
        match refusals.get(after).filter(is_same) {
            Some(_) => self.polls += 1,
            None => self.last += 1,
        }
    }

    fn are_polls(&self) -> bool {
        let all = self.polls + self.last + self.others;
        self.polls >= MIN_POLLS
            && self.last <= self.polls
            && self.others as f64 <= all as f64 * OTHERS
    }
}

//! Calls that wait for a condition, and do not return before their thread has everything again that it
//! gave up meanwhile: a mutex, the interpreter's lock.
//!
//! ```text
//! a thread  --+--- waits for the condition ---+#+-- waits for the lock --+#####
//!             '----- one call of `rb_mutex_sleep`, which has not returned -'
//! ```
//!
//! What the thread waits for on its way back is a lock, however the runtime makes it. So is what it lets
//! others have as it goes to sleep.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    FrameId, Recording, StackRef, StackTable,
    units::{StackId, Tgid},
};

use super::frame_evidence::plain_name;

/// `ConditionVariable#wait` of Ruby, which also gives up the interpreter's lock
/// ([thread_sync.c](https://github.com/ruby/ruby/blob/v3_1_2/thread_sync.c#L1478)).
const CONDITION_CALLS: &[&str] = &["rb_mutex_sleep"];

/// Which patterns belong to such calls.
#[derive(Debug, Default)]
pub(super) struct ConditionCalls {
    ways_back: HashSet<usize>,
    by_sleepers: HashSet<usize>,
}

impl ConditionCalls {
    /// `broadcast` are the patterns of waits for conditions.
    pub(super) fn new(recording: &Recording, broadcast: &HashSet<usize>) -> Self {
        let waits = &recording.waits;
        let mut reader = CallReader { stacks: &recording.stacks, calls: HashMap::new() };
        let mut conditions: HashSet<(Tgid, StackRef)> = HashSet::new();
        let mut calls: HashSet<(Tgid, &[FrameId])> = HashSet::new();
        for (n, (_, pattern)) in waits.patterns().iter().enumerate() {
            let waiter = &waits.waiters()[pattern.waiter];
            if broadcast.contains(&n)
                && let Some(call) = reader.call(waiter.user_stack)
            {
                conditions.insert((waiter.tgid, waiter.user_stack));
                calls.insert((waiter.tgid, call));
            }
        }
        if calls.is_empty() {
            return Self::default();
        }
        let mut found = Self::default();
        for (n, (_, pattern)) in waits.patterns().iter().enumerate() {
            let waiter = &waits.waiters()[pattern.waiter];
            let call = reader.call(waiter.user_stack);
            let is_in_call = call.is_some_and(|call| calls.contains(&(waiter.tgid, call)));
            if is_in_call && !conditions.contains(&(waiter.tgid, waiter.user_stack)) {
                found.ways_back.insert(n);
            }
            let waker = pattern.wake.map(|(waker, _)| waits.wakers()[waker].user_stack);
            if waker.is_some_and(|stack| reader.call(stack).is_some()) {
                found.by_sleepers.insert(n);
            }
        }
        found
    }

    /// Returns whether the waits of a pattern are on the way back from a condition.
    pub(super) fn are_on_way_back(&self, pattern: usize) -> bool {
        self.ways_back.contains(&pattern)
    }

    /// Returns whether who ended the waits of a pattern was about to wait for a condition.
    pub(super) fn are_ended_by_sleeper(&self, pattern: usize) -> bool {
        self.by_sleepers.contains(&pattern)
    }
}

/// Finds the calls in stacks, in each once.
struct CallReader<'r> {
    stacks: &'r StackTable,
    calls: HashMap<StackId, Option<&'r [FrameId]>>,
}

impl<'r> CallReader<'r> {
    /// Returns the frames from such a call up to the thread's first function.
    fn call(&mut self, stack: StackRef) -> Option<&'r [FrameId]> {
        let StackRef::Id(id) = stack else { return None };
        let stacks = self.stacks;
        *self.calls.entry(id).or_insert_with(|| {
            let frames = stacks.stacks.get(&id)?.frames.as_slice();
            let is_call = |frame: &FrameId| {
                let functions = stacks.frames.get(frame).into_iter().flat_map(|it| &it.functions);
                functions.into_iter().any(|it| CONDITION_CALLS.contains(&plain_name(&it.name)))
            };
            frames.get(frames.iter().position(is_call)?..)
        })
    }
}

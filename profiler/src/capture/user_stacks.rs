//! User stacks: moves the copies that the kernel half sends to the stack processor, and what
//! becomes of its cache back to it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use offwake_recording::units::{Nanos, StackId, Timestamp};

use crate::{
    decode::{self, FoundBy},
    kernel::{self, UserStackMaps},
    stacks::{CacheCheck, StackProcessor, UnwoundCopy},
};

/// How often copies are looked for while they bring new stacks: a busy thread makes one at each of
/// its waits until the first is processed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// How often they are looked for while they bring none, as checks and samples of a machine that does
/// the same all the time: each look preempts two threads of a busy machine. The kernel half does not
/// say when there is a copy: that would be an interrupt and a switch for each.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// How long it takes, about, until what the kernel half has sent is looked up: two rounds of the
/// drain.
const ON_ITS_WAY: Nanos = Nanos(20_000_000);
/// How long is waited at most until the machine is known: some 1,000 processes.
const PATIENCE: Nanos = Nanos(500_000_000);
/// Copies that are unwound together. Their cache updates wait for no more than these.
const BATCH: usize = 64;
/// Batches in a row at most: other look-ups wait meanwhile.
const MAX_BATCHES: usize = 4;

/// State of the look-ups that the other threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// When the look-ups last had nothing to do.
    idle_at: AtomicU64,
    /// Stacks that are not in the recording any more.
    gone: Mutex<Vec<StackId>>,
    disagreed: AtomicU64,
    disagreed_by_registers: AtomicU64,
    given_up: AtomicU64,
    undecodable: AtomicU64,
}

/// What was counted here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Cached stacks that turned out to be others.
    pub disagreed: u64,
    /// Those of them that the kernel half found by registers alone.
    pub disagreed_by_registers: u64,
    /// Call sites where no slot tells stacks apart.
    pub given_up: u64,
    /// Copies that could not be decoded.
    pub undecodable: u64,
}

impl Shared {
    /// Removes stacks that are not in the recording any more from the cache.
    pub fn forget(&self, stacks: &[StackId]) {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.extend_from_slice(stacks);
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        Counted {
            disagreed: self.disagreed.load(Ordering::Relaxed),
            disagreed_by_registers: self.disagreed_by_registers.load(Ordering::Relaxed),
            given_up: self.given_up.load(Ordering::Relaxed),
            undecodable: self.undecodable.load(Ordering::Relaxed),
        }
    }

    /// The look-ups have nothing to do.
    pub fn record_idle(&self) {
        self.idle_at.store(kernel::now().0, Ordering::Relaxed);
    }

    /// Waits until everything has been looked up that was asked for before now, for a while:
    /// programs are known then, and the stacks of those that wait, before anything is recorded.
    pub fn settle(&self) {
        let begin = kernel::now();
        let asked = begin + ON_ITS_WAY;
        while Timestamp(self.idle_at.load(Ordering::Relaxed)) < asked
            && kernel::now().since(begin) < PATIENCE
        {
            std::thread::sleep(SHORTEST_PAUSE);
        }
    }

    fn drain_gone(&self) -> Vec<StackId> {
        std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Moves stack copies, cache updates and Python threads between the kernel half's maps and the
/// [`StackProcessor`].
pub(super) struct UserStackExchange {
    maps: UserStackMaps,
    shared: Arc<Shared>,
    pace: Pace,
}

impl UserStackExchange {
    pub fn new(maps: UserStackMaps, shared: Arc<Shared>) -> Self {
        Self { maps, shared, pace: Pace::new(Instant::now()) }
    }

    /// The look-ups have nothing to do.
    pub fn record_idle(&self) {
        self.shared.record_idle();
    }

    /// Sends the kernel half the processes and threads that began or ceased to run Python.
    pub fn send_python_threads(&mut self, stacks: &mut StackProcessor) {
        for program in stacks.drain_python_programs() {
            self.maps.python_processes.set(program.tgid, program.runs);
        }
        for thread in stacks.drain_python_threads() {
            self.maps.python_threads.set(thread.tid, thread.runs);
        }
    }

    /// Sends the kernel half the processes whose threads say what they are doing, or do not any more.
    pub fn send_tag_sources(&mut self, stacks: &mut StackProcessor) {
        for program in stacks.drain_tag_programs() {
            self.maps.tag_sources.set(program.tgid, program.source);
        }
    }

    /// How long it takes until copies are to be looked for again.
    pub fn pause(&self) -> Duration {
        self.pace.remaining(Instant::now())
    }

    /// Processes the copies that have come, up to a limit, if it is time to look for them. Returns
    /// whether there were any.
    pub fn process_due_copies(&mut self, stacks: &mut StackProcessor) -> bool {
        if !self.pause().is_zero() {
            return false;
        }
        let processed = self.process_copies(stacks);
        self.pace.adjust(processed, Instant::now());
        processed.count > 0
    }

    /// Processes all copies that have come.
    pub fn process_all_copies(&mut self, stacks: &mut StackProcessor) {
        while self.process_copies(stacks).are_more_likely {}
    }

    fn process_copies(&mut self, stacks: &mut StackProcessor) -> Processed {
        let gone = self.shared.drain_gone();
        if !gone.is_empty() {
            self.maps.call_sites.remove(stacks.remove_from_cache(&gone));
            self.maps.generation.begin_next();
        }
        let mut all = Processed::default();
        for _ in 0..MAX_BATCHES {
            let batch = self.process_batch(stacks);
            all.count += batch.count;
            all.any_cached |= batch.any_cached;
            all.are_more_likely = batch.are_more_likely;
            if !all.are_more_likely {
                break;
            }
        }
        all
    }

    /// Processes one batch of copies.
    fn process_batch(&mut self, stacks: &mut StackProcessor) -> Processed {
        let mut any_cached = false;
        let mut records = Vec::with_capacity(BATCH);
        while records.len() < BATCH {
            let Some(record) = self.maps.copies.next_copy() else { break };
            records.push(record.to_vec());
        }
        let copies = records.iter().filter_map(|record| {
            let copy = decode::decode_stack_copy(record).ok();
            count(&self.shared.undecodable, copy.is_none());
            copy
        });
        for UnwoundCopy { cache_update, .. } in stacks.process_copies(copies.collect()) {
            let mismatched = match cache_update.check {
                Some(CacheCheck::Mismatched(found_by)) => Some(found_by),
                _ => None,
            };
            count(&self.shared.disagreed, mismatched.is_some());
            let by_registers = mismatched == Some(FoundBy::Registers);
            count(&self.shared.disagreed_by_registers, by_registers);
            count(&self.shared.given_up, cache_update.is_given_up);
            if mismatched.is_some() || !cache_update.remove.is_empty() {
                self.maps.generation.begin_next();
            }
            self.maps.call_sites.remove(cache_update.remove);
            for (key, call_site) in cache_update.insert {
                any_cached = true;
                self.maps.call_sites.insert(key, &call_site);
            }
        }
        let count = records.len();
        Processed { count, any_cached, are_more_likely: count == BATCH }
    }
}

/// What came of looking for copies.
#[derive(Clone, Copy, Debug, Default)]
struct Processed {
    /// How many there were.
    count: usize,
    /// Whether the kernel half's cache got anything that it did not have.
    any_cached: bool,
    /// Whether as many were processed as go at a time.
    are_more_likely: bool,
}

/// When copies are looked for next.
struct Pace {
    pause: Duration,
    due: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { pause: SHORTEST_PAUSE, due: now }
    }

    fn remaining(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    fn adjust(&mut self, processed: Processed, now: Instant) {
        self.pause = match processed.any_cached {
            true => SHORTEST_PAUSE,
            false => (2 * self.pause).min(LONGEST_PAUSE),
        };
        self.due = if processed.are_more_likely { now } else { now + self.pause };
    }
}

fn count(counter: &AtomicU64, is_so: bool) {
    counter.fetch_add(u64::from(is_so), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_looked_for_often_while_they_bring_new_stacks_and_seldom_otherwise() {
        let none = Processed::default();
        let known = Processed { count: 3, ..none };
        let new = Processed { any_cached: true, ..known };
        let many = Processed { are_more_likely: true, ..known };
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        assert!(pace.remaining(now).is_zero());
        let mut pauses = Vec::new();
        for processed in [new, none, known, none, known, known, many, known, new] {
            pace.adjust(processed, now);
            pauses.push(pace.remaining(now).as_millis());
            now += pace.remaining(now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10, 0, 10, 1]);
    }
}

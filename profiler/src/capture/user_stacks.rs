//! User stacks: moves the copies that the kernel half sends to the stack processor, and what
//! becomes of its cache back to it.

use std::{
    io::PipeReader,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError},
    },
    time::Duration,
};

use offwake_recording::units::{Nanos, StackId, Timestamp};
use rustix::event::{PollFd, PollFlags, poll};

use super::messages::Lookup;
use crate::{
    decode,
    kernel::{self, UserStackMaps},
    stacks::{CacheCheck, StackProcessor, UnwoundCopy},
};

/// The shortest time between two notifications of copies.
const PACE: Duration = Duration::from_millis(1);
/// How long it takes, about, until what the kernel half has sent is looked up: two rounds of the
/// drain.
const ON_ITS_WAY: Nanos = Nanos(20_000_000);
/// How long is waited at most until the machine is known: some 1,000 processes.
const PATIENCE: Nanos = Nanos(500_000_000);
/// Copies that are unwound together. Their cache updates wait for no more than these.
const BATCH: usize = 16;
/// Batches in a row at most: other look-ups wait meanwhile.
const MAX_BATCHES: usize = 16;

/// State of the look-ups that the other threads share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The look-ups were notified of copies that they have not read yet.
    is_notified: AtomicBool,
    /// When the look-ups last had nothing to do.
    idle_at: AtomicU64,
    /// Stacks that are not in the recording any more.
    gone: Mutex<Vec<StackId>>,
    disagreed: AtomicU64,
    given_up: AtomicU64,
    undecodable: AtomicU64,
}

/// What was counted here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Cached stacks that turned out to be others.
    pub disagreed: u64,
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
            std::thread::sleep(PACE);
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
}

impl UserStackExchange {
    pub fn new(maps: UserStackMaps, shared: Arc<Shared>) -> Self {
        Self { maps, shared }
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

    /// Processes the copies that have come, up to a limit. Returns whether those were all.
    pub fn process_copies(&mut self, stacks: &mut StackProcessor) -> bool {
        // Before the ring is read: a copy that comes after that notifies once more.
        self.shared.is_notified.store(false, Ordering::Relaxed);
        let gone = self.shared.drain_gone();
        if !gone.is_empty() {
            self.maps.call_sites.remove(stacks.remove_from_cache(&gone));
        }
        (0..MAX_BATCHES).any(|_| self.process_batch(stacks))
    }

    /// Processes one batch of copies. Returns whether those were all.
    fn process_batch(&mut self, stacks: &mut StackProcessor) -> bool {
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
            count(&self.shared.disagreed, cache_update.check == Some(CacheCheck::Mismatched));
            count(&self.shared.given_up, cache_update.is_given_up);
            self.maps.call_sites.remove(cache_update.remove);
            for (key, call_site) in cache_update.insert {
                self.maps.call_sites.insert(key, &call_site);
            }
        }
        records.len() < BATCH
    }
}

fn count(counter: &AtomicU64, is_so: bool) {
    counter.fetch_add(u64::from(is_so), Ordering::Relaxed);
}

/// Notifies the look-ups of copies, until the other end of `over` is closed: a busy thread
/// makes one at each of its waits until it is answered.
pub(super) fn watch(
    copies: &OwnedFd,
    over: &PipeReader,
    lookups: &SyncSender<Lookup>,
    shared: &Shared,
) {
    loop {
        let mut descriptors =
            [PollFd::new(copies, PollFlags::IN), PollFd::new(over, PollFlags::empty())];
        // An interrupted call is only a wait that was too short.
        let _interrupted = poll(&mut descriptors, None);
        let [copies, over] = descriptors.map(|descriptor| descriptor.revents());
        if !over.is_empty() {
            return;
        }
        if copies.is_empty() {
            continue;
        }
        if !shared.is_notified.swap(true, Ordering::Relaxed) {
            match lookups.try_send(Lookup::StackCopies) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => shared.is_notified.store(false, Ordering::Relaxed),
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
        std::thread::sleep(PACE);
    }
}

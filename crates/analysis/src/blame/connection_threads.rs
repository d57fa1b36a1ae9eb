//! Threads and processes that a server makes for one connection each.
//!
//! ```text
//! loop      -- connects ----------------..poll..[
//!              | the ask                         ^ the answer
//! acceptor  ...[ makes T ]...
//! T                 [ works, answers ----------- ]   ends
//! ```
//!
//! A connection wakes the acceptor, which answers nobody. Who was asked is the thread that it makes next.

use std::collections::{HashMap, HashSet};

use offwake_recording::units::{Tid, Timestamp};

use crate::timeline::{RunnableSince, State, ThreadIndex, WaitIndex};

use super::{Blame, cause::syscalls, pattern_analysis::PatternAnalysis, process_wakes};

type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The threads that acceptors made.
#[derive(Debug, Default)]
pub(super) struct ConnectionThreads {
    /// The first thread that was made in the slice which a connection began, by the acceptor's wait.
    by_connection: FastMap<WaitIndex, ThreadIndex>,
    /// The acceptor's wait in whose slice each thread was made.
    made_after: FastMap<ThreadIndex, WaitIndex>,
}

/// That an acceptor made a thread.
struct Making {
    at: Timestamp,
    thread: ThreadIndex,
    acceptor: Tid,
    /// The acceptor's wait that a connection had ended.
    wait: WaitIndex,
    woken: Timestamp,
}

impl ConnectionThreads {
    fn new(blame: &Blame<'_>) -> Self {
        let threads = (0..).take(blame.timeline.threads.len()).map(ThreadIndex);
        let mut makings: Vec<Making> =
            threads.filter_map(|thread| blame.find_making(thread)).collect();
        if makings.is_empty() {
            return Self::default();
        }
        makings.sort_unstable_by_key(|making| (making.at, making.thread));
        let handed_over = hand_overs(blame, &makings);
        let mut found = Self::default();
        for Making { at, thread, acceptor, wait, woken } in makings {
            // Somebody else got the connection then.
            let is_handed_over = handed_over.get(&acceptor).is_some_and(|times| {
                let next = times.partition_point(|&time| time < woken);
                times.get(next).is_some_and(|&time| time <= at)
            });
            if !is_handed_over {
                found.by_connection.entry(wait).or_insert(thread);
            }
            found.made_after.insert(thread, wait);
        }
        found
    }
}

/// Finds when acceptors handed something to threads of their processes, in the order of time.
fn hand_overs(blame: &Blame<'_>, makings: &[Making]) -> FastMap<Tid, Vec<Timestamp>> {
    let acceptors: HashSet<Tid> = makings.iter().map(|making| making.acceptor).collect();
    let waits = &blame.recording.waits;
    let givers: Vec<Option<Tid>> = (waits.patterns().iter().zip(&blame.patterns))
        .map(|((_, pattern), analysis): (_, &PatternAnalysis)| {
            let woken = waits.waiters()[pattern.waiter].tgid;
            let giver = analysis.waker().filter(|giver| giver.tgid == woken)?;
            let is_kept = acceptors.contains(&giver.tid) && process_wakes::is_handed_job(analysis);
            is_kept.then_some(giver.tid)
        })
        .collect();
    let mut times = FastMap::<Tid, Vec<Timestamp>>::default();
    for (row, n) in waits.rows().iter().zip(0..) {
        let giver = givers.get(row.pattern.index()).copied().flatten();
        // A thread that is made is woken by its maker as well.
        if let (Some(giver), Some(at)) = (giver, row.woken_at())
            && !blame.is_birth(WaitIndex(n))
        {
            times.entry(giver).or_default().push(at);
        }
    }
    times.values_mut().for_each(|times| times.sort_unstable());
    times
}

impl Blame<'_> {
    /// Returns the thread that was made for the connection that ended an acceptor's wait.
    pub(crate) fn thread_made_for(&self, wait: WaitIndex) -> Option<ThreadIndex> {
        self.connection_threads().by_connection.get(&wait).copied()
    }

    /// Returns the acceptor's wait in whose slice a thread was made.
    pub(super) fn made_after(&self, thread: ThreadIndex) -> Option<WaitIndex> {
        self.connection_threads().made_after.get(&thread).copied()
    }

    fn connection_threads(&self) -> &ConnectionThreads {
        self.connection_threads.get_or_init(|| ConnectionThreads::new(self))
    }

    fn find_making(&self, thread: ThreadIndex) -> Option<Making> {
        let first = self.timeline.thread(thread)?.track.get(0)?;
        let State::Runnable(RunnableSince::Woken(birth)) = first.state else { return None };
        let (maker, at) = self.recorded_waker_thread(birth).filter(|_| self.is_birth(birth))?;
        let (wait, _) = self.find_slice_wait(maker, at)?;
        let woken = self.end_of_blocked_part(wait)?;
        let acceptor = self.timeline.thread(maker)?.tid;
        self.is_ended_by_connection(wait).then_some(Making { at, thread, acceptor, wait, woken })
    }

    /// Returns whether a connection of another process ended a wait.
    fn is_ended_by_connection(&self, wait: WaitIndex) -> bool {
        let waker = self.pattern(wait).and_then(|(_, pattern)| pattern.waker());
        let whole = self.recording.waits.get(wait.0 as usize);
        let (Some(waker), Some(whole)) = (waker, whole) else { return false };
        let accepts = || {
            let call = whole.syscall.as_ref().and_then(syscalls::name);
            matches!(call, Some("accept" | "accept4"))
        };
        let connects = || {
            let call = whole.wake.as_ref().and_then(|wake| wake.syscall.as_ref());
            call.and_then(syscalls::name) == Some("connect")
        };
        waker.tgid != whole.tgid && (accepts() || connects())
    }
}

//! The wait that led to a culprit.
//!
//! ```text
//! client ── waits for ──▶ server ── waits for a lock of ──▶ compactor, which sleeps
//!                         `---------- the way -----------'
//! ```

use std::collections::{BTreeMap, HashMap};

use offwake_recording::units::Nanos;

use crate::{
    blame::{ChainId, Chains, cause::Cause},
    timeline::{NamedThread, ThreadIndex},
};

use super::{
    culprits::CulpritWriter,
    meaning::{SharedMeaning, SleepMeaning},
    programs::ProgramId,
    tree::main_threads,
    wait_meanings::WaitMeanings,
    write::describe_hop,
};

/// A wait on the way to a culprit: the first one for a lock; if there is none, that of the thread before the culprit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CulpritWay {
    waiter: ThreadIndex,
    kind: WayKind,
    waited_for: ThreadIndex,
}

/// What waits on the way have to have in common to be told as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WayKind {
    program: ProgramId,
    slept: SharedMeaning,
    waited_for: ProgramId,
}

/// The threads of one kind of way, and how long each of them waited or was waited for.
#[derive(Default)]
struct WayThreads {
    time: Nanos,
    waiters: BTreeMap<ThreadIndex, Nanos>,
    waited_for: BTreeMap<ThreadIndex, Nanos>,
}

impl CulpritWay {
    /// Returns the way from a thread to the end of a chain; none if that is the thread that it asked.
    pub(crate) fn find(
        meanings: &WaitMeanings<'_>,
        own: NamedThread,
        chain: ChainId,
        chains: &Chains,
    ) -> Option<Self> {
        let culprit = chains.last_hop(chain)?.1.thread;
        let mut hops = chains.hops_back(chain).peekable();
        let (mut first_lock, mut last) = (None, None);
        while let Some(hop) = hops.next() {
            let Some(slept) = meanings.get(meanings.meaning_of_sleep(hop.slept)) else { continue };
            let before = hops.peek().map(|before| before.thread);
            let way = (before.unwrap_or(own), slept, hop.thread);
            if is_for_lock(slept) {
                first_lock = Some(way);
            } else if hop.thread == culprit {
                last = last.or(before.map(|_| way));
            }
        }
        let (waiter, slept, waited_for) = first_lock.or(last)?;
        let program = |thread| meanings.programs.program_under_name(thread);
        let kind = WayKind {
            program: program(waiter),
            slept: slept.clone(),
            waited_for: program(waited_for),
        };
        Some(Self { waiter: waiter.thread, kind, waited_for: waited_for.thread })
    }
}

fn is_for_lock(slept: &SleepMeaning) -> bool {
    slept.lock().is_some() || matches!(slept.cause, Cause::KernelLock | Cause::FileLock)
}

impl CulpritWriter<'_> {
    /// Says who waited for a culprit on the way that most of its time came by, and what for: `postgres 15611 waits for a
    /// lock of another postgres in ProcSleep`. None if less than half of it did.
    pub(crate) fn describe_way<'w>(
        &self,
        ways: impl Iterator<Item = (Option<&'w CulpritWay>, Nanos)>,
    ) -> Option<String> {
        let mut all = Nanos(0);
        let mut kinds: HashMap<&WayKind, WayThreads> = HashMap::new();
        for (way, time) in ways {
            all += time;
            let Some(CulpritWay { waiter, kind, waited_for }) = way else { continue };
            let threads = kinds.entry(kind).or_default();
            threads.time += time;
            *threads.waiters.entry(*waiter).or_default() += time;
            *threads.waited_for.entry(*waited_for).or_default() += time;
        }
        // No two of them can have more than half.
        let is_most = |threads: &WayThreads| threads.time.0 > all.0 / 2;
        let (kind, threads) = kinds.into_iter().find(|(_, threads)| is_most(threads))?;
        let words = self.words();
        let (waiters, waited_for) =
            (main_threads(&threads.waiters), main_threads(&threads.waited_for));
        let next = (kind.waited_for, words.relation(&waiters, &waited_for));
        let what = words.sleep(&kind.slept, kind.program, Some(next), None);
        let function = kind.slept.label.as_ref().map(|label| label.function.to_string());
        let time = threads.time;
        let hop = words.counted_hop(kind.program, &threads.waiters, function, what, time);
        Some(describe_hop(&hop))
    }
}

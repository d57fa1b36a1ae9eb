//! The one place that knows how blame is asked for, for everybody who checks it against a simulated run.

use std::collections::BTreeMap;

use offwake_analysis::{
    blame::{Blame, BlameKind, ChainLimits},
    timeline::{Timeline, WaitIndex},
};
use offwake_recording::{
    Recording,
    units::{Nanos, Tid},
};

use crate::simulator::{Leaf, Parts};

/// Hops without a limit that any run could reach.
pub const ALL_HOPS: u16 = ChainLimits::DEEPEST;

/// What is said of one wait.
pub struct Said {
    pub record: (Tid, u32),
    /// How long it was blocked inside the window.
    pub blocked: Nanos,
    pub parts: Parts,
}

/// Blames a recording's waits, followed for so many hops.
pub fn blame(recording: &Recording, max_depth: u16) -> Vec<Said> {
    let timeline = Timeline::build(recording);
    let blame = assign(recording, &timeline, max_depth);
    let mut walker = blame.walker();
    (recording.waits.iter().zip(0..))
        .map(|(wait, n)| {
            let index = WaitIndex(n);
            let place = timeline.blocked_interval(index);
            let mut parts = Parts::new();
            for part in walker.parts(index) {
                let leaf = leaf(&timeline, part.kind);
                *parts.entry((leaf, part.depth)).or_default() += part.time.0;
            }
            let blocked = place.map_or(Nanos(0), |place| place.to.since(place.from));
            Said { record: (wait.tid, wait.seq), blocked, parts }
        })
        .collect()
}

/// The blame by thread and number of the record.
pub fn by_record(said: Vec<Said>) -> BTreeMap<(Tid, u32), Said> {
    said.into_iter().map(|said| (said.record, said)).collect()
}

fn assign<'a>(recording: &'a Recording, timeline: &'a Timeline, max_depth: u16) -> Blame<'a> {
    Blame::new(recording, timeline, ChainLimits { depth: max_depth, ..ChainLimits::default() })
}

fn leaf(timeline: &Timeline, kind: BlameKind) -> Leaf {
    let tid = |index| timeline.thread(index).expect("a thread of the timeline").tid;
    match kind {
        BlameKind::Work(thread) => Leaf::Work(tid(thread)),
        BlameKind::CpuQueue { thread, holder } => {
            Leaf::CpuQueue { thread: tid(thread), holder: holder.map(tid) }
        }
        BlameKind::External(external) => Leaf::External(external.name()),
        BlameKind::Unattributed(reason) => Leaf::Unattributed(reason.name()),
    }
}

/// Panics if a thread's ledger does not close.
pub fn check_ledgers(recording: &Recording, max_depth: u16) {
    let timeline = Timeline::build(recording);
    let blame = assign(recording, &timeline, max_depth);
    for (thread, ledger) in timeline.threads.iter().zip(blame.ledgers()) {
        assert_eq!(ledger.wall, thread.until.since(thread.from));
        assert_eq!(ledger.wall, ledger.on_cpu + ledger.runnable + ledger.blocked);
        let parts = ledger.attributed() + ledger.external() + ledger.unattributed();
        assert_eq!(ledger.blocked, parts, "thread {}", thread.tid);
    }
}

//! The longest waits of the drawn threads, one by one.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    sync::OnceLock,
};

use offwake_recording::{
    ThreadRef,
    units::{Nanos, Timestamp},
};

use crate::{
    blame::{
        Blame, BlameEntryKind, BlameKind, BlamePart, Chains, WakeSource, WalkedWait, Walker,
        cause::{Cause, waited_on},
    },
    container_labels::ContainerLabels,
    label::{Label, LabelFinder},
    report::{
        describe,
        html::{class::PageClass, texts::describe_thread as thread_words},
    },
    timeline::{NAMELESS, State, ThreadIndex, WaitIndex},
    waited_on_entry::waited_on_entry,
    words,
};

/// The most parts of one wait.
const MAX_PARTS: usize = 4;

/// One wait of a drawn thread.
#[derive(Debug)]
pub(in crate::report::html) struct LaneWait {
    /// Index into the lanes.
    pub(in crate::report::html) lane: usize,
    pub(in crate::report::html) from: Timestamp,
    pub(in crate::report::html) to: Timestamp,
    pub(in crate::report::html) cause: Cause,
    pub(in crate::report::html) on: Option<String>,
    pub(in crate::report::html) label: Option<Label>,
    /// Who woke the thread, as text: a thread, something else, or why it is unknown.
    pub(in crate::report::html) ended_by: String,
    /// The lane of the waker, if that is drawn.
    pub(in crate::report::html) ended_from: Option<usize>,
    /// The largest parts of the wait's blame.
    pub(in crate::report::html) parts: Vec<LanePart>,
    /// The time of the other parts.
    pub(in crate::report::html) rest: Nanos,
}

/// What some of a wait was spent on.
#[derive(Debug)]
pub(in crate::report::html) struct LanePart {
    pub(in crate::report::html) class: PageClass,
    pub(in crate::report::html) text: String,
    pub(in crate::report::html) ns: Nanos,
}

/// The largest parts of a wait, each with the last thread of its chain, and the time of all others.
struct LargestParts {
    parts: Vec<(BlamePart, Option<ThreadIndex>)>,
    rest: Nanos,
}

impl LargestParts {
    fn new(parts: &[BlamePart], chains: &Chains) -> Self {
        let mut parts = parts.to_vec();
        parts.sort_by_key(|part| Reverse(part.time));
        let rest = parts.iter().skip(MAX_PARTS).map(|part| part.time).sum();
        let with_last_thread = |part: BlamePart| {
            let last = chains.last_hop(part.chain).map(|(_, hop)| hop.thread.thread);
            (part, last)
        };
        Self { parts: parts.into_iter().take(MAX_PARTS).map(with_last_thread).collect(), rest }
    }
}

/// The longest waits of the drawn threads.
pub(super) struct LongestWaits {
    /// By lane and time: the lane, `from..to`, and which wait it is.
    waits: Vec<(usize, Timestamp, Timestamp, WaitIndex)>,
    left_out: u64,
    /// The parts of those that were walked.
    parts: HashMap<WaitIndex, OnceLock<LargestParts>, foldhash::fast::RandomState>,
}

impl LongestWaits {
    /// Finds the longest of these threads' waits.
    pub(super) fn find(blame: &Blame<'_>, lanes: &[ThreadIndex], limit: usize) -> Self {
        let mut longest = BinaryHeap::with_capacity(limit + 1);
        let mut all = 0_u64;
        for (lane, &index) in lanes.iter().enumerate() {
            let Some(thread) = blame.timeline().thread(index) else { continue };
            for interval in thread.track.iter() {
                let State::Blocked(wait) = interval.state else { continue };
                all += 1;
                let length = interval.to.since(interval.from);
                longest.push((Reverse(length), lane, interval.from, interval.to, wait));
                if longest.len() > limit {
                    longest.pop();
                }
            }
        }
        let mut kept = longest.into_vec();
        kept.sort_unstable_by_key(|&(_, lane, from, ..)| (lane, from));
        let left_out = all.saturating_sub(kept.len() as u64);
        let waits: Vec<_> =
            kept.into_iter().map(|(_, lane, from, to, wait)| (lane, from, to, wait)).collect();
        let parts = waits.iter().map(|&(.., wait)| (wait, OnceLock::new())).collect();
        Self { waits, left_out, parts }
    }

    /// How many waits are not among the longest.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds the parts of a wait that was walked.
    pub(super) fn add_parts(&self, wait: WaitIndex, parts: &[BlamePart], chains: &Chains) {
        if let Some(place) = self.parts.get(&wait) {
            place.get_or_init(|| LargestParts::new(parts, chains));
        }
    }

    /// Describes them. Those whose parts were not added are walked.
    pub(super) fn into_lane_waits(self, blame: &Blame<'_>, lanes: &[ThreadIndex]) -> Vec<LaneWait> {
        let mut writer = LaneWaitWriter {
            blame,
            walker: blame.walker(),
            label_finder: LabelFinder::new(&blame.recording().stacks),
            container_labels: ContainerLabels::new(blame.recording()),
            lanes: lanes.iter().zip(0..).map(|(&index, lane)| (index, lane)).collect(),
        };
        let Self { waits, mut parts, .. } = self;
        (waits.into_iter())
            .map(|(lane, from, to, wait)| {
                let known = parts.remove(&wait).and_then(OnceLock::into_inner);
                let parts = known.unwrap_or_else(|| {
                    let WalkedWait { parts, chains, .. } = writer.walker.walk(wait);
                    LargestParts::new(parts, chains)
                });
                writer.lane_wait(lane, (from, to), wait, &parts)
            })
            .collect()
    }
}

struct LaneWaitWriter<'a> {
    blame: &'a Blame<'a>,
    walker: Walker<'a>,
    label_finder: LabelFinder<'a>,
    container_labels: ContainerLabels,
    lanes: BTreeMap<ThreadIndex, usize>,
}

impl LaneWaitWriter<'_> {
    fn lane_wait(
        &mut self,
        lane: usize,
        (from, to): (Timestamp, Timestamp),
        index: WaitIndex,
        parts: &LargestParts,
    ) -> LaneWait {
        let recording = self.blame.recording();
        let cause = self.blame.cause(index);
        let whole = recording.waits.get(index.0 as usize);
        let on = whole.as_ref().and_then(|wait| waited_on(wait, cause));
        let (own, _) = self.blame.wait_and_waker_stacks(index);
        let (user, kernel) = self.blame.stacks().get(own);
        let (ended_by, ended_from) = match self.blame.wake_source(index) {
            WakeSource::Task(task) => self.describe_waker(index, task),
            WakeSource::External(external) => (external.name().to_owned(), None),
            WakeSource::Interrupt(reason) | WakeSource::Unknown(reason) => {
                (words::unknown(reason), None)
            }
        };
        let LargestParts { parts, rest } = parts;
        let parts = parts.iter().map(|(part, last)| LanePart {
            class: PageClass::classify_part(part),
            text: self.describe_part(part, *last, from),
            ns: part.time,
        });
        let parts = parts.collect();
        LaneWait {
            lane,
            from,
            to,
            cause,
            on: on.map(|on| waited_on_entry(&recording.files, on).text),
            label: self.label_finder.wait_label(cause, user, kernel),
            ended_by,
            ended_from,
            parts,
            rest: *rest,
        }
    }

    fn describe_waker(&self, index: WaitIndex, task: ThreadRef) -> (String, Option<usize>) {
        let life = self.blame.waker_thread(index);
        let timeline = self.blame.timeline();
        let comm = life.and_then(|(thread, woken)| timeline.thread(thread)?.comm_at(woken));
        let comm = match comm {
            Some(comm) => comm,
            // Its own threads have no records to learn their names from.
            None if self.blame.recording().meta.profiler == Some(task.tgid) => "offwake",
            None => NAMELESS,
        };
        let lane = life.and_then(|(thread, _)| self.lanes.get(&thread).copied());
        let container = life
            .and_then(|(thread, _)| timeline.thread(thread))
            .and_then(|thread| self.container_labels.for_thread(thread));
        (thread_words(comm, task.tid, container), lane)
    }

    fn describe_part(&self, part: &BlamePart, last: Option<ThreadIndex>, at: Timestamp) -> String {
        let name = |index| {
            let thread = self.blame.timeline().thread(index);
            thread.map_or(NAMELESS.to_owned(), |thread| {
                let comm = thread.comm_at(at).unwrap_or(NAMELESS);
                thread_words(comm, thread.tid, self.container_labels.for_thread(thread))
            })
        };
        let (thread, holder) = match part.kind {
            BlameKind::Work(thread) => (Some(thread), None),
            BlameKind::CpuQueue { thread, holder } => (Some(thread), holder),
            BlameKind::External(_) | BlameKind::Unattributed(_) => (last, None),
        };
        let (kind, reason) = BlameEntryKind::from_blame(part.kind);
        describe::blame(kind, reason, thread.map(name), holder.map(name))
    }
}

//! What the ends of chains mean, without the way that leads there: what requests are compared by.

use std::collections::{BTreeMap, HashMap};

use offwake_recording::units::{Nanos, Timestamp};

use crate::{
    blame::{BlameEntryKind, BlameKind, BlamePart, Chains, Reason, StackPairId},
    label::Label,
    quotas::ThrottledTimes,
    timeline::{NamedThread, ThreadIndex},
};

use super::{
    describe::Words,
    less_known::is_less_known,
    limited_waits::LimitedWaits,
    model::FindingHop,
    programs::ProgramId,
    sleep_lengths::SleepLengths,
    tree::{Node, NodeKey, chain_end},
    wait_meanings::WaitMeanings,
    who,
    write::{FindingWriter, describe_hop},
};

/// What parts of blame have to have in common to be one culprit's: a program, and what it did.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Culprit {
    node: NodeKey,
    /// Who had the CPU that the program waited for, if it waited for one.
    holder: Option<ProgramId>,
}

/// A culprit's time in one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CulpritTime {
    pub(crate) thread: ThreadIndex,
    /// Where in its code it worked, if it did.
    pub(crate) stack: StackPairId,
    pub(crate) time: Nanos,
}

/// Identifies the program of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServerProgram(ProgramId);

impl Culprit {
    /// Returns the culprit of a part of the blame of a thread's time.
    pub(crate) fn find(
        meanings: &WaitMeanings<'_>,
        own: NamedThread,
        part: &BlamePart,
        chains: &Chains,
    ) -> (Self, CulpritTime) {
        let last = chains.last_hop(part.chain).map_or(own, |(_, hop)| hop.thread);
        let end = chain_end(part);
        let program = meanings.programs.program_under_name(last);
        let is_asleep = !matches!(end.kind, BlameEntryKind::Work | BlameEntryKind::CpuQueue);
        let slept = meanings.get(meanings.meaning_of_sleep(part.slept)).filter(|_| is_asleep);
        let holder = match part.kind {
            BlameKind::CpuQueue { holder, .. } => {
                holder.map(|thread| meanings.programs.program_of_thread(thread))
            }
            _ => None,
        };
        let stack = match end.kind {
            BlameEntryKind::Work => part.stack,
            _ => StackPairId::NONE,
        };
        let node = NodeKey { program, slept: slept.cloned(), end: Some(end) };
        let time = CulpritTime { thread: last.thread, stack, time: part.time };
        (Self { node, holder }, time)
    }

    /// Returns what the culprit did: `work`, `cpu_queue`, `disk`, …
    pub(crate) fn kind(&self) -> BlameEntryKind {
        self.node.end.map_or(BlameEntryKind::Unattributed, |end| end.kind)
    }

    /// Returns whether a culprit is the same as another but for how it slept, of which less is known.
    pub(crate) fn is_less_known_than(&self, other: &Self) -> bool {
        let ends = |culprit: &Self| (culprit.node.program, culprit.node.end, culprit.holder);
        let sleeps = self.node.slept.as_ref().zip(other.node.slept.as_ref());
        ends(self) == ends(other) && sleeps.is_some_and(|(less, more)| is_less_known(less, more))
    }

    /// Returns why it is not known, if it is not.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.node.end.and_then(|end| end.reason)
    }
}

impl ServerProgram {
    /// Returns the program of a thread.
    pub(crate) fn find(meanings: &WaitMeanings<'_>, thread: NamedThread) -> Self {
        Self(meanings.programs.program_under_name(thread))
    }
}

/// Names culprits and servers as findings do.
pub(crate) struct CulpritWriter<'a> {
    writer: FindingWriter<'a>,
}

/// Has `write` name culprits.
pub(crate) fn with_culprit_writer<R>(
    meanings: WaitMeanings<'_>,
    write: impl FnOnce(&mut CulpritWriter<'_>) -> R,
) -> R {
    let sleep_lengths = SleepLengths::measure(&meanings);
    let WaitMeanings { blame, programs, mut meanings, .. } = meanings;
    let (recording, timeline) = (blame.recording(), blame.timeline());
    let throttled = ThrottledTimes::new(recording, timeline);
    let limited_waits = LimitedWaits::find(blame, &mut meanings);
    let words = Words {
        recording,
        throttled: &throttled,
        programs: &programs,
        timeline,
        limited_waits: &limited_waits,
    };
    let active = recording.meta.window.length();
    write(&mut CulpritWriter { writer: FindingWriter { words, meanings, sleep_lengths, active } })
}

impl CulpritWriter<'_> {
    /// Returns the functions of those stacks in which samples found threads at work, the innermost one first.
    pub(crate) fn sampled_functions(
        &mut self,
        stacks: impl Iterator<Item = StackPairId>,
    ) -> HashMap<StackPairId, Vec<Label>> {
        self.writer.meanings.sampled_functions(stacks)
    }

    /// Describes what a culprit did in some times of it, for which threads of `waiters` waited for so long each. Work
    /// that is known to be in one function is described as that.
    pub(crate) fn describe(
        &mut self,
        (culprit, function): (&Culprit, Option<&Label>),
        times: impl Iterator<Item = CulpritTime>,
        waiters: &BTreeMap<ThreadIndex, Nanos>,
    ) -> FindingHop {
        let mut node = Node::default();
        for CulpritTime { thread, stack, time } in times {
            node.add(thread, time);
            match culprit.kind() {
                BlameEntryKind::Work => *node.work.entry(stack).or_default() += time,
                BlameEntryKind::CpuQueue => {
                    *node.holders.entry(culprit.holder).or_default() += time
                }
                _ => {}
            }
        }
        let mut root = Node::default();
        waiters.iter().for_each(|(&thread, &time)| root.add(thread, time));
        let hop = self.writer.node_hop(&culprit.node, &node, None, &root);
        let function = function.map(|label| label.function.to_string()).or(hop.function);
        FindingHop { function, ..hop }
    }

    pub(super) fn words(&self) -> &Words<'_> {
        &self.writer.words
    }

    /// Says what a culprit did in one line: `compactor 4260 waits for the disk nvme0n1 (ext4, /) in flush_index`.
    pub(crate) fn line(hop: &FindingHop) -> String {
        describe_hop(hop)
    }

    /// Names the threads of a server: `orders-api 4242`, `postgres ×20`.
    pub(crate) fn name_server(
        &self,
        ServerProgram(program): ServerProgram,
        threads: &BTreeMap<ThreadIndex, Nanos>,
    ) -> FindingHop {
        let time: Nanos = threads.values().copied().sum();
        // Threads without any time are not counted, unless none has any.
        let even = || threads.keys().map(|&thread| (thread, Nanos(1))).collect();
        let even: Option<BTreeMap<ThreadIndex, Nanos>> = (time == Nanos(0)).then(even);
        let threads = even.as_ref().unwrap_or(threads);
        self.writer.words.counted_hop(program, threads, None, String::new(), time)
    }

    /// Names a thread as it was called then.
    pub(crate) fn name_thread(&self, thread: ThreadIndex, at: Timestamp) -> String {
        let words = &self.writer.words;
        let program = words.programs.program_under_name(words.timeline.named_thread(thread, at));
        let threads = BTreeMap::from([(thread, Nanos(0))]);
        who::who(&words.counted_hop(program, &threads, None, String::new(), Nanos(0)))
    }

    /// Says who a server is in one line.
    pub(crate) fn server_line(hop: &FindingHop) -> String {
        who::who(hop)
    }
}

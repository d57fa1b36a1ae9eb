//! Adds parts of blame to what a walk has found so far.

use offwake_recording::units::Nanos;

use crate::timeline::{RunnableSince, ThreadIndex};

use super::{
    super::{BlameKind, BlamePart, Reason, SleepId, StackPairId},
    ChainPosition, HopDetail, TimeRange, Walker,
};

impl Walker<'_> {
    pub(super) fn push(&mut self, kind: BlameKind, time: Nanos, at: ChainPosition) {
        self.push_with_stack(kind, StackPairId::NONE, time, at);
    }

    pub(super) fn push_with_stack(
        &mut self,
        kind: BlameKind,
        stack: StackPairId,
        time: Nanos,
        at: ChainPosition,
    ) {
        let ChainPosition { chain, slept, idle_state, .. } = at;
        let depth = self.depth_of_parts(at);
        let part = BlamePart { kind, depth, chain, stack, slept, idle_state, time };
        self.shared.note_part(part);
        self.parts.push(part);
    }

    pub(super) fn push_unattributed(&mut self, reason: Reason, time: Nanos, at: ChainPosition) {
        self.push(BlameKind::Unattributed(reason), time, at);
    }

    /// Adds time on a CPU, divided evenly among the samples in it. Without samples the stack with
    /// which the thread then left the CPU, or woke another thread, has to do.
    pub(super) fn push_work_of_path(
        &mut self,
        index: ThreadIndex,
        inside: TimeRange,
        left_with: StackPairId,
        at: ChainPosition,
    ) {
        let kind = BlameKind::Work(index);
        let samples = self.blame.samples(index, inside.from, inside.to);
        let Some((_, rest)) = samples.split_last() else {
            return self.push_with_stack(kind, left_with, inside.length(), at);
        };
        let share = Nanos(inside.length().0 / samples.len() as u64);
        let mut left = inside.length();
        for &(_, stack) in rest {
            self.push_with_stack(kind, stack, share, at);
            left = left - share;
        }
        if let Some(&(_, stack)) = samples.last() {
            self.push_with_stack(kind, stack, left, at);
        }
    }

    pub(super) fn push_cpu_queue(
        &mut self,
        thread: ThreadIndex,
        queued: RunnableSince,
        inside: TimeRange,
        at: ChainPosition,
    ) {
        let depth = self.depth_of_parts(at);
        let Self { blame, cpu_hints, parts, detail, shared, .. } = self;
        let ChainPosition { chain, idle_state, .. } = at;
        let tell = |holder: Option<ThreadIndex>, time| {
            let holder = match detail {
                HopDetail::Groups(groups) => holder.map(|one| groups.find_program_leader(one)),
                HopDetail::WakerStacks | HopDetail::Sleeps(_) => holder,
            };
            let kind = BlameKind::CpuQueue { thread, holder };
            let (stack, slept) = (StackPairId::NONE, SleepId::NONE);
            let part = BlamePart { kind, depth, chain, stack, slept, idle_state, time };
            shared.note_part(part);
            parts.push(part);
        };
        let times = (inside.from, inside.to);
        blame.cpus.holders(blame.recording, queued, times, cpu_hints, tell);
    }
}

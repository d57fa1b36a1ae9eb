//! Turns the sums of waits into the entries of the report.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use offwake_recording::{
    FileTable, ThreadRef,
    units::{Tgid, Tid, Timestamp},
};
use rayon::prelude::*;

use crate::{
    blame::{
        Blame, BlameEntryKind, BlameKind, BlamePart, Chains, Hop, IdleState, StackPairId,
        cause::WokenThrough,
    },
    container_labels::ContainerLabels,
    filter::Filter,
    frames::{FrameNamer, Frames},
    label::{Label, LabelFinder},
    timeline::{NAMELESS, NamedThread, ThreadIndex},
    wait_sums::{
        self, SmallParts, Timeout, WaitAttributesTable, WaitSum, WaitSums, WakeKey, WakeTotals,
        WakerKey, WatchWait,
    },
    waited_on_entry,
};

use super::{
    BlameEntry, EntryLimits, HopEntry, ThreadName, WaitEntry, WakeEntry, WakerCallEntry,
    WakerEntry, WakerKind,
    entry_limit::{LimitedSums, SmallWaits, SmallWaitsKey},
    hop_limit::{PartLimits, add_to_rest},
    wake_context,
};

/// Makes the entries of the report that have room, of the target's waits that the filter keeps. What has none
/// is summed up before it is made.
pub(super) fn make_entries(
    blame: &Blame<'_>,
    filter: &Filter,
    limits: EntryLimits,
    watch: WatchWait<'_>,
) -> Entries {
    let sums = WaitSums::new(blame, filter, limits.hops, watch);
    let mut longest: Vec<&WaitSum> = sums.waits.iter().collect();
    longest.sort_by_key(|sum| Reverse(sum.totals.blocked));
    let (listed, small) = longest.split_at(longest.len().min(limits.entries));
    let part_limits = PartLimits::new(&sums, listed, limits);
    let new_writer = || EntryWriter::new(blame, &sums.attributes, part_limits);
    // A few pieces for each CPU: those of the longest waits have most of the parts.
    let piece = listed.len().div_ceil(4 * rayon::current_num_threads().max(1)).max(1);
    let pieces: Vec<(Vec<_>, LimitedSums)> = (listed.par_chunks(piece))
        .map(|piece| {
            let mut writer = new_writer();
            let entries =
                piece.iter().map(|sum| writer.wait_entry(sum, sums.chains(sum))).collect();
            (entries, writer.limited)
        })
        .collect();
    let mut writer = new_writer();
    let mut waits = Vec::with_capacity(listed.len());
    for (mut entries, limited) in pieces {
        waits.append(&mut entries);
        writer.limited.add(limited);
    }
    waits.extend(writer.small_wait_entries(small));
    waits.sort_by_key(|wait| Reverse(wait.blocked_ns));
    let mut wakes: Vec<_> = sums.wakes.iter().collect();
    wakes.sort_by_key(|(_, totals)| Reverse(totals.time));
    let (listed, small) = wakes.split_at(wakes.len().min(limits.entries));
    let wakes = listed.iter().map(|(key, totals)| writer.wake_entry(key, *totals)).collect();
    small.iter().for_each(|(_, totals)| writer.limited.wakes.add(totals.time));
    Entries { waits, wakes, limited: writer.limited }
}

/// The entries of a report.
pub(super) struct Entries {
    pub(super) waits: Vec<WaitEntry>,
    pub(super) wakes: Vec<WakeEntry>,
    /// What had no room.
    pub(super) limited: LimitedSums,
}

/// Makes entries of sums, resolving what their keys stand for.
pub(super) struct EntryWriter<'a> {
    blame: &'a Blame<'a>,
    attributes: &'a WaitAttributesTable,
    part_limits: PartLimits,
    limited: LimitedSums,
    namer: FrameNamer<'a>,
    label_finder: LabelFinder<'a>,
    container_labels: ContainerLabels,
    /// The entries of hops so far: many chains share hops.
    hops: HashMap<Hop, Arc<HopEntry>, foldhash::fast::RandomState>,
}

impl<'a> EntryWriter<'a> {
    pub(super) fn new(
        blame: &'a Blame<'a>,
        attributes: &'a WaitAttributesTable,
        part_limits: PartLimits,
    ) -> Self {
        Self {
            blame,
            attributes,
            part_limits,
            limited: LimitedSums::default(),
            namer: FrameNamer::new(&blame.recording().stacks),
            label_finder: LabelFinder::new(&blame.recording().stacks),
            container_labels: ContainerLabels::new(blame.recording()),
            hops: HashMap::default(),
        }
    }

    /// Returns the name of a waker. The profiler's own threads have no records that tell it.
    fn waker_comm(&self, task: ThreadRef, named: Option<NamedThread>) -> &str {
        match named.and_then(|named| self.blame.timeline().comm(named)) {
            Some(comm) => comm,
            None if self.blame.recording().meta.profiler == Some(task.tgid) => "offwake",
            None => NAMELESS,
        }
    }

    fn thread_name(&self, named: NamedThread) -> ThreadName {
        let thread = self.blame.timeline().thread(named.thread);
        ThreadName {
            tid: thread.map_or(Tid(0), |thread| thread.tid),
            tgid: thread.map_or(Tgid(0), |thread| thread.tgid),
            comm: self.blame.timeline().comm(named).unwrap_or(NAMELESS).to_owned(),
            container: self.container(named.thread),
        }
    }

    /// Returns the label of a thread's container.
    fn container(&self, thread: ThreadIndex) -> Option<String> {
        let thread = self.blame.timeline().thread(thread)?;
        self.container_labels.for_thread(thread).map(str::to_owned)
    }

    fn thread_name_at(&self, thread: ThreadIndex, at: Timestamp) -> ThreadName {
        self.thread_name(self.blame.timeline().named_thread(thread, at))
    }

    fn waker_entry(&self, waker: WakerKey) -> Option<WakerEntry> {
        match waker {
            WakerKey::Unknown => None,
            WakerKey::Task { task, named, context } => Some(WakerEntry {
                kind: WakerKind::Task,
                tid: Some(task.tid),
                tgid: Some(task.tgid),
                comm: Some(self.waker_comm(task, named).to_owned()),
                container: named.and_then(|named| self.container(named.thread)),
                vector: wake_context::vector_name(context),
                device: None,
            }),
            WakerKey::Interrupt(context) => Some(WakerEntry {
                kind: wake_context::interrupt_kind(context),
                tid: None,
                tgid: None,
                comm: None,
                container: None,
                vector: wake_context::vector_name(context),
                device: wake_context::device_name(&self.blame.recording().interrupts, context),
            }),
        }
    }

    fn wake_entry(&self, key: &WakeKey, totals: WakeTotals) -> WakeEntry {
        let WakeTotals { count, time: blocked_ns, .. } = totals;
        let waker = self.waker_entry(key.waker).unwrap_or(WakerEntry {
            kind: WakerKind::Hardirq,
            tid: None,
            tgid: None,
            comm: None,
            container: None,
            vector: None,
            device: None,
        });
        WakeEntry { waker, wakee: self.thread_name(key.wakee), cause: key.cause, count, blocked_ns }
    }

    fn frames(&mut self, stack: StackPairId) -> Frames {
        let (user, kernel) = self.blame.stacks().get(stack);
        self.namer.frames(user, kernel)
    }

    fn label(&mut self, stack: StackPairId) -> Option<Label> {
        let (user, kernel) = self.blame.stacks().get(stack);
        self.label_finder.activity_label(user, kernel)
    }

    pub(super) fn wait_entry(&mut self, wait: &WaitSum, chains: &Chains) -> WaitEntry {
        let WaitSum { key, totals: sum, .. } = wait;
        let attributes = self.attributes.get(key);
        let recording = self.blame.recording();
        let (user, kernel) = self.blame.stacks().get(attributes.stack);
        // No more than is needed: entries are most of a report's memory.
        let listed = sum.parts.iter().filter(|part| self.part_limits.have_room_for(part)).count();
        let mut blame = Vec::with_capacity(listed);
        let mut rests = Vec::new();
        for part in &sum.parts {
            if self.part_limits.have_room_for(part) {
                blame.push(self.blame_entry(part, sum.ended, chains));
            } else {
                let (idle_state, time) = (part.idle_state, part.time);
                let first = chains.first_hop_alone(part.chain);
                self.add_small(
                    SmallParts { first, idle_state, count: 1, time },
                    chains,
                    &mut rests,
                );
            }
        }
        for &small in &sum.small {
            self.add_small(small, chains, &mut rests);
        }
        // Which were summed up early is left to chance.
        rests.sort_by_key(|rest| rest.idle);
        blame.reserve_exact(rests.len());
        blame.append(&mut rests);
        sort_blame(&mut blame);
        let ThreadName { tid, tgid, comm, container } = self.thread_name(key.waiter);
        let thread = self.blame.timeline().thread(key.waiter.thread);
        let label = self.label_finder.wait_label(attributes.cause, user, kernel);
        WaitEntry {
            tid,
            tgid,
            comm,
            cgroup: thread.and_then(|thread| thread.cgroup),
            container,
            cause: attributes.cause,
            seen_in: label.as_ref().map(|label| label.function.to_string()),
            label,
            waited_on: attributes
                .waited_on
                .map(|on| waited_on_entry::waited_on_entry(&recording.files, on)),
            syscall: attributes.syscall,
            timeout_ns: match sum.timeout {
                Timeout::All(timeout) => timeout,
                Timeout::NoneYet | Timeout::Differs => None,
            },
            state: attributes.state,
            count: sum.count,
            retries: sum.retries,
            blocked_ns: sum.blocked,
            idle_ns: sum.idle,
            longest_ns: sum.longest,
            summed_up: 0,
            markers: self.blame.markers().path_texts(key.markers),
            labels: self.attributes.label(key).into_iter().collect(),
            stack: self.frames(attributes.stack),
            waker: self.waker_entry(key.waker),
            waker_call: attributes.waker_call.map(|call| waker_call_entry(&recording.files, call)),
            blame,
        }
    }

    /// Adds parts that are not told apart to those with their first hop.
    fn add_small(&mut self, small: SmallParts, chains: &Chains, rests: &mut Vec<BlameEntry>) {
        let SmallParts { first, idle_state, count, time } = small;
        self.limited.parts.add_several(count, time);
        let first = chains.last_hop(first).map(|(_, hop)| self.hop_entry(hop));
        add_to_rest(time, idle_state == IdleState::Idle, first.as_ref(), rests);
    }

    /// Sums waits up for which there is no room.
    fn small_wait_entries(
        &mut self,
        small: &[&WaitSum],
    ) -> impl Iterator<Item = WaitEntry> + use<> {
        let mut sums = SmallWaits::default();
        for WaitSum { key, totals: sum, .. } in small {
            let attributes = self.attributes.get(key);
            let ThreadName { tid, tgid, comm, container } = self.thread_name(key.waiter);
            let thread = self.blame.timeline().thread(key.waiter.thread);
            let cgroup = thread.and_then(|thread| thread.cgroup);
            let (cause, state) = (attributes.cause, attributes.state);
            let key = SmallWaitsKey { tid, tgid, comm, cgroup, container, cause, state };
            sums.add(key, sum, &mut self.limited);
        }
        sums.into_entries()
    }

    fn hop_entry(&mut self, hop: Hop) -> Arc<HopEntry> {
        if let Some(known) = self.hops.get(&hop) {
            return Arc::clone(known);
        }
        let Hop { thread, stack, markers, .. } = hop;
        let entry = Arc::new(HopEntry {
            thread: self.thread_name(thread),
            label: self.label(stack),
            markers: self.blame.markers().path_texts(markers),
            stack: self.frames(stack),
        });
        self.hops.insert(hop, Arc::clone(&entry));
        entry
    }

    fn blame_entry(&mut self, part: &BlamePart, at: Timestamp, chains: &Chains) -> BlameEntry {
        let hops = chains.hops(part.chain);
        let last = hops.last().copied();
        let chain: Vec<Arc<HopEntry>> = hops.into_iter().map(|hop| self.hop_entry(hop)).collect();
        let (word, reason) = BlameEntryKind::from_blame(part.kind);
        let blamed = match part.kind {
            BlameKind::Work(_) | BlameKind::CpuQueue { .. } => chain.last(),
            BlameKind::External(_) | BlameKind::Unattributed(_) => None,
        };
        let blamed = blamed.map(|hop| hop.thread.clone());
        let holder = match part.kind {
            BlameKind::CpuQueue { holder, .. } => {
                holder.map(|thread| self.thread_name_at(thread, at))
            }
            _ => None,
        };
        // Without a stack of its own: that with which the thread ended the wait.
        let stack = match (part.stack, last) {
            (StackPairId::NONE, Some(hop)) => hop.stack,
            (stack, _) => stack,
        };
        let label = match word {
            BlameEntryKind::Work => self.label(stack),
            _ => None,
        };
        BlameEntry {
            kind: word,
            reason,
            tid: blamed.as_ref().map(|thread| thread.tid),
            tgid: blamed.as_ref().map(|thread| thread.tgid),
            comm: blamed.as_ref().map(|thread| thread.comm.clone()),
            container: blamed.and_then(|thread| thread.container),
            depth: part.depth,
            ns: part.time,
            idle: part.idle_state == IdleState::Idle,
            holder,
            label,
            stack: self.frames(stack),
            chain,
        }
    }
}

/// Sorts parts of blame, the largest first.
pub(super) fn sort_blame(blame: &mut [BlameEntry]) {
    blame.sort_by(|a, b| {
        let key = |part: &BlameEntry| (Reverse(part.ns), part.kind, part.reason, part.tid);
        key(a).cmp(&key(b)).then_with(|| (&a.chain, &a.stack).cmp(&(&b.chain, &b.stack)))
    });
}

fn waker_call_entry(files: &FileTable, call: wait_sums::WakerSyscall) -> WakerCallEntry {
    let wait_sums::WakerSyscall { syscall, through } = call;
    WakerCallEntry {
        syscall,
        fd: match through {
            Some(WokenThrough::File { fd, .. }) => Some(fd),
            Some(WokenThrough::Futex { .. }) | None => None,
        },
        file: match through {
            Some(WokenThrough::File { file, .. }) => {
                file.map(|file| waited_on_entry::file_text(files, file))
            }
            Some(WokenThrough::Futex { .. }) | None => None,
        },
        futex_address: match through {
            Some(WokenThrough::Futex { address }) => Some(format!("{address:#x}")),
            Some(WokenThrough::File { .. }) | None => None,
        },
    }
}

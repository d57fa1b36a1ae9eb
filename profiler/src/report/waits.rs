//! Waits that are alike, added up.

use std::{collections::HashMap, hash::Hash};

use crate::{
    blame::{
        Blame, BlameKind, Ender, External,
        cause::{self, Cause, WaitedOn, WokenThrough, syscalls},
    },
    recording::{FileTable, Recording, StackRef, ThreadRef, Wait, WakeContext},
    timeline::{ThreadIndex, Timeline, WaitIndex},
    units::{Nanos, Timestamp},
};

use super::{
    BlameEntry, BlameWord, Filter, Frames, WaitEntry, WakeEntry, WakeParty, WakerCallEntry,
    WakerEntry, WakerKind,
    build::NAMELESS,
    frames::{self, Namer},
    waited_on, waker,
};

/// What is shown of the target's waits.
pub(super) struct Shown {
    pub(super) waits: Vec<WaitEntry>,
    pub(super) wakes: Vec<WakeEntry>,
    pub(super) left_out_count: u64,
    pub(super) left_out: Nanos,
}

/// A thread under one of its names.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Named {
    thread: ThreadIndex,
    name: Option<usize>,
}

/// Who made a wake.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Waker {
    Nobody,
    Task { task: ThreadRef, named: Option<Named>, context: WakeContext },
    Interrupt(WakeContext),
}

/// What waits have to have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct WaitKey {
    waiter: Named,
    cause: Cause,
    state: char,
    syscall: Option<&'static str>,
    waited_on: Option<WaitedOn>,
    stack: (StackRef, StackRef),
    waker: Waker,
    waker_stack: (StackRef, StackRef),
    waker_call: Option<WakerCall>,
}

/// The syscall in which a task made a wake, and what it named.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct WakerCall {
    syscall: &'static str,
    through: Option<WokenThrough>,
}

impl WakerCall {
    fn of(waker: Waker, wait: &Wait) -> Option<Self> {
        let Waker::Task { .. } = waker else { return None };
        let wake = wait.wake.as_ref()?;
        let syscall = syscalls::name(wake.syscall.as_ref()?)?;
        Some(Self { syscall, through: cause::woken_through(wake) })
    }

    fn entry(self, files: &FileTable) -> WakerCallEntry {
        let Self { syscall, through } = self;
        WakerCallEntry {
            syscall,
            fd: match through {
                Some(WokenThrough::File { fd, .. }) => Some(fd),
                Some(WokenThrough::Futex { .. }) | None => None,
            },
            file: match through {
                Some(WokenThrough::File { file: Some(file), .. }) => {
                    Some(waited_on::file_text(files, file))
                }
                Some(WokenThrough::File { file: None, .. } | WokenThrough::Futex { .. }) | None => {
                    None
                }
            },
            futex_address: match through {
                Some(WokenThrough::Futex { address }) => Some(format!("{address:#x}")),
                Some(WokenThrough::File { .. }) | None => None,
            },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct WakeKey {
    waker: Waker,
    wakee: Named,
    cause: Cause,
}

#[derive(Default)]
struct WaitSum {
    count: u64,
    blocked: Nanos,
    longest: Nanos,
    /// The timeout of the first.
    timeout: Option<Nanos>,
    timeouts_differ: bool,
    parts: Vec<(BlameKind, u16, Nanos)>,
    ended: Timestamp,
}

/// Sums in the order of their first appearance, which makes every order after it a settled one.
struct Sums<K, V> {
    places: HashMap<K, usize>,
    sums: Vec<(K, V)>,
}

impl<K: Copy + Eq + Hash, V: Default> Sums<K, V> {
    fn new() -> Self {
        Self { places: HashMap::new(), sums: Vec::new() }
    }

    fn get(&mut self, key: K) -> &mut V {
        let place = *self.places.entry(key).or_insert_with(|| {
            self.sums.push((key, V::default()));
            self.sums.len() - 1
        });
        &mut self.sums[place].1
    }
}

/// Adds up the target's waits that the filter keeps.
pub(super) fn collect(
    recording: &Recording,
    timeline: &Timeline,
    blame: &Blame,
    filter: &Filter,
) -> Shown {
    let mut waits: Sums<WaitKey, WaitSum> = Sums::new();
    let mut wakes: Sums<WakeKey, (u64, Nanos)> = Sums::new();
    let (mut left_out_count, mut left_out) = (0, Nanos(0));
    for (n, (wait, place)) in recording.waits.iter().zip(&timeline.waits).enumerate() {
        let blocked = place.to.since(place.from);
        let Some(index) = place.thread else { continue };
        let Some(thread) = timeline.thread(index) else { continue };
        if !thread.in_target || blocked == Nanos(0) {
            continue;
        }
        if !filter.keeps(wait, blocked) {
            left_out_count += 1;
            left_out += blocked;
            continue;
        }
        let wait_index = WaitIndex(u32::try_from(n).unwrap_or(u32::MAX));
        let waiter = Named { thread: index, name: thread.name_at(place.from) };
        let cause = blame.cause(wait_index);
        let (waker, waker_stack) = waker_of(timeline, wait, blame.ender(wait_index), place.to);
        let key = WaitKey {
            waiter,
            cause,
            state: wait.state.letter(),
            syscall: wait.syscall.as_ref().and_then(syscalls::name),
            waited_on: cause::waited_on(wait, cause),
            stack: (wait.user_stack, wait.kernel_stack),
            waker,
            waker_stack,
            waker_call: WakerCall::of(waker, wait),
        };
        let sum = waits.get(key);
        if sum.count == 0 {
            (sum.timeout, sum.ended) = (wait.timeout, place.to);
        }
        sum.timeouts_differ |= sum.timeout != wait.timeout;
        sum.count += 1;
        sum.blocked += blocked;
        sum.longest = sum.longest.max(blocked);
        for part in blame.parts(wait_index) {
            match sum.parts.iter_mut().find(|(kind, d, _)| (*kind, *d) == (part.kind, part.depth)) {
                Some((_, _, time)) => *time += part.time,
                None => sum.parts.push((part.kind, part.depth, part.time)),
            }
        }
        if waker != Waker::Nobody {
            let (count, time) = wakes.get(WakeKey { waker, wakee: waiter, cause });
            *count += 1;
            *time += blocked;
        }
    }
    let mut writer = Writer { recording, timeline, namer: Namer::new(&recording.stacks) };
    let mut waits: Vec<_> = waits.sums.iter().map(|(key, sum)| writer.wait(key, sum)).collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.blocked_ns));
    let mut wakes: Vec<_> = wakes.sums.iter().map(|(key, sum)| writer.wake(key, *sum)).collect();
    wakes.sort_by_key(|wake| std::cmp::Reverse(wake.blocked_ns));
    Shown { waits, wakes, left_out_count, left_out }
}

/// Who made the wake, and the stack that is theirs. What an interrupt ran over is nobody's.
fn waker_of(
    timeline: &Timeline,
    wait: &Wait,
    ender: Ender,
    at: Timestamp,
) -> (Waker, (StackRef, StackRef)) {
    let nothing = (StackRef::NotTaken, StackRef::NotTaken);
    match (ender, &wait.wake) {
        (Ender::Task(task), Some(wake)) => {
            let named = timeline.find(task.tid, at).map(|thread| Named {
                thread,
                name: timeline.thread(thread).and_then(|waker| waker.name_at(at)),
            });
            let context = wake.context;
            (Waker::Task { task, named, context }, (wake.user_stack, wake.kernel_stack))
        }
        (Ender::External(_) | Ender::Interrupt(_), Some(wake)) => {
            (Waker::Interrupt(wake.context), nothing)
        }
        (Ender::Nobody(_), _) | (_, None) => (Waker::Nobody, nothing),
    }
}

/// Writes out what the keys stand for.
struct Writer<'a> {
    recording: &'a Recording,
    timeline: &'a Timeline,
    namer: Namer<'a>,
}

impl Writer<'_> {
    fn comm(&self, named: Named) -> Option<&str> {
        let name = self.timeline.thread(named.thread)?.names.get(named.name?)?;
        Some(&name.comm)
    }

    /// The profiler's own threads have no records to learn their names from.
    fn waker_comm(&self, task: ThreadRef, named: Option<Named>) -> &str {
        match named.and_then(|named| self.comm(named)) {
            Some(comm) => comm,
            None if self.recording.meta.profiler == Some(task.tgid) => "offwake",
            None => NAMELESS,
        }
    }

    fn party(&self, named: Named) -> Option<WakeParty> {
        let thread = self.timeline.thread(named.thread)?;
        let comm = self.comm(named).unwrap_or(NAMELESS).to_owned();
        Some(WakeParty { tid: thread.tid, tgid: thread.tgid, comm })
    }

    fn known(&self, named: Named) -> WakeParty {
        // A key is made from a thread that is there.
        self.party(named).unwrap_or(WakeParty {
            tid: crate::units::Tid(0),
            tgid: crate::units::Tgid(0),
            comm: NAMELESS.to_owned(),
        })
    }

    fn waker(&self, waker: Waker) -> Option<WakerEntry> {
        match waker {
            Waker::Nobody => None,
            Waker::Task { task, named, context } => Some(WakerEntry {
                kind: WakerKind::Task,
                tid: Some(task.tid),
                tgid: Some(task.tgid),
                comm: Some(self.waker_comm(task, named).to_owned()),
                vector: waker::vector(context),
            }),
            Waker::Interrupt(context) => Some(WakerEntry {
                kind: waker::kind(context),
                tid: None,
                tgid: None,
                comm: None,
                vector: waker::vector(context),
            }),
        }
    }

    fn wake(&self, key: &WakeKey, (count, blocked_ns): (u64, Nanos)) -> WakeEntry {
        let waker = self.waker(key.waker).unwrap_or(WakerEntry {
            kind: WakerKind::Hardirq,
            tid: None,
            tgid: None,
            comm: None,
            vector: None,
        });
        WakeEntry { waker, wakee: self.known(key.wakee), cause: key.cause, count, blocked_ns }
    }

    fn wait(&mut self, key: &WaitKey, sum: &WaitSum) -> WaitEntry {
        let (user, kernel) = key.stack;
        let hop = self.namer.frames(key.waker_stack.0, key.waker_stack.1);
        let mut blame: Vec<_> =
            sum.parts.iter().map(|part| self.blame(*part, sum.ended, &hop)).collect();
        blame.sort_by_key(|part| (std::cmp::Reverse(part.ns), part.kind, part.reason, part.tid));
        let WakeParty { tid, tgid, comm } = self.known(key.waiter);
        WaitEntry {
            tid,
            tgid,
            comm,
            cause: key.cause,
            seen_in: frames::seen_in(&self.recording.stacks, key.cause, user, kernel),
            waited_on: key.waited_on.map(|on| waited_on::entry(&self.recording.files, on)),
            syscall: key.syscall,
            timeout_ns: sum.timeout.filter(|_| !sum.timeouts_differ),
            state: key.state,
            count: sum.count,
            blocked_ns: sum.blocked,
            longest_ns: sum.longest,
            stack: self.namer.frames(user, kernel),
            waker: self.waker(key.waker),
            waker_call: key.waker_call.map(|call| call.entry(&self.recording.files)),
            blame,
        }
    }

    fn blame(
        &self,
        (kind, depth, ns): (BlameKind, u16, Nanos),
        at: Timestamp,
        hop: &Frames,
    ) -> BlameEntry {
        let (word, reason, thread) = match kind {
            BlameKind::Work(thread) => (BlameWord::Work, None, Some(thread)),
            BlameKind::CpuQueue(thread) => (BlameWord::CpuQueue, None, Some(thread)),
            BlameKind::External(External::Timer) => (BlameWord::Timer, None, None),
            BlameKind::External(External::Disk) => (BlameWord::Disk, None, None),
            BlameKind::External(External::Network) => (BlameWord::Network, None, None),
            BlameKind::External(External::Device) => (BlameWord::Device, None, None),
            BlameKind::Unattributed(reason) => (BlameWord::Unattributed, Some(reason), None),
        };
        let name = |thread: ThreadIndex| self.timeline.thread(thread)?.name_at(at);
        let party = thread.and_then(|thread| self.party(Named { thread, name: name(thread) }));
        BlameEntry {
            kind: word,
            reason,
            tid: party.as_ref().map(|party| party.tid),
            tgid: party.as_ref().map(|party| party.tgid),
            comm: party.map(|party| party.comm),
            depth,
            ns,
            stack: if depth > 0 { hop.clone() } else { Frames::default() },
        }
    }
}

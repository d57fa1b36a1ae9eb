//! The stacks that records may still refer to, and the processes whose stacks they are.
//!
//! The kernel half sends a stack once, and its id covers the address space: the user stacks of a
//! process that has ended can't be referred to by anything new. They stay for as long as a record
//! that refers to them may be retained, and the kernel half is told to forget them: should the same
//! id come again, its stack does too.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use offwake_recording::{
    AddressSpace, Stack, ThreadEvent, ThreadEventReason, ThreadExit,
    units::{StackId, Tgid, Tid, Timestamp},
};

/// How many stacks of living processes and of the kernel are retained. The kernel half remembers
/// 65,536 at a time.
pub(super) const MAX_STACKS: usize = 1 << 18;

/// A stack that new records may refer to.
#[derive(Clone, Debug)]
struct LiveStack {
    stack: Arc<Stack>,
    arrived: Timestamp,
}

/// Stacks of one address space that no new record refers to.
#[derive(Debug, Default)]
struct RetiredStacks {
    stacks: Vec<(StackId, Arc<Stack>)>,
    /// When the newest of them was retired.
    at: Timestamp,
}

/// The stacks that retained records may refer to.
#[derive(Debug)]
pub(super) struct RetainedStacks {
    /// The threads of each living process.
    living: HashMap<Tgid, HashSet<Tid>>,
    processes: HashMap<Tid, Tgid>,
    live: HashMap<AddressSpace, HashMap<StackId, LiveStack>>,
    retired: HashMap<AddressSpace, RetiredStacks>,
    /// When stacks of which address space were retired, in order of time.
    retirements: VecDeque<(Timestamp, AddressSpace)>,
    /// Stacks that the kernel half must send again when they come up again.
    dropped: Vec<StackId>,
    count: usize,
    limit: usize,
    memory: usize,
    over_limit: u64,
}

impl RetainedStacks {
    pub fn new(limit: usize) -> Self {
        Self {
            living: HashMap::new(),
            processes: HashMap::new(),
            live: HashMap::new(),
            retired: HashMap::new(),
            retirements: VecDeque::new(),
            dropped: Vec::new(),
            count: 0,
            limit,
            memory: 0,
            over_limit: 0,
        }
    }

    /// Takes a record as a sign that its thread lives, unless its exit comes with it.
    pub fn on_thread_record(&mut self, tid: Tid, tgid: Tgid, at: Timestamp) {
        match self.processes.insert(tid, tgid) {
            Some(before) if before == tgid => return,
            // The thread's exit was lost, and its number is used again.
            Some(before) => self.remove_thread(tid, before, at),
            None => {}
        }
        self.living.entry(tgid).or_default().insert(tid);
    }

    /// Takes an event of a thread into account.
    pub fn on_thread_event(&mut self, thread_event: &ThreadEvent) {
        let &ThreadEvent { tid, tgid, at, reason, .. } = thread_event;
        self.on_thread_record(tid, tgid, at);
        if reason == ThreadEventReason::Exec {
            // This thread alone is left of its process, in a new address space.
            if let Some(threads) = self.living.get_mut(&tgid) {
                for gone in threads.extract_if(|thread| *thread != tid) {
                    self.processes.remove(&gone);
                }
            }
            self.retire(AddressSpace::Process(tgid), at, |stack| stack.arrived < at);
        }
    }

    /// Forgets a thread that has ended.
    pub fn on_exit(&mut self, exit: &ThreadExit) {
        if let Some(tgid) = self.processes.remove(&exit.tid) {
            self.remove_thread(exit.tid, tgid, exit.at);
        }
    }

    fn remove_thread(&mut self, tid: Tid, tgid: Tgid, at: Timestamp) {
        let Some(threads) = self.living.get_mut(&tgid) else { return };
        threads.remove(&tid);
        if threads.is_empty() {
            self.living.remove(&tgid);
            self.retire(AddressSpace::Process(tgid), at, |_stack| true);
        }
    }

    /// Whether a process lives, or has not been dead for long.
    pub fn remembers(&self, tgid: Tgid) -> bool {
        self.living.contains_key(&tgid) || self.retired.contains_key(&AddressSpace::Process(tgid))
    }

    /// Adds a stack. The same one may come again.
    pub fn add(&mut self, id: StackId, stack: Stack, arrived: Timestamp) {
        let space = stack.space;
        let stack = Arc::new(stack);
        self.memory += stack_memory(&stack);
        let lives = match space {
            AddressSpace::Kernel => true,
            AddressSpace::Process(tgid) => self.living.contains_key(&tgid),
        };
        if !lives {
            self.dropped.push(id);
            return self.add_retired(space, arrived, vec![(id, stack)]);
        }
        let live = LiveStack { stack, arrived };
        match self.live.entry(space).or_default().insert(id, live) {
            Some(before) => self.memory -= stack_memory(&before.stack),
            None => self.count += 1,
        }
        if self.count > self.limit {
            self.retire_older_half(arrived);
        }
    }

    /// Retires one stack, to which nothing refers but records of about now.
    pub fn retire_one(&mut self, space: AddressSpace, id: StackId, at: Timestamp) {
        if let Some(live) = self.live.get_mut(&space).and_then(|stacks| stacks.remove(&id)) {
            self.count -= 1;
            self.add_retired(space, at, vec![(id, live.stack)]);
        }
    }

    /// Retires the older half. Those still in use come again; what is lost are those of waits that
    /// are longer than the retained time.
    fn retire_older_half(&mut self, now: Timestamp) {
        let mut arrivals: Vec<Timestamp> =
            self.live.values().flat_map(HashMap::values).map(|stack| stack.arrived).collect();
        let middle = arrivals.len() / 2;
        let (_, &mut median, _) = arrivals.select_nth_unstable(middle);
        let spaces: Vec<_> = self.live.keys().copied().collect();
        let before = self.count;
        for space in spaces {
            self.retire(space, now, |stack| stack.arrived <= median);
        }
        self.over_limit += (before - self.count) as u64;
    }

    /// Retires stacks of one address space: no new record refers to them, and if one does all the
    /// same, the kernel half sends them again.
    fn retire(&mut self, space: AddressSpace, at: Timestamp, which: impl Fn(&LiveStack) -> bool) {
        let mut retiring = Vec::new();
        if let Some(stacks) = self.live.get_mut(&space) {
            retiring.extend(
                stacks.extract_if(|_, live| which(live)).map(|(id, live)| (id, live.stack)),
            );
            if stacks.is_empty() {
                self.live.remove(&space);
            }
        }
        self.count -= retiring.len();
        self.dropped.extend(retiring.iter().map(|(id, _)| *id));
        self.add_retired(space, at, retiring);
    }

    fn add_retired(
        &mut self,
        space: AddressSpace,
        at: Timestamp,
        stacks: Vec<(StackId, Arc<Stack>)>,
    ) {
        let retired = self.retired.entry(space).or_default();
        retired.at = retired.at.max(at);
        retired.stacks.extend(stacks);
        self.retirements.push_back((retired.at, space));
    }

    /// Drops retired stacks, as no record that is older than `start` is retained any more. Calls
    /// `gone` for the processes that are remembered no longer.
    pub fn drop_before(&mut self, start: Timestamp, mut gone: impl FnMut(Tgid)) {
        while let Some(&(at, space)) = self.retirements.front()
            && at < start
        {
            self.retirements.pop_front();
            // Another entry follows if more stacks of this address space were retired later.
            if self.retired.get(&space).is_some_and(|retired| retired.at < start)
                && let Some(retired) = self.retired.remove(&space)
            {
                let memory =
                    retired.stacks.iter().map(|(_, stack)| stack_memory(stack)).sum::<usize>();
                self.memory -= memory;
                if let AddressSpace::Process(tgid) = space
                    && !self.living.contains_key(&tgid)
                {
                    gone(tgid);
                }
            }
        }
    }

    /// Every stack there is, each once.
    pub fn to_map(&self) -> HashMap<StackId, Arc<Stack>> {
        let retired = self.retired.values().flat_map(|retired| &retired.stacks);
        let retired = retired.map(|(id, stack)| (*id, Arc::clone(stack)));
        let live = self.live.values().flatten();
        retired.chain(live.map(|(id, live)| (*id, Arc::clone(&live.stack)))).collect()
    }

    /// Stacks that were retired since the last call: the kernel half must forget that it sent them.
    pub fn take_dropped(&mut self) -> Vec<StackId> {
        std::mem::take(&mut self.dropped)
    }

    /// How many stacks were retired while they may still have been in use.
    pub fn over_limit(&self) -> u64 {
        self.over_limit
    }

    /// About what all of it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
            + 96 * (self.processes.len() + self.living.len())
            + 48 * (self.retirements.len() + self.retired.len())
    }
}

fn stack_memory(stack: &Stack) -> usize {
    128 + 4 * stack.frames.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use offwake_recording::units::CgroupId;
    use offwake_recording::{FrameId, Phase, StackEnd, ThreadKind};

    fn thread_event(pid: u32, reason: ThreadEventReason, at: u64) -> ThreadEvent {
        ThreadEvent {
            at: Timestamp(at),
            reason,
            tid: Tid(pid),
            old_tid: None,
            tgid: Tgid(pid),
            parent: Tgid(1),
            kind: ThreadKind::User,
            in_target: true,
            phase: Phase::Unknown,
            seq: 0,
            created: Timestamp(at),
            cgroup: CgroupId(1),
            comm: "x".to_owned(),
        }
    }

    fn exit(pid: u32, at: u64) -> ThreadExit {
        let (tid, tgid, at) = (Tid(pid), Tgid(pid), Timestamp(at));
        ThreadExit { at, tid, tgid, in_target: true, seq: 1, status: 0 }
    }

    fn stack(space: AddressSpace) -> Stack {
        Stack { space, frames: vec![FrameId(1); 20], end: StackEnd::Unknown }
    }

    #[test]
    fn stacks_of_the_dead_stay_for_as_long_as_records_and_are_sent_again() {
        let mut stacks = RetainedStacks::new(100);
        stacks.on_thread_event(&thread_event(7, ThreadEventReason::Fork, 10));
        stacks.add(StackId(1), stack(AddressSpace::Process(Tgid(7))), Timestamp(11));
        stacks.add(StackId(2), stack(AddressSpace::Kernel), Timestamp(11));
        assert_eq!(stacks.take_dropped(), []);
        stacks.on_exit(&exit(7, 20));
        assert_eq!(stacks.take_dropped(), [StackId(1)]);
        // Found late.
        stacks.add(StackId(3), stack(AddressSpace::Process(Tgid(7))), Timestamp(22));
        assert_eq!(stacks.take_dropped(), [StackId(3)]);
        let mut gone = Vec::new();
        stacks.drop_before(Timestamp(21), |tgid| gone.push(tgid));
        assert_eq!((stacks.to_map().len(), gone.len()), (3, 0));
        assert!(stacks.remembers(Tgid(7)));
        stacks.drop_before(Timestamp(23), |tgid| gone.push(tgid));
        assert_eq!(stacks.to_map().into_keys().collect::<Vec<_>>(), [StackId(2)]);
        assert_eq!(gone, [Tgid(7)]);
        assert!(!stacks.remembers(Tgid(7)));
    }

    #[test]
    fn another_program_forgets_what_came_before_it_and_no_more() {
        let process = AddressSpace::Process(Tgid(7));
        let mut stacks = RetainedStacks::new(100);
        stacks.on_thread_event(&thread_event(7, ThreadEventReason::Fork, 10));
        stacks.add(StackId(1), stack(process), Timestamp(11));
        stacks.add(StackId(2), stack(process), Timestamp(31));
        stacks.on_thread_event(&thread_event(7, ThreadEventReason::Exec, 30));
        assert_eq!(stacks.take_dropped(), [StackId(1)]);
        stacks.drop_before(Timestamp(40), |_tgid| panic!("it lives"));
        assert_eq!(stacks.to_map().into_keys().collect::<Vec<_>>(), [StackId(2)]);
    }

    #[test]
    fn over_the_limit_the_older_half_goes_and_is_counted() {
        let mut stacks = RetainedStacks::new(10);
        for n in 0..11 {
            stacks.add(StackId(n), stack(AddressSpace::Kernel), Timestamp(n));
        }
        assert_eq!((stacks.over_limit(), stacks.take_dropped().len()), (6, 6));
        stacks.drop_before(Timestamp(100), |_tgid| {});
        assert_eq!(stacks.to_map().len(), 5);
    }

    /// An hour of a build: what is held does not grow with it.
    #[test]
    fn memory_is_flat_over_a_hundred_thousand_processes() {
        let mut stacks = RetainedStacks::new(MAX_STACKS);
        let mut most = 0;
        let mut early = 0;
        for n in 0..100_000_u32 {
            let pid = 2 + n % 32_768;
            let at = u64::from(n) * 100;
            stacks.on_thread_event(&thread_event(pid, ThreadEventReason::Fork, at));
            stacks.on_thread_event(&thread_event(pid, ThreadEventReason::Exec, at + 10));
            for k in 0..5 {
                let id = StackId(u64::from(n) * 8 + k);
                stacks.add(id, stack(AddressSpace::Process(Tgid(pid))), Timestamp(at + 20));
            }
            // One exit in a thousand is lost.
            if n % 1_000 != 0 {
                stacks.on_exit(&exit(pid, at + 50));
            }
            stacks.take_dropped();
            stacks.drop_before(Timestamp(at.saturating_sub(10_000)), |_tgid| {});
            most = most.max(stacks.memory());
            if n == 40_000 {
                early = most;
            }
        }
        assert!(most <= early + early / 10, "{early} bytes after 40,000, then {most}");
        assert!(stacks.retirements.len() < 1_000 && stacks.retired.len() < 1_000);
    }
}

//! The stacks that records may still refer to, and the processes whose stacks they are.
//!
//! The kernel half sends a stack once, and its id covers the address space: the user stacks of a
//! process that has ended can't be referred to by anything new. They stay for as long as a record
//! that does may be kept, and the kernel half is told to forget them: should the same id come again,
//! its stack does too.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use crate::{
    recording::{AddressSpace, Sighting, SightingReason, Stack, ThreadExit},
    units::{StackId, Tgid, Tid, Timestamp},
};

/// Stacks that are kept of the living and of the kernel. The kernel half remembers 65,536 at a time.
pub(super) const MAX_STACKS: usize = 1 << 18;

#[derive(Clone, Debug)]
struct Held {
    stack: Arc<Stack>,
    arrived: Timestamp,
}

/// Stacks on their way out.
#[derive(Debug, Default)]
struct Grave {
    stacks: Vec<(StackId, Arc<Stack>)>,
    /// When the newest of them came in.
    at: Timestamp,
}

/// See above.
#[derive(Debug)]
pub(super) struct Stacks {
    living: HashMap<Tgid, HashSet<Tid>>,
    processes: HashMap<Tid, Tgid>,
    held: HashMap<AddressSpace, HashMap<StackId, Held>>,
    graves: HashMap<AddressSpace, Grave>,
    dying: VecDeque<(Timestamp, AddressSpace)>,
    forgotten: Vec<StackId>,
    count: usize,
    limit: usize,
    memory: usize,
    over_limit: u64,
}

impl Stacks {
    pub fn new(limit: usize) -> Self {
        Self {
            living: HashMap::new(),
            processes: HashMap::new(),
            held: HashMap::new(),
            graves: HashMap::new(),
            dying: VecDeque::new(),
            forgotten: Vec::new(),
            count: 0,
            limit,
            memory: 0,
            over_limit: 0,
        }
    }

    /// A record of this thread came: it lives, unless its exit comes with it.
    pub fn meet(&mut self, tid: Tid, tgid: Tgid, at: Timestamp) {
        match self.processes.insert(tid, tgid) {
            Some(before) if before == tgid => return,
            // Its exit was lost, and its number is used again.
            Some(before) => self.part(tid, before, at),
            None => {}
        }
        self.living.entry(tgid).or_default().insert(tid);
    }

    /// A thread was seen.
    pub fn see(&mut self, sighting: &Sighting) {
        let &Sighting { tid, tgid, at, reason, .. } = sighting;
        self.meet(tid, tgid, at);
        if reason == SightingReason::Exec {
            // It alone is left of its process, in a new address space.
            if let Some(threads) = self.living.get_mut(&tgid) {
                for gone in threads.extract_if(|thread| *thread != tid) {
                    self.processes.remove(&gone);
                }
            }
            self.bury(AddressSpace::Process(tgid), at, |held| held.arrived < at);
        }
    }

    /// A thread has ended.
    pub fn exit(&mut self, exit: &ThreadExit) {
        if let Some(tgid) = self.processes.remove(&exit.tid) {
            self.part(exit.tid, tgid, exit.at);
        }
    }

    fn part(&mut self, tid: Tid, tgid: Tgid, at: Timestamp) {
        let Some(threads) = self.living.get_mut(&tgid) else { return };
        threads.remove(&tid);
        if threads.is_empty() {
            self.living.remove(&tgid);
            self.bury(AddressSpace::Process(tgid), at, |_held| true);
        }
    }

    /// Whether a process lives, or has not been dead for long.
    pub fn remembers(&self, tgid: Tgid) -> bool {
        self.living.contains_key(&tgid) || self.graves.contains_key(&AddressSpace::Process(tgid))
    }

    /// A stack came in. The same one may come again.
    pub fn add(&mut self, id: StackId, stack: Stack, arrived: Timestamp) {
        let space = stack.space;
        let stack = Arc::new(stack);
        self.memory += memory_of(&stack);
        let lives = match space {
            AddressSpace::Kernel => true,
            AddressSpace::Process(tgid) => self.living.contains_key(&tgid),
        };
        if !lives {
            self.forgotten.push(id);
            return self.lay(space, arrived, vec![(id, stack)]);
        }
        let held = Held { stack, arrived };
        match self.held.entry(space).or_default().insert(id, held) {
            Some(before) => self.memory -= memory_of(&before.stack),
            None => self.count += 1,
        }
        if self.count > self.limit {
            self.halve(arrived);
        }
    }

    /// Nothing refers to this stack but records of about now.
    pub fn pass(&mut self, space: AddressSpace, id: StackId, at: Timestamp) {
        if let Some(held) = self.held.get_mut(&space).and_then(|stacks| stacks.remove(&id)) {
            self.count -= 1;
            self.lay(space, at, vec![(id, held.stack)]);
        }
    }

    /// Forgets the older half. Those still in use come again; what is lost are those of waits that
    /// are longer than the kept stretch.
    fn halve(&mut self, now: Timestamp) {
        let mut arrivals: Vec<Timestamp> =
            self.held.values().flat_map(HashMap::values).map(|held| held.arrived).collect();
        let middle = arrivals.len() / 2;
        let (_, &mut median, _) = arrivals.select_nth_unstable(middle);
        let spaces: Vec<_> = self.held.keys().copied().collect();
        let before = self.count;
        for space in spaces {
            self.bury(space, now, |held| held.arrived <= median);
        }
        self.over_limit += (before - self.count) as u64;
    }

    /// Takes stacks of one address space out of use.
    fn bury(&mut self, space: AddressSpace, at: Timestamp, which: impl Fn(&Held) -> bool) {
        let mut buried = Vec::new();
        if let Some(stacks) = self.held.get_mut(&space) {
            buried.extend(
                stacks.extract_if(|_, held| which(held)).map(|(id, held)| (id, held.stack)),
            );
            if stacks.is_empty() {
                self.held.remove(&space);
            }
        }
        self.count -= buried.len();
        self.forgotten.extend(buried.iter().map(|(id, _)| *id));
        self.lay(space, at, buried);
    }

    fn lay(&mut self, space: AddressSpace, at: Timestamp, stacks: Vec<(StackId, Arc<Stack>)>) {
        let grave = self.graves.entry(space).or_default();
        grave.at = grave.at.max(at);
        grave.stacks.extend(stacks);
        self.dying.push_back((grave.at, space));
    }

    /// Nothing that is older than `start` is kept any more. Calls `gone` for the processes that are
    /// remembered no longer.
    pub fn retire(&mut self, start: Timestamp, mut gone: impl FnMut(Tgid)) {
        while let Some(&(at, space)) = self.dying.front()
            && at < start
        {
            self.dying.pop_front();
            // Another entry follows if something came to it later.
            if self.graves.get(&space).is_some_and(|grave| grave.at < start)
                && let Some(grave) = self.graves.remove(&space)
            {
                let memory = grave.stacks.iter().map(|(_, stack)| memory_of(stack)).sum::<usize>();
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
    pub fn all(&self) -> HashMap<StackId, Arc<Stack>> {
        let dead = self.graves.values().flat_map(|grave| &grave.stacks);
        let dead = dead.map(|(id, stack)| (*id, Arc::clone(stack)));
        let held = self.held.values().flatten();
        dead.chain(held.map(|(id, held)| (*id, Arc::clone(&held.stack)))).collect()
    }

    /// Those that the kernel half must forget that it sent them.
    pub fn take_forgotten(&mut self) -> Vec<StackId> {
        std::mem::take(&mut self.forgotten)
    }

    /// Stacks that were taken out of use while they may have been in use.
    pub fn over_limit(&self) -> u64 {
        self.over_limit
    }

    /// About what it all takes, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
            + 96 * (self.processes.len() + self.living.len())
            + 48 * (self.dying.len() + self.graves.len())
    }
}

fn memory_of(stack: &Stack) -> usize {
    128 + 4 * stack.frames.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{FrameId, Phase, StackEnd, ThreadKind};
    use crate::units::CgroupId;

    fn sighting(pid: u32, reason: SightingReason, at: u64) -> Sighting {
        Sighting {
            at: Timestamp(at),
            reason,
            tid: Tid(pid),
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
        let mut stacks = Stacks::new(100);
        stacks.see(&sighting(7, SightingReason::Fork, 10));
        stacks.add(StackId(1), stack(AddressSpace::Process(Tgid(7))), Timestamp(11));
        stacks.add(StackId(2), stack(AddressSpace::Kernel), Timestamp(11));
        assert_eq!(stacks.take_forgotten(), []);
        stacks.exit(&exit(7, 20));
        assert_eq!(stacks.take_forgotten(), [StackId(1)]);
        // Found late.
        stacks.add(StackId(3), stack(AddressSpace::Process(Tgid(7))), Timestamp(22));
        assert_eq!(stacks.take_forgotten(), [StackId(3)]);
        let mut gone = Vec::new();
        stacks.retire(Timestamp(21), |tgid| gone.push(tgid));
        assert_eq!((stacks.all().len(), gone.len()), (3, 0));
        assert!(stacks.remembers(Tgid(7)));
        stacks.retire(Timestamp(23), |tgid| gone.push(tgid));
        assert_eq!(stacks.all().into_keys().collect::<Vec<_>>(), [StackId(2)]);
        assert_eq!(gone, [Tgid(7)]);
        assert!(!stacks.remembers(Tgid(7)));
    }

    #[test]
    fn another_program_forgets_what_came_before_it_and_no_more() {
        let process = AddressSpace::Process(Tgid(7));
        let mut stacks = Stacks::new(100);
        stacks.see(&sighting(7, SightingReason::Fork, 10));
        stacks.add(StackId(1), stack(process), Timestamp(11));
        stacks.add(StackId(2), stack(process), Timestamp(31));
        stacks.see(&sighting(7, SightingReason::Exec, 30));
        assert_eq!(stacks.take_forgotten(), [StackId(1)]);
        stacks.retire(Timestamp(40), |_tgid| panic!("it lives"));
        assert_eq!(stacks.all().into_keys().collect::<Vec<_>>(), [StackId(2)]);
    }

    #[test]
    fn over_the_limit_the_older_half_goes_and_is_counted() {
        let mut stacks = Stacks::new(10);
        for n in 0..11 {
            stacks.add(StackId(n), stack(AddressSpace::Kernel), Timestamp(n));
        }
        assert_eq!((stacks.over_limit(), stacks.take_forgotten().len()), (6, 6));
        stacks.retire(Timestamp(100), |_tgid| {});
        assert_eq!(stacks.all().len(), 5);
    }

    /// An hour of a build: what is held does not grow with it.
    #[test]
    fn memory_is_flat_over_a_hundred_thousand_processes() {
        let mut stacks = Stacks::new(MAX_STACKS);
        let mut most = 0;
        let mut early = 0;
        for n in 0..100_000_u32 {
            let pid = 2 + n % 32_768;
            let at = u64::from(n) * 100;
            stacks.see(&sighting(pid, SightingReason::Fork, at));
            stacks.see(&sighting(pid, SightingReason::Exec, at + 10));
            for k in 0..5 {
                let id = StackId(u64::from(n) * 8 + k);
                stacks.add(id, stack(AddressSpace::Process(Tgid(pid))), Timestamp(at + 20));
            }
            // One exit in a thousand is lost.
            if n % 1_000 != 0 {
                stacks.exit(&exit(pid, at + 50));
            }
            stacks.take_forgotten();
            stacks.retire(Timestamp(at.saturating_sub(10_000)), |_tgid| {});
            most = most.max(stacks.memory());
            if n == 40_000 {
                early = most;
            }
        }
        assert!(most <= early + early / 10, "{early} bytes after 40,000, then {most}");
        assert!(stacks.dying.len() < 1_000 && stacks.graves.len() < 1_000);
    }
}

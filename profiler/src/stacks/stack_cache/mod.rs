//! The cache by which the kernel half finds user stacks again that were unwound here.
//!
//! A thread blocks in few places, again and again. For each call site (a thread's registers in user
//! code) the cache has the stacks that the thread has had there, four at most, and of each stack
//! its frame slots: the words that held return addresses when it was unwound. If these are
//! unchanged, so are the frames.
//!
//! ```text
//!  sp                                                  up to 2 KiB on
//!  | data | return address | data | return address | data … | … | return address | …
//!              near                     near                           far
//! ```
//!
//! Near slots are read at once, with what lies between them. A far slot costs a read of its own, as
//! much as all near ones together, so a stack has two of them at first, and none where there are
//! many near ones. Where that turns out to be too little, because two stacks of a call site have
//! the same slots, slots are added that tell them apart. A call site where no slot does is not
//! cached at all.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    rc::Rc,
};

use offwake_recording::units::{StackId, Tgid};
use offwake_unwind::{UnwindEnd, UnwoundFrame, UnwoundStack};
use profiler_ebpf::user_stack::{
    CachedStack, CallSite, FAR_SLOTS, NEAR_SLOTS, NEAR_SLOTS_PER_WORD, NEAR_WORDS, NO_FAR_SLOT,
    NO_NEAR_SLOT, STACKS_PER_CALL_SITE, fingerprint,
};

use crate::decode::{CallSiteKey, CopyPurpose, CopySize, FoundBy, UserStackCopy};

/// Far slots that a stack has from the beginning, the nearest ones.
const FAR_AT_FIRST: usize = 2;
/// Slots that are enough at first: with so many near slots there are no far ones.
const ENOUGH_AT_FIRST: usize = 10;
/// Bytes that all call sites may take together.
const MAX_MEMORY: usize = 24 << 20;

/// The result of comparing a stack that was found in the cache with a copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheCheck {
    /// The cached stack is the one that was copied.
    Matched,
    /// The cached stack is another one.
    Mismatched(FoundBy),
    /// The cached stack is not in the cache any more.
    Gone,
}

/// What a stack is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackCode {
    /// Code of files alone.
    Files,
    /// Code that was made at run time, too: one frame in memory may be many functions'.
    Generated,
    /// Python runs in it, so that stacks with other Python frames are other stacks.
    Python,
}

/// A change of the kernel half's cache. What is to be removed goes before what is to be inserted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheUpdate {
    /// Call sites to remove.
    pub remove: Vec<CallSiteKey>,
    /// Call sites to insert or to replace.
    pub insert: Vec<(CallSiteKey, CallSite)>,
    /// The stack is in the cache now: the kernel half will find it there, and refer to it.
    pub is_cached: bool,
    /// This stack shows that no slot tells the stacks of its call site apart.
    pub is_given_up: bool,
    /// The result of the comparison, if the stack was copied to be compared with a cached one.
    pub check: Option<CacheCheck>,
}

/// All stacks that the kernel half finds in its cache.
#[derive(Debug)]
pub struct StackCache {
    call_sites: HashMap<CallSiteKey, CachedCallSite>,
    /// The call sites in the order in which they were added.
    order: VecDeque<CallSiteKey>,
    /// The call site at which each stack is cached.
    by_stack: HashMap<StackId, CallSiteKey>,
    max_call_sites: usize,
    memory: usize,
}

/// The stacks of one call site.
#[derive(Debug)]
struct CachedCallSite {
    tgid: Tgid,
    stacks: Vec<UnwoundCallSiteStack>,
    copy_size: CopySize,
    /// The index of the stack that is replaced next.
    next_replaced: usize,
    is_given_up: bool,
    /// The stacks are cached under keys with what Python runs.
    runs_python: bool,
    /// All of its stacks so far were made of code of files.
    is_in_files: bool,
}

/// A stack of a call site.
#[derive(Clone, Debug)]
struct UnwoundCallSiteStack {
    id: StackId,
    unwound: Rc<UnwoundStack>,
    far_slots: Vec<FrameSlot>,
}

/// A word of a stack that held a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameSlot {
    /// Where the word lies, in bytes from the stack pointer.
    offset: u32,
    /// The return address.
    address: u64,
}

impl StackCache {
    /// An empty cache of so many call sites at most.
    #[must_use]
    pub fn new(max_call_sites: usize) -> Self {
        let (call_sites, by_stack) = (HashMap::new(), HashMap::new());
        Self { call_sites, order: VecDeque::new(), by_stack, max_call_sites, memory: 0 }
    }

    /// Finds the stack that was copied among those that are cached by now: a busy thread makes a copy at
    /// each of its waits until the kernel half has the first one in its cache. Of the stack that is
    /// returned every return address is where it was; if that is so of two, none is.
    #[must_use]
    pub fn find(&self, copy: &UserStackCopy) -> Option<Rc<UnwoundStack>> {
        let call_site = self.call_sites.get(&searched_site(copy)?)?;
        if call_site.is_given_up || call_site.runs_python {
            return None;
        }
        let is_as_before = |slot: FrameSlot| word(copy.bytes, slot.offset) == Some(slot.address);
        let mut found = call_site.stacks.iter().map(|stack| &stack.unwound).filter(|unwound| {
            let has_slots = frame_slots(unwound).next().is_some();
            has_slots && !is_cut(unwound) && frame_slots(unwound).all(is_as_before)
        });
        found.next().filter(|_| found.next().is_none()).map(Rc::clone)
    }

    /// Splits copies into those to unwind first, and those that [`Self::find`] may know once these are in
    /// the cache: a batch can have many copies of one stack.
    #[must_use]
    pub fn split_first_of_each_site(copies: Vec<UserStackCopy<'_>>) -> [Vec<UserStackCopy<'_>>; 2] {
        let mut seen = HashSet::new();
        let is_first =
            |copy: &UserStackCopy| searched_site(copy).is_none_or(|site| seen.insert(site));
        let (first, rest) = copies.into_iter().partition(is_first);
        [first, rest]
    }

    /// Adds a stack that was unwound, and compares it with the cached stack if it was copied for
    /// that.
    pub fn update(
        &mut self,
        copy: &UserStackCopy,
        unwound: &Rc<UnwoundStack>,
        code: StackCode,
    ) -> CacheUpdate {
        let mut update = CacheUpdate::default();
        let Some(mut key) = copy.call_site else { return update };
        if code == StackCode::Python {
            if let Some(call_site) = self.mark_as_python(key, copy) {
                update.insert.push((key, call_site));
            }
            // Without its Python frames, the stack can't be told from any other.
            let Some(chain) = &copy.python else { return update };
            key = key.with_python(chain.hash);
        }
        if let (CopyPurpose::Check(found_by), Some(id)) = (copy.purpose, copy.cached_id) {
            update.check = Some(self.check(key, id, found_by, unwound));
        }
        if update.check == Some(CacheCheck::Matched) {
            return update;
        }
        let call_site = self.call_site(key, copy);
        call_site.is_in_files &= code == StackCode::Files;
        let memory_before = call_site.memory();
        let ids_before: Vec<StackId> = call_site.ids().collect();
        let was_given_up = call_site.is_given_up;
        if call_site.add(copy, unwound) {
            update.insert.push((key, call_site.encode()));
            update.is_given_up = call_site.is_given_up && !was_given_up;
        }
        let ids: Vec<StackId> = call_site.ids().collect();
        let memory = call_site.memory();
        for gone in ids_before.iter().filter(|id| !ids.contains(id)) {
            self.by_stack.remove(gone);
        }
        update.is_cached = ids.contains(&copy.id);
        if update.is_cached {
            self.by_stack.insert(copy.id, key);
        }
        self.memory = self.memory + memory - memory_before;
        self.evict_over_limit(&mut update);
        update
    }

    /// Removes the stacks of a process whose code was unmapped, or replaced: their return addresses
    /// can be another's now. Returns the call sites to remove from the kernel half.
    pub fn remove_process(&mut self, tgid: Tgid) -> Vec<CallSiteKey> {
        let of_process = self.call_sites.iter().filter(|(_, call_site)| call_site.tgid == tgid);
        let keys: Vec<CallSiteKey> = of_process.map(|(&key, _)| key).collect();
        keys.iter().for_each(|&key| self.remove_call_site(key));
        keys
    }

    /// Removes stacks that are not in the recording any more. Returns the call sites to remove from
    /// the kernel half.
    pub fn remove_stacks(&mut self, gone: &[StackId]) -> Vec<CallSiteKey> {
        let mut keys = Vec::new();
        for id in gone {
            if let Some(&key) = self.by_stack.get(id) {
                self.remove_call_site(key);
                keys.push(key);
            }
        }
        keys
    }

    fn check(
        &self,
        key: CallSiteKey,
        id: StackId,
        found_by: FoundBy,
        unwound: &UnwoundStack,
    ) -> CacheCheck {
        let call_site = self.call_sites.get(&key);
        match call_site.and_then(|call_site| call_site.stacks.iter().find(|stack| stack.id == id)) {
            None => CacheCheck::Gone,
            Some(stack) if is_same(&stack.unwound, unwound) => CacheCheck::Matched,
            Some(_) => CacheCheck::Mismatched(found_by),
        }
    }

    /// Marks a call site as one whose stacks are told apart by what Python runs. Returns the call
    /// site if it was not marked before.
    fn mark_as_python(&mut self, key: CallSiteKey, copy: &UserStackCopy) -> Option<CallSite> {
        if self.call_sites.get(&key).is_some_and(|call_site| call_site.runs_python) {
            return None;
        }
        // Its stacks were cached without what Python ran.
        self.remove_call_site(key);
        let call_site = self.call_site(key, copy);
        call_site.runs_python = true;
        Some(call_site.encode())
    }

    /// The stacks of a call site, which is added without any if it is new.
    fn call_site(&mut self, key: CallSiteKey, copy: &UserStackCopy) -> &mut CachedCallSite {
        self.call_sites.entry(key).or_insert_with(|| {
            let call_site = CachedCallSite {
                tgid: copy.tgid,
                stacks: Vec::new(),
                copy_size: copy.size,
                next_replaced: 0,
                is_given_up: false,
                runs_python: false,
                is_in_files: true,
            };
            self.order.push_back(key);
            self.memory += call_site.memory();
            call_site
        })
    }

    /// Removes the oldest call sites while there are too many, or they take too much memory.
    fn evict_over_limit(&mut self, update: &mut CacheUpdate) {
        while self.call_sites.len() > self.max_call_sites || self.memory > MAX_MEMORY {
            let Some(oldest) = self.order.pop_front() else { return };
            self.remove_call_site(oldest);
            update.insert.retain(|(key, _)| *key != oldest);
            update.remove.push(oldest);
        }
    }

    fn remove_call_site(&mut self, key: CallSiteKey) {
        let Some(call_site) = self.call_sites.remove(&key) else { return };
        self.memory -= call_site.memory();
        for id in call_site.ids() {
            self.by_stack.remove(&id);
        }
    }
}

impl CachedCallSite {
    fn ids(&self) -> impl Iterator<Item = StackId> + '_ {
        self.stacks.iter().map(|stack| stack.id)
    }

    /// Adds a stack. Returns whether the kernel half's call site changes.
    fn add(&mut self, copy: &UserStackCopy, unwound: &Rc<UnwoundStack>) -> bool {
        if self.is_given_up {
            return false;
        }
        if unwound.end == UnwindEnd::CopyTooShort
            && let Some(larger) = copy.size.larger()
        {
            let is_new = larger > self.copy_size;
            self.copy_size = self.copy_size.max(larger);
            return is_new;
        }
        // Several copies of one stack may have been in the ring.
        if self.stacks.iter().any(|stack| is_same(&stack.unwound, unwound)) {
            return false;
        }
        let near = near_slots(unwound).count();
        let at_first = FAR_AT_FIRST.min(ENOUGH_AT_FIRST.saturating_sub(near));
        let far_slots = far_slots(unwound).take(at_first).collect();
        let unwound = Rc::clone(unwound);
        let mut new = UnwoundCallSiteStack { id: copy.id, unwound, far_slots };
        for stack in &mut self.stacks {
            if !stack.distinguish_from(|offset| word(copy.bytes, offset))
                || !new.distinguish_from(|offset| stack.word(offset))
            {
                self.is_given_up = true;
            }
        }
        if self.is_given_up {
            self.stacks.clear();
        } else if self.stacks.len() < STACKS_PER_CALL_SITE {
            self.stacks.push(new);
        } else {
            self.stacks[self.next_replaced] = new;
            self.next_replaced = (self.next_replaced + 1) % STACKS_PER_CALL_SITE;
        }
        true
    }

    /// Whether the thread's registers may be all that its stack is found by.
    fn is_told_by_registers(&self) -> bool {
        let [stack] = self.stacks.as_slice() else { return false };
        self.is_in_files && !is_cut(&stack.unwound)
    }

    /// The call site as the kernel half has it.
    fn encode(&self) -> CallSite {
        let mut call_site = CallSite {
            copy_size: self.copy_size.code(),
            runs_python: u32::from(self.runs_python),
            by_registers: u32::from(self.is_told_by_registers()),
            ..CallSite::default()
        };
        for (cached, stack) in call_site.stacks.iter_mut().zip(&self.stacks) {
            *cached = stack.encode();
            call_site.near_bytes = call_site.near_bytes.max(stack.near_bytes());
        }
        call_site
    }

    fn memory(&self) -> usize {
        let stack_memory = |stack: &UnwoundCallSiteStack| {
            size_of::<UnwoundCallSiteStack>()
                + stack.unwound.frames.len() * size_of::<UnwoundFrame>()
                + stack.far_slots.len() * size_of::<FrameSlot>()
        };
        128 + self.stacks.iter().map(stack_memory).sum::<usize>()
    }
}

impl UnwoundCallSiteStack {
    /// The return address at an offset, if there was one.
    fn word(&self, offset: u32) -> Option<u64> {
        frame_slots(&self.unwound).find(|slot| slot.offset == offset).map(|slot| slot.address)
    }

    /// Makes sure that the slots differ from those of another stack, whose words these are as far
    /// as they are known. False if no slot differs.
    fn distinguish_from(&mut self, other: impl Fn(u32) -> Option<u64>) -> bool {
        let differs = |slot: &FrameSlot| other(slot.offset) != Some(slot.address);
        if near_slots(&self.unwound).any(|slot| differs(&slot))
            || self.far_slots.iter().any(differs)
        {
            return true;
        }
        let Some(different) = far_slots(&self.unwound).find(differs) else { return false };
        if self.far_slots.len() == FAR_SLOTS {
            self.far_slots.remove(0);
        }
        self.far_slots.push(different);
        true
    }

    /// Bytes from the stack pointer on that hold the near slots.
    fn near_bytes(&self) -> u32 {
        near_slots(&self.unwound).map(|slot| slot.offset + 8).max().unwrap_or(0)
    }

    /// The stack as the kernel half has it.
    fn encode(&self) -> CachedStack {
        let mut near =
            [[NO_NEAR_SLOT as u8; NEAR_SLOTS_PER_WORD]; NEAR_SLOTS / NEAR_SLOTS_PER_WORD];
        for (byte, slot) in near.as_flattened_mut().iter_mut().zip(near_slots(&self.unwound)) {
            *byte = (slot.offset / 8) as u8;
        }
        let mut far = [NO_FAR_SLOT; FAR_SLOTS];
        for (offset, slot) in far.iter_mut().zip(&self.far_slots) {
            *offset = slot.offset;
        }
        CachedStack {
            near_slots: near.map(u64::from_le_bytes),
            fingerprint: fingerprint(near_slots(&self.unwound).map(|slot| slot.address)),
            id: self.id.0,
            far_fingerprint: fingerprint(self.far_slots.iter().map(|slot| slot.address)),
            far_slots: far,
        }
    }
}

/// The call site where [`StackCache::find`] searches for a copy's stack.
fn searched_site(copy: &UserStackCopy) -> Option<CallSiteKey> {
    let is_for_wait = copy.purpose == CopyPurpose::Wait && copy.python.is_none();
    copy.call_site.filter(|_| is_for_wait)
}

/// Whether two stacks are the same, as far as both are known.
fn is_same(one: &UnwoundStack, other: &UnwoundStack) -> bool {
    let most = match is_cut(one) || is_cut(other) {
        true => one.frames.len().min(other.frames.len()),
        false => usize::MAX,
    };
    let one = one.frames.iter().take(most).map(|frame| frame.address);
    one.eq(other.frames.iter().take(most).map(|frame| frame.address))
}

/// Whether a stack may have more frames than are known.
fn is_cut(stack: &UnwoundStack) -> bool {
    matches!(stack.end, UnwindEnd::CopyTooShort | UnwindEnd::PageMissing)
}

/// The frame slots of a stack, the nearest first.
fn frame_slots(unwound: &UnwoundStack) -> impl Iterator<Item = FrameSlot> + '_ {
    unwound
        .frames
        .iter()
        .filter_map(|frame| Some(FrameSlot { offset: frame.stack_offset?, address: frame.address }))
}

fn is_near(slot: &FrameSlot) -> bool {
    slot.offset.is_multiple_of(8) && (slot.offset / 8) < NEAR_WORDS as u32
}

fn near_slots(unwound: &UnwoundStack) -> impl Iterator<Item = FrameSlot> + '_ {
    frame_slots(unwound).filter(is_near).take(NEAR_SLOTS)
}

/// All slots that are not near ones, including those among the first words over the limit of near
/// slots.
fn far_slots(unwound: &UnwoundStack) -> impl Iterator<Item = FrameSlot> + '_ {
    let near = near_slots(unwound).count();
    let mut passed = 0;
    frame_slots(unwound).filter(move |slot| {
        let is_near_slot = is_near(slot) && passed < near;
        passed += usize::from(is_near_slot);
        !is_near_slot && slot.offset != NO_FAR_SLOT
    })
}

fn word(bytes: &[u8], offset: u32) -> Option<u64> {
    let at = offset as usize;
    let word = bytes.get(at..at.checked_add(8)?)?;
    word.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests;

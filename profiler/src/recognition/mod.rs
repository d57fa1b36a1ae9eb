//! By what the kernel half recognises a user stack that was unwound here.
//!
//! A thread blocks in few places, again and again. Of each place (its registers in user code) the
//! stacks are kept that it has had, four at most, and of each of them its witnesses: words of the stack
//! that held return addresses when it was unwound. Unchanged, they stand for the same frames.
//!
//! ```text
//!  sp                                                  up to 2 KiB on
//!  | data | return address | data | return address | data … | … | return address | …
//!              near                     near                           far
//! ```
//!
//! Near witnesses are read at once, with what lies between them; a far one costs a read of its own, as much as all
//! near ones together, so two are kept at first, and none where there are many near ones. Where that turns out to be
//! too little, because two stacks of a place had the same witnesses, those are added that tell them apart. A place where nothing does is not recognised at all.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use offwake_unwind::{UnwindEnd, UnwoundFrame, UnwoundStack};
use profiler_ebpf::user_stack::{
    CachedStack, CallSite, FAR_SLOTS, NEAR_SLOTS, NEAR_SLOTS_PER_WORD, NEAR_WORDS, NO_FAR_SLOT,
    NO_NEAR_SLOT, STACKS_PER_CALL_SITE, fingerprint,
};

use crate::{
    decode::{CallSiteKey, CopySize, UserStackCopy},
    units::{StackId, Tgid},
};

/// Far witnesses that a stack has from the beginning, the nearest ones.
const FAR_AT_FIRST: usize = 2;
/// Witnesses that are enough at first: with so many near ones there are no far ones.
const ENOUGH_AT_FIRST: usize = 10;
/// Bytes that all places may take together.
const MAX_MEMORY: usize = 24 << 20;

/// What came of a stack that was recognised, and copied all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It is the one that it was taken for.
    Agreed,
    /// It is another.
    Disagreed,
    /// What it was taken for is not known any more.
    NotKnown,
}

/// Whether Python runs in a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsPython {
    /// It does: what it runs counts too.
    Yes,
    /// It does not.
    No,
}

/// What the kernel half is to be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lesson {
    /// What is known of these places now.
    pub know: Vec<(CallSiteKey, CallSite)>,
    /// Nothing is known of these any more.
    pub forget: Vec<CallSiteKey>,
    /// The kernel half will recognise this stack, and refer to it.
    pub keeps: bool,
    /// Whether this place is one where nothing tells one stack from another, as it turns out.
    pub is_given_up: bool,
}

/// Everything that was learnt.
#[derive(Debug)]
pub struct Recognition {
    places: HashMap<CallSiteKey, Known>,
    /// In the order of their coming.
    order: VecDeque<CallSiteKey>,
    /// Where stacks are recognised.
    by_stack: HashMap<StackId, CallSiteKey>,
    max_places: usize,
    memory: usize,
}

#[derive(Debug)]
struct Known {
    tgid: Tgid,
    stacks: Vec<Seen>,
    size: CopySize,
    /// Whose turn it is to give way.
    turn: usize,
    is_given_up: bool,
    /// What is known is known where Python's frames are the same too.
    runs_python: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    id: StackId,
    unwound: Rc<UnwoundStack>,
    far: Vec<Witness>,
}

/// A return address, and where it lay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Witness {
    /// In bytes from the stack pointer.
    at: u32,
    address: u64,
}

impl Recognition {
    /// Knows nothing yet, and never more than so many places.
    #[must_use]
    pub fn new(max_places: usize) -> Self {
        let (places, by_stack) = (HashMap::new(), HashMap::new());
        Self { places, order: VecDeque::new(), by_stack, max_places, memory: 0 }
    }

    /// A stack was unwound. What came of it, if it was to be compared with another.
    pub fn learn(
        &mut self,
        copy: &UserStackCopy,
        unwound: &Rc<UnwoundStack>,
        python: RunsPython,
    ) -> (Lesson, Option<Check>) {
        let mut lesson = Lesson::default();
        let Some(mut key) = copy.call_site else { return (lesson, None) };
        if python == RunsPython::Yes {
            if let Some(place) = self.note_python(key, copy) {
                lesson.know.push((key, place));
            }
            // Without its frames it can't be told from any other.
            let Some(chain) = &copy.python else { return (lesson, None) };
            key = key.with_python(chain.hash);
        }
        let check = copy.cached_id.map(|id| self.check(key, id, unwound));
        if check == Some(Check::Agreed) {
            return (lesson, check);
        }
        let known = self.place(key, copy);
        let before = known.memory();
        let had: Vec<StackId> = known.ids().collect();
        let was_given_up = known.is_given_up;
        if known.take(copy, unwound) {
            lesson.know.push((key, known.as_place()));
            lesson.is_given_up = known.is_given_up && !was_given_up;
        }
        let kept: Vec<StackId> = known.ids().collect();
        let memory = known.memory();
        for gone in had.iter().filter(|id| !kept.contains(id)) {
            self.by_stack.remove(gone);
        }
        lesson.keeps = kept.contains(&copy.id);
        if lesson.keeps {
            self.by_stack.insert(copy.id, key);
        }
        self.memory = self.memory + memory - before;
        self.make_room(&mut lesson);
        (lesson, check)
    }

    /// What a process had mapped as code is gone, or something else is there now: its return addresses
    /// can be another's. Gives back where nothing is known now.
    pub fn forget_process(&mut self, tgid: Tgid) -> Vec<CallSiteKey> {
        let of_process = self.places.iter().filter(|(_, known)| known.tgid == tgid);
        let places: Vec<CallSiteKey> = of_process.map(|(&key, _)| key).collect();
        places.iter().for_each(|&key| self.drop_place(key));
        places
    }

    /// These stand for nothing any more. Gives back where nothing is known now.
    pub fn forget(&mut self, gone: &[StackId]) -> Vec<CallSiteKey> {
        let mut places = Vec::new();
        for id in gone {
            if let Some(&key) = self.by_stack.get(id) {
                self.drop_place(key);
                places.push(key);
            }
        }
        places
    }

    fn check(&self, key: CallSiteKey, id: StackId, unwound: &UnwoundStack) -> Check {
        let known = self.places.get(&key);
        match known.and_then(|known| known.stacks.iter().find(|seen| seen.id == id)) {
            None => Check::NotKnown,
            Some(seen) if is_same(&seen.unwound, unwound) => Check::Agreed,
            Some(_) => Check::Disagreed,
        }
    }

    /// What Python runs tells the stacks of this place apart. Gives back the place if that is new.
    fn note_python(&mut self, key: CallSiteKey, copy: &UserStackCopy) -> Option<CallSite> {
        if self.places.get(&key).is_some_and(|known| known.runs_python) {
            return None;
        }
        // What was known of it was known without.
        self.drop_place(key);
        let known = self.place(key, copy);
        known.runs_python = true;
        Some(known.as_place())
    }

    /// What is known of a place; nothing yet if it is new.
    fn place(&mut self, key: CallSiteKey, copy: &UserStackCopy) -> &mut Known {
        self.places.entry(key).or_insert_with(|| {
            let known = Known {
                tgid: copy.tgid,
                stacks: Vec::new(),
                size: copy.size,
                turn: 0,
                is_given_up: false,
                runs_python: false,
            };
            self.order.push_back(key);
            self.memory += known.memory();
            known
        })
    }

    fn make_room(&mut self, lesson: &mut Lesson) {
        while self.places.len() > self.max_places || self.memory > MAX_MEMORY {
            let Some(oldest) = self.order.pop_front() else { return };
            self.drop_place(oldest);
            lesson.forget.push(oldest);
        }
    }

    fn drop_place(&mut self, key: CallSiteKey) {
        let Some(known) = self.places.remove(&key) else { return };
        self.memory -= known.memory();
        for id in known.ids() {
            self.by_stack.remove(&id);
        }
    }
}

impl Known {
    fn ids(&self) -> impl Iterator<Item = StackId> + '_ {
        self.stacks.iter().map(|seen| seen.id)
    }

    /// Whether there is anything new to tell.
    fn take(&mut self, copy: &UserStackCopy, unwound: &Rc<UnwoundStack>) -> bool {
        if self.is_given_up {
            return false;
        }
        if unwound.end == UnwindEnd::CopyTooShort
            && let Some(larger) = copy.size.larger()
        {
            let is_new = larger > self.size;
            self.size = self.size.max(larger);
            return is_new;
        }
        // Several copies of it may have been on their way.
        if self.stacks.iter().any(|seen| is_same(&seen.unwound, unwound)) {
            return false;
        }
        let near = near_witnesses(unwound).count();
        let at_first = FAR_AT_FIRST.min(ENOUGH_AT_FIRST.saturating_sub(near));
        let far = far_witnesses(unwound).take(at_first).collect();
        let mut new = Seen { id: copy.id, unwound: Rc::clone(unwound), far };
        for seen in &mut self.stacks {
            if !seen.tell_from(|at| word(copy.bytes, at)) || !new.tell_from(|at| seen.word(at)) {
                self.is_given_up = true;
            }
        }
        if self.is_given_up {
            self.stacks.clear();
        } else if self.stacks.len() < STACKS_PER_CALL_SITE {
            self.stacks.push(new);
        } else {
            self.stacks[self.turn] = new;
            self.turn = (self.turn + 1) % STACKS_PER_CALL_SITE;
        }
        true
    }

    fn as_place(&self) -> CallSite {
        let mut place = CallSite {
            copy_size: self.size.code(),
            runs_python: u32::from(self.runs_python),
            ..CallSite::default()
        };
        for (known, seen) in place.stacks.iter_mut().zip(&self.stacks) {
            *known = seen.as_known();
            place.near_bytes = place.near_bytes.max(seen.looked_at());
        }
        place
    }

    fn memory(&self) -> usize {
        let of_one = |seen: &Seen| {
            size_of::<Seen>()
                + seen.unwound.frames.len() * size_of::<UnwoundFrame>()
                + seen.far.len() * size_of::<Witness>()
        };
        128 + self.stacks.iter().map(of_one).sum::<usize>()
    }
}

impl Seen {
    /// The return address that lay there, if one did.
    fn word(&self, at: u32) -> Option<u64> {
        witnesses(&self.unwound).find(|witness| witness.at == at).map(|witness| witness.address)
    }

    /// Makes sure that its witnesses don't all say the same of another stack, whose words these are
    /// as far as they are known. False if nothing does.
    fn tell_from(&mut self, other: impl Fn(u32) -> Option<u64>) -> bool {
        let differs = |witness: &Witness| other(witness.at) != Some(witness.address);
        if near_witnesses(&self.unwound).any(|witness| differs(&witness))
            || self.far.iter().any(differs)
        {
            return true;
        }
        let Some(telling) = far_witnesses(&self.unwound).find(differs) else { return false };
        if self.far.len() == FAR_SLOTS {
            self.far.remove(0);
        }
        self.far.push(telling);
        true
    }

    /// Bytes from the stack pointer on that its near witnesses lie in.
    fn looked_at(&self) -> u32 {
        near_witnesses(&self.unwound).map(|witness| witness.at + 8).max().unwrap_or(0)
    }

    fn as_known(&self) -> CachedStack {
        let mut near =
            [[NO_NEAR_SLOT as u8; NEAR_SLOTS_PER_WORD]; NEAR_SLOTS / NEAR_SLOTS_PER_WORD];
        for (byte, witness) in near.as_flattened_mut().iter_mut().zip(near_witnesses(&self.unwound))
        {
            *byte = (witness.at / 8) as u8;
        }
        let mut far = [NO_FAR_SLOT; FAR_SLOTS];
        for (place, witness) in far.iter_mut().zip(&self.far) {
            *place = witness.at;
        }
        CachedStack {
            near_slots: near.map(u64::from_le_bytes),
            fingerprint: fingerprint(near_witnesses(&self.unwound).map(|witness| witness.address)),
            id: self.id.0,
            far_fingerprint: fingerprint(self.far.iter().map(|witness| witness.address)),
            far_slots: far,
        }
    }
}

/// Whether two stacks are the same, as far as both are known.
fn is_same(one: &UnwoundStack, other: &UnwoundStack) -> bool {
    let is_cut = |stack: &UnwoundStack| {
        matches!(stack.end, UnwindEnd::CopyTooShort | UnwindEnd::PageMissing)
    };
    let most = match is_cut(one) || is_cut(other) {
        true => one.frames.len().min(other.frames.len()),
        false => usize::MAX,
    };
    let one = one.frames.iter().take(most).map(|frame| frame.address);
    one.eq(other.frames.iter().take(most).map(|frame| frame.address))
}

/// The return addresses that lie in the stack, the nearest first.
fn witnesses(unwound: &UnwoundStack) -> impl Iterator<Item = Witness> + '_ {
    unwound
        .frames
        .iter()
        .filter_map(|frame| Some(Witness { at: frame.stack_offset?, address: frame.address }))
}

fn is_near(witness: &Witness) -> bool {
    witness.at.is_multiple_of(8) && (witness.at / 8) < NEAR_WORDS as u32
}

fn near_witnesses(unwound: &UnwoundStack) -> impl Iterator<Item = Witness> + '_ {
    witnesses(unwound).filter(is_near).take(NEAR_SLOTS)
}

/// All that are no near ones, those among the first words included for which there was no room.
fn far_witnesses(unwound: &UnwoundStack) -> impl Iterator<Item = Witness> + '_ {
    let near = near_witnesses(unwound).count();
    let mut passed = 0;
    witnesses(unwound).filter(move |witness| {
        let is_taken = is_near(witness) && passed < near;
        passed += usize::from(is_taken);
        !is_taken && witness.at != NO_FAR_SLOT
    })
}

fn word(bytes: &[u8], at: u32) -> Option<u64> {
    let at = at as usize;
    let word = bytes.get(at..at.checked_add(8)?)?;
    word.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests;

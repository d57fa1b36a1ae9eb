use proptest::prelude::*;

use offwake_recording::{
    AddressKind,
    units::{Tgid, Tid, Timestamp},
};
use offwake_unwind::MissingPages;

use super::*;
use crate::decode::{CodeEpoch, CopyPurpose, PythonStack};

/// A stack as it lies in memory: words that are data, and return addresses among them.
#[derive(Clone, Debug)]
struct InMemory {
    words: Vec<u64>,
    /// Which of them are return addresses.
    returns: Vec<usize>,
}

const LEAF: u64 = 0x40_0000;

impl InMemory {
    fn unwound(&self) -> Rc<UnwoundStack> {
        let leaf =
            UnwoundFrame { address: LEAF, kind: AddressKind::Instruction, stack_offset: None };
        let callers = self.returns.iter().map(|&word| UnwoundFrame {
            address: self.words[word],
            kind: AddressKind::Return,
            stack_offset: Some(u32::try_from(word * 8).unwrap()),
        });
        let frames = [leaf].into_iter().chain(callers).collect();
        Rc::new(UnwoundStack { frames, end: UnwindEnd::EntryPoint })
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

fn copy(id: u64, cached_id: Option<u64>, bytes: &[u8]) -> UserStackCopy<'_> {
    UserStackCopy {
        id: StackId(id),
        call_site: Some(CallSiteKey(7)),
        cached_id: cached_id.map(StackId),
        python: None,
        purpose: cached_id.map_or(CopyPurpose::Wait, |_| CopyPurpose::Check(FoundBy::FrameSlots)),
        copied: Timestamp(1),
        tgid: Tgid(1),
        tid: Tid(1),
        ip: LEAF,
        sp: 0,
        fp: 0,
        size: CopySize::Short,
        red_zone: &[],
        bytes,
        missing: MissingPages::default(),
        code_epoch: CodeEpoch(0),
    }
}

/// Looks up a stack as the kernel half does.
fn find_in(call_site: &CallSite, words: &[u64]) -> Option<u64> {
    let word_at = |index: usize| words.get(index).copied().unwrap_or(0);
    let matches = |known: &&CachedStack| {
        let near = known.near_slots.into_iter().flat_map(u64::to_le_bytes);
        let near = near.take_while(|&word| u64::from(word) != NO_NEAR_SLOT);
        let far = known.far_slots.into_iter().take_while(|&at| at != NO_FAR_SLOT);
        let is_read = |word: u8| u32::from(word) * 8 < call_site.near_bytes;
        assert!(known.fingerprint == 0 || near.clone().all(is_read));
        known.fingerprint != 0
            && fingerprint(near.map(|word| word_at(word.into()))) == known.fingerprint
            && (known.far_slots[0] == NO_FAR_SLOT
                || fingerprint(far.map(|at| word_at(at as usize / 8))) == known.far_fingerprint)
    };
    call_site.stacks.iter().find(matches).map(|known| known.id)
}

/// Stacks of one call site whose callers are few: they differ seldom, and anywhere.
fn stacks() -> impl Strategy<Value = Vec<InMemory>> {
    let returns = prop::collection::btree_set(0..200_usize, 0..30);
    let callers = prop::collection::vec(prop::collection::vec(0..3_u64, 30), 1..5);
    (returns, callers, any::<u64>()).prop_map(|(returns, callers, seed)| {
        let returns: Vec<usize> = returns.into_iter().collect();
        let of_callers = |(number, callers): (usize, Vec<u64>)| {
            // Data, which is no stack's return address.
            let data = |word: u64| (seed ^ (number as u64) << 32 ^ word) | 1 << 63;
            let mut words: Vec<u64> = (0..256).map(data).collect();
            for (&word, caller) in returns.iter().zip(callers) {
                words[word] = LEAF + 16 * (1 + caller);
            }
            InMemory { words, returns: returns.clone() }
        };
        callers.into_iter().enumerate().map(of_callers).collect()
    })
}

proptest! {
    #[test]
    fn no_stack_is_taken_for_another_once_both_were_seen(stacks in stacks()) {
        let mut cache = StackCache::new(10);
        let mut call_site = CallSite::default();
        for (number, stack) in stacks.iter().enumerate() {
            let bytes = stack.bytes();
            let update = cache.update(&copy(1 + number as u64, None, &bytes), &stack.unwound(), StackCode::Files);
            prop_assert_eq!(update.check, None);
            if let Some(&(_, known)) = update.insert.first() {
                call_site = known;
            }
        }
        for stack in &stacks {
            let id = find_in(&call_site, &stack.words);
            let found = id.map(|id| stacks[id as usize - 1].unwound());
            prop_assert_eq!(found, Some(stack.unwound()));
        }
    }
}

fn with_returns(returns: &[(usize, u64)]) -> InMemory {
    let mut words = vec![1 << 63; 1024];
    returns.iter().for_each(|&(word, address)| words[word] = address);
    InMemory { words, returns: returns.iter().map(|&(word, _)| word).collect() }
}

#[test]
fn a_copy_of_a_cached_stack_is_known_if_every_return_address_is_where_it_was() {
    let one = with_returns(&[(1, 0x10), (700, 0x20)]);
    let mut cache = StackCache::new(10);
    let _cached = cache.update(&copy(1, None, &one.bytes()), &one.unwound(), StackCode::Files);
    let find = |cache: &StackCache, words: &InMemory| cache.find(&copy(2, None, &words.bytes()));
    let mut other_data = with_returns(&[(1, 0x10), (700, 0x20)]);
    other_data.words[2] = 5;
    assert_eq!(find(&cache, &other_data), Some(one.unwound()));
    // The far one is none of those that the kernel half looks at where there are enough others.
    let other = with_returns(&[(1, 0x10), (700, 0x21)]);
    assert_eq!(find(&cache, &other), None);
    let short = &one.bytes()[..700 * 8];
    assert_eq!(cache.find(&copy(2, None, short)), None, "the caller is not in the copy");
    // A copy that is to be compared is unwound.
    assert_eq!(cache.find(&copy(2, Some(1), &one.bytes())), None);
    let elsewhere = UserStackCopy { call_site: Some(CallSiteKey(8)), ..copy(2, None, short) };
    assert_eq!(cache.find(&elsewhere), None);
    assert_eq!(cache.find(&UserStackCopy { call_site: None, ..copy(2, None, short) }), None);
}

#[test]
fn of_a_batch_the_first_copy_of_each_call_site_is_unwound_first() {
    let elsewhere = |id| UserStackCopy { call_site: Some(CallSiteKey(8)), ..copy(id, None, &[]) };
    let without_site = |id| UserStackCopy { call_site: None, ..copy(id, None, &[]) };
    let check = |id| copy(id, Some(1), &[]);
    let copies = vec![
        copy(1, None, &[]),
        copy(2, None, &[]),
        elsewhere(3),
        // What is no wait's is looked up nowhere, and need not be held back.
        check(4),
        without_site(5),
        without_site(6),
        elsewhere(7),
        copy(8, None, &[]),
    ];
    let split = StackCache::split_first_of_each_site(copies);
    let ids = split.map(|copies| copies.iter().map(|copy| copy.id.0).collect::<Vec<_>>());
    assert_eq!(ids, [vec![1, 3, 4, 5, 6], vec![2, 7, 8]]);
}

#[test]
fn where_no_slot_tells_stacks_apart_no_copy_is_known() {
    let (outer, both) = (with_returns(&[(9, 0x20)]), with_returns(&[(1, 0x10), (9, 0x20)]));
    let mut cache = StackCache::new(10);
    for (id, stack) in [(1, &outer), (2, &both)] {
        let _cached =
            cache.update(&copy(id, None, &stack.bytes()), &stack.unwound(), StackCode::Files);
    }
    for stack in [&both, &outer] {
        assert_eq!(cache.find(&copy(3, None, &stack.bytes())), None);
    }
    // Each of these has a slot that the other lacks, and a copy can have both.
    let (one, other) = (with_returns(&[(1, 0x10)]), with_returns(&[(2, 0x20)]));
    let mut cache = StackCache::new(10);
    for (id, stack) in [(1, &one), (2, &other)] {
        let _cached =
            cache.update(&copy(id, None, &stack.bytes()), &stack.unwound(), StackCode::Files);
        assert_eq!(cache.find(&copy(3, None, &stack.bytes())), Some(stack.unwound()));
    }
    let both = with_returns(&[(1, 0x10), (2, 0x20)]);
    assert_eq!(cache.find(&copy(3, None, &both.bytes())), None);
}

#[test]
fn a_stack_without_callers_or_with_more_than_are_known_is_known_for_no_copy() {
    let alone = with_returns(&[]);
    let mut cut = UnwoundStack::clone(&with_returns(&[(1, 0x10)]).unwound());
    cut.end = UnwindEnd::PageMissing;
    for unwound in [alone.unwound(), Rc::new(cut)] {
        let mut cache = StackCache::new(10);
        let bytes = with_returns(&[(1, 0x10)]).bytes();
        let _cached = cache.update(&copy(1, None, &bytes), &unwound, StackCode::Files);
        assert_eq!(cache.find(&copy(2, None, &bytes)), None);
    }
}

#[test]
fn a_stack_that_was_taken_for_another_is_told_from_it_after_that() {
    let callers = |last| {
        let far = (10..20_u64).map(|n| (100 * n as usize / 2, 0x1000 + n));
        with_returns(&far.chain([(1000, last)]).collect::<Vec<_>>())
    };
    let (one, other) = (callers(0xa), callers(0xb));
    let mut cache = StackCache::new(10);
    let update = cache.update(&copy(1, None, &one.bytes()), &one.unwound(), StackCode::Files);
    let (_, call_site) = update.insert[0];
    assert!(update.is_cached);
    assert_eq!(find_in(&call_site, &other.words), Some(1), "nobody has seen the other one yet");
    let bytes = other.bytes();
    let update = cache.update(&copy(2, Some(1), &bytes), &other.unwound(), StackCode::Files);
    let mismatched = Some(CacheCheck::Mismatched(FoundBy::FrameSlots));
    assert_eq!((update.check, update.is_cached), (mismatched, true));
    let (_, call_site) = update.insert[0];
    assert_eq!(find_in(&call_site, &one.words), Some(1));
    assert_eq!(find_in(&call_site, &other.words), Some(2));
    let update = cache.update(&copy(3, Some(2), &bytes), &other.unwound(), StackCode::Files);
    let expected = CacheUpdate { check: Some(CacheCheck::Matched), ..CacheUpdate::default() };
    assert_eq!(update, expected);
}

/// The leaf's caller is in a register: no word of the stack says which it is.
#[test]
fn where_nothing_tells_stacks_apart_none_is_recognised() {
    let stack = with_returns(&[(4, 0x1000)]);
    let with_caller = |caller| {
        let mut unwound = Rc::unwrap_or_clone(stack.unwound());
        let kind = AddressKind::Return;
        unwound.frames.insert(1, UnwoundFrame { address: caller, kind, stack_offset: None });
        Rc::new(unwound)
    };
    let mut cache = StackCache::new(10);
    let bytes = stack.bytes();
    cache.update(&copy(1, None, &bytes), &with_caller(0xa), StackCode::Files);
    let update = cache.update(&copy(2, Some(1), &bytes), &with_caller(0xb), StackCode::Files);
    let mismatched = Some(CacheCheck::Mismatched(FoundBy::FrameSlots));
    assert_eq!((update.check, update.is_given_up), (mismatched, true));
    let (_, call_site) = update.insert[0];
    assert_eq!(find_in(&call_site, &stack.words), None);
    let update = cache.update(&copy(3, None, &bytes), &with_caller(0xa), StackCode::Files);
    assert_eq!(update, CacheUpdate::default());
}

#[test]
fn a_copy_that_was_too_short_asks_for_more_of_the_next() {
    let ends_with =
        |end| Rc::new(UnwoundStack { end, ..(*with_returns(&[(4, 0x1000)]).unwound()).clone() });
    let unwound = ends_with(UnwindEnd::CopyTooShort);
    let mut cache = StackCache::new(10);
    let whole = vec![0; 4097];
    let update = cache.update(&copy(1, None, &whole), &unwound, StackCode::Files);
    let (_, call_site) = update.insert[0];
    assert_eq!((call_site.copy_size, update.is_cached), (CopySize::Medium.code(), false));
    let update = cache.update(&copy(2, None, &whole), &unwound, StackCode::Files);
    assert_eq!(update.insert, []);
    // A larger copy has no more of it.
    let unwound = ends_with(UnwindEnd::PageMissing);
    let update = cache.update(&copy(3, None, &whole), &unwound, StackCode::Files);
    assert!(update.is_cached);
}

#[test]
fn the_oldest_places_give_way_and_what_is_forgotten_is_learnt_anew() {
    let stack = with_returns(&[(4, 0x1000)]);
    let bytes = stack.bytes();
    let at =
        |key, id| UserStackCopy { call_site: Some(CallSiteKey(key)), ..copy(id, None, &bytes) };
    let mut cache = StackCache::new(2);
    for key in 1..=2 {
        assert!(cache.update(&at(key, key), &stack.unwound(), StackCode::Files).is_cached);
    }
    let update = cache.update(&at(3, 3), &stack.unwound(), StackCode::Files);
    assert_eq!(update.remove, [CallSiteKey(1)]);
    assert_eq!(cache.remove_stacks(&[StackId(1), StackId(2), StackId(9)]), [CallSiteKey(2)]);
    assert!(cache.update(&at(2, 4), &stack.unwound(), StackCode::Files).is_cached);
    assert_eq!(cache.call_sites.len(), 2);
    let of_all: usize = cache.call_sites.values().map(CachedCallSite::memory).sum();
    assert_eq!(cache.memory, of_all);
}

#[test]
fn registers_alone_find_no_stack_but_the_only_one_whose_code_is_in_files() {
    let (one, other) = (with_returns(&[(4, 0x1000)]), with_returns(&[(4, 0x2000)]));
    let (bytes, other_bytes) = (one.bytes(), other.bytes());
    let found_by_registers = |update: CacheUpdate| {
        update.insert.iter().map(|(_, call_site)| call_site.by_registers).collect::<Vec<_>>()
    };
    let mut cache = StackCache::new(10);
    let update = cache.update(&copy(1, None, &bytes), &one.unwound(), StackCode::Files);
    assert_eq!(found_by_registers(update), [1]);
    let update = cache.update(&copy(2, None, &other_bytes), &other.unwound(), StackCode::Files);
    assert_eq!(found_by_registers(update), [0], "two callers lead here");
    for code in [StackCode::Generated, StackCode::Python] {
        let mut cache = StackCache::new(10);
        let python = PythonStack { hash: 1, frames: Vec::new(), is_cut: false };
        let copy = UserStackCopy { python: Some(python), ..copy(1, None, &bytes) };
        let update = cache.update(&copy, &one.unwound(), code);
        assert!(found_by_registers(update).iter().all(|&found| found == 0), "{code:?}");
    }
    let cut = UnwoundStack { end: UnwindEnd::PageMissing, ..(*one.unwound()).clone() };
    let update =
        StackCache::new(10).update(&copy(1, None, &bytes), &Rc::new(cut), StackCode::Files);
    assert_eq!(found_by_registers(update), [0], "its callers are not known");
}

/// Native stacks of Python are all alike.
#[test]
fn where_python_runs_its_frames_are_part_of_the_place() {
    let stack = with_returns(&[(4, 0x1000)]);
    let bytes = stack.bytes();
    let with = |id, hash| {
        let chain = |hash| PythonStack { hash, frames: Vec::new(), is_cut: false };
        UserStackCopy { python: Option::map(hash, chain), ..copy(id, None, &bytes) }
    };
    let mut cache = StackCache::new(10);
    // Nobody knew yet that it does.
    assert!(cache.update(&with(1, None), &stack.unwound(), StackCode::Files).is_cached);
    let update = cache.update(&with(2, None), &stack.unwound(), StackCode::Python);
    let of_all =
        CallSite { runs_python: 1, copy_size: CopySize::Short.code(), ..CallSite::default() };
    assert_eq!((update.insert, update.is_cached), (vec![(CallSiteKey(7), of_all)], false));
    for (id, hash) in [(3, 0xa), (4, 0xb)] {
        let update = cache.update(&with(id, Some(hash)), &stack.unwound(), StackCode::Python);
        let [(key, call_site)] = update.insert[..] else { panic!("{update:?}") };
        assert_eq!(key, CallSiteKey(7).with_python(hash));
        assert_eq!(find_in(&call_site, &stack.words), Some(id));
    }
    assert_eq!(cache.call_sites.len(), 3);
}

#[test]
fn a_process_whose_code_was_unmapped_is_learnt_anew_and_no_other() {
    let stack = with_returns(&[(4, 0x1000)]);
    let bytes = stack.bytes();
    let of = |tgid, key| UserStackCopy {
        tgid: Tgid(tgid),
        call_site: Some(CallSiteKey(key)),
        ..copy(key, None, &bytes)
    };
    let mut cache = StackCache::new(10);
    for (tgid, key) in [(1, 1), (2, 2), (1, 3)] {
        assert!(cache.update(&of(tgid, key), &stack.unwound(), StackCode::Files).is_cached);
    }
    let mut forgotten = cache.remove_process(Tgid(1));
    forgotten.sort_unstable();
    assert_eq!(forgotten, [CallSiteKey(1), CallSiteKey(3)]);
    assert_eq!(cache.remove_process(Tgid(1)), []);
    assert!(cache.update(&of(1, 1), &stack.unwound(), StackCode::Files).is_cached);
    assert_eq!(cache.call_sites.len(), 2);
}

#[test]
fn call_sites_take_no_more_memory_than_their_bound_however_many_there_are() {
    let stack = with_returns(&[(4, 0x1000)]);
    let bytes = stack.bytes();
    let mut cache = StackCache::new(usize::MAX);
    let mut given_way = 0;
    for key in 1..200_000 {
        let copy = UserStackCopy { call_site: Some(CallSiteKey(key)), ..copy(key, None, &bytes) };
        given_way += cache.update(&copy, &stack.unwound(), StackCode::Files).remove.len();
        assert!(cache.memory <= MAX_MEMORY, "{}", cache.memory);
        if given_way > 10 {
            return;
        }
    }
    panic!("{} bytes, and none gave way", cache.memory);
}

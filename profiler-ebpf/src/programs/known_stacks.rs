//! Kernel stacks that a thread has had before, recognised without a walk.
//!
//! A walk costs a microsecond, and a thread blocks and wakes others in few places, over and over. Of
//! each place is kept what the last walk gave, and where in the top of the stack the return
//! addresses lay that it found: its witnesses. If all of them are still there, so is the stack.
//!
//! A return address further up than what is looked at is no witness, so a share of what is recognised
//! is walked all the same. A side of a thread with which that disagrees too often is walked every time
//! from then on.

use core::{ffi::c_void, ptr};

use profiler_ebpf::{
    config::stacks,
    record::NO_STACK,
    stack_counts::{SIDES, Side, StackCounters},
};

use super::{
    budget::{self, Price},
    context,
    maps::STACK_COUNTS,
    settings::{CONFIG, frozen},
    stack::{self, Scratch, Taken, mix},
    task::{Registers, Task},
    witnesses::{self, LookedAt, Witnesses, read_below_softirq, read_kernel_top},
};

/// Places that are kept of each side, in sets by their keys; powers of two. What several callers wait
/// in has one key, and a place for each.
const PLACES: usize = 8;
/// Where the places are: those of waits, and those of wakes, of which those in a softirq have other keys.
const SHELVES: usize = 2;
const IN_A_SET: usize = 4;
/// So many of a thread's recognised stacks of one side are checked at first, whatever the share is.
const CHECKED_AT_FIRST: u32 = 8;
/// What lies between two checks of one side of a thread, in units of 2²⁰ ns: at most some 200 a second are made.
/// Two threads that pass a byte to and fro would have 2,000 a second of each side, one or two percent of their time;
/// whoever waits a thousand times a second is checked about as often as the share says.
const CHECK_PAUSE: u32 = 5;
/// A time in those units.
const CHECK_PAUSE_UNIT: u32 = 20;
/// Disagreements that are no sign yet.
const BORNE: u32 = 2;
/// One disagreement in so many checks is borne: an agreement of 99.9 %.
const BORNE_ONE_IN: u32 = 1000;

/// A place where a thread was, and the stack that it had there.
#[repr(C)]
struct Place {
    /// What can be told of it at a glance.
    key: u64,
    /// Where in the top the witnesses are.
    witnesses: Witnesses,
    /// A hash of what they say; 0 if they have not been looked for.
    proof: u64,
    /// The stack's id.
    id: u64,
}

/// The stacks that a thread is known to have had.
#[repr(C)]
pub struct KnownStacks {
    places: [[Place; PLACES]; SHELVES],
    /// How many that were recognised were walked all the same, by side.
    checked: [u32; SIDES],
    /// How many of those were others.
    disagreed: [u32; SIDES],
    /// When one was to be walked last, in the units of [`CHECK_PAUSE`].
    checked_at: [u32; SIDES],
    /// A bit for each side of which these were too many: all are walked then.
    distrusted: u32,
    /// Not 0 if nobody has been told of the newest of them.
    is_news: u32,
    /// Whose turn it is to give its place away.
    turn: u32,
    /// Whether the stack that was recognised last is to be walked all the same: not 0.
    is_checked: u32,
}

/// Whether a wake is made in a softirq on top of the current task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum InSoftirq {
    /// It is the task's own.
    No,
    /// It is.
    Yes,
}

/// Who wakes another: the current task.
#[derive(Clone, Copy)]
pub struct Waker {
    /// The task.
    pub task: Task,
    /// Its registers.
    pub registers: Registers,
    /// Where it wakes.
    pub softirq: InSoftirq,
}

/// What a look at a place says: the id of the stack that was recognised, or one of these.
///
/// A plain number, as what follows is in functions of their own: the verifier forgets between them
/// which way it came, and would else follow each to the program's end.
type Look = u64;
/// Nothing was here before.
const NEW: Look = 0;
/// Something was.
const SEEN: Look = u64::MAX;

impl KnownStacks {
    /// A stack that was recognised is looked at all the same.
    #[inline(always)]
    pub fn note_check(&mut self, side: u32) {
        count(|counters| &mut counters.checked, side);
        self.checked[index(side)] += 1;
    }

    /// Whether a side is distrusted of which nobody has been told; it is asked once.
    #[inline(always)]
    pub fn take_news(&mut self) -> bool {
        // SAFETY: a reference can be read from; the verifier forgets by it how this came to be.
        let is_news = unsafe { ptr::read_volatile(&raw const self.is_news) } != 0;
        if is_news {
            self.is_news = 0;
        }
        is_news
    }
}

/// Whether stacks are recognised at all.
#[inline(always)]
pub fn are_used() -> bool {
    frozen(&CONFIG.stacks) == stacks::CACHED
}

/// Whether those of this thread's side are.
#[inline(always)]
fn are_trusted(known: &KnownStacks, side: Side) -> bool {
    known.distrusted & (1 << side as u32) == 0
}

/// The kernel half of a thread that leaves the CPU. [`Taken::FAILED`] without a count if it is to be
/// taken as the thread is woken, which is cheaper, and as good as long as nothing is learnt from it.
#[inline(always)]
pub fn of_sleeper(ctx: *mut c_void, known: &mut KnownStacks, about: u64, now: u64) -> Taken {
    const SCRATCH: Scratch = Scratch::Switch;
    if !are_used()
        || !are_trusted(known, Side::WaitKernel)
        || !read_kernel_top(ctx, LookedAt::Switch)
    {
        return Taken::FAILED;
    }
    let key = mix(KERNEL_KEY, about);
    recognise(known, Side::WaitKernel, key, now, |look| {
        if look == NEW {
            return NO_STACK;
        }
        walk_kernel(ctx, SCRATCH, Price::WithinBudget, now)
    })
}

/// The kernel half of the current task, whose slot this is, as it wakes another. In a softirq on top of
/// it, only this tells a packet that it sends from one that came from outside: then it is taken
/// whatever it costs, and where no other stacks are wanted.
#[inline(always)]
pub fn of_waker(
    ctx: *mut c_void,
    known: &mut KnownStacks,
    waker: Waker,
    syscall: i32,
    now: u64,
) -> Taken {
    if waker.softirq == InSoftirq::Yes {
        return of_sender(ctx, known, waker, syscall, now);
    }
    let mut key = 0;
    if are_used() && are_trusted(known, Side::WakeKernel) && read_kernel_top(ctx, LookedAt::Waking)
    {
        key = mix(KERNEL_KEY, u64::from(syscall as u32));
    }
    recognise(known, Side::WakeKernel, key, now, |_| {
        walk_kernel(ctx, Scratch::Waking, Price::WithinBudget, now)
    })
}

/// The same in a softirq. What it is all about is on the task's own stack: who sent, or who was
/// interrupted.
#[inline(always)]
fn of_sender(
    ctx: *mut c_void,
    known: &mut KnownStacks,
    waker: Waker,
    syscall: i32,
    now: u64,
) -> Taken {
    const SIDE: Side = Side::WakeInSoftirq;
    let mut key = 0;
    if frozen(&CONFIG.stacks) != stacks::EXACT
        && are_trusted(known, SIDE)
        && let Some(call) = context::call_of_softirq(ctx, waker.task, waker.registers)
        && read_below_softirq(&call)
    {
        key = mix(KERNEL_KEY, call.caller);
        key = mix(mix(key, call.depth), u64::from(syscall as u32));
    }
    recognise(known, SIDE, key, now, |_| walk_kernel(ctx, Scratch::Waking, Price::Any, now))
}

/// The stack with this key if it is recognised, or what `walk` gives, told what the look said. A key of
/// 0 stands for none.
#[inline(always)]
fn recognise(
    known: &mut KnownStacks,
    side: Side,
    key: u64,
    now: u64,
    walk: impl Fn(Look) -> u64,
) -> Taken {
    let look = if key == 0 { NEW } else { look(known, side as u32, key, now) };
    // SAFETY: a reference can be read from; as it is here, the verifier forgets how it came to be.
    if is_id(look) && unsafe { ptr::read_volatile(&raw const known.is_checked) } == 0 {
        return Taken(look);
    }
    let walked = walk(look);
    if key != 0 {
        compare(known, side as u32, key, look, walked);
    }
    Taken(walked)
}

/// Whether a look found a stack.
#[inline(always)]
fn is_id(look: Look) -> bool {
    look != NEW && look != SEEN
}

/// Walks the kernel half of the current task.
#[inline(never)]
fn walk_kernel(ctx: *mut c_void, scratch: Scratch, price: Price, now: u64) -> u64 {
    budget::walk(price, now, || stack::of_kernel(ctx, scratch)).0
}

/// Keys of kernel stacks begin with it: they must not be 0.
const KERNEL_KEY: u64 = 0x6f66_6677_616b_6531;

/// The index of a [`Side`].
#[inline(always)]
fn index(side: u32) -> usize {
    side as usize & (SIDES - 1)
}

#[inline(always)]
fn shelf(side: u32) -> usize {
    // Waits are the sides 0 and 1, wakes the others.
    (side as usize >> 1) & (SHELVES - 1)
}

#[inline(always)]
fn place(known: &mut KnownStacks, side: u32, key: u64, number: u32) -> &mut Place {
    let set = key as usize & (PLACES - IN_A_SET);
    // SAFETY: both indices are masked to what is below the lengths.
    unsafe {
        known
            .places
            .get_unchecked_mut(shelf(side))
            .get_unchecked_mut(set | (number as usize & (IN_A_SET - 1)))
    }
}

/// What is here.
///
/// The verifier looks at a function that others can see once, and not at each call, and forgets at
/// its end which way it went. That is what keeps the programs small enough to be proven.
#[unsafe(no_mangle)]
extern "C" fn look(known: *mut KnownStacks, side: u32, key: u64, now: u64) -> Look {
    // SAFETY: whoever calls has it from a slot; the verifier sees to it.
    let Some(known) = (unsafe { known.as_mut() }) else { return NEW };
    let Some(top) = witnesses::top_of(side) else { return NEW };
    let mut look = NEW;
    let mut number = 0;
    while number < IN_A_SET as u32 {
        let place = place(known, side, key, number);
        if place.key == key {
            look = SEEN;
            if place.proof != 0 && place.witnesses.proof(top) == place.proof {
                look = place.id;
                break;
            }
        }
        number += 1;
    }
    if is_id(look) {
        count(|counters| &mut counters.recognised, side);
        known.is_checked = u32::from(draw_check(known, side, now));
    }
    look
}

/// Whether a stack that was recognised is looked at all the same; the next one is not for a while then.
#[inline(always)]
pub fn draw_check(known: &mut KnownStacks, side: u32, now: u64) -> bool {
    let index = index(side);
    if known.checked[index] >= CHECKED_AT_FIRST && !is_drawn(known.checked_at[index], now) {
        return false;
    }
    known.checked_at[index] = (now >> CHECK_PAUSE_UNIT) as u32;
    budget::has_time(now)
}

/// Whether chance says so, and the last one is long enough ago. Where all are to be checked, so is each.
#[inline(always)]
fn is_drawn(checked_at: u32, now: u64) -> bool {
    let below = frozen(&CONFIG.check_below);
    // The time's last digits are as good as chance, and no rhythm of the program's own.
    let chance = (now as u32).wrapping_mul(0x9e37_79b1);
    let passed = ((now >> CHECK_PAUSE_UNIT) as u32).wrapping_sub(checked_at);
    below == u32::MAX || (chance < below && passed >= CHECK_PAUSE)
}

/// Compares a stack that was walked with what it was thought to be. What is here for the second time
/// is learnt; most of what comes once never comes again. Gives back nothing; a function that others
/// can see gives a number.
#[unsafe(no_mangle)]
extern "C" fn compare(
    known: *mut KnownStacks,
    side: u32,
    key: u64,
    look: Look,
    walked: u64,
) -> u64 {
    // SAFETY: as in `look`.
    let Some(known) = (unsafe { known.as_mut() }) else { return 0 };
    if look != NEW && walked == NO_STACK {
        return 0;
    }
    if look == NEW || look == SEEN {
        count(|counters| &mut counters.walked, side);
        let place = take_place(known, side, key);
        place.key = key;
        place.proof = 0;
        if look == SEEN {
            learn(place, side, walked);
        }
        return 0;
    }
    let index = index(side);
    known.note_check(side);
    if look != walked {
        count(|counters| &mut counters.disagreed, side);
        known.disagreed[index] += 1;
        if known.disagreed[index] > BORNE + known.checked[index] / BORNE_ONE_IN {
            distrust(known, side);
        }
        forget(known, side, key, look);
    }
    0
}

/// A place for a key: the one where it was only noted, or else the next in turn.
#[inline(always)]
fn take_place(known: &mut KnownStacks, side: u32, key: u64) -> &mut Place {
    let mut taken = known.turn;
    let mut number = 0;
    while number < IN_A_SET as u32 {
        let place = place(known, side, key, number);
        if place.key == key && place.proof == 0 {
            taken = number;
        }
        number += 1;
    }
    known.turn = known.turn.wrapping_add(1);
    place(known, side, key, taken)
}

/// What was taken for something else is learnt anew.
#[inline(always)]
fn forget(known: &mut KnownStacks, side: u32, key: u64, id: u64) {
    let mut number = 0;
    while number < IN_A_SET as u32 {
        let place = place(known, side, key, number);
        if place.key == key && place.id == id {
            place.proof = 0;
        }
        number += 1;
    }
}

#[inline(always)]
fn distrust(known: &mut KnownStacks, side: u32) {
    known.distrusted |= 1 << index(side);
    known.is_news = 1;
    if let Some(counters) = STACK_COUNTS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry.
        unsafe { (*counters).distrusted += 1 };
    }
}

/// Notes a stack with its witnesses.
#[inline(always)]
fn learn(place: &mut Place, side: u32, id: u64) {
    if let Some((witnesses, proof)) = witnesses::of_last_walk(side) {
        place.witnesses = witnesses;
        place.proof = proof;
        place.id = id;
    }
}

/// Counts one stack of a [`Side`].
#[inline(always)]
pub fn count(of: impl Fn(&mut StackCounters) -> &mut [u64; SIDES], side: u32) {
    if let Some(counters) = STACK_COUNTS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry; the index is masked to what is below the length.
        unsafe { *of(&mut *counters).get_unchecked_mut(index(side)) += 1 };
    }
}

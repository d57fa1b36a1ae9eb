//! How full the ring of copies is, and what is left out before it is full.
//!
//! ```text
//! filled  0            1/4           1/2      9/16     5/8    …    15/16       1
//!         +-------------+-------------+--------+--------+---- … -----+---------+
//! checks  made           later
//! copies  all                         1 of 2   1 of 4   1 of 8 …     none
//! ```
//!
//! A ring that is full would lose what comes next, which are the stacks of whoever is busiest then. Here
//! chance decides, for every thread alike, and the more the less room there is. The ring is asked only
//! where a copy is about to be made, which takes ten times as long.

use core::ptr;

use aya_ebpf::helpers::generated::bpf_ringbuf_query;

use super::{
    config::{CONFIG, frozen},
    maps::{STACK_COPIES, STACK_COUNTS},
    ring::now,
};

/// Asks for the bytes that have not been read.
const BPF_RB_AVAIL_DATA: u64 = 0;
/// Asks for the bytes that there is room for.
const BPF_RB_RING_SIZE: u64 = 1;
/// From so many sixteenths on, recognised stacks are not checked: that can wait.
const NO_CHECKS_FROM: u64 = 4;
/// From so many sixteenths on, half of the copies are left out, and with each more half of the rest.
const FEWER_COPIES_FROM: u64 = 8;
/// From so many sixteenths on, all of them are.
const NO_COPIES_FROM: u64 = 15;

/// How many sixteenths of the ring are filled.
#[inline(always)]
fn filled_sixteenths() -> u64 {
    let ring = ptr::from_ref(&STACK_COPIES).cast_mut().cast();
    // SAFETY: the map is a ring.
    let (filled, size) = unsafe {
        (bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA), bpf_ringbuf_query(ring, BPF_RB_RING_SIZE))
    };
    (filled << 4).checked_div(size).unwrap_or(0)
}

/// Whether there is room to check a recognised stack. There always is where each is to be checked.
#[inline(always)]
pub fn has_room_for_check() -> bool {
    frozen(&CONFIG.check_threshold) == u32::MAX || filled_sixteenths() < NO_CHECKS_FROM
}

/// Draws whether a copy is made. One that is not is counted.
#[inline(always)]
pub fn draw_copy() -> bool {
    let sixteenths = filled_sixteenths();
    if sixteenths < FEWER_COPIES_FROM {
        return true;
    }
    if sixteenths < NO_COPIES_FROM {
        // The time's last digits are as good as random.
        let random = (now() as u32).wrapping_mul(0x9e37_79b1);
        let halvings = (sixteenths - FEWER_COPIES_FROM + 1) as u32;
        if random >> (u32::BITS - halvings) == 0 {
            return true;
        }
    }
    if let Some(counters) = STACK_COUNTS.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry.
        unsafe { (*counters).thinned_out += 1 };
    }
    false
}

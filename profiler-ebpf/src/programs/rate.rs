//! How many records a CPU makes in a second of what programs can do as often as they like.

use super::maps::RECORD_RATES;

/// Which records are counted together; the index into [`RecordRates`].
#[derive(Clone, Copy)]
pub enum Rate {
    Marker = 0,
    FileLock = 1,
}

/// The counts of one CPU, by [`Rate`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RecordRates([RecordRate; 2]);

#[derive(Clone, Copy)]
#[repr(C)]
struct RecordRate {
    second: u64,
    count: u64,
}

/// Counts a record, and returns whether there is room for it in this second (2³⁰ ns).
#[inline(always)]
pub fn is_below_limit(rate: Rate, ns: u64, most: u64) -> bool {
    // SAFETY: this CPU's own entry, which lives as long as the map; the index is a constant inside the
    // array. A program that comes on top of another one miscounts by one at most.
    let Some(rate) = RECORD_RATES.get_ptr_mut(0).map(|all| unsafe { &mut (*all).0[rate as usize] })
    else {
        return false;
    };
    let second = ns >> 30;
    if rate.second != second {
        *rate = RecordRate { second, count: 0 };
    }
    rate.count += 1;
    rate.count <= most
}

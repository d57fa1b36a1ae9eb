//! A thread's life in bins of equal length.

use crate::timeline::{Interval, Track};
use offwake_recording::Window;

use super::LaneState;

/// Bins of one lane: about what a screen can show, and twice that to zoom into.
const BINS: u64 = 2_000;
/// The value of a whole bin. It fits into one character of the page's encoding.
pub(in crate::report::html) const WHOLE: u64 = 63;

/// How a bin divides, in parts of [`WHOLE`]: on a CPU, runnable, blocked, lost. Outside of the
/// thread's life all are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::report::html) struct Bin(pub(in crate::report::html) [u8; 4]);

/// Divides a track into bins of equal length over the whole window.
pub(super) fn bin_track(window: Window, track: &Track) -> Vec<Bin> {
    let length = window.length().0.div_ceil(BINS).max(1);
    let count = usize::try_from(window.length().0.div_ceil(length)).unwrap_or(0);
    let mut sums = vec![[0_u64; 4]; count];
    for Interval { from, to, state } in track.iter() {
        let state = LaneState::from(state) as usize;
        let (mut at, to) = (from.since(window.start).0, to.since(window.start).0);
        while at < to {
            let bin = at / length;
            let end = bin.saturating_add(1).saturating_mul(length).min(to);
            let Some(sum) = usize::try_from(bin).ok().and_then(|bin| sums.get_mut(bin)) else {
                break;
            };
            sum[state] = sum[state].saturating_add(end - at);
            at = end;
        }
    }
    sums.into_iter().map(|sum| Bin(bin_shares(sum))).collect()
}

/// Returns a bin's shares. A state with any time in it gets at least one part, so that it stays
/// visible.
fn bin_shares(sum: [u64; 4]) -> [u8; 4] {
    let all = sum.iter().fold(0, |all: u64, &part| all.saturating_add(part));
    sum.map(|part| {
        let share = u128::from(part) * u128::from(WHOLE);
        let share = share.checked_div(u128::from(all)).unwrap_or(0);
        u8::try_from(share).unwrap_or(0).max(u8::from(part > 0))
    })
}

#[cfg(test)]
mod tests {
    use super::bin_shares;

    #[test]
    fn what_is_short_is_drawn_all_the_same() {
        assert_eq!(bin_shares([0, 0, 0, 0]), [0, 0, 0, 0]);
        assert_eq!(bin_shares([1, 0, 1_000_000, 0]), [1, 0, 62, 0]);
        assert_eq!(bin_shares([u64::MAX, u64::MAX, 0, 0]), [63, 63, 0, 0]);
    }
}

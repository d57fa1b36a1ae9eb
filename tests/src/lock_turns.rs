//! Whom those wait for who stand in line for a lock on a file, by what each of them measured.
//!
//! Who lets go of such a lock wakes the first in line alone: all others are blocked behind that one
//! (`__locks_insert_block` of <https://github.com/torvalds/linux/blob/v6.12/fs/locks.c>). Where others want
//! its CPU, it comes late, and somebody else may take the lock before it. It does not measure whether it
//! is still without a CPU then, or asleep behind the new holder. So time has bounds:
//!
//! ```text
//! z    holds |-------|     |-------|
//! y    waits -----------------------------|  holds |---     woken when z let go, for the first time
//! x    waits --------------------------------------------   behind y
//!
//! x waits for    z    z, y    z, y    z, y       y
//! ```

use std::collections::BTreeSet;

use crate::intervals::{Interval, total_in};

/// When one waited for a lock, and when it held it.
#[derive(Clone, Debug, Default)]
pub struct Contender {
    /// From when on it wanted the lock until it had it.
    pub waits: Vec<Interval>,
    /// From then on until it let go of it.
    pub holds: Vec<Interval>,
}

/// For how long one waited for another, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// At least.
    pub least: u64,
    /// At most.
    pub most: u64,
}

/// A time in which those in line wait for one of these.
struct Turn {
    during: Interval,
    whom: BTreeSet<usize>,
}

/// Returns for how long the one with this index waited for each of the others, inside a window. Of a wait
/// that the window's end cuts off, nobody knows yet who ends it: it may count or not.
#[must_use]
pub fn bound_waits(contenders: &[Contender], waiter: usize, window: Interval) -> Vec<Bounds> {
    let mut bounds = vec![Bounds::default(); contenders.len()];
    let (ended, open): (Vec<Interval>, Vec<Interval>) =
        contenders[waiter].waits.iter().partition(|wait| wait.end_ns < window.end_ns);
    let inside = |waits: &[Interval], during: Interval| {
        total_in(waits.iter().filter_map(|wait| wait.clipped(window)), during)
    };
    for Turn { during, mut whom } in turns(contenders) {
        let (certain, possible) = (inside(&ended, during), inside(&open, during));
        let is_certain = whom.len() == 1;
        // It does not wait for itself: it has been woken, or waits for the others.
        whom.remove(&waiter);
        for one in whom {
            bounds[one].most += certain + possible;
            bounds[one].least += if is_certain { certain } else { 0 };
        }
    }
    bounds
}

/// Divides the time from the first hold on.
fn turns(contenders: &[Contender]) -> Vec<Turn> {
    let mut holds: Vec<(Interval, usize)> = (contenders.iter().enumerate())
        .flat_map(|(who, one)| one.holds.iter().map(move |hold| (*hold, who)))
        .collect();
    holds.sort_by_key(|(hold, _)| hold.start_ns);
    let mut turns = Vec::new();
    // The one that has been woken and did not have the lock since.
    let mut woken = None;
    let mut before: Option<(Interval, usize)> = None;
    for (hold, holder) in holds {
        if let Some((last, releaser)) = before {
            woken = woken.or_else(|| first_in_line(contenders, last.end_ns));
            let during = Interval::new(last.end_ns, hold.start_ns);
            turns
                .push(Turn { during, whom: [releaser, holder].into_iter().chain(woken).collect() });
        }
        woken = woken.filter(|&woken| woken != holder);
        turns.push(Turn { during: hold, whom: [holder].into_iter().chain(woken).collect() });
        before = Some((hold, holder));
    }
    turns
}

/// Returns who has waited longest at a moment.
fn first_in_line(contenders: &[Contender], at: u64) -> Option<usize> {
    let since = |one: &Contender| {
        let waits = one.waits.iter().filter(|wait| (wait.start_ns..=wait.end_ns).contains(&at));
        waits.map(|wait| wait.start_ns).min()
    };
    let waiting = contenders.iter().enumerate().filter_map(|(who, one)| Some((since(one)?, who)));
    waiting.min().map(|(_, who)| who)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Interval = Interval { start_ns: 0, end_ns: 100 };

    fn contender(waits: &[(u64, u64)], holds: &[(u64, u64)]) -> Contender {
        let intervals = |list: &[(u64, u64)]| {
            list.iter().map(|&(start, end)| Interval::new(start, end)).collect()
        };
        Contender { waits: intervals(waits), holds: intervals(holds) }
    }

    fn bounds(contenders: &[Contender], waiter: usize) -> Vec<(u64, u64)> {
        let all = bound_waits(contenders, waiter, WINDOW);
        all.into_iter().map(|bounds| (bounds.least, bounds.most)).collect()
    }

    #[test]
    fn where_the_first_in_line_is_the_next_holder_the_division_is_exact() {
        // The first one waits again, behind the third.
        let all = [
            contender(&[(35, 90)], &[(0, 30)]),
            contender(&[(10, 30)], &[(30, 70)]),
            contender(&[(20, 70)], &[(70, 90)]),
        ];
        assert_eq!(bounds(&all, 2), [(10, 10), (40, 40), (0, 0)]);
        assert_eq!(bounds(&all, 0), [(0, 0), (35, 35), (20, 20)]);
    }

    #[test]
    fn who_is_behind_one_that_was_woken_and_comes_late_waits_for_it_or_for_the_holder() {
        // The picture above: z, y, x.
        let all = [
            contender(&[(24, 25)], &[(0, 20), (25, 45)]),
            contender(&[(5, 60)], &[(60, 80)]),
            contender(&[(10, 80)], &[]),
        ];
        assert_eq!(bounds(&all, 2), [(10, 50), (20, 60), (0, 0)]);
        // Behind z itself it waited for nobody else, and then it was woken or waited for z.
        assert_eq!(bounds(&all, 1), [(15, 55), (0, 0), (0, 0)]);
    }

    #[test]
    fn who_began_to_wait_before_the_window_is_in_line_before_others() {
        let all = [
            contender(&[], &[(0, 20)]),
            contender(&[(2, 40)], &[(40, 90)]),
            contender(&[(1, 20)], &[(20, 40)]),
        ];
        let window = Interval::new(10, 100);
        let exact = bound_waits(&all, 1, window);
        assert_eq!(exact[0], Bounds { least: 10, most: 10 });
        assert_eq!(exact[2], Bounds { least: 20, most: 20 });
    }

    #[test]
    fn a_wait_that_the_window_cuts_off_may_count() {
        let all = [contender(&[], &[(0, 120)]), contender(&[(10, 120)], &[])];
        assert_eq!(bounds(&all, 1), [(0, 90), (0, 0)]);
    }
}

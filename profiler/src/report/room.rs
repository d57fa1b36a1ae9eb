//! How much of blame a report has room for: the parts of all waits that say most.
//!
//! A wait that is followed sixteen hops far has dozens of parts, and each names all hops up to it. Twenty thousand threads
//! that pass a baton on, recorded for three seconds, were 13 MB of records and 48 GB of JSON before it was given up.
//! So what is written out one by one has a limit, and the rest of a wait's time is one part that says so.
//!
//! ```text
//!  parts of all waits, by time a hop    ████████ ██████ ████ ███ │ ██ █ █ ▌ ▌ ▌ …
//!                                       written out one by one   │ `report_limit`, summed up in each wait
//!                                                      MAX_HOPS ─┘
//! ```

use std::{borrow::Cow, cmp::Reverse};

use crate::{
    blame::{BlameKind, Part, Parts, Paths, Reason, StackPairId},
    units::Nanos,
};

/// Hops of all parts together. Each is 1 to 2.5 KB in JSON, by its stack, and a few dozen frames in a flame graph.
pub(super) const MAX_HOPS: usize = 200_000;

/// Which parts are written out one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// They have more time for each hop than this, or no hops at all.
    more_than: Option<Nanos>,
    left_out: (u64, Nanos),
}

impl Room {
    /// For the parts of all waits.
    pub(super) fn among<'a>(parts: impl Iterator<Item = &'a Part> + Clone, hops: usize) -> Self {
        let with_hops = parts.filter(|part| part.depth > 0);
        if with_hops.clone().map(|part| usize::from(part.depth)).sum::<usize>() <= hops {
            return Self { more_than: None, left_out: (0, Nanos(0)) };
        }
        let mut all: Vec<&Part> = with_hops.collect();
        all.sort_unstable_by_key(|part| Reverse(worth(part)));
        let mut taken = 0;
        let first_too_many = all.iter().find(|part| {
            taken += usize::from(part.depth);
            taken > hops
        });
        let more_than = first_too_many.map(|part| worth(part));
        // Those that are worth as much as it are left out with it: who came first does not matter.
        let kept = all.partition_point(|part| more_than.is_none_or(|least| worth(part) > least));
        let others = all.get(kept..).unwrap_or_default();
        let time = others.iter().map(|part| part.time).sum();
        Self { more_than, left_out: (others.len() as u64, time) }
    }

    /// How many parts there is no room for, and their time.
    pub(super) fn left_out(self) -> (u64, Nanos) {
        self.left_out
    }

    /// The parts of a wait as they are written out, with one in place of those that there is no room for: who ended the
    /// wait is known of that.
    pub(super) fn cut<'p>(self, parts: &'p Parts, paths: &Paths) -> Cow<'p, Parts> {
        let Some(least) = self.more_than else { return Cow::Borrowed(parts) };
        let mut cut = Parts::default();
        for &part in parts.list() {
            cut.push(if part.depth == 0 || worth(&part) > least {
                part
            } else {
                let kind = BlameKind::Unattributed(Reason::ReportLimit);
                let path = paths.beginning(part.path);
                Part { kind, depth: 1, path, stack: StackPairId::NONE, ..part }
            });
        }
        Cow::Owned(cut)
    }
}

/// The time that a hop of it accounts for.
fn worth(part: &Part) -> Nanos {
    Nanos(part.time.0 / u64::from(part.depth.max(1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        blame::{Duty, PathId},
        timeline::ThreadIndex,
    };

    fn part(time: u64, depth: u16, thread: u32) -> Part {
        Part {
            kind: BlameKind::Work(ThreadIndex(thread)),
            path: PathId::ROOT,
            stack: StackPairId::NONE,
            time: Nanos(time),
            depth,
            duty: Duty::Busy,
        }
    }

    fn parts(all: &[(u64, u16)]) -> Parts {
        let mut parts = Parts::default();
        for (&(time, depth), thread) in all.iter().zip(0..) {
            parts.push(part(time, depth, thread));
        }
        parts
    }

    fn is_rest(part: &Part) -> bool {
        part.kind == BlameKind::Unattributed(Reason::ReportLimit)
    }

    #[test]
    fn where_there_is_room_for_all_nothing_is_cut() {
        let all = parts(&[(9, 3), (1, 2), (4, 0)]);
        let room = Room::among(all.list().iter(), 5);
        assert_eq!(
            (room.cut(&all, &Paths::default()).list(), room.left_out()),
            (all.list(), (0, Nanos(0)))
        );
    }

    #[test]
    fn those_that_say_most_are_kept_and_the_others_become_one() {
        let all = parts(&[(9, 3), (1, 2), (4, 0), (2, 1), (8, 1)]);
        let room = Room::among(all.list().iter(), 4);
        let cut = room.cut(&all, &Paths::default());
        let times: Vec<_> = cut.list().iter().map(|part| (part.time.0, is_rest(part))).collect();
        assert_eq!(times, [(9, false), (3, true), (4, false), (8, false)]);
        assert_eq!(room.left_out(), (2, Nanos(3)));
    }

    proptest! {
        #[test]
        fn time_stays_and_hops_have_a_limit(
            waits in prop::collection::vec(
                prop::collection::vec((1..50_u64, 0..17_u16), 0..12), 0..12),
            limit in 0..300_usize,
        ) {
            let waits: Vec<Parts> = waits.iter().map(|all| parts(all)).collect();
            let room = Room::among(waits.iter().flat_map(Parts::list), limit);
            let (mut hops, mut rest, mut missing) = (0, Nanos(0), 0);
            let sum = |parts: &[Part]| parts.iter().map(|part| part.time).sum::<Nanos>();
            for all in &waits {
                let cut = room.cut(all, &Paths::default());
                prop_assert_eq!(sum(cut.list()), sum(all.list()));
                let is_kept = |part: &&Part| !is_rest(part);
                missing += all.list().len() - cut.list().iter().filter(is_kept).count();
                rest += cut.list().iter().filter(|part| is_rest(part)).map(|part| part.time).sum();
                hops += cut.list().iter().filter(is_kept).map(|part| usize::from(part.depth)).sum::<usize>();
            }
            prop_assert!(hops <= limit);
            prop_assert_eq!(room.left_out(), (missing as u64, rest));
        }
    }
}

//! How much of blame a report has room for: the largest parts of all waits.
//!
//! A wait that is followed sixteen hops far has dozens of parts, and each names all hops up to it. Twenty thousand threads
//! that pass a baton on, recorded for three seconds, were 13 MB of records and 48 GB of JSON before it was given up.
//! So what is written out one by one has a limit, and the rest of a wait's time is one part that says so.
//!
//! ```text
//!  parts of all waits, by their time    ████████ ██████ ████ ███ │ ██ █ █ ▌ ▌ ▌ …
//!                                       written out one by one   │ `report_limit`, summed up in each wait
//!                                                      MAX_HOPS ─┘
//! ```

use std::{borrow::Cow, cmp::Reverse};

use crate::{
    blame::{BlameKind, Part, Parts, PathId, Reason, StackPairId},
    units::Nanos,
};

/// Hops of all parts together. Each is half a KiB to one and a half in JSON, by its stack.
pub(super) const MAX_HOPS: usize = 400_000;

/// Which parts are written out one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// They are longer than this, or have no hops at all.
    longer_than: Option<Nanos>,
    left_out: (u64, Nanos),
}

impl Room {
    /// For the parts of all waits.
    pub(super) fn among<'a>(parts: impl Iterator<Item = &'a Part> + Clone, hops: usize) -> Self {
        let with_hops = parts.filter(|part| part.depth > 0);
        if with_hops.clone().map(|part| usize::from(part.depth)).sum::<usize>() <= hops {
            return Self { longer_than: None, left_out: (0, Nanos(0)) };
        }
        let mut sizes: Vec<(Nanos, u16)> = with_hops.map(|part| (part.time, part.depth)).collect();
        sizes.sort_unstable_by_key(|&(time, _)| Reverse(time));
        let mut taken = 0;
        let first_too_many = sizes.iter().find(|&&(_, depth)| {
            taken += usize::from(depth);
            taken > hops
        });
        let longer_than = first_too_many.map(|&(time, _)| time);
        // Those that are as long as it are left out with it: who came first does not matter.
        let kept = sizes.partition_point(|&(time, _)| longer_than.is_none_or(|it| time > it));
        let others = sizes.get(kept..).unwrap_or_default();
        let time = others.iter().map(|&(time, _)| time).sum();
        Self { longer_than, left_out: (others.len() as u64, time) }
    }

    /// How many parts there is no room for, and their time.
    pub(super) fn left_out(self) -> (u64, Nanos) {
        self.left_out
    }

    /// The parts of a wait as they are written out, with one in place of those that there is no room for.
    pub(super) fn cut(self, parts: &Parts) -> Cow<'_, Parts> {
        let Some(longer_than) = self.longer_than else { return Cow::Borrowed(parts) };
        let mut cut = Parts::default();
        for &part in parts.list() {
            cut.push(if part.depth == 0 || part.time > longer_than {
                part
            } else {
                let kind = BlameKind::Unattributed(Reason::ReportLimit);
                Part { kind, depth: 0, path: PathId::ROOT, stack: StackPairId::NONE, ..part }
            });
        }
        Cow::Owned(cut)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{blame::Duty, timeline::ThreadIndex};

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
        assert_eq!((room.cut(&all).list(), room.left_out()), (all.list(), (0, Nanos(0))));
    }

    #[test]
    fn the_longest_are_kept_and_the_others_become_one() {
        let all = parts(&[(9, 3), (1, 2), (4, 0), (2, 1), (8, 1)]);
        let room = Room::among(all.list().iter(), 4);
        let cut = room.cut(&all);
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
                let cut = room.cut(all);
                prop_assert_eq!(sum(cut.list()), sum(all.list()));
                let is_kept = |part: &&Part| !is_rest(part);
                missing += all.list().len() - cut.list().iter().filter(is_kept).count();
                rest += cut.list().iter().filter(|part| is_rest(part)).map(|part| part.time).sum();
                hops += cut.list().iter().map(|part| usize::from(part.depth)).sum::<usize>();
            }
            prop_assert!(hops <= limit);
            prop_assert_eq!(room.left_out(), (missing as u64, rest));
        }
    }
}

//! Limits the number of paths in files that list them one by one.

use std::{cmp::Reverse, collections::BinaryHeap};

/// The most bytes of paths in a file.
pub(crate) const MAX_BYTES: usize = 18_000_000;

/// Paths that are summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SmallPaths {
    /// How many.
    pub(crate) count: u64,
    /// Their time in ns.
    pub(crate) ns: u64,
}

impl SmallPaths {
    /// Adds a path of this time.
    pub(crate) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }

    /// Returns the name of the frame that stands for them.
    pub(crate) fn frame_name(self) -> String {
        let paths = if self.count == 1 { "path" } else { "paths" };
        format!("[other: {} smaller {paths}]", self.count)
    }
}

/// Returns the most time that a path has which is summed up, if those with more are to fit into `room`;
/// none if all fit. Paths of the same time are treated alike.
///
/// Reports have millions of parts, of which a few thousand fit. So only those are kept that may fit, and
/// the longest that does not: `1`, `5`, `3`, `4` with a size of 1 each, and room for two, are
///
/// ```text
/// 1   1 5   1 3 5   3 4 5
///           `-- more than fit: the shortest is the answer, unless longer ones follow
/// ```
pub(crate) fn most_summed_up(
    times_and_sizes: impl Iterator<Item = (u64, usize)>,
    room: usize,
) -> Option<u64> {
    // The shortest on top.
    let mut longest = BinaryHeap::new();
    let mut used = 0usize;
    for (ns, size) in times_and_sizes {
        let is_full = used > room;
        if is_full && longest.peek().is_some_and(|&Reverse((shortest, _))| ns <= shortest) {
            continue;
        }
        longest.push(Reverse((ns, size)));
        used = used.saturating_add(size);
        while let Some(&Reverse((_, size))) = longest.peek()
            && used.saturating_sub(size) > room
        {
            longest.pop();
            used -= size;
        }
    }
    longest.peek().filter(|_| used > room).map(|&Reverse((ns, _))| ns)
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use proptest::{collection::vec, prelude::*};

    use super::most_summed_up;

    /// Sorts all paths, and adds them up until there is no room.
    fn sort_and_add_up(mut paths: Vec<(u64, usize)>, room: usize) -> Option<u64> {
        paths.sort_unstable_by_key(|&(ns, _)| Reverse(ns));
        let mut used = 0;
        let too_many = paths.into_iter().find(|&(_, size)| {
            used += size;
            used > room
        });
        too_many.map(|(ns, _)| ns)
    }

    proptest! {
        #[test]
        fn what_does_not_fit_is_that_of_sorted_paths(
            paths in vec((0_u64..30, 1_usize..9), 0..60),
            room in 0_usize..200,
        ) {
            let expected = sort_and_add_up(paths.clone(), room);
            prop_assert_eq!(most_summed_up(paths.into_iter(), room), expected);
        }
    }

    #[test]
    fn paths_of_one_time_are_treated_alike() {
        assert_eq!(most_summed_up([(5, 1), (5, 1), (5, 1)].into_iter(), 2), Some(5));
        assert_eq!(most_summed_up([(5, 1), (7, 2), (5, 1)].into_iter(), 3), Some(5));
        assert_eq!(most_summed_up([(5, 1), (7, 2)].into_iter(), 3), None);
    }
}

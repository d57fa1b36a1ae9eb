//! Limits the number of paths in files that list them one by one.

use std::cmp::Reverse;

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
pub(crate) fn most_summed_up(
    times_and_sizes: impl Iterator<Item = (u64, usize)>,
    room: usize,
) -> Option<u64> {
    let mut paths: Vec<_> = times_and_sizes.collect();
    paths.sort_unstable_by_key(|&(ns, _)| Reverse(ns));
    let mut used = 0usize;
    let too_many = paths.into_iter().find(|&(_, size)| {
        used = used.saturating_add(size);
        used > room
    });
    too_many.map(|(ns, _)| ns)
}

//! Folded stacks: one line for each path, its value in nanoseconds.
//!
//! ```text
//! web-1042;main;handle;futex_wait;--;futex_wake;finish_job;worker-1043;[work] 20000000
//! `waiter  `its frames, root      `hop, and the waker's frames, leaf   `kind of blame
//!           to leaf                to root, then the waker
//! ```
//!
//! A chain of several hops has as many pieces of waker. The last one's frames are those in which it
//! worked, where they are known; who held the CPU for which it waited comes before the kind:
//!
//! ```text
//! …;--;futex_wake;finish_job;worker-1043;--;tcp_sendmsg;answer;db-77;held by cron-9;[cpu_queue] 100
//! ```
//!
//! Where a file has no room for all paths, those with the least time are one line for each first frame:
//! the whole and each thread add up as before.
//!
//! ```text
//! web-1042;[other: 5120 smaller paths] 7340000
//! ```

use std::{collections::BTreeMap, io, mem};

use super::{
    Report,
    flame::{self, Frame, View},
    path_limit::{self, SmallPaths},
};
use crate::text;

/// Writes the shown waits' blocked time, sorted by path.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    write_limited(report, view, usize::MAX, out).map(|_nothing| ())
}

/// Writes the same in at most some `room` bytes, and returns the paths that have no line of their own.
///
/// # Errors
///
/// Those of `out`.
pub(crate) fn write_limited(
    report: &Report,
    view: &View,
    room: usize,
    out: &mut dyn io::Write,
) -> io::Result<SmallPaths> {
    let mut sums = sum_lines(report, view);
    let small = limit_lines(&mut sums, room);
    sums.iter().try_for_each(|(path, ns)| writeln!(out, "{path} {ns}"))?;
    Ok(small)
}

fn sum_lines(report: &Report, view: &View) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::<String, u64>::new();
    for path in flame::paths(report, view) {
        let sum = sums.entry(line(&path.frames)).or_default();
        *sum = sum.saturating_add(path.blame.ns.0);
    }
    sums
}

/// Sums up the paths with the least time, so that the others have room.
fn limit_lines(sums: &mut BTreeMap<String, u64>, room: usize) -> SmallPaths {
    const DIGITS: usize = 12;
    let sizes = sums.iter().map(|(path, &ns)| (ns, path.len() + DIGITS));
    let Some(most) = path_limit::most_summed_up(sizes, room) else { return SmallPaths::default() };
    let (small, kept): (BTreeMap<_, _>, _) =
        mem::take(sums).into_iter().partition(|&(_, ns)| ns <= most);
    *sums = kept;
    let mut by_first: BTreeMap<&str, SmallPaths> = BTreeMap::new();
    let mut all = SmallPaths::default();
    for (path, &ns) in &small {
        let first = path.split_once(';').map_or(path.as_str(), |(first, _)| first);
        by_first.entry(first).or_default().add(ns);
        all.add(ns);
    }
    for (first, rest) in by_first {
        sums.insert(format!("{first};{}", rest.frame_name()), rest.ns);
    }
    all
}

/// A path as its line has it, without the value.
pub(super) fn line(frames: &[Frame]) -> String {
    let names: Vec<_> = frames.iter().map(|frame| text::folded(&frame.name)).collect();
    let mut line = names.join(";");
    if line.starts_with('#') {
        // Tools take such a line for a comment, and its time would be gone.
        line.replace_range(..1, "?");
    }
    // Of two numbers at the end of a line, tools take the first for the value before.
    if let Some((before, last)) = line.rsplit_once(' ')
        && last.parse::<f64>().is_ok()
    {
        line = format!("{before}_{last}");
    }
    line
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{limit_lines, path_limit::SmallPaths};

    #[test]
    fn what_has_no_room_is_summed_up_by_first_frame() {
        let lines = [("a;big", 900), ("a;x", 5), ("a;y", 6), ("b;z", 7), ("b;most", 800)];
        let whole: BTreeMap<String, u64> =
            lines.into_iter().map(|(path, ns)| (path.to_owned(), ns)).collect();
        let mut limited = whole.clone();
        assert_eq!(limit_lines(&mut limited, 1_000), SmallPaths::default());
        assert_eq!(limited, whole);
        assert_eq!(limit_lines(&mut limited, 40), SmallPaths { count: 3, ns: 18 });
        let names: Vec<_> = limited.iter().map(|(path, &ns)| (path.as_str(), ns)).collect();
        let expected = [
            ("a;[other: 2 smaller paths]", 11),
            ("a;big", 900),
            ("b;[other: 1 smaller path]", 7),
            ("b;most", 800),
        ];
        assert_eq!(names, expected);
    }
}

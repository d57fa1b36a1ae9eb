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

use std::{collections::BTreeMap, io};

use super::{
    Report,
    flame::{self, Frame, View},
    text,
};

/// Writes the shown waits' blocked time, sorted by path.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    let mut sums = BTreeMap::<String, u64>::new();
    for path in flame::paths(report, view) {
        let sum = sums.entry(line(&path.frames)).or_default();
        *sum = sum.saturating_add(path.blame.ns.0);
    }
    for (path, ns) in sums {
        writeln!(out, "{path} {ns}")?;
    }
    Ok(())
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

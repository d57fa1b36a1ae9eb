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

use super::{BlameEntry, BlameWord, Report, WaitEntry, text};

/// Writes the shown waits' blocked time, sorted by path.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    for (path, ns) in paths(report) {
        writeln!(out, "{path} {ns}")?;
    }
    Ok(())
}

/// Every path and its nanoseconds.
pub(super) fn paths(report: &Report) -> BTreeMap<String, u64> {
    let mut paths = BTreeMap::new();
    for wait in &report.waits {
        for blame in &wait.blame {
            let sum: &mut u64 = paths.entry(path(wait, blame)).or_default();
            *sum = sum.saturating_add(blame.ns.0);
        }
    }
    paths
}

/// A wait's own part of its paths: the thread and its frames.
pub(super) fn own_path(wait: &WaitEntry) -> String {
    let mut path = text::folded(&format!("{}-{}", wait.comm, wait.tid));
    if path.starts_with('#') {
        // Tools take such a line for a comment, and its time would be gone.
        path.replace_range(..1, "?");
    }
    for frame in wait.stack.0.iter() {
        path.push(';');
        path.push_str(&text::folded(frame));
    }
    path
}

/// One path: its frames with `;` between them, which is in none of them.
pub(super) fn path(wait: &WaitEntry, blame: &BlameEntry) -> String {
    let mut path = own_path(wait);
    let mut push = |frame: &str| {
        path.push(';');
        path.push_str(frame);
    };
    for (n, hop) in blame.chain.iter().enumerate() {
        push("--");
        let is_last = n + 1 == blame.chain.len();
        let stack = if is_last { &blame.stack } else { &hop.stack };
        for frame in stack.0.iter().rev() {
            push(&text::folded(frame));
        }
        push(&text::folded(&format!("{}-{}", hop.thread.comm, hop.thread.tid)));
    }
    if let Some(holder) = &blame.holder {
        push(&text::folded(&format!("held by {}-{}", holder.comm, holder.tid)));
    }
    push(&leaf(blame));
    path
}

/// The kind of blame in brackets.
pub(super) fn leaf(blame: &BlameEntry) -> String {
    match (blame.kind, blame.reason) {
        (BlameWord::Unattributed, Some(reason)) => format!("[unattributed: {}]", reason.name()),
        (kind, _) => format!("[{}]", kind.name()),
    }
}

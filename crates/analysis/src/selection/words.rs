//! Targets in words, which are the same while recording and afterwards.

use offwake_recording::units::Tgid;

use super::Children;

/// `pid 42,43`, or `pid 42 without children`
#[must_use]
pub fn describe_processes(processes: &[Tgid], children: Children) -> String {
    let pids = join_numbers(processes);
    match children {
        Children::Included => format!("pid {pids}"),
        Children::Excluded => format!("pid {pids} without children"),
    }
}

/// ` and 3 children`, or nothing.
#[must_use]
pub fn describe_children(children: usize) -> String {
    match children {
        0 => String::new(),
        1 => " and 1 child".to_owned(),
        _ => format!(" and {children} children"),
    }
}

/// `42,43`
pub(super) fn join_numbers(numbers: &[impl ToString]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

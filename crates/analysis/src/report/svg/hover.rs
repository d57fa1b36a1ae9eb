//! What a frame says when the mouse is on it.

use std::cmp::Reverse;

use offwake_recording::units::Nanos;

use crate::{
    report::{
        flame::{Summaries, WaitSummary},
        styled_lines::percent,
        wake_context,
    },
    words,
};

/// Names of one kind that are listed; the rest is counted.
const LISTED: usize = 3;

/// `1.20 s, 12.0%, of 42 waits; on futex; woken by web 7; in take_lock`
pub(super) fn details(
    time: Nanos,
    share: &str,
    summary: &WaitSummary<'_>,
    summaries: &Summaries<'_>,
) -> String {
    let waits = if summary.waits == 1 { "wait" } else { "waits" };
    let causes = summary.causes.iter().map(|(cause, &ns)| (cause.name().to_owned(), ns));
    let wakers =
        summaries.wakers(summary).map(|(wait, ns)| (wake_context::describe_waker(wait), ns));
    let functions = summary.functions.iter().map(|(&name, &ns)| (name.to_owned(), ns));
    let mut details = format!("{time}, {share}, of {} {waits}", summary.waits);
    let (causes, wakers) = (list_names(causes), list_names(wakers));
    let functions = list_names(functions);
    for (names, described) in [
        (&causes, format!("on {causes}")),
        (&wakers, words::woken_by(&wakers)),
        (&functions, format!("in {functions}")),
    ] {
        if !names.is_empty() {
            details.push_str(&format!("; {described}"));
        }
    }
    details
}

/// `futex`, `futex 60.0%, poll 40.0%`, `a 50.0%, b 20.0%, c 10.0%, 4 more`
fn list_names(names: impl Iterator<Item = (String, Nanos)>) -> String {
    let mut names: Vec<_> = names.collect();
    names.sort_by(|(one, one_ns), (other, other_ns)| {
        let place = |name: &str, ns: Nanos| (!words::is_waker(name), Reverse(ns));
        (place(one, *one_ns), one).cmp(&(place(other, *other_ns), other))
    });
    let all = names.iter().map(|&(_, ns)| ns).sum();
    if let [(only, _)] = names.as_slice() {
        return only.clone();
    }
    let mut listed: Vec<_> = names
        .iter()
        .take(LISTED)
        .map(|(name, ns)| format!("{name} {}", percent(*ns, all)))
        .collect();
    if names.len() > LISTED {
        listed.push(format!("{} more", names.len() - LISTED));
    }
    listed.join(", ")
}

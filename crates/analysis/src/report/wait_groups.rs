//! The summary's worst waits: what the report tells apart by stack and waker is one line here, as
//! one thing that a thread waits on.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    io,
};

use offwake_recording::units::{Nanos, Tid};

use super::{
    BlameEntry, Report, WaitEntry, describe,
    styled_lines::{SummaryStyles, WIDTH, percent, write_line, write_styled},
    wake_context,
};
use crate::{
    blame::{BlameEntryKind, Reason, cause::Cause},
    label::Label,
    text, words,
};

/// The most lines shown; the rest is counted.
const SHOWN: usize = 10;
/// The most wakers named in one line.
const WAKERS: usize = 3;
/// The most characters of a wait's label.
const PLACE: usize = 48;
/// The most characters of the label of some work.
const WORK_PLACE: usize = 32;

/// All waits of one thread that are one line of the summary.
#[derive(Default)]
pub(super) struct WaitGroup<'a> {
    pub(super) comm: &'a str,
    pub(super) container: Option<&'a str>,
    pub(super) blocked: Nanos,
    count: u64,
    labels: Vec<&'a Label>,
    wakers: BTreeMap<String, Nanos>,
    pub(super) idle: Nanos,
    blame: BTreeMap<SpentOn<'a>, SpentTime<'a>>,
}

/// What some of the time was spent on. Threads of one name are alike: a pool's, or one after another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpentOn<'a> {
    kind: BlameEntryKind,
    reason: Option<Reason>,
    comm: Option<&'a str>,
    container: Option<&'a str>,
    holder: Option<&'a str>,
}

/// The time that was spent on one thing, by which threads, and in which functions.
#[derive(Default)]
struct SpentTime<'a> {
    time: Nanos,
    threads: BTreeSet<Tid>,
    places: BTreeMap<&'a Label, Nanos>,
}

/// A thread, the cause, what was waited on, and from where: a named place in the program or in a
/// library. Pages are missing anywhere.
pub(super) type WaitGroupKey<'a> = (Tid, &'static str, &'a str, Option<&'a Label>);

/// Writes the worst waits, and the threads that never woke.
pub(super) fn write(
    report: &Report,
    palette: SummaryStyles,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    if report.waits.is_empty() {
        return writeln!(out, "\nno waits");
    }
    let window = report.window.duration_ns;
    let (worst, asleep) = group_waits(report, |worst| worst.blocked);
    if !worst.is_empty() {
        writeln!(out)?;
        write_styled(out, palette.strong, "worst waits (share of the window)")?;
    }
    for (key, worst) in worst.iter().take(SHOWN) {
        let WaitGroupText { what, wakers, blame } = describe_group(*key, worst);
        let (blocked, share) = (worst.blocked, percent(worst.blocked, window));
        write_styled(out, palette.strong, &format!("{blocked:>9} {share:>6}  {what}"))?;
        write_styled(out, palette.waker, &format!("{:>18}{}", "", words::woken_by(&wakers)))?;
        write_line(out, &format!("{:>18} = {}", "", blame.join(", ")))?;
    }
    let more = worst.len().saturating_sub(SHOWN);
    if more > 0 {
        let time: Nanos = worst.iter().skip(SHOWN).map(|(_, worst)| worst.blocked).sum();
        writeln!(out, "  and {more} more, {time}: -o wait.html")?;
    }
    if !asleep.is_empty() {
        let names: Vec<_> = (asleep.iter())
            .map(|wait| {
                let who = describe::thread(&wait.comm, wait.tid, wait.container.as_deref());
                format!("{who} ({})", wait.cause.name())
            })
            .collect();
        writeln!(out)?;
        write_line(out, &asleep_line(&names))?;
    }
    Ok(())
}

/// Names the threads that never woke, as many as a line has room for, and counts the others.
fn asleep_line(names: &[String]) -> String {
    let line = |named: usize| {
        let mut words = names[..named].to_vec();
        if named < names.len() {
            words.push(format!("{} more: -o wait.html", names.len() - named));
        }
        format!("asleep all the time: {}: {}", names.len(), words.join(", "))
    };
    // A line has far fewer columns than a busy machine has threads.
    let most = names.len().min(WIDTH);
    let fitting = (0..=most).rev().map(line).find(|line| line.chars().count() <= WIDTH);
    fitting.unwrap_or_else(|| line(0))
}

/// Returns whether a thread never woke. A reader who looks for delays looks elsewhere first.
pub(super) fn sleeps_through(wait: &WaitEntry, window: Nanos) -> bool {
    wait.blocked_ns == window
        && wait.blame.iter().all(|part| part.reason == Some(Reason::StillBlocked))
}

/// Groups of waits with their keys.
pub(super) type WaitGroups<'a> = Vec<(WaitGroupKey<'a>, WaitGroup<'a>)>;

/// Groups the waits, those with the largest `weight` first; the waits of threads that never woke
/// come apart from them.
pub(super) fn group_waits(
    report: &Report,
    weight: impl Fn(&WaitGroup<'_>) -> Nanos,
) -> (WaitGroups<'_>, Vec<&WaitEntry>) {
    let window = report.window.duration_ns;
    let (asleep, waits): (Vec<_>, Vec<_>) =
        report.waits.iter().partition(|wait| sleeps_through(wait, window));
    let mut worst: Vec<_> = group_alike(waits).into_iter().collect();
    worst.sort_by_key(|&(key, ref worst)| (Reverse(weight(worst)), key));
    (worst, asleep)
}

fn group_alike(waits: Vec<&WaitEntry>) -> BTreeMap<WaitGroupKey<'_>, WaitGroup<'_>> {
    let mut gathered = BTreeMap::<WaitGroupKey<'_>, WaitGroup<'_>>::new();
    for wait in waits {
        // Hundreds of files wait for one disk.
        let on = match (&wait.waited_on, wait.cause) {
            (Some(on), cause) if cause != Cause::Disk => on.text.as_str(),
            _ => "",
        };
        let place = wait.label.as_ref();
        let place =
            place.filter(|label| label.is_own_or_library() && wait.cause != Cause::PageFault);
        let worst = gathered.entry((wait.tid, wait.cause.name(), on, place)).or_default();
        worst.comm = &wait.comm;
        worst.container = wait.container.as_deref();
        worst.blocked += wait.blocked_ns;
        worst.count += wait.count;
        worst.idle += wait.idle_ns;
        // Two say that they are several.
        if let Some(label) = &wait.label
            && worst.labels.len() < 2
            && !worst.labels.contains(&label)
        {
            worst.labels.push(label);
        }
        *worst.wakers.entry(wake_context::describe_waker(wait)).or_default() += wait.blocked_ns;
        for part in &wait.blame {
            worst.blame.entry(SpentOn::new(part)).or_default().add(part);
        }
    }
    gathered
}

/// The description of a group of waits.
pub(super) struct WaitGroupText {
    /// Describes who waited on what.
    pub(super) what: String,
    /// Describes who woke the thread.
    pub(super) wakers: String,
    /// Describes what the time was spent on, the largest parts first.
    pub(super) blame: Vec<String>,
}

pub(super) fn describe_group(
    (tid, cause, on, _): WaitGroupKey<'_>,
    worst: &WaitGroup<'_>,
) -> WaitGroupText {
    let on = describe::waited_on(cause, on);
    let times = if worst.count == 1 { String::new() } else { format!(" in {} waits", worst.count) };
    let seen = match worst.labels.as_slice() {
        [label] => format!(", in {}", label.short_name(PLACE)),
        _ => String::new(),
    };
    let idle = match worst.idle {
        Nanos(0) => String::new(),
        idle => format!(", idle {}", percent(idle, worst.blocked)),
    };
    let who = describe::thread(worst.comm, tid, worst.container);
    let what = format!("{who}: {on}{times}{seen}{idle}");
    let mut wakers: Vec<_> = worst.wakers.iter().collect();
    wakers.sort_by_key(|&(name, time)| (!words::is_waker(name), Reverse(*time)));
    let mut named: Vec<_> = (wakers.iter().take(WAKERS))
        .map(|(name, time)| match wakers.len() {
            1 => (*name).clone(),
            _ => format!("{name} {}", percent(**time, worst.blocked)),
        })
        .collect();
    if wakers.len() > WAKERS {
        named.push(format!("{} more", wakers.len() - WAKERS));
    }
    let mut blame: Vec<_> = worst.blame.iter().collect();
    blame.sort_by_key(|(_, spent)| Reverse(spent.time));
    let blame =
        blame.into_iter().map(|(leaf, spent)| spent.describe(leaf, worst.blocked)).collect();
    WaitGroupText { what, wakers: named.join(", "), blame }
}

impl<'a> SpentTime<'a> {
    fn add(&mut self, part: &'a BlameEntry) {
        self.time += part.ns;
        self.threads.extend(part.chain.last().map(|hop| hop.thread.tid));
        if let Some(label) = part.label.as_ref().filter(|label| label.is_own_or_library()) {
            *self.places.entry(label).or_default() += part.ns;
        }
    }

    /// `work of db 77 in compute_index 40.0%`, `work of db 77 40.0% (sort 30.0%, 2 more)`
    fn describe(&self, leaf: &SpentOn<'_>, of: Nanos) -> String {
        let name = leaf.describe(&self.threads);
        let share = percent(self.time, of);
        let mut places: Vec<_> = self.places.iter().collect();
        places.sort_by_key(|&(_, time)| Reverse(*time));
        match places.as_slice() {
            [] => format!("{name} {share}"),
            [(label, time)] if **time == self.time => {
                format!("{name} in {} {share}", label.short_name(WORK_PLACE))
            }
            [(label, time), rest @ ..] => {
                let more = match rest.len() {
                    0 => String::new(),
                    more => format!(", {more} more"),
                };
                let most = percent(**time, of);
                format!("{name} {share} ({} {most}{more})", label.short_name(WORK_PLACE))
            }
        }
    }
}

impl<'a> SpentOn<'a> {
    fn new(part: &'a BlameEntry) -> Self {
        Self {
            kind: part.kind,
            reason: part.reason,
            comm: part.chain.last().map(|hop| hop.thread.comm.as_str()),
            container: part.chain.last().and_then(|hop| hop.thread.container.as_deref()),
            holder: part.holder.as_ref().map(|holder| holder.comm.as_str()),
        }
    }

    /// `db 77 slept`; of several threads, how many: `work of 12 worker threads`.
    fn describe(&self, threads: &BTreeSet<Tid>) -> String {
        self.describe_with(|comm| match threads.first() {
            Some(tid) if threads.len() == 1 => format!("{comm} {tid}"),
            _ => format!("{} {comm} threads", threads.len()),
        })
    }

    /// Creates the key without the thread that held the CPU, which differs from run to run.
    pub(super) fn without_holder(part: &'a BlameEntry) -> Self {
        Self { holder: None, ..Self::new(part) }
    }

    /// `db slept`
    pub(super) fn describe_without_ids(&self) -> String {
        self.describe_with(|comm| comm)
    }

    fn describe_with(&self, thread: impl FnOnce(String) -> String) -> String {
        let container = describe::container_suffix(self.container);
        let thread = self.comm.map(|comm| thread(text::terminal(comm)) + &container);
        describe::blame(self.kind, self.reason, thread, self.holder.map(text::terminal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_never_woke_are_named_as_far_as_a_line_has_room() {
        let names = |count: usize| vec!["worker 17591 (futex)".to_owned(); count];
        let few = asleep_line(&names(3));
        assert_eq!(few.matches("worker").count(), 3);
        assert!(!few.contains("more"), "{few}");
        let many = asleep_line(&names(5_000));
        assert!(many.chars().count() <= WIDTH, "{many}");
        assert!(many.matches("worker").count() == 2 && many.contains("4998 more: -o wait.html"));
        let long = asleep_line(&["x".repeat(200), "y".to_owned()]);
        assert_eq!(long, "asleep all the time: 2: 2 more: -o wait.html");
    }
}

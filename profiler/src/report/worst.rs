//! The summary's worst waits: what the report tells apart by stack and waker is one line here, as
//! one thing that a thread waits on.

use std::{cmp::Reverse, collections::BTreeMap, io};

use super::{
    BlameEntry, BlameWord, Report, ThreadName, WaitEntry, WakerKind,
    summary::{line, percent},
    text,
};
use crate::{
    blame::{Reason, cause::Cause},
    units::{Nanos, Tid},
};

/// Lines shown; the rest is counted.
const SHOWN: usize = 10;
/// Wakers named in one line.
const WAKERS: usize = 3;

/// Everything that one thread waited for in one way.
#[derive(Default)]
struct Worst<'a> {
    comm: &'a str,
    blocked: Nanos,
    count: u64,
    frames: Vec<&'a str>,
    wakers: BTreeMap<String, Nanos>,
    idle: Nanos,
    blame: BTreeMap<String, Nanos>,
}

/// A thread, the cause, and what was waited on.
type Key<'a> = (Tid, &'static str, &'a str);

/// Writes the worst waits, and the threads that never woke.
pub(super) fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    if report.waits.is_empty() {
        return writeln!(out, "\nno waits");
    }
    let window = report.window.duration_ns;
    let (asleep, waits): (Vec<_>, Vec<_>) =
        report.waits.iter().partition(|wait| sleeps_through(wait, window));
    let mut worst: Vec<_> = gather(waits).into_iter().collect();
    worst.sort_by_key(|&(key, ref worst)| (Reverse(worst.blocked), key));
    if !worst.is_empty() {
        writeln!(out, "\nworst waits (share of the window)")?;
    }
    for (key, worst) in worst.iter().take(SHOWN) {
        for text in lines(*key, worst, window) {
            line(out, &text)?;
        }
    }
    let more = worst.len().saturating_sub(SHOWN);
    if more > 0 {
        let time: Nanos = worst.iter().skip(SHOWN).map(|(_, worst)| worst.blocked).sum();
        writeln!(out, "  and {more} more, {time}")?;
    }
    if !asleep.is_empty() {
        let words: Vec<_> = (asleep.iter())
            .map(|wait| {
                format!("{} {} ({})", text::terminal(&wait.comm), wait.tid, wait.cause.name())
            })
            .collect();
        writeln!(out)?;
        line(out, &format!("asleep all the time: {}: {}", asleep.len(), words.join(", ")))?;
    }
    Ok(())
}

/// Whether a thread never woke: whoever looks for what holds a program up looks elsewhere first.
fn sleeps_through(wait: &WaitEntry, window: Nanos) -> bool {
    wait.blocked_ns == window
        && wait.blame.iter().all(|part| part.reason == Some(Reason::StillBlocked))
}

fn gather(waits: Vec<&WaitEntry>) -> BTreeMap<Key<'_>, Worst<'_>> {
    let mut gathered = BTreeMap::<Key<'_>, Worst<'_>>::new();
    for wait in waits {
        // Hundreds of files wait for one disk.
        let on = match (&wait.waited_on, wait.cause) {
            (Some(on), cause) if cause != Cause::Disk => on.text.as_str(),
            _ => "",
        };
        let worst = gathered.entry((wait.tid, wait.cause.name(), on)).or_default();
        worst.comm = &wait.comm;
        worst.blocked += wait.blocked_ns;
        worst.count += wait.count;
        worst.idle += wait.idle_ns;
        if let Some(frame) = wait.seen_in.as_deref()
            && !worst.frames.contains(&frame)
        {
            worst.frames.push(frame);
        }
        *worst.wakers.entry(waker(wait)).or_default() += wait.blocked_ns;
        for part in &wait.blame {
            *worst.blame.entry(leaf(part)).or_default() += part.ns;
        }
    }
    gathered
}

fn lines((tid, cause, on): Key<'_>, worst: &Worst<'_>, window: Nanos) -> [String; 3] {
    let on = match on {
        "" => cause.to_owned(),
        // A futex's name begins with its cause.
        on if on.starts_with(cause) => text::terminal(on),
        on => format!("{cause}: {}", text::terminal(on)),
    };
    let times = if worst.count == 1 { String::new() } else { format!(" in {} waits", worst.count) };
    let seen = match worst.frames.as_slice() {
        [frame] => format!(", in {}", text::terminal(frame)),
        _ => String::new(),
    };
    let idle = match worst.idle {
        Nanos(0) => String::new(),
        idle => format!(", idle {}", percent(idle, worst.blocked)),
    };
    let first = format!(
        "{:>9} {:>6}  {} {tid}: {on}{times}{seen}{idle}",
        worst.blocked,
        percent(worst.blocked, window),
        text::terminal(worst.comm),
    );
    let by_time = |parts: &BTreeMap<String, Nanos>| {
        let mut parts: Vec<_> = parts.iter().map(|(name, &time)| (name.clone(), time)).collect();
        parts.sort_by_key(|(_, time)| Reverse(*time));
        parts
    };
    let wakers = by_time(&worst.wakers);
    let mut named: Vec<_> = (wakers.iter().take(WAKERS))
        .map(|(name, time)| match wakers.len() {
            1 => name.clone(),
            _ => format!("{name} {}", percent(*time, worst.blocked)),
        })
        .collect();
    if wakers.len() > WAKERS {
        named.push(format!("{} more", wakers.len() - WAKERS));
    }
    let blame: Vec<_> = (by_time(&worst.blame).iter())
        .map(|(name, time)| format!("{name} {}", percent(*time, worst.blocked)))
        .collect();
    [
        first,
        format!("{:>18}<- {}", "", named.join(", ")),
        format!("{:>18} = {}", "", blame.join(", ")),
    ]
}

/// Who ended a wait, in words.
fn waker(wait: &WaitEntry) -> String {
    match &wait.waker {
        None => "nobody seen".to_owned(),
        Some(waker) => match (waker.kind, &waker.comm, waker.tid, &waker.vector) {
            (WakerKind::Task, Some(comm), Some(tid), _) => {
                format!("{} {tid}", text::terminal(comm))
            }
            (_, _, _, Some(vector)) => format!("interrupt ({vector})"),
            _ => "interrupt".to_owned(),
        },
    }
}

/// What some of the time was spent on, in words: `disk behind db 77`.
fn leaf(part: &BlameEntry) -> String {
    let last = part.chain.last().map(|hop| named(&hop.thread));
    match (part.kind, last) {
        (BlameWord::Work, Some(thread)) => format!("work of {thread}"),
        (BlameWord::CpuQueue, Some(thread)) => match &part.holder {
            Some(holder) => format!("{thread} queued behind {}", named(holder)),
            None => format!("{thread} queued for a CPU"),
        },
        (kind, behind) => {
            let what = part.reason.map_or(kind.name(), Reason::name);
            behind.map_or_else(|| what.to_owned(), |thread| format!("{what} behind {thread}"))
        }
    }
}

fn named(thread: &ThreadName) -> String {
    format!("{} {}", text::terminal(&thread.comm), thread.tid)
}

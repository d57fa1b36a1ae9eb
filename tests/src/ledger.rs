//! What is true of every report, whatever was profiled.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use crate::report::{Report, Thread, Waits};

const CAUSES: &[&str] = &[
    "futex",
    "socket",
    "pipe",
    "eventfd",
    "poll",
    "timer",
    "child",
    "signal",
    "disk",
    "page_fault",
    "kernel_lock",
    "io_uring",
    "tty",
    "stopped",
    "throttled",
    "file_lock",
    "sysv_sem",
    "sysv_msg",
    "mqueue",
    "inotify",
    "other",
];
const EXTERNAL: &[&str] = &["timer", "disk", "network", "device", "throttled"];
const ACCUSING: &[&str] = &["work", "cpu_queue"];
const UNATTRIBUTED: &str = "unattributed";
const LOST: &str = "lost";

/// Demands every invariant of the contract.
///
/// # Errors
///
/// When one does not hold, naming all that do not.
pub fn check(report: &Report) -> Result<()> {
    let mut wrong = Vec::new();
    check_window(report, &mut wrong);
    for thread in &report.threads {
        check_thread(thread, report.window.duration_ns, &mut wrong);
    }
    for waits in &report.waits {
        check_waits(waits, &mut wrong);
    }
    check_wakes(report, &mut wrong);
    fail_if_any(wrong)
}

/// Demands that the waits of each thread sum up to its ledger, blame and all: true of a report of
/// which nothing was filtered away. Time in gaps is in the ledger (`lost`), and in no wait.
///
/// # Errors
///
/// When one does not, naming all that do not.
pub fn check_unfiltered(report: &Report) -> Result<()> {
    let mut wrong = Vec::new();
    // By process too: a thread id may be used twice in one window.
    let mut sums: BTreeMap<(u32, u32), [u64; 4]> = BTreeMap::new();
    for thread in &report.threads {
        let sum = sums.entry((thread.tgid, thread.tid)).or_default();
        let ledger =
            [thread.blocked_ns, thread.attributed_ns, thread.external_ns, thread.unattributed_ns];
        for (sum, part) in sum.iter_mut().zip(ledger) {
            *sum += part;
        }
    }
    let mut gaps: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for thread in &report.threads {
        *gaps.entry((thread.tgid, thread.tid)).or_default() += thread.lost_ns();
    }
    let mut waited: BTreeMap<(u32, u32), [u64; 4]> = BTreeMap::new();
    for waits in &report.waits {
        let sum = waited.entry((waits.tgid, waits.tid)).or_default();
        sum[0] += waits.blocked_ns;
        for blame in &waits.blame {
            let part = match blame.kind.as_str() {
                kind if ACCUSING.contains(&kind) => 1,
                kind if EXTERNAL.contains(&kind) => 2,
                _ => 3,
            };
            sum[part] += blame.ns;
            if blame.reason.as_deref() == Some(LOST) {
                let gap = gaps.entry((waits.tgid, waits.tid)).or_default();
                *gap = gap.saturating_sub(blame.ns);
            }
        }
    }
    for (thread, ledger) in &sums {
        let mut waits = waited.remove(thread).unwrap_or_default();
        let gap = gaps.get(thread).copied().unwrap_or_default();
        waits[0] += gap;
        waits[3] += gap;
        if waits != *ledger {
            wrong.push(format!(
                "thread {thread:?}: blocked, attributed, external, unattributed are {ledger:?} in \
                 its ledger, {waits:?} in its waits"
            ));
        }
    }
    for thread in waited.keys() {
        wrong.push(format!("thread {thread:?} has waits, and no ledger"));
    }
    fail_if_any(wrong)
}

fn check_window(report: &Report, wrong: &mut Vec<String>) {
    let window = &report.window;
    if window.end_ns.checked_sub(window.start_ns) != Some(window.duration_ns) {
        wrong.push(format!("{window:?} is not as long as it says"));
    }
}

/// ```text
/// wall    = on-CPU + runnable + blocked
/// blocked = attributed + external + unattributed
/// ```
fn check_thread(thread: &Thread, window_ns: u64, wrong: &mut Vec<String>) {
    let sums = [
        (
            "wall = on_cpu + runnable + blocked",
            thread.wall_ns,
            thread.on_cpu_ns + thread.runnable_ns + thread.blocked_ns,
        ),
        (
            "blocked = attributed + external + unattributed",
            thread.blocked_ns,
            thread.attributed_ns + thread.external_ns + thread.unattributed_ns,
        ),
        ("external = the sum by kind", thread.external_ns, thread.external.values().sum()),
        (
            "unattributed = the sum by reason",
            thread.unattributed_ns,
            thread.unattributed.values().sum(),
        ),
    ];
    for (rule, left, right) in sums {
        if left != right {
            wrong.push(format!("{rule} does not hold, {left} against {right}: {thread:?}"));
        }
    }
    if thread.wall_ns > window_ns {
        wrong.push(format!("longer than the window: {thread:?}"));
    }
    for kind in thread.external.keys().filter(|kind| !EXTERNAL.contains(&kind.as_str())) {
        wrong.push(format!("no such external kind, {kind}: {thread:?}"));
    }
}

fn check_waits(waits: &Waits, wrong: &mut Vec<String>) {
    let blamed: u64 = waits.blame.iter().map(|blame| blame.ns).sum();
    if blamed != waits.blocked_ns {
        wrong.push(format!("the blame sums up to {blamed}: {waits:?}"));
    }
    if waits.count == 0 {
        wrong.push(format!("a wait that never was: {waits:?}"));
    }
    if !CAUSES.contains(&waits.cause.as_str()) {
        wrong.push(format!("no such cause: {waits:?}"));
    }
    for blame in &waits.blame {
        let kind = blame.kind.as_str();
        let named = blame.tid.is_some_and(|tid| tid != 0);
        let fits = if ACCUSING.contains(&kind) {
            named
        } else if kind == UNATTRIBUTED {
            blame.reason.as_deref().is_some_and(|reason| !reason.is_empty())
        } else {
            EXTERNAL.contains(&kind)
        };
        if !fits {
            wrong.push(format!("blame without its culprit or reason: {blame:?}"));
        }
    }
}

fn check_wakes(report: &Report, wrong: &mut Vec<String>) {
    let target: BTreeSet<u32> = report.tids().collect();
    let mut blocked: BTreeMap<u32, u64> = BTreeMap::new();
    for thread in &report.threads {
        *blocked.entry(thread.tid).or_default() += thread.blocked_ns;
    }
    let mut edges: BTreeMap<u32, u64> = BTreeMap::new();
    for wakes in &report.wakes {
        let waker = &wakes.waker;
        let fits = match waker.kind.as_str() {
            "task" => waker.tid.is_some_and(|tid| tid != 0),
            // An interrupt's wake never names a task.
            "softirq" | "hardirq" => waker.tid.is_none() && waker.comm.is_none(),
            _ => false,
        };
        if !fits {
            wrong.push(format!("a waker that is none: {wakes:?}"));
        }
        if target.contains(&wakes.wakee.tid) {
            *edges.entry(wakes.wakee.tid).or_default() += wakes.blocked_ns;
        }
    }
    for (tid, edges) in edges {
        let blocked = blocked.get(&tid).copied().unwrap_or_default();
        if edges > blocked {
            wrong.push(format!("thread {tid} was blocked {blocked}, its wakes say {edges}"));
        }
    }
}

fn fail_if_any(wrong: Vec<String>) -> Result<()> {
    if !wrong.is_empty() {
        bail!("the report is not true to its contract:\n{}", wrong.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 ns of one thread: 20 on the CPU, 10 runnable, 70 blocked, of which 40 on thread 8.
    const SOUND: &str = r#"{
        "schema": "offwake.report/1", "an": "addition",
        "meta": { "target": "pid 7", "sample_hz": 199, "closed_by": "duration" },
        "window": { "start_ns": 1000, "end_ns": 1100, "duration_ns": 100 },
        "recording": { "cut_off": false, "slices_damaged": 0, "slices_missing": 0 },
        "loss": { "records": 0, "stacks": 0, "gaps": 0, "gap_ns": 0 },
        "threads": [ { "tid": 7, "tgid": 5, "comm": "a", "samples": 1, "wall_ns": 100, "on_cpu_ns": 20,
            "runnable_ns": 10, "blocked_ns": 70, "attributed_ns": 40, "external_ns": 25,
            "unattributed_ns": 5, "external": { "timer": 25 },
            "unattributed": { "no_wakeup": 5 } } ],
        "wakes": [ { "waker": { "kind": "task", "tid": 8, "tgid": 5, "comm": "b" },
            "wakee": { "tid": 7, "tgid": 5, "comm": "a" },
            "cause": "futex", "count": 2, "blocked_ns": 65 } ],
        "waits": [ { "tid": 7, "tgid": 5, "comm": "a", "cause": "futex", "count": 2,
            "blocked_ns": 70, "stack": ["main", "futex_wait"], "blame": [
                { "kind": "work", "tid": 8, "tgid": 5, "comm": "b", "depth": 1, "ns": 40 },
                { "kind": "timer", "depth": 2, "ns": 25 },
                { "kind": "unattributed", "reason": "no_wakeup", "ns": 5 } ] } ] }"#;

    fn checked(text: &str) -> Result<()> {
        let report = Report::parse(text)?;
        check(&report).and_then(|()| check_unfiltered(&report))
    }

    #[test]
    fn a_sound_report_passes() -> Result<()> {
        checked(SOUND)
    }

    #[test]
    fn a_gap_is_in_the_ledger_and_in_no_wait() -> Result<()> {
        let gap = SOUND
            .replacen(r#""wall_ns": 100"#, r#""wall_ns": 97"#, 1)
            .replacen(r#""on_cpu_ns": 20"#, r#""on_cpu_ns": 10"#, 1)
            .replacen(r#""blocked_ns": 70"#, r#""blocked_ns": 77"#, 1)
            .replacen(r#""unattributed_ns": 5"#, r#""unattributed_ns": 12"#, 1)
            .replacen(r#""no_wakeup": 5 }"#, r#""no_wakeup": 5, "lost": 7 }"#, 1);
        checked(&gap)
    }

    #[test]
    fn every_breach_is_seen() {
        let breaches = [
            ("a window of another length", r#""duration_ns": 100"#, r#""duration_ns": 101"#),
            ("wall", r#""on_cpu_ns": 20"#, r#""on_cpu_ns": 21"#),
            ("blocked", r#""attributed_ns": 40"#, r#""attributed_ns": 41"#),
            ("external by kind", r#"{ "timer": 25 }"#, r#"{ "timer": 24 }"#),
            ("an external kind", r#"{ "timer": 25 }"#, r#"{ "luck": 25 }"#),
            ("unattributed by reason", r#"{ "no_wakeup": 5 }"#, "{ }"),
            ("blame", r#""depth": 1, "ns": 40"#, r#""depth": 1, "ns": 39"#),
            ("an accused that is idle", r#""work", "tid": 8"#, r#""work", "tid": 0"#),
            ("an accused without a name", r#""work", "tid": 8,"#, r#""work","#),
            ("no reason", r#""reason": "no_wakeup", "#, ""),
            (
                "a cause",
                r#""cause": "futex", "count": 2,
            "blocked_ns": 70"#,
                r#""cause": "fate", "count": 2,
            "blocked_ns": 70"#,
            ),
            ("an edge that is too long", r#""blocked_ns": 65"#, r#""blocked_ns": 71"#),
            ("an interrupt with a name", r#""kind": "task""#, r#""kind": "softirq""#),
            ("a waker that is idle", r#""task", "tid": 8"#, r#""task", "tid": 0"#),
            ("another schema", "report/1", "report/9"),
            (
                "blame of another kind than the ledger's",
                r#"{ "kind": "timer", "depth": 2,"#,
                r#"{ "kind": "work", "tid": 9, "depth": 2,"#,
            ),
        ];
        for (name, from, to) in breaches {
            let broken = SOUND.replacen(from, to, 1);
            assert_ne!(broken, SOUND, "{name}: nothing replaced");
            assert!(checked(&broken).is_err(), "{name} goes unseen");
        }
    }

    #[test]
    fn a_missing_key_is_an_error() {
        assert!(Report::parse(&SOUND.replacen("\"gap_ns\": 0", "\"gap\": 0", 1)).is_err());
    }
}

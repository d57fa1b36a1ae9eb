//! The lines above the frames: what the picture shows, what is missing in it, and its colours.

use std::{cmp::Reverse, collections::BTreeMap};

use chrono::DateTime;
use offwake_recording::units::Nanos;

use super::{
    palette::{self, Fill},
    picture::HeaderLine,
};
use crate::{
    blame::BlameClass,
    report::{
        Report,
        flame::{Direction, FlameGraphKind, View},
        loss_line::{describe_loss, loss_line},
        styled_lines::percent,
    },
};

/// Characters that fit into a line.
pub(super) const LONGEST_LINE: usize = 155;

/// Processes named in the header; the rest is counted.
const PROCESSES: usize = 4;

/// `redis-server 17531, redis-benchmark 17539 in load (PID 1 there)`
pub(super) fn describe_processes(report: &Report) -> String {
    let mut processes: Vec<_> = report.processes.iter().collect();
    // Those first that did something: most of what is blocked has nothing to do.
    processes.sort_by_key(|process| {
        let ledger = &process.ledger;
        let busy = ledger.on_cpu_ns + ledger.runnable_ns + ledger.attributed_ns;
        Reverse((busy, ledger.blocked_ns))
    });
    let names =
        processes.iter().map(|process| match (&process.container, process.pid_in_container) {
            (None, _) => format!("{} {}", process.comm, process.tgid),
            (Some(name), None) => format!("{} {} in {name}", process.comm, process.tgid),
            (Some(name), Some(pid)) => {
                format!("{} {} in {name} (PID {pid} there)", process.comm, process.tgid)
            }
        });
    let mut names: Vec<_> = names.take(PROCESSES).collect();
    if processes.len() > PROCESSES {
        names.push(format!("{} more", processes.len() - PROCESSES));
    }
    names.join(", ")
}

/// `10.0 s on web-1 from 2026-03-01 07:26:40 UTC`
pub(super) fn describe_window(report: &Report) -> String {
    let from = report.window.start_unix_ns;
    let from = from.map(|start| format!(" from {}", format_utc(start))).unwrap_or_default();
    let meta = &report.meta;
    let scope = if meta.scope == "target" { "; only the target's waits were recorded" } else { "" };
    format!("{} on {}{from}{scope}", report.window.duration_ns, meta.host)
}

/// How to read the picture, in one line.
pub(super) fn explain_view(view: &View) -> &'static str {
    match (view.graph, view.direction) {
        (FlameGraphKind::Chain, Direction::FromWaiter) => {
            "top: who waited, and where. Below each --: who woke it (the leaf of its stack first), then whom that one waited for. Bottom: what the time went to"
        }
        (FlameGraphKind::Chain, Direction::FromCulprit) => {
            "top: what the time went to, who did it, and where. Below each --: whom that one kept waiting. Bottom: who waited in the end"
        }
        (FlameGraphKind::OffWake, Direction::FromWaiter) => {
            "top: who waited, and where. Below --: who woke it, the leaf of its stack first. Colours: what the time went to"
        }
        (FlameGraphKind::OffWake, Direction::FromCulprit) => {
            "top: who woke others, and where. Below --: who waited, the leaf of its stack first. Colours: what the time went to"
        }
        (FlameGraphKind::OffCpu, Direction::FromWaiter) => {
            "top: who waited; below: where. Colours: what the time went to"
        }
        (FlameGraphKind::OffCpu, Direction::FromCulprit) => {
            "top: where it waited, the leaf of the stack first; bottom: who waited. Colours: what the time went to"
        }
    }
}

/// What was lost, what is wrong with the recording, what the filter left out.
pub(super) fn list_caveats(report: &Report) -> Vec<HeaderLine> {
    let mut lines = Vec::new();
    let line = loss_line(report);
    lines.push(match describe_loss(report) {
        None => HeaderLine::Text(line),
        Some(_) => HeaderLine::Strong(line),
    });
    lines.extend(report.warnings().into_iter().map(HeaderLine::Strong));
    lines.extend(report.limit_note().map(HeaderLine::Text));
    lines.extend(describe_filter(report).map(HeaderLine::Text));
    lines
}

/// What the filter left out, in words.
pub(super) fn describe_filter(report: &Report) -> Option<String> {
    let filter = &report.filter;
    let mut words = Vec::new();
    if filter.left_out_count > 0 {
        let idle = if filter.hide_idle { ", idle ones among them" } else { "" };
        let (count, time) = (filter.left_out_count, filter.left_out_ns);
        words.push(format!("{count} waits of {time}{idle}"));
    }
    words.extend(filter.hidden.iter().map(|(group, time)| format!("{time} of {group} time")));
    (!words.is_empty()).then(|| format!("left out: {}", words.join(", ")))
}

/// What each class is made of: the kinds of blame and the reasons, each with its time.
pub(super) type ClassParts = BTreeMap<BlameClass, BTreeMap<&'static str, Nanos>>;

/// The classes with their shares and what they are made of; those that the picture has none of are
/// left out.
pub(super) fn legend(times: &ClassParts) -> HeaderLine {
    let sum = |parts: &BTreeMap<&str, Nanos>| parts.values().copied().sum::<Nanos>();
    let all = times.values().map(sum).sum();
    HeaderLine::Legend(
        (times.iter())
            .map(|(&class, parts)| {
                let time = sum(parts);
                let made_of = match class {
                    BlameClass::HeldBack | BlameClass::Unattributed => {
                        format!(": {}", list_shares(parts, all))
                    }
                    _ => String::new(),
                };
                let words =
                    format!("{} {time}, {}{made_of}", class_words(class), percent(time, all));
                (palette::class_fill(class), words)
            })
            .collect(),
    )
}

fn list_shares(parts: &BTreeMap<&str, Nanos>, all: Nanos) -> String {
    let mut parts: Vec<_> = parts.iter().collect();
    parts.sort_by_key(|&(_, time)| Reverse(*time));
    let shares: Vec<_> =
        parts.into_iter().map(|(name, time)| format!("{name} {}", percent(*time, all))).collect();
    shares.join(", ")
}

/// What time of a class went to, as legends say it.
pub(super) fn class_words(class: BlameClass) -> &'static str {
    match class {
        BlameClass::Work => "runs on a CPU",
        BlameClass::CpuQueue => "waits for a CPU",
        BlameClass::Throttled => "is throttled by a CPU quota",
        BlameClass::Timer => "sleeps, or waits until a timeout",
        BlameClass::Disk => "waits for a disk",
        BlameClass::Network => "waits for the network",
        BlameClass::Device => "waits for a device",
        BlameClass::HeldBack => "stopped, deadlocked, or held back by TCP",
        BlameClass::Unattributed => "not known",
        BlameClass::Idle => "idle",
    }
}

/// Breaks lines that are too long into several.
pub(super) fn break_lines(lines: Vec<HeaderLine>) -> Vec<HeaderLine> {
    let break_text = |line: String, kind: fn(String) -> HeaderLine| -> Vec<HeaderLine> {
        let mut pieces = vec![String::new()];
        for word in line.split(' ') {
            let length = word.chars().count();
            if let Some(piece) = pieces.last_mut() {
                if piece.is_empty() {
                    piece.push_str(word);
                } else if piece.chars().count() + length < LONGEST_LINE {
                    piece.push(' ');
                    piece.push_str(word);
                } else {
                    pieces.push(word.to_owned());
                }
            }
        }
        pieces.into_iter().map(kind).collect()
    };
    (lines.into_iter())
        .flat_map(|line| match line {
            HeaderLine::Text(line) => break_text(line, HeaderLine::Text),
            HeaderLine::Strong(line) => break_text(line, HeaderLine::Strong),
            HeaderLine::Legend(entries) => {
                let mut lines: Vec<Vec<(Fill, String)>> = vec![Vec::new()];
                let mut taken = 0;
                for entry in entries {
                    // With its colour and the space between two.
                    let length = entry.1.chars().count() + 6;
                    if taken + length > LONGEST_LINE && taken > 0 {
                        lines.push(Vec::new());
                        taken = 0;
                    }
                    taken += length;
                    lines.last_mut().into_iter().for_each(|line| line.push(entry.clone()));
                }
                lines.into_iter().map(HeaderLine::Legend).collect()
            }
        })
        .collect()
}

/// Formats a Unix time in nanoseconds as `2026-03-01 07:26:40 UTC`.
fn format_utc(unix_ns: i64) -> String {
    DateTime::from_timestamp_nanos(unix_ns).format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::format_utc;

    #[test]
    fn times_are_those_of_utc() {
        assert_eq!(format_utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(format_utc(-1), "1969-12-31 23:59:59 UTC");
        assert_eq!(format_utc(1_772_350_001_999_999_999), "2026-03-01 07:26:41 UTC");
    }
}

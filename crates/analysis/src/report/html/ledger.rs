//! The ledgers of the page: what the whole target comes to, and each of its processes, cgroups and
//! threads.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use serde::Serialize;

use crate::report::{self, ContainerEntry, ProcessEntry, Report};

use super::{
    class::PageClass,
    texts::{TextId, Texts, describe_thread},
};

/// The most threads that have rows of their own; the same holds for processes and for cgroups.
const MAX_ROWS: usize = 6_000;

/// `wall, on_cpu, runnable, attributed, external, unattributed, idle`, in nanoseconds.
#[derive(Clone, Copy, Default, Serialize)]
#[serde(transparent)]
struct LedgerTimes([u64; 7]);

impl LedgerTimes {
    fn new(ledger: &report::LedgerEntry) -> Self {
        Self(
            [
                ledger.wall_ns,
                ledger.on_cpu_ns,
                ledger.runnable_ns,
                ledger.attributed_ns,
                ledger.external_ns,
                ledger.unattributed_ns,
                ledger.idle_ns,
            ]
            .map(|time| time.0),
        )
    }

    fn add(&mut self, other: Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }
}

#[derive(Serialize)]
struct LedgerRow {
    text: TextId,
    /// The process's id; none for a cgroup.
    process: Option<u32>,
    threads: u64,
    time: LedgerTimes,
}

/// Rows, those first that did most or were kept waiting most; the rest as one sum.
#[derive(Serialize)]
struct LedgerTable {
    rows: Vec<LedgerRow>,
    left_out: u64,
    left_out_time: LedgerTimes,
}

impl LedgerTable {
    fn new(mut rows: Vec<LedgerRow>) -> Self {
        rows.sort_by_key(|row| Reverse(active_time(row.time)));
        let mut left_out_time = LedgerTimes::default();
        let rest = rows.get(MAX_ROWS..).unwrap_or_default();
        rest.iter().for_each(|row| left_out_time.add(row.time));
        let left_out = rest.len() as u64;
        rows.truncate(MAX_ROWS);
        Self { rows, left_out, left_out_time }
    }
}

/// Returns the time that was not idle.
fn active_time(LedgerTimes([wall, .., idle]): LedgerTimes) -> u64 {
    wall.saturating_sub(idle)
}

/// All ledgers of the page.
#[derive(Serialize)]
pub(super) struct PageLedgers {
    total: LedgerTimes,
    /// How the blocked time divides, idle and asleep taken out of the other classes, in the order of
    /// [`PageClass::ALL`]. None where the filter keeps the waits that would tell.
    classes: Option<[u64; PageClass::ALL.len()]>,
    /// The parts of the blocked time by name: `attributed`, `external`, `unattributed`.
    parts: [BTreeMap<&'static str, u64>; 3],
    processes: LedgerTable,
    cgroups: LedgerTable,
    threads: LedgerTable,
}

/// Builds the ledgers of the target.
pub(super) fn build_ledgers(report: &Report, texts: &mut Texts<'_>) -> PageLedgers {
    let mut total = LedgerTimes::default();
    let mut parts = [const { BTreeMap::new() }; 3];
    for process in &report.processes {
        total.add(LedgerTimes::new(&process.ledger));
        let report::LedgerEntry { attributed, external, unattributed, .. } = &process.ledger;
        for (sums, named) in parts.iter_mut().zip([attributed, external, unattributed]) {
            for (&name, time) in named {
                let sum: &mut u64 = sums.entry(name).or_default();
                *sum = sum.saturating_add(time.0);
            }
        }
    }
    let processes = (report.processes.iter())
        .map(|process| LedgerRow {
            text: texts.id(&describe_process(process)),
            process: Some(process.tgid.0),
            threads: process.threads,
            time: LedgerTimes::new(&process.ledger),
        })
        .collect();
    let containers: HashMap<_, _> = (report.processes.iter())
        .filter_map(|process| Some((process.tgid, process.container.as_deref()?)))
        .collect();
    let threads = (report.threads.iter())
        .map(|thread| LedgerRow {
            text: texts.thread(&thread.comm, thread.tid, containers.get(&thread.tgid).copied()),
            process: Some(thread.tgid.0),
            threads: 1,
            time: LedgerTimes::new(&thread.ledger),
        })
        .collect();
    let cgroups = (report.cgroups.iter())
        .map(|cgroup| {
            let path = cgroup.path.clone().unwrap_or_else(|| format!("cgroup {}", cgroup.id.0));
            let known =
                report.containers.iter().find(|one| Some(&one.id) == cgroup.container.as_ref());
            let name =
                known.map_or(path.clone(), |one| format!("{path} ({})", describe_container(one)));
            LedgerRow {
                text: texts.id(&name),
                process: None,
                threads: cgroup.threads,
                time: LedgerTimes::new(&cgroup.ledger),
            }
        })
        .collect();
    PageLedgers {
        total,
        classes: sum_classes(report, total),
        parts,
        processes: LedgerTable::new(processes),
        cgroups: LedgerTable::new(cgroups),
        threads: LedgerTable::new(threads),
    }
}

/// `nginx 812 in web (PID 1 there)`
fn describe_process(process: &ProcessEntry) -> String {
    let name = describe_thread(&process.comm, process.tgid, process.container.as_deref());
    match process.pid_in_container {
        Some(pid) => format!("{name} (PID {pid} there)"),
        None => name,
    }
}

/// `container web of nginx:1.27, 4f1c…`
fn describe_container(container: &ContainerEntry) -> String {
    let image = container.image.as_ref().map(|image| format!(" of {image}")).unwrap_or_default();
    match container.name {
        Some(_) => format!("container {}{image}, {}", container.label, container.id),
        None => format!("container {}", container.id),
    }
}

/// Adds up the classes from the report's waits, if it has all of them. Gaps are no waits, and count
/// as unattributed.
fn sum_classes(report: &Report, total: LedgerTimes) -> Option<[u64; PageClass::ALL.len()]> {
    let mut sums = [0_u64; PageClass::ALL.len()];
    for wait in &report.waits {
        for blame in &wait.blame {
            let sum =
                &mut sums[PageClass::classify(wait, blame, report.window.duration_ns) as usize];
            *sum = sum.saturating_add(blame.ns.0);
        }
    }
    let [.., attributed, external, unattributed, _] = total.0;
    let blocked = attributed.saturating_add(external).saturating_add(unattributed);
    let known = sums.iter().fold(0, |sum: u64, &more| sum.saturating_add(more));
    (report.filter.left_out_count == 0 && report.filter.limited_count == 0).then(|| {
        let unattributed = &mut sums[PageClass::Unattributed as usize];
        *unattributed = unattributed.saturating_add(blocked.saturating_sub(known));
        sums
    })
}

//! `threads`: one row a thread's life inside the window, with its ledger.

use arrow_array::types::UInt32Type;
use offwake_recording::{
    stream::{
        code::Code as _,
        column::{Column, flags, numbers, optional, optional_times, times},
    },
    units::Nanos,
};

use super::{cgroups, comms, executables, wall_times};
use crate::{
    blame::{External, Ledger, Reason},
    export::{Export, dictionary::words},
    timeline::{Thread, ThreadIndex},
};

pub(super) fn columns(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows: Vec<(ThreadIndex, &Thread)> = (items.iter())
        .filter_map(|&item| Some((ThreadIndex(item), export.timeline.thread(ThreadIndex(item))?)))
        .collect();
    let threads = || rows.iter().map(|(_, thread)| *thread);
    let exits =
        threads().map(|thread| export.lookups.thread_exit(thread.tid, thread.from, thread.until));
    let mut columns = vec![
        wall_times(export, threads().map(|thread| thread.from)),
        times("from_ns", threads().map(|thread| thread.from.0)),
        times("until_ns", threads().map(|thread| thread.until.0)),
        optional_times("created_ns", threads().map(|thread| thread.created.map(|at| at.0))),
        numbers::<UInt32Type>("tid", threads().map(|thread| thread.tid.0)),
        numbers::<UInt32Type>("tgid", threads().map(|thread| thread.tgid.0)),
        comms("comm", rows.iter().map(|&(index, thread)| Some((index, thread, thread.until)))),
        words("thread_kind", threads().map(|thread| thread.kind.text())),
        flags("in_target", threads().map(|thread| thread.in_target)),
        executables(export, "executable", threads().map(|thread| (thread.tgid, thread.until))),
    ];
    let ids: Vec<_> =
        threads().map(|thread| export.lookups.thread_cgroup(thread.tid, thread.until)).collect();
    columns.extend(cgroups(export, &ids));
    columns.push(optional::<UInt32Type>("exit_status", exits.map(|exit| exit.map(|e| e.status))));
    columns.extend(ledgers(export, &rows));
    columns
}

fn ledgers(export: &Export<'_>, rows: &[(ThreadIndex, &Thread)]) -> Vec<Column> {
    let ledgers: Vec<Ledger> = rows.iter().map(|(index, _)| export.ledger(*index)).collect();
    let sums = |name, sum: fn(&Ledger) -> Nanos| times(name, ledgers.iter().map(|l| sum(l).0));
    let lost = Reason::Lost as usize;
    vec![
        sums("wall_ns", |ledger| ledger.wall),
        sums("on_cpu_ns", |ledger| ledger.on_cpu),
        sums("runnable_ns", |ledger| ledger.runnable),
        sums("blocked_ns", |ledger| ledger.blocked),
        sums("work_ns", |ledger| ledger.work),
        sums("cpu_queue_ns", |ledger| ledger.cpu_queue),
        sums("timer_ns", |ledger| ledger.external[External::Timer as usize]),
        sums("disk_ns", |ledger| ledger.external[External::Disk as usize]),
        sums("network_ns", |ledger| ledger.external[External::Network as usize]),
        sums("device_ns", |ledger| ledger.external[External::Device as usize]),
        sums("unattributed_ns", Ledger::unattributed),
        times("lost_ns", ledgers.iter().map(|ledger| ledger.unattributed[lost].0)),
        sums("runnable_throttled_ns", |ledger| ledger.throttled),
        sums("blocked_throttled_ns", |ledger| ledger.external[External::Throttled as usize]),
    ]
}

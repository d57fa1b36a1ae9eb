//! `preemptions` and `samples`: one row a record.

use arrow_array::types::{UInt16Type, UInt32Type, UInt64Type};
use offwake_recording::{
    Preemption,
    stream::{
        code::Code as _,
        column::{Column, Nulls, flags, numbers, optional, optional_times, times},
    },
};

use super::{
    bearer, cgroups, comms, executables, pick,
    runnable::{self, Off},
    wall_times,
};
use crate::export::{
    Export,
    dictionary::{Dictionary, words},
    stack_text::{join_frames, stack_number},
};

pub(super) fn preemptions(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows = pick(&export.recording.preemptions, items);
    let window = export.recording.meta.window;
    let bearers: Vec<_> = (rows.iter())
        .map(|row| {
            bearer(export, row.tid, row.off.clamp(window.start, window.end.max(window.start)))
        })
        .collect();
    let runnable = rows.iter().zip(&bearers).map(|(row, bearer)| {
        let Preemption { begin, end, off, on, .. } = **row;
        let off = Off { begin, end, runnable_from: off, on };
        bearer.map_or(0, |(_, thread, _)| runnable::part(thread, off).0)
    });
    let mut columns = vec![
        wall_times(export, rows.iter().map(|row| row.off)),
        times("off_ns", rows.iter().map(|row| row.off.0)),
        times("on_ns", rows.iter().map(|row| row.on.0)),
        optional_times("migrated_ns", rows.iter().map(|row| row.migrated.map(|at| at.0))),
        times("runnable_ns", runnable),
        words("begin", rows.iter().map(|row| row.begin.text())),
        words("end", rows.iter().map(|row| row.end.text())),
        numbers::<UInt32Type>("seq", rows.iter().map(|row| row.seq)),
        numbers::<UInt16Type>("off_cpu", rows.iter().map(|row| row.off_cpu.0)),
        numbers::<UInt16Type>("on_cpu", rows.iter().map(|row| row.on_cpu.0)),
        numbers::<UInt32Type>("tid", rows.iter().map(|row| row.tid.0)),
        numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
        comms("comm", bearers.iter().copied()),
        words("thread_kind", rows.iter().map(|row| row.kind.text())),
        flags("in_target", rows.iter().map(|row| row.in_target)),
        executables(export, "executable", rows.iter().map(|row| (row.tgid, row.off))),
    ];
    let ids: Vec<_> =
        rows.iter().map(|row| export.lookups.thread_cgroup(row.tid, row.off)).collect();
    columns.extend(cgroups(export, &ids));
    columns.push(numbers::<UInt32Type>("next_tid", rows.iter().map(|row| row.next.0)));
    let next = rows.iter().map(|row| bearer(export, row.next, row.off));
    columns.push(comms("next_comm", next));
    columns
}

pub(super) fn samples(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows = pick(&export.recording.samples, items);
    let bearers: Vec<_> = rows.iter().map(|row| bearer(export, row.tid, row.at)).collect();
    let mut columns = vec![
        wall_times(export, rows.iter().map(|row| row.at)),
        times("at_ns", rows.iter().map(|row| row.at.0)),
        numbers::<UInt16Type>("cpu", rows.iter().map(|row| row.cpu.0)),
        numbers::<UInt32Type>("tid", rows.iter().map(|row| row.tid.0)),
        numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
        comms("comm", bearers.iter().copied()),
        executables(export, "executable", rows.iter().map(|row| (row.tgid, row.at))),
    ];
    let ids: Vec<_> =
        rows.iter().map(|row| export.lookups.thread_cgroup(row.tid, row.at)).collect();
    columns.extend(cgroups(export, &ids));
    columns.push(optional::<UInt32Type>("seq", rows.iter().map(|row| row.seq)));
    let mut stacks = Dictionary::new();
    for row in &rows {
        let pair = (row.user_stack, row.kernel_stack);
        stacks.push(Some(pair), || join_frames(&export.recording.stacks, pair));
    }
    columns.push(stacks.column("stack", Nulls::Allowed));
    columns.push(optional::<UInt64Type>(
        "user_stack_id",
        rows.iter().map(|row| stack_number(row.user_stack)),
    ));
    let kernel = rows.iter().map(|row| stack_number(row.kernel_stack));
    columns.push(optional::<UInt64Type>("kernel_stack_id", kernel));
    columns
}

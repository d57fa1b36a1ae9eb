//! `markers`: what programs marked in their own code, one row a marker.

use arrow_array::types::UInt32Type;
use offwake_recording::stream::{
    code::Code as _,
    column::{Column, numbers, times},
};

use super::{bearer, cgroups, comms, executables, pick, wall_times};
use crate::export::{
    Export,
    dictionary::{all_names, words},
};

pub(super) fn columns(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows = pick(&export.recording.markers, items);
    let bearers: Vec<_> = rows.iter().map(|row| bearer(export, row.tid, row.at)).collect();
    let mut columns = vec![
        wall_times(export, rows.iter().map(|row| row.at)),
        times("at_ns", rows.iter().map(|row| row.at.0)),
        words("kind", rows.iter().map(|row| row.kind.text())),
        all_names("track", rows.iter().map(|row| &*row.track)),
        all_names("name", rows.iter().map(|row| &*row.name)),
        numbers::<UInt32Type>("tid", rows.iter().map(|row| row.tid.0)),
        numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
        comms("comm", bearers.iter().copied()),
        executables(export, "executable", rows.iter().map(|row| (row.tgid, row.at))),
    ];
    let ids: Vec<_> =
        rows.iter().map(|row| export.lookups.thread_cgroup(row.tid, row.at)).collect();
    columns.extend(cgroups(export, &ids));
    columns
}

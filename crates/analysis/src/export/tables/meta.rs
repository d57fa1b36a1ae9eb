//! `loss` and `meta`: what is missing, and what the recording is of.

use arrow_array::types::{UInt32Type, UInt64Type};
use offwake_recording::{
    Meta,
    stream::{
        Damage,
        code::Code as _,
        column::{Column, flags, numbers, optional, optional_times, times},
    },
};

use super::{pick, wall_times};
use crate::export::{
    Export,
    dictionary::{all_names, words},
};

pub(super) fn loss(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows = pick(&export.loss, items);
    vec![
        all_names("name", rows.iter().map(|row| row.name.as_str())),
        flags("is_total", rows.iter().map(|row| row.is_total)),
        numbers::<UInt64Type>("count", rows.iter().map(|row| row.count)),
        optional_times("first_ns", rows.iter().map(|row| row.first.map(|at| at.0))),
        optional_times("last_ns", rows.iter().map(|row| row.last.map(|at| at.0))),
    ]
}

pub(super) fn meta(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows = || items.iter().map(|_| &export.recording.meta);
    let damages = || items.iter().map(|_| &export.recording.damage);
    let texts = |name, text: fn(&Meta) -> &str| all_names(name, rows().map(text));
    let counts =
        |name, count: fn(&Damage) -> u64| numbers::<UInt64Type>(name, damages().map(count));
    vec![
        wall_times(export, rows().map(|meta| meta.window.start)),
        times("window_start_ns", rows().map(|meta| meta.window.start.0)),
        times("window_end_ns", rows().map(|meta| meta.window.end.0)),
        // The directory has the column `host`.
        texts("host_name", |meta| &meta.host),
        texts("boot_id", |meta| &meta.boot_id),
        texts("kernel", |meta| &meta.kernel),
        texts("offwake", |meta| &meta.version),
        texts("target", |meta| &meta.target),
        words("scope", rows().map(|meta| meta.scope.text())),
        words("stacks", rows().map(|meta| meta.stacks.text())),
        numbers::<UInt32Type>("sample_hz", rows().map(|meta| meta.sample_hz)),
        texts("options", |meta| &meta.options),
        words("closed_by", rows().map(|meta| meta.closed_by.text())),
        optional::<UInt32Type>("profiler_tgid", rows().map(|m| m.profiler.map(|tgid| tgid.0))),
        times("own_cpu_ns", rows().map(|meta| meta.own_cpu.0)),
        flags("cut_off", damages().map(|damage| damage.cut_off)),
        counts("slices_damaged", |damage| damage.slices_damaged),
        counts("slices_missing", |damage| damage.slices_missing),
        counts("tables_damaged", |damage| damage.tables_damaged),
        counts("rows_unreadable", |damage| damage.rows_unreadable),
        counts("bytes_skipped", |damage| damage.bytes_skipped),
    ]
}

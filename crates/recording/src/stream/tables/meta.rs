//! `meta`: what was recorded and how. One row as the window opens, one more as it closes.

use arrow_array::{
    Array as _, StructArray,
    types::{UInt8Type, UInt32Type},
};

use super::{Rows, Table, required_code};
use crate::{
    Meta, Window,
    stream::{
        TableError,
        code::Code as _,
        column::{Column, Numbers, Texts, Times, numbers, optional, texts, times},
    },
    units::{Nanos, Tgid, Timestamp},
};

impl Table for Meta {
    const NAME: &'static str = "meta";

    fn columns(rows: &[Self]) -> Vec<Column> {
        vec![
            texts("offwake", rows.iter().map(|row| row.version.as_str())),
            texts("host", rows.iter().map(|row| row.host.as_str())),
            texts("kernel", rows.iter().map(|row| row.kernel.as_str())),
            texts("boot_id", rows.iter().map(|row| row.boot_id.as_str())),
            texts("target", rows.iter().map(|row| row.target.as_str())),
            numbers::<UInt8Type>("scope", rows.iter().map(|row| row.scope.code())),
            numbers::<UInt8Type>("stacks", rows.iter().map(|row| row.stacks.code())),
            numbers::<UInt32Type>("sample_hz", rows.iter().map(|row| row.sample_hz)),
            texts("options", rows.iter().map(|row| row.options.as_str())),
            times("window_start_ns", rows.iter().map(|row| row.window.start.0)),
            times("window_end_ns", rows.iter().map(|row| row.window.end.0)),
            times("own_cpu_ns", rows.iter().map(|row| row.own_cpu.0)),
            numbers::<UInt8Type>("closed_by", rows.iter().map(|row| row.closed_by.code())),
            optional::<UInt32Type>("profiler_tgid", rows.iter().map(|r| r.profiler.map(|p| p.0))),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let version = Texts::find(table, "offwake")?;
        let host = Texts::find(table, "host")?;
        let kernel = Texts::find(table, "kernel")?;
        let boot_id = Texts::find(table, "boot_id")?;
        let target = Texts::find(table, "target")?;
        let scope = Numbers::<UInt8Type>::find(table, "scope")?;
        let stacks = Numbers::<UInt8Type>::find(table, "stacks")?;
        let sample_hz = Numbers::<UInt32Type>::find(table, "sample_hz")?;
        let options = Texts::find(table, "options")?;
        let start = Times::find(table, "window_start_ns")?;
        let end = Times::find(table, "window_end_ns")?;
        let own_cpu = Times::find(table, "own_cpu_ns")?;
        let closed_by = Numbers::<UInt8Type>::find(table, "closed_by")?;
        let profiler = Numbers::<UInt32Type>::find(table, "profiler_tgid")?;
        Ok(Rows::collect(table.len(), |row| {
            let window = Window { start: Timestamp(start.at(row)), end: Timestamp(end.at(row)) };
            if window.end < window.start {
                return None;
            }
            Some(Self {
                window,
                target: target.at(row),
                scope: required_code(&scope, row)?,
                stacks: required_code(&stacks, row)?,
                sample_hz: sample_hz.at(row),
                options: options.at(row),
                kernel: kernel.at(row),
                host: host.at(row),
                boot_id: boot_id.at(row),
                own_cpu: Nanos(own_cpu.at(row)),
                version: version.at(row),
                closed_by: required_code(&closed_by, row)?,
                profiler: profiler.get(row).map(Tgid),
            })
        }))
    }
}

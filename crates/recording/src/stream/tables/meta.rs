//! `meta`: what was recorded and how. One row as the window opens, one more as it closes.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, required_code};
use crate::{
    Meta, Window,
    stream::{
        TableError,
        code::Code as _,
        column::{Column, OptionalU32, Text, Time, U8, U32, columns},
    },
    units::{Nanos, Tgid, Timestamp},
};

columns! {
    MetaColumns of row: Meta {
        offwake: Text = row.version.as_str(),
        host: Text = row.host.as_str(),
        kernel: Text = row.kernel.as_str(),
        boot_id: Text = row.boot_id.as_str(),
        target: Text = row.target.as_str(),
        scope: U8 = row.scope.code(),
        stacks: U8 = row.stacks.code(),
        sample_hz: U32 = row.sample_hz,
        options: Text = row.options.as_str(),
        window_start_ns: Time = row.window.start.0,
        window_end_ns: Time = row.window.end.0,
        own_cpu_ns: Time = row.own_cpu.0,
        closed_by: U8 = row.closed_by.code(),
        profiler_tgid: OptionalU32 = row.profiler.map(|profiler| profiler.0),
    }
}

impl Table for Meta {
    const NAME: &'static str = "meta";

    fn columns(rows: &[Self]) -> Vec<Column> {
        MetaColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = MetaColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let window = Window {
                start: Timestamp(columns.window_start_ns.at(row)),
                end: Timestamp(columns.window_end_ns.at(row)),
            };
            if window.end < window.start {
                return None;
            }
            Some(Self {
                window,
                target: columns.target.at(row),
                scope: required_code(&columns.scope, row)?,
                stacks: required_code(&columns.stacks, row)?,
                sample_hz: columns.sample_hz.at(row),
                options: columns.options.at(row),
                kernel: columns.kernel.at(row),
                host: columns.host.at(row),
                boot_id: columns.boot_id.at(row),
                own_cpu: Nanos(columns.own_cpu_ns.at(row)),
                version: columns.offwake.at(row),
                closed_by: required_code(&columns.closed_by, row)?,
                profiler: columns.profiler_tgid.get(row).map(Tgid),
            })
        }))
    }
}

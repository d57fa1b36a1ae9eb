//! `io_limits`: which I/O limits of cgroups processes are under, a row each.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    IoAmounts, IoLimit,
    stream::{
        TableError,
        column::{Column, Text, Time, U32, U64, columns},
    },
    units::{Nanos, Tgid},
};

columns! {
    IoLimitColumns of row: IoLimit {
        tgid: U32 = row.tgid.0,
        path: Text = row.path.as_str(),
        device: U32 = row.device,
        block_device: Text = row.block_device.as_str(),
        max_read_bytes: U64 = row.per_second.read_bytes,
        max_written_bytes: U64 = row.per_second.written_bytes,
        max_reads: U64 = row.per_second.reads,
        max_writes: U64 = row.per_second.writes,
        read_bytes: U64 = row.used.read_bytes,
        written_bytes: U64 = row.used.written_bytes,
        reads: U64 = row.used.reads,
        writes: U64 = row.used.writes,
        counted_ns: Time = row.counted_for.0,
    }
}

impl Table for IoLimit {
    const NAME: &'static str = "io_limits";

    fn columns(rows: &[Self]) -> Vec<Column> {
        IoLimitColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = IoLimitColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                tgid: Tgid(columns.tgid.at(row)),
                path: columns.path.at(row),
                device: columns.device.at(row),
                block_device: columns.block_device.at(row),
                per_second: IoAmounts {
                    read_bytes: columns.max_read_bytes.at(row),
                    written_bytes: columns.max_written_bytes.at(row),
                    reads: columns.max_reads.at(row),
                    writes: columns.max_writes.at(row),
                },
                used: IoAmounts {
                    read_bytes: columns.read_bytes.at(row),
                    written_bytes: columns.written_bytes.at(row),
                    reads: columns.reads.at(row),
                    writes: columns.writes.at(row),
                },
                counted_for: Nanos(columns.counted_ns.at(row)),
            })
        }))
    }
}

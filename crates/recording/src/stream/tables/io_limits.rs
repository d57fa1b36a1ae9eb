//! `io_limits`: which I/O limits of cgroups processes are under, a row each.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    DeviceRequests, IoAmounts, IoLimit, UsedUpTimes,
    stream::{
        TableError,
        column::{Column, Later, OptionalTime, OptionalU64, Text, Time, U32, U64, columns},
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
        read_bytes_used_up_ns: Later<OptionalTime> = row.used_up_for.map(|it| it.read_bytes.0),
        written_bytes_used_up_ns: Later<OptionalTime> = row.used_up_for.map(|it| it.written_bytes.0),
        reads_used_up_ns: Later<OptionalTime> = row.used_up_for.map(|it| it.reads.0),
        writes_used_up_ns: Later<OptionalTime> = row.used_up_for.map(|it| it.writes.0),
        device_reads: Later<OptionalU64> = row.device_requests.map(|it| it.reads),
        device_read_ns: Later<OptionalTime> = row.device_requests.map(|it| it.read_time.0),
        device_writes: Later<OptionalU64> = row.device_requests.map(|it| it.writes),
        device_write_ns: Later<OptionalTime> = row.device_requests.map(|it| it.write_time.0),
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
                used_up_for: columns.used_up_for(row),
                device_requests: columns.device_requests(row),
            })
        }))
    }
}

impl IoLimitColumns<'_> {
    fn used_up_for(&self, row: usize) -> Option<UsedUpTimes> {
        Some(UsedUpTimes {
            read_bytes: Nanos(self.read_bytes_used_up_ns.as_ref()?.get(row)?),
            written_bytes: Nanos(self.written_bytes_used_up_ns.as_ref()?.get(row)?),
            reads: Nanos(self.reads_used_up_ns.as_ref()?.get(row)?),
            writes: Nanos(self.writes_used_up_ns.as_ref()?.get(row)?),
        })
    }

    fn device_requests(&self, row: usize) -> Option<DeviceRequests> {
        Some(DeviceRequests {
            reads: self.device_reads.as_ref()?.get(row)?,
            read_time: Nanos(self.device_read_ns.as_ref()?.get(row)?),
            writes: self.device_writes.as_ref()?.get(row)?,
            write_time: Nanos(self.device_write_ns.as_ref()?.get(row)?),
        })
    }
}

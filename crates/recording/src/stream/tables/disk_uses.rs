//! `disk_uses`: what each process read from each block device and wrote to it, a row each.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    DiskUse,
    stream::{
        TableError,
        column::{Column, Text, U32, U64, columns},
    },
    units::Tgid,
};

columns! {
    DiskUseColumns of row: DiskUse {
        tgid: U32 = row.tgid.0,
        comm: Text = row.comm.as_str(),
        device: U32 = row.device,
        block_device: Text = row.block_device.as_str(),
        disks: Text = row.disks.as_str(),
        read_bytes: U64 = row.read_bytes,
        submitted_bytes: U64 = row.submitted_bytes,
        dirtied_bytes: U64 = row.dirtied_bytes,
    }
}

impl Table for DiskUse {
    const NAME: &'static str = "disk_uses";

    fn columns(rows: &[Self]) -> Vec<Column> {
        DiskUseColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = DiskUseColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                tgid: Tgid(columns.tgid.at(row)),
                comm: columns.comm.at(row),
                device: columns.device.at(row),
                block_device: columns.block_device.at(row),
                disks: columns.disks.at(row),
                read_bytes: columns.read_bytes.at(row),
                submitted_bytes: columns.submitted_bytes.at(row),
                dirtied_bytes: columns.dirtied_bytes.at(row),
            })
        }))
    }
}

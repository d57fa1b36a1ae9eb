//! `filesystems`: those on block devices and of file servers, a row each.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    Filesystem,
    stream::{
        TableError,
        column::{Column, Later, OptionalText, Text, U32, columns},
    },
};

columns! {
    FilesystemColumns of row: Filesystem {
        device: U32 = row.device,
        kind: Text = row.kind.as_str(),
        mount_point: Text = row.mount_point.as_str(),
        block_device: Text = row.block_device.as_str(),
        disks: Text = row.disks.as_str(),
        server: Later<OptionalText> = row.is_remote().then(|| row.server.as_str().into()),
    }
}

impl Table for Filesystem {
    const NAME: &'static str = "filesystems";

    fn columns(rows: &[Self]) -> Vec<Column> {
        FilesystemColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = FilesystemColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let server = columns.server.as_ref().and_then(|texts| texts.get(row));
            Some(Self {
                device: columns.device.at(row),
                kind: columns.kind.at(row),
                mount_point: columns.mount_point.at(row),
                block_device: columns.block_device.at(row),
                disks: columns.disks.at(row),
                server: server.unwrap_or_default(),
            })
        }))
    }
}

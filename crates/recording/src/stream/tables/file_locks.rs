//! `file_locks`: locks on files that somebody still waited for at the end, one row for each waiter.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    AwaitedFileLock, PeerProcess,
    stream::{
        TableError,
        column::{Column, OptionalU32, Text, U32, U64, columns},
    },
    units::Tgid,
};

columns! {
    FileLockColumns of row: AwaitedFileLock {
        device: U32 = row.device,
        inode: U64 = row.inode,
        waiter_tgid: OptionalU32 = row.waiter.map(|tgid| tgid.0),
        holder_tgid: OptionalU32 = row.holder.as_ref().map(|holder| holder.tgid.0),
        holder_comm: Text = row.holder.as_ref().map_or("", |holder| holder.comm.as_str()),
    }
}

impl Table for AwaitedFileLock {
    const NAME: &'static str = "file_locks";

    fn columns(rows: &[Self]) -> Vec<Column> {
        FileLockColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = FileLockColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let comm = columns.holder_comm.at(row);
            Some(Self {
                device: columns.device.at(row),
                inode: columns.inode.at(row),
                waiter: columns.waiter_tgid.get(row).map(Tgid),
                holder: (columns.holder_tgid.get(row))
                    .map(|tgid| PeerProcess { tgid: Tgid(tgid), comm }),
            })
        }))
    }
}

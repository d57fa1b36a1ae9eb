//! `file_lock_events`: what happened to locks on files that threads were refused, one row an event.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, required_code};
use crate::{
    FileLockEvent,
    stream::{
        TableError,
        code::Code as _,
        column::{Column, OptionalU32, Time, U8, U32, U64, columns},
    },
    units::{Tgid, Tid, Timestamp},
};

columns! {
    FileLockEventColumns of row: FileLockEvent {
        at_ns: Time = row.at.0,
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        kind: U8 = row.kind.code(),
        holder_tgid: OptionalU32 = row.holder.map(|tgid| tgid.0),
        device: U32 = row.device,
        inode: U64 = row.inode,
    }
}

impl Table for FileLockEvent {
    const NAME: &'static str = "file_lock_events";

    fn columns(rows: &[Self]) -> Vec<Column> {
        FileLockEventColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = FileLockEventColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                at: Timestamp(columns.at_ns.at(row)),
                tid: Tid(columns.tid.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                kind: required_code(&columns.kind, row)?,
                holder: columns.holder_tgid.get(row).map(Tgid),
                device: columns.device.at(row),
                inode: columns.inode.at(row),
            })
        }))
    }
}

//! `lock_owners`: who held the locks in memory that somebody still waited for at the end, one row for
//! each waiter.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, required_code};
use crate::{
    LockOwner, ThreadRef,
    stream::{
        TableError,
        code::Code,
        column::{Column, Text, U8, U32, U64, columns},
    },
    units::{Tgid, Tid},
};

columns! {
    LockOwnerColumns of row: LockOwner {
        waiter_tid: U32 = row.waiter.0,
        futex: U64 = row.futex,
        kind: U8 = row.kind.code(),
        owner_tid: U32 = row.owner.tid.0,
        owner_tgid: U32 = row.owner.tgid.0,
        owner_comm: Text = row.owner_comm.as_str(),
    }
}

impl Table for LockOwner {
    const NAME: &'static str = "lock_owners";

    fn columns(rows: &[Self]) -> Vec<Column> {
        LockOwnerColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = LockOwnerColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let owner = ThreadRef {
                tid: Tid(columns.owner_tid.at(row)),
                tgid: Tgid(columns.owner_tgid.at(row)),
            };
            Some(Self {
                waiter: Tid(columns.waiter_tid.at(row)),
                futex: columns.futex.at(row),
                kind: required_code(&columns.kind, row)?,
                owner,
                owner_comm: columns.owner_comm.at(row),
            })
        }))
    }
}

//! `awaited_children`: the children that threads waited for by a descriptor at the end, one row for
//! each thread.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    AwaitedChild,
    stream::{
        TableError,
        column::{Column, U32, columns},
    },
    units::{Tgid, Tid},
};

columns! {
    AwaitedChildColumns of row: AwaitedChild {
        waiter_tid: U32 = row.waiter.0,
        child_tgid: U32 = row.child.0,
    }
}

impl Table for AwaitedChild {
    const NAME: &'static str = "awaited_children";

    fn columns(rows: &[Self]) -> Vec<Column> {
        AwaitedChildColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = AwaitedChildColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let (waiter, child) = (columns.waiter_tid.at(row), columns.child_tgid.at(row));
            Some(Self { waiter: Tid(waiter), child: Tgid(child) })
        }))
    }
}

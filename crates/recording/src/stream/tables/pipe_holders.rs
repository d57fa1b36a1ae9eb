//! `pipe_holders`: who had pipes open at which somebody still waited at the end, one row for each
//! process and pipe.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, required_code};
use crate::{
    PeerProcess, PipeHolder,
    stream::{
        TableError,
        code::Code,
        column::{Column, Text, U8, U32, U64, columns},
    },
    units::Tgid,
};

columns! {
    PipeHolderColumns of row: PipeHolder {
        device: U32 = row.device,
        inode: U64 = row.inode,
        ends: U8 = row.ends.code(),
        holder_tgid: U32 = row.holder.tgid.0,
        holder_comm: Text = row.holder.comm.as_str(),
    }
}

impl Table for PipeHolder {
    const NAME: &'static str = "pipe_holders";

    fn columns(rows: &[Self]) -> Vec<Column> {
        PipeHolderColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = PipeHolderColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                device: columns.device.at(row),
                inode: columns.inode.at(row),
                ends: required_code(&columns.ends, row)?,
                holder: PeerProcess {
                    tgid: Tgid(columns.holder_tgid.at(row)),
                    comm: columns.holder_comm.at(row),
                },
            })
        }))
    }
}

//! `fuse_servers`: who serves FUSE filesystems, one row for each process and connection.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    FuseServer, PeerProcess,
    stream::{
        TableError,
        column::{Column, OptionalU32, Text, U32, columns},
    },
    units::Tgid,
};

columns! {
    FuseServerColumns of row: FuseServer {
        device: OptionalU32 = row.device,
        unanswered: OptionalU32 = row.unanswered,
        server_tgid: U32 = row.server.tgid.0,
        server_comm: Text = row.server.comm.as_str(),
    }
}

impl Table for FuseServer {
    const NAME: &'static str = "fuse_servers";

    fn columns(rows: &[Self]) -> Vec<Column> {
        FuseServerColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = FuseServerColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                device: columns.device.get(row),
                unanswered: columns.unanswered.get(row),
                server: PeerProcess {
                    tgid: Tgid(columns.server_tgid.at(row)),
                    comm: columns.server_comm.at(row),
                },
            })
        }))
    }
}

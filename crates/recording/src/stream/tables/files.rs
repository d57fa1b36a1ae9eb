//! `files`: one row a file that was waited on, or woken through. A later row about the same file replaces
//! an earlier one.

use arrow_array::{Array as _, StructArray, types::UInt32Type};

use super::{Rows, Table, file_id, optional_code, required_code};
use crate::{
    FileId, OpenFile, PeerProcess, SocketEnd,
    stream::{
        TableError,
        code::Code,
        column::{
            Column, Later, NumberList, OptionalText, OptionalU8, TextList, U8, U32, U64, columns,
        },
    },
    units::Tgid,
};

columns! {
    FileColumns of row: (FileId, OpenFile) {
        device: U32 = row.0.device,
        inode: U64 = row.0.inode,
        file_kind: U8 = row.0.kind.code(),
        name: OptionalText = name(&row.1).map(Into::into),
        protocol: OptionalText = socket(&row.1).map(|socket| socket.protocol.as_str().into()),
        local: OptionalText = socket(&row.1).map(|socket| socket.local.as_str().into()),
        remote: OptionalText = socket(&row.1).map(|socket| socket.remote.as_str().into()),
        role: Later<OptionalU8> = socket(&row.1).and_then(|socket| socket.role).map(Code::code),
        peer_tgids: NumberList<UInt32Type> = peers(&row.1).map(|peer| peer.tgid.0).collect(),
        peer_comms: TextList = peers(&row.1).map(|peer| peer.comm.as_str()).collect(),
    }
}

impl Table for (FileId, OpenFile) {
    const NAME: &'static str = "files";

    fn columns(rows: &[Self]) -> Vec<Column> {
        FileColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = FileColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let kind = required_code(&columns.file_kind, row)?;
            let id = file_id(columns.device.at(row), columns.inode.at(row), kind);
            let open = match (columns.name.get(row), columns.protocol.get(row)) {
                (Some(name), _) => OpenFile::Named(name),
                (None, Some(protocol)) => {
                    let (tgids, tgid_range) = columns.peer_tgids.at(row);
                    let (comms, comm_range) = columns.peer_comms.at(row);
                    let peers = tgid_range.zip(comm_range).map(|(tgid, comm)| PeerProcess {
                        tgid: Tgid(tgids.value(tgid)),
                        comm: comms.value(comm).to_owned(),
                    });
                    OpenFile::Socket(SocketEnd {
                        protocol,
                        local: columns.local.get(row).unwrap_or_default(),
                        remote: columns.remote.get(row).unwrap_or_default(),
                        role: match &columns.role {
                            Some(role) => optional_code(role, row)?,
                            None => None,
                        },
                        peers: peers.collect(),
                    })
                }
                (None, None) => return None,
            };
            Some((id, open))
        }))
    }
}

fn name(open: &OpenFile) -> Option<&str> {
    match open {
        OpenFile::Socket(_) => None,
        OpenFile::Named(name) => Some(name),
    }
}

fn socket(open: &OpenFile) -> Option<&SocketEnd> {
    match open {
        OpenFile::Socket(socket) => Some(socket),
        OpenFile::Named(_) => None,
    }
}

fn peers(open: &OpenFile) -> impl Iterator<Item = &PeerProcess> {
    socket(open).into_iter().flat_map(|socket| &socket.peers)
}

//! `files`: one row a file that was waited on, or woken through. A later row about the same file replaces an earlier one.

use std::sync::Arc;

use arrow_array::{
    Array as _, StringArray, StructArray, UInt32Array,
    types::{UInt8Type, UInt32Type, UInt64Type},
};

use super::{Rows, Table, file_id, optional_code, required_code};
use crate::{
    FileId, OpenFile, PeerProcess, SocketEnd,
    stream::{
        TableError,
        code::Code,
        column::{
            Column, Lists, Numbers, Texts, if_there, lists, numbers, optional, optional_texts,
        },
    },
    units::Tgid,
};

impl Table for (FileId, OpenFile) {
    const NAME: &'static str = "files";

    fn columns(rows: &[Self]) -> Vec<Column> {
        let sockets = || rows.iter().map(|(_, open)| socket(open));
        let peers = || sockets().map(|socket| socket.map_or(&[][..], |socket| &socket.peers));
        let names = rows.iter().map(|(_, open)| match open {
            OpenFile::Socket(_) => None,
            OpenFile::Named(name) => Some(name.as_str()),
        });
        let tgids = UInt32Array::from_iter_values(peers().flatten().map(|peer| peer.tgid.0));
        let comms = StringArray::from_iter_values(peers().flatten().map(|peer| &peer.comm));
        vec![
            numbers::<UInt32Type>("device", rows.iter().map(|(id, _)| id.device)),
            numbers::<UInt64Type>("inode", rows.iter().map(|(id, _)| id.inode)),
            numbers::<UInt8Type>("file_kind", rows.iter().map(|(id, _)| id.kind.code())),
            optional_texts("name", names),
            optional_texts("protocol", sockets().map(|s| s.map(|s| s.protocol.as_str()))),
            optional_texts("local", sockets().map(|s| s.map(|s| s.local.as_str()))),
            optional_texts("remote", sockets().map(|s| s.map(|s| s.remote.as_str()))),
            optional::<UInt8Type>("role", sockets().map(|s| s?.role.map(Code::code))),
            lists("peer_tgids", peers().map(<[_]>::len), Arc::new(tgids)),
            lists("peer_comms", peers().map(<[_]>::len), Arc::new(comms)),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let device = Numbers::<UInt32Type>::find(table, "device")?;
        let inode = Numbers::<UInt64Type>::find(table, "inode")?;
        let kind = Numbers::<UInt8Type>::find(table, "file_kind")?;
        let name = Texts::find(table, "name")?;
        let protocol = Texts::find(table, "protocol")?;
        let local = Texts::find(table, "local")?;
        let remote = Texts::find(table, "remote")?;
        let role = if_there(Numbers::<UInt8Type>::find(table, "role"))?;
        let tgids = Lists::<UInt32Array>::find(table, "peer_tgids")?;
        let comms = Lists::<StringArray>::find(table, "peer_comms")?;
        Ok(Rows::collect(table.len(), |row| {
            let id = file_id(device.at(row), inode.at(row), required_code(&kind, row)?);
            let open = match (name.get(row), protocol.get(row)) {
                (Some(name), _) => OpenFile::Named(name),
                (None, Some(protocol)) => {
                    let ((tgids, which), (comms, named)) = (tgids.at(row), comms.at(row));
                    let peers = which.zip(named).map(|(tgid, comm)| PeerProcess {
                        tgid: Tgid(tgids.value(tgid)),
                        comm: comms.value(comm).to_owned(),
                    });
                    OpenFile::Socket(SocketEnd {
                        protocol,
                        local: local.get(row).unwrap_or_default(),
                        remote: remote.get(row).unwrap_or_default(),
                        role: match &role {
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

fn socket(open: &OpenFile) -> Option<&SocketEnd> {
    match open {
        OpenFile::Socket(socket) => Some(socket),
        OpenFile::Named(_) => None,
    }
}

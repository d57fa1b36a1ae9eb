//! `processes`, `cgroups` and `files`: what the numbers in the records stand for.

use arrow_array::types::{UInt32Type, UInt64Type};
use offwake_recording::{
    ContainerId, FileId, OpenFile, SocketEnd,
    stream::{
        code::Code,
        column::{Column, Nulls, numbers, optional, times},
    },
};

use super::{pick, wall_times};
use crate::{
    export::{
        Export,
        dictionary::{Dictionary, all_names, names, optional_words, words},
    },
    waited_on_entry,
};

pub(super) fn processes(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows = pick(&export.recording.processes, items);
    let mut commands = Dictionary::new();
    for row in &rows {
        commands.push(Some(&row.arguments), || {
            (!row.arguments.is_empty()).then(|| row.arguments.join(" "))
        });
    }
    let containers: Vec<Option<ContainerId>> = (rows.iter())
        .map(|row| row.cgroup.as_deref().and_then(ContainerId::from_cgroup_path))
        .collect();
    vec![
        wall_times(export, rows.iter().map(|row| row.at)),
        times("at_ns", rows.iter().map(|row| row.at.0)),
        numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
        optional::<UInt32Type>("parent_tgid", rows.iter().map(|row| row.parent.map(|p| p.0))),
        names("executable", rows.iter().map(|row| row.executable.as_deref())),
        commands.column("command_line", Nulls::Allowed),
        names("cgroup", rows.iter().map(|row| row.cgroup.as_deref())),
        names("container", containers.iter().map(|id| id.as_ref().map(ContainerId::as_str))),
        optional::<UInt32Type>("pid_in_container", rows.iter().map(|row| row.pid_in_container)),
        optional::<UInt32Type>("uid", rows.iter().map(|row| row.uid)),
    ]
}

pub(super) fn cgroups(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows: Vec<_> = (pick(&export.cgroups, items).into_iter())
        .filter_map(|id| export.recording.cgroups.get(id))
        .collect();
    let mut pods = Dictionary::new();
    for row in &rows {
        pods.push(Some(&row.names.pod), || row.names.pod.as_ref().map(ToString::to_string));
    }
    vec![
        numbers::<UInt64Type>("id", rows.iter().map(|row| row.id.0)),
        all_names("path", rows.iter().map(|row| row.path.as_str())),
        names("container", rows.iter().map(|r| r.container.as_ref().map(ContainerId::as_str))),
        names("container_name", rows.iter().map(|row| row.names.name.as_deref())),
        names("image", rows.iter().map(|row| row.names.image.as_deref())),
        pods.column("pod", Nulls::Allowed),
    ]
}

pub(super) fn files(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let table = &export.recording.files;
    let rows: Vec<(&FileId, &OpenFile)> = (pick(&export.files, items).into_iter())
        .filter_map(|id| table.files.get_key_value(id))
        .collect();
    let sockets = || rows.iter().map(|(_, file)| socket(file));
    let (mut texts, mut peers) = (Dictionary::new(), Dictionary::new());
    for (id, file) in &rows {
        texts.push(Some(id), || Some(waited_on_entry::file_text(table, **id)));
        peers.push(Some(id), || socket(file).and_then(peers_of));
    }
    vec![
        numbers::<UInt32Type>("device", rows.iter().map(|(id, _)| id.device)),
        numbers::<UInt64Type>("inode", rows.iter().map(|(id, _)| id.inode)),
        words("file_kind", rows.iter().map(|(id, _)| id.kind.text())),
        texts.column("text", Nulls::None),
        names("protocol", sockets().map(|s| s.map(|socket| socket.protocol.as_str()))),
        names("local", sockets().map(|s| s.map(|socket| socket.local.as_str()))),
        names("remote", sockets().map(|s| s.map(|socket| socket.remote.as_str()))),
        optional_words("role", sockets().map(|socket| socket?.role.map(Code::text))),
        peers.column("peers", Nulls::Allowed),
    ]
}

fn socket(file: &OpenFile) -> Option<&SocketEnd> {
    match file {
        OpenFile::Socket(socket) => Some(socket),
        OpenFile::Named(_) => None,
    }
}

/// `redis-server 812, nginx 40`
fn peers_of(socket: &SocketEnd) -> Option<String> {
    let peers: Vec<_> =
        socket.peers.iter().map(|peer| format!("{} {}", peer.comm, peer.tgid)).collect();
    (!peers.is_empty()).then(|| peers.join(", "))
}

//! Describes what a wait was on, and what it was ended through.

use offwake_recording::{FileId, FileKind, FileTable, OpenFile, SocketEnd};
use schemars::JsonSchema;
use serde::Serialize;

use crate::blame::cause::WaitedOn;

/// The most processes named for one socket; a listening one can be held by hundreds.
const PEERS: usize = 3;

/// The very thing that a wait was on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct WaitedOnEntry {
    /// In words: `tcp 127.0.0.1:6379 (redis-server 812)`, `futex 0x7f01:wait`.
    pub text: String,
    /// File descriptor.
    pub fd: Option<u32>,
    /// Inode number of the file.
    pub inode: Option<u64>,
    /// Device that the inode number belongs to.
    pub device: Option<u32>,
    /// Address of the futex in its process, as hexadecimal text.
    pub futex_address: Option<String>,
    /// What was done to the futex.
    pub futex_op: Option<&'static str>,
    /// Whether no other process may share the futex.
    pub futex_private: Option<bool>,
}

pub(crate) fn waited_on_entry(files: &FileTable, on: WaitedOn) -> WaitedOnEntry {
    match on {
        WaitedOn::Futex { address, op, private } => WaitedOnEntry {
            text: format!("futex {address:#x}:{}", op.name()),
            futex_address: Some(format!("{address:#x}")),
            futex_op: Some(op.name()),
            futex_private: Some(private),
            ..WaitedOnEntry::default()
        },
        WaitedOn::File { fd, file } => WaitedOnEntry {
            text: file_text(files, file),
            fd: Some(fd),
            inode: Some(file.inode),
            device: Some(file.device),
            ..WaitedOnEntry::default()
        },
    }
}

/// Describes a file, as far as it is known.
pub(crate) fn file_text(files: &FileTable, file: FileId) -> String {
    match files.files.get(&file) {
        Some(OpenFile::Socket(socket)) => socket_text(socket),
        Some(OpenFile::Named(name)) => name.clone(),
        None => unnamed_file_text(file),
    }
}

/// Names a connection by its other end, or a socket without one by its own address: `tcp 127.0.0.1:6379`. None
/// if it has no address.
pub(crate) fn connection_text(socket: &SocketEnd) -> Option<String> {
    let address = if socket.remote.is_empty() { &socket.local } else { &socket.remote };
    (!address.is_empty()).then(|| format!("{} {address}", socket.protocol))
}

/// `tcp 127.0.0.1:6379 (redis-server 812)`
fn socket_text(socket: &SocketEnd) -> String {
    let text = connection_text(socket).unwrap_or_else(|| socket.protocol.clone());
    if socket.peers.is_empty() {
        return text;
    }
    let named: Vec<_> = (socket.peers.iter().take(PEERS))
        .map(|peer| format!("{} {}", peer.comm, peer.tgid))
        .collect();
    let more = match socket.peers.len().saturating_sub(PEERS) {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    format!("{text} ({}{more})", named.join(", "))
}

/// Describes a file that was gone before it could be looked up.
fn unnamed_file_text(file: FileId) -> String {
    let kind = match file.kind {
        FileKind::Socket => "socket",
        FileKind::Pipe => "pipe",
        FileKind::Regular => "file",
        FileKind::Character => "character device",
        FileKind::Block => "block device",
        FileKind::Directory => "directory",
        FileKind::Anonymous => "anonymous file",
    };
    format!("{kind}:[{}]", file.inode)
}

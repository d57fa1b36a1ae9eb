//! What a file descriptor stood for.

use std::collections::BTreeMap;

use strum::{IntoStaticStr, VariantArray};

use crate::{memory::measure_texts, units::Tgid};

/// One inode: it outlives the descriptor's number, which is used again at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Device of its superblock (`dev_t`, as the kernel keeps it).
    pub device: u32,
    /// Its number there.
    pub inode: u64,
    /// What kind of file it is.
    pub kind: FileKind,
}

/// What kind of file an inode is (`st_mode & S_IFMT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FileKind {
    /// A socket.
    Socket,
    /// A pipe or FIFO.
    Pipe,
    /// A file on a filesystem.
    Regular,
    /// A character device: a terminal, say.
    Character,
    /// A block device.
    Block,
    /// A directory.
    Directory,
    /// No type at all: eventfd, epoll, timerfd and other anonymous inodes.
    Anonymous,
}

/// A process that holds the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// The process.
    pub tgid: Tgid,
    /// Its name.
    pub comm: String,
}

/// Which end of a connection a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SocketRole {
    /// The one that others come to: its address was listened on, or is a name that it is bound to.
    Serving,
    /// The one that came: that is so of the other end's address, and not of its own.
    Asking,
}

/// A socket, as far as it could be found out while it was open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketEnd {
    /// `tcp`, `udp`, `unix`, `netlink`, …
    pub protocol: String,
    /// The own address: `127.0.0.1:6379`, `[::1]:80`, a path, `@name`; empty if it has none.
    pub local: String,
    /// The other end's address, in the same form.
    pub remote: String,
    /// Which end it is, if that could be told.
    pub role: Option<SocketRole>,
    /// Who holds the other end, where that is on this machine. Several after a fork.
    pub peers: Vec<PeerProcess>,
}

/// What is known of an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenFile {
    /// A socket.
    Socket(SocketEnd),
    /// Anything else, as `/proc/PID/fd` names it: a path, `pipe:[123]`, `anon_inode:[eventpoll]`.
    Named(String),
}

impl OpenFile {
    /// Returns about how many bytes it takes in memory. Others choose the paths.
    #[must_use]
    pub fn memory(&self) -> usize {
        let texts = match self {
            Self::Named(name) => measure_texts([name]),
            Self::Socket(SocketEnd { protocol, local, remote, peers, .. }) => {
                let names = peers.iter().map(|peer| &peer.comm);
                size_of_val(peers.as_slice())
                    + measure_texts([protocol, local, remote])
                    + measure_texts(names)
            }
        };
        size_of::<Self>() + texts
    }
}

/// What is known of the files that were waited on, and of those that wakers called with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTable {
    /// By inode. A file that was gone before it could be looked at is absent.
    pub files: BTreeMap<FileId, OpenFile>,
}

impl FileTable {
    /// Returns what is known of a socket; none if the file is none, or is not known.
    #[must_use]
    pub fn socket(&self, file: FileId) -> Option<&SocketEnd> {
        match self.files.get(&file)? {
            OpenFile::Socket(socket) => Some(socket),
            OpenFile::Named(_) => None,
        }
    }

    /// Returns which end of a connection a file is, if that could be told.
    #[must_use]
    pub fn role(&self, file: FileId) -> Option<SocketRole> {
        self.socket(file)?.role
    }
}

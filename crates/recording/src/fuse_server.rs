//! Programs that serve filesystems in user space, as a recording's end found them.

use crate::file::PeerProcess;

/// A process that serves a FUSE filesystem: it has the filesystem's connection to the kernel open
/// ([`fuse.rst`](https://github.com/torvalds/linux/blob/v6.16/Documentation/filesystems/fuse/fuse.rst)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseServer {
    /// Device of the filesystem, as in [`crate::FileId`]; it is the connection's number as well.
    /// None where the kernel does not say which connection it is (before Linux 6.16).
    pub device: Option<u32>,
    /// How many requests of that connection have no answer yet. None if that could not be read.
    pub unanswered: Option<u32>,
    /// The process. A connection may have several.
    pub server: PeerProcess,
}

//! What a descriptor of a process stands for, by `/proc/PID/fd/N`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use offwake_recording::{FileId, FileKind, units::Tgid};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

use crate::reader_process;

/// What a descriptor stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// A socket, by the kernel's name of its protocol: `TCP`, `UDPv6`, `UNIX-STREAM`, `NETLINK`.
    Socket(String),
    /// Anything else, as its link names it.
    Named(String),
}

/// Finds out what `descriptor` of a process stands for, if it stands for `file`.
pub(super) fn identify_descriptor(file: FileId, tgid: Tgid, descriptor: u32) -> Option<Descriptor> {
    let held = open_path(tgid, descriptor)?;
    if identify(&held)? != file {
        return None;
    }
    let own = format!("/proc/self/fd/{}", held.as_raw_fd());
    if file.kind == FileKind::Socket {
        let mut name = [0; 64];
        let length = rustix::fs::getxattr(&own, "system.sockprotoname", &mut name).ok()?;
        let name = String::from_utf8_lossy(name.get(..length)?);
        return Some(Descriptor::Socket(name.trim_end_matches('\0').to_owned()));
    }
    let name = rustix::fs::readlink(own, Vec::new()).ok()?;
    Some(Descriptor::Named(name.to_string_lossy().into_owned()))
}

/// Holds the file that a descriptor of a process stands for by its name alone: nothing is opened, no
/// device does anything, and whatever becomes of the descriptor's number, this stays the same file.
pub(super) fn open_path(tgid: Tgid, descriptor: u32) -> Option<OwnedFd> {
    reader_process::open_descriptor(tgid, descriptor).ok()
}

/// The device of the kernel's own filesystem of pipes.
pub(crate) fn pipe_device() -> Option<u32> {
    let (reader, _writer) = std::io::pipe().ok()?;
    Some(identify(&reader)?.device)
}

/// The device of an open file's superblock, and the file's size.
pub(super) fn device_and_size(file: impl AsFd) -> Option<(u32, u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(file, "", flags, StatxFlags::SIZE).ok()?;
    Some((stat.stx_dev_major << 20 | stat.stx_dev_minor, stat.stx_size))
}

/// The identity of an open file, as the kernel's records have it.
pub(super) fn identify(file: impl AsFd) -> Option<FileId> {
    // The server of a network filesystem is not asked: it may be what everybody waits for.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let stat = rustix::fs::statx(file, "", flags, wanted).ok()?;
    let kind = match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::Socket => FileKind::Socket,
        FileType::Fifo => FileKind::Pipe,
        FileType::RegularFile => FileKind::Regular,
        FileType::CharacterDevice => FileKind::Character,
        FileType::BlockDevice => FileKind::Block,
        FileType::Directory => FileKind::Directory,
        _ => FileKind::Anonymous,
    };
    // MKDEV() of include/linux/kdev_t.h: twenty bits of minor number.
    let device = stat.stx_dev_major << 20 | stat.stx_dev_minor;
    Some(FileId { device, inode: stat.stx_ino, kind })
}

/// The inode number of a socket, by the text of a link in `/proc/PID/fd`.
pub(super) fn socket_inode(link: &[u8]) -> Option<u64> {
    let digits = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The number of the namespace behind a link such as `/proc/PID/ns/net`.
pub(super) fn namespace_number(link: &str) -> Option<u64> {
    let flags = AtFlags::STATX_DONT_SYNC;
    Some(rustix::fs::statx(CWD, link, flags, StatxFlags::INO).ok()?.stx_ino)
}

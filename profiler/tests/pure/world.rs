//! Stacks, syscalls and files for hand-made recordings.

use offwake::{
    recording::{
        AddressSpace, FileId, FileKind, Frame, FrameId, OpenFile, Recording, SocketEnd, Stack,
        StackRef, Syscall, SyscallTable,
    },
    units::{StackId, Tgid},
};

/// Adds a kernel stack of these functions, leaf first.
pub fn kernel(recording: &mut Recording, functions: &[&str]) -> StackRef {
    let frames = functions.iter().map(|&function| frame("[kernel]", function)).collect();
    add(recording, AddressSpace::Kernel, frames)
}

/// Adds a user stack of these frames, leaf first: `file function`, or `file +offset`.
pub fn user(recording: &mut Recording, tgid: u32, frames: &[&str]) -> StackRef {
    let frames = (frames.iter())
        .map(|text| text.split_once(' ').map_or_else(|| frame("", ""), |(m, f)| frame(m, f)))
        .collect();
    add(recording, AddressSpace::Process(Tgid(tgid)), frames)
}

fn frame(module: &str, function: &str) -> Frame {
    let offset = function.strip_prefix('+').map(|hex| u64::from_str_radix(hex, 16).unwrap());
    Frame {
        address: 0x1000,
        module: (!module.is_empty()).then(|| format!("/usr/bin/{module}")),
        module_offset: offset.or(Some(0x10)),
        functions: match offset {
            None if !function.is_empty() => function.split('<').map(str::to_owned).collect(),
            _ => Vec::new(),
        },
    }
}

fn add(recording: &mut Recording, space: AddressSpace, frames: Vec<Frame>) -> StackRef {
    let table = &mut recording.stacks;
    let id = StackId(table.stacks.len() as u64 + 1);
    let first = table.frames.len() as u32;
    let ids = (first..).take(frames.len()).map(FrameId).collect();
    table.frames.extend(frames);
    table.stacks.insert(id, Stack { space, frames: ids });
    StackRef::Id(id)
}

/// A syscall of x86-64.
pub fn syscall(number: u32, args: [u64; 6]) -> Option<Syscall> {
    Some(Syscall { table: SyscallTable::Native, number, args })
}

pub const READ: u32 = 0;
pub const POLL: u32 = 7;
pub const RECVFROM: u32 = 45;
pub const WAIT4: u32 = 61;
pub const FSYNC: u32 = 74;
pub const FUTEX: u32 = 202;
pub const CLOCK_NANOSLEEP: u32 = 230;
pub const EPOLL_WAIT: u32 = 232;

/// A file of this kind.
pub fn file(kind: FileKind, inode: u64) -> FileId {
    FileId { device: 8, inode, kind }
}

/// Makes a TCP socket between these addresses known.
pub fn tcp(recording: &mut Recording, inode: u64, local: &str, remote: &str) -> FileId {
    let id = file(FileKind::Socket, inode);
    let (local, remote) = (local.to_owned(), remote.to_owned());
    let socket = SocketEnd { protocol: "tcp".to_owned(), local, remote, peers: Vec::new() };
    recording.files.files.insert(id, OpenFile::Socket(socket));
    id
}

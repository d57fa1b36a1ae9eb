//! Stacks, syscalls and files for hand-made recordings.

use offwake_recording::{
    AddressKind, AddressSpace, FileId, FileKind, Frame, FrameId, Function, Module, ModuleId,
    OpenFile, Recording, SocketEnd, Stack, StackEnd, StackRef, StackTable, Syscall, SyscallTable,
    units::{StackId, Tgid},
};

/// Adds a kernel stack of these functions, leaf first.
pub fn kernel(recording: &mut Recording, functions: &[&str]) -> StackRef {
    let table = &mut recording.stacks;
    let frames = functions.iter().map(|&function| frame(table, "[kernel]", function)).collect();
    add(table, AddressSpace::Kernel, frames)
}

/// How the kernel delivers a TCP packet of this machine's own, leaf first.
const PACKET: [&str; 6] = [
    "__wake_up_sync_key",
    "sock_def_readable",
    "tcp_v4_rcv",
    "process_backlog",
    "net_rx_action",
    "handle_softirqs",
];

/// Adds a kernel stack that delivers a packet over what ran, which these functions are, leaf first.
pub fn packet_over(recording: &mut Recording, what_ran: &[&str]) -> StackRef {
    let functions: Vec<_> = PACKET.iter().chain(what_ran).copied().collect();
    kernel(recording, &functions)
}

/// Adds a user stack of these frames, leaf first: `file function`, or `file +offset`.
pub fn user(recording: &mut Recording, tgid: u32, frames: &[&str]) -> StackRef {
    let table = &mut recording.stacks;
    let frames = (frames.iter())
        .map(|text| text.split_once(' ').unwrap_or_default())
        .map(|(module, function)| frame(table, module, function))
        .collect();
    add(table, AddressSpace::Process(Tgid(tgid)), frames)
}

fn frame(table: &mut StackTable, module: &str, function: &str) -> Frame {
    let offset = function.strip_prefix('+').map(|hex| u64::from_str_radix(hex, 16).unwrap());
    Frame {
        address: 0x1000,
        kind: AddressKind::Instruction,
        module: (!module.is_empty()).then(|| self::module(table, module)),
        module_offset: offset.or(Some(0x10)),
        functions: match offset {
            None if !function.is_empty() => function.split('<').map(Function::named).collect(),
            _ => Vec::new(),
        },
    }
}

fn module(table: &mut StackTable, name: &str) -> ModuleId {
    let path = format!("/usr/bin/{name}");
    let known = table.modules.iter().find(|(_, module)| module.path == path).map(|(id, _)| *id);
    known.unwrap_or_else(|| {
        let id = ModuleId(table.modules.len() as u32);
        table.modules.insert(id, Module { path, build_id: None, segments: Vec::new() });
        id
    })
}

fn add(table: &mut StackTable, space: AddressSpace, frames: Vec<Frame>) -> StackRef {
    let id = StackId(table.stacks.len() as u64 + 1);
    let first = table.frames.len() as u32;
    let ids: Vec<_> = (first..).take(frames.len()).map(FrameId).collect();
    table.frames.extend(ids.iter().copied().zip(frames));
    table.stacks.insert(id, Stack { space, frames: ids, end: StackEnd::Unknown });
    StackRef::Id(id)
}

/// A syscall of x86-64.
pub fn syscall(number: u32, args: [u64; 6]) -> Option<Syscall> {
    Some(Syscall { table: SyscallTable::Native, number, args })
}

pub const READ: u32 = 0;
pub const POLL: u32 = 7;
pub const CONNECT: u32 = 42;
pub const RECVFROM: u32 = 45;
pub const CLONE: u32 = 56;
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
    let protocol = "tcp".to_owned();
    let socket = SocketEnd { protocol, local, remote, role: None, peers: Vec::new() };
    recording.files.files.insert(id, OpenFile::Socket(socket));
    id
}

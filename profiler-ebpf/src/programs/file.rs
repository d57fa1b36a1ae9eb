//! What a file descriptor stands for. An inode outlives the descriptor's number, which the process
//! may use again before user space could look.

use profiler_ebpf::record::Inode;

use super::{
    settings::{CONFIG, frozen, offset},
    task::{Task, peek},
};

/// The type's bits of `st_mode`, and those of a socket: `include/uapi/linux/stat.h`.
const S_IFMT: u32 = 0o170_000;
const S_IFSOCK: u32 = 0o140_000;

/// The inode behind a descriptor of a task, if there is one.
#[inline(always)]
pub fn behind(task: Task, descriptor: u32) -> Option<Inode> {
    let file = task.open_file(descriptor);
    if file == 0 {
        return None;
    }
    let inode: u64 = peek(file + offset(&CONFIG.offsets.file_inode) as u64);
    if inode == 0 {
        return None;
    }
    let mode = u32::from(peek::<u16>(inode + offset(&CONFIG.offsets.inode_mode) as u64));
    Some(Inode {
        number: peek(inode + offset(&CONFIG.offsets.inode_ino) as u64),
        mode,
        device: device(inode, mode),
    })
}

/// The device that an inode is on. Each read costs some 20 ns, and all sockets are on one.
#[inline(always)]
fn device(inode: u64, mode: u32) -> u32 {
    let of_sockets = frozen(&CONFIG.socket_device);
    if of_sockets != 0 && mode & S_IFMT == S_IFSOCK {
        return of_sockets;
    }
    let superblock: u64 = peek(inode + offset(&CONFIG.offsets.inode_sb) as u64);
    peek(superblock + offset(&CONFIG.offsets.super_block_dev) as u64)
}

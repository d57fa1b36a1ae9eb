//! What a file descriptor stands for. An inode outlives the descriptor's number, which the process
//! may use again before user space could look.

use profiler_ebpf::record::Inode;

use super::{
    settings::{CONFIG, offset},
    task::{Task, peek},
};

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
    let superblock: u64 = peek(inode + offset(&CONFIG.offsets.inode_sb) as u64);
    Some(Inode {
        number: peek(inode + offset(&CONFIG.offsets.inode_ino) as u64),
        mode: u32::from(peek::<u16>(inode + offset(&CONFIG.offsets.inode_mode) as u64)),
        device: peek(superblock + offset(&CONFIG.offsets.super_block_dev) as u64),
    })
}

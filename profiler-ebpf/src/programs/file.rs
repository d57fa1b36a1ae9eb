//! What a file descriptor stands for. An inode outlives the descriptor's number, which the process
//! may use again before user space could look.

use profiler_ebpf::record::{WaitRecord, wait_flags};

use super::{
    settings::{CONFIG, offset},
    task::{Task, peek},
};

/// Notes the inode behind a descriptor of a task.
#[inline(always)]
pub fn note(task: Task, descriptor: u32, record: &mut WaitRecord) {
    let file = task.open_file(descriptor);
    if file == 0 {
        return;
    }
    let inode: u64 = peek(file + offset(&CONFIG.offsets.file_inode) as u64);
    if inode == 0 {
        return;
    }
    let superblock: u64 = peek(inode + offset(&CONFIG.offsets.inode_sb) as u64);
    record.object = peek(inode + offset(&CONFIG.offsets.inode_ino) as u64);
    record.object_mode = u32::from(peek::<u16>(inode + offset(&CONFIG.offsets.inode_mode) as u64));
    record.object_device = peek(superblock + offset(&CONFIG.offsets.super_block_dev) as u64);
    record.wait_flags |= wait_flags::HAS_OBJECT;
}

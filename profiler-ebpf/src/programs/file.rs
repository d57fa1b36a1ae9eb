//! What a file descriptor stands for. An inode outlives the descriptor's number, which the process
//! may use again before user space could look.

use profiler_ebpf::record::Inode;

use super::{
    settings::{CONFIG, frozen, offset},
    task::{Task, peek},
};

/// The type's bits of `st_mode`, and those of a socket and of a pipe: `include/uapi/linux/stat.h`.
const S_IFMT: u32 = 0o170_000;
const S_IFIFO: u32 = 0o010_000;
const S_IFSOCK: u32 = 0o140_000;

/// What can be read of an inode at once: a read costs some 15 ns, whatever its length.
type Head = [u64; 10];

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
    let head: Head = peek(inode);
    let mode = u32::from(field_of::<u16>(inode, &head, offset(&CONFIG.offsets.inode_mode)));
    let superblock = || field_of(inode, &head, offset(&CONFIG.offsets.inode_sb));
    Some(Inode {
        number: field_of(inode, &head, offset(&CONFIG.offsets.inode_ino)),
        mode,
        device: device(superblock, mode),
    })
}

/// A field of an inode, from its head if it is there: the verifier knows, and prunes the other way.
#[inline(always)]
fn field_of<T: Copy + Default>(inode: u64, head: &Head, offset: usize) -> T {
    if offset + size_of::<T>() > size_of::<Head>() {
        return peek(inode + offset as u64);
    }
    // SAFETY: it lies inside; kernel fields are aligned.
    unsafe { core::ptr::from_ref(head).byte_add(offset).cast::<T>().read_volatile() }
}

/// The device that an inode is on. All sockets are on one.
#[inline(always)]
fn device(superblock: impl Fn() -> u64, mode: u32) -> u32 {
    let of_sockets = frozen(&CONFIG.socket_device);
    if of_sockets != 0 && mode & S_IFMT == S_IFSOCK {
        return of_sockets;
    }
    peek(superblock() + offset(&CONFIG.offsets.super_block_dev) as u64)
}

/// Whether it is a pipe, or a FIFO by name.
#[inline(always)]
pub fn is_pipe(inode: &Inode) -> bool {
    inode.mode & S_IFMT == S_IFIFO
}

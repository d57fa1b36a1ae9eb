//! The inode that a file descriptor refers to. It is read here, since the process may give the
//! descriptor's number to another file before user space could look it up.

use profiler_ebpf::record::Inode;

use super::{
    config::{CONFIG, frozen, offset},
    task::{Task, peek},
};

/// The mask of a file's type in `st_mode`, and the types pipe and socket:
/// `include/uapi/linux/stat.h`.
const S_IFMT: u32 = 0o170_000;
const S_IFIFO: u32 = 0o010_000;
const S_IFSOCK: u32 = 0o140_000;

/// The beginning of an inode, which has most of the fields that are read: a read costs some 15 ns,
/// whatever its length.
type Head = [u64; 10];

/// Reads the inode that a task's descriptor refers to, if there is one.
#[inline(always)]
pub fn read_inode(task: Task, descriptor: u32) -> Option<Inode> {
    let file = task.open_file(descriptor);
    if file == 0 { None } else { read_inode_of_file(file) }
}

/// Reads the inode of a `struct file`.
#[inline(always)]
pub fn read_inode_of_file(file: u64) -> Option<Inode> {
    let inode: u64 = peek(file + offset(&CONFIG.offsets.file_inode) as u64);
    if inode == 0 { None } else { Some(describe_inode(inode)) }
}

/// Reads a `struct inode`.
#[inline(always)]
pub fn describe_inode(inode: u64) -> Inode {
    let head: Head = peek(inode);
    let mode = u32::from(inode_field::<u16>(inode, &head, offset(&CONFIG.offsets.inode_mode)));
    let superblock = || inode_field(inode, &head, offset(&CONFIG.offsets.inode_sb));
    Inode {
        number: inode_field(inode, &head, offset(&CONFIG.offsets.inode_ino)),
        mode,
        device: device(superblock, mode),
    }
}

/// A field of an inode, from its head if the head has it: the verifier knows the offset, and prunes
/// the branch that is not taken.
#[inline(always)]
fn inode_field<T: Copy + Default>(inode: u64, head: &Head, offset: usize) -> T {
    if offset + size_of::<T>() > size_of::<Head>() {
        return peek(inode + offset as u64);
    }
    // SAFETY: the field lies inside the head; kernel fields are aligned.
    unsafe { core::ptr::from_ref(head).byte_add(offset).cast::<T>().read_volatile() }
}

/// The device that an inode is on. All sockets are on the same one, which needs no read.
#[inline(always)]
fn device(superblock: impl Fn() -> u64, mode: u32) -> u32 {
    let socket_device = frozen(&CONFIG.socket_device);
    if socket_device != 0 && mode & S_IFMT == S_IFSOCK {
        return socket_device;
    }
    peek(superblock() + offset(&CONFIG.offsets.super_block_dev) as u64)
}

/// Whether an inode is a socket.
#[inline(always)]
pub fn is_socket(inode: &Inode) -> bool {
    inode.mode & S_IFMT == S_IFSOCK
}

/// Whether an inode is a pipe, or a FIFO with a name.
#[inline(always)]
pub fn is_pipe(inode: &Inode) -> bool {
    inode.mode & S_IFMT == S_IFIFO
}

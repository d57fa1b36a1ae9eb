//! How much each process reads from block devices, and writes to them: the neighbours of whoever waits
//! for a disk need not wait for it themselves.
//!
//! ```text
//! process    write() ------> page cache   `on_dirty_folio`: what it makes dirty, and on which device
//! kworker    ............................... submits it to the device later, for nobody in particular
//! process    read(), fsync(), O_DIRECT --> device    `on_submit`: what it submits itself
//! ```

use core::ffi::c_void;

use aya_ebpf::helpers::bpf_get_current_comm;
use profiler_ebpf::{
    disk_use::{DirtySlot, DiskUse, key},
    offsets::NO_OFFSET,
};

use super::{
    atomic,
    config::{CONFIG, frozen, offset},
    interrupt_context,
    maps::{DIRTY_SLOTS, DISK_USERS_MET, DISK_USES},
    task::{Task, field, peek},
};

/// The operation in `bio::bi_opf`, and the two that count
/// ([`enum req_op`](https://github.com/torvalds/linux/blob/v6.12/include/linux/blk_types.h#L321)).
const OPERATION: u32 = 0xff;
const READ: u32 = 0;
const WRITE: u32 = 1;

/// The mask of a file's type in `st_mode`, and the type block device: `include/uapi/linux/stat.h`.
const S_IFMT: u16 = 0o170_000;
const S_IFBLK: u16 = 0o060_000;

/// The flag of an update that adds an entry, and replaces none.
const BPF_NOEXIST: u64 = 1;

/// Which of a [`DiskUse`]'s counts is meant.
#[derive(Clone, Copy)]
enum Count {
    Read,
    Submitted,
    Dirtied,
}

/// `block_bio_queue`: a task submits a read or a write to a device.
#[inline(always)]
pub fn on_submit(bio: *const c_void) {
    let offsets = &CONFIG.offsets.disk;
    // SAFETY: the tracepoint's argument is a typed pointer.
    let (operation, bytes, device): (u32, u32, *const c_void) = unsafe {
        (
            field(bio, offset(&offsets.bio_operation)),
            field(bio, offset(&offsets.bio_size)),
            field(bio, offset(&offsets.bio_device)),
        )
    };
    let task = Task::current();
    let count = match operation & OPERATION {
        READ => Count::Read,
        // The kernel's own threads write back what others have made dirty, which was counted then.
        WRITE if !task.is_kernels_own() => Count::Submitted,
        _ => return,
    };
    if bytes == 0 || device.is_null() {
        return;
    }
    // SAFETY: as above; the field of a typed pointer is one.
    let device: u32 = unsafe { field(device, offset(&offsets.device_number)) };
    // What is done in an interrupt is nobody's.
    if !interrupt_context::is_in_interrupt() {
        add(key(task.tgid(), device), count, u64::from(bytes));
    }
}

/// `writeback_dirty_folio`: a task makes a part of a file dirty that was clean.
///
/// The kernel calls this under a lock and with interrupts off, so that nothing else on this CPU changes its
/// slot meanwhile
/// ([`__folio_mark_dirty`](https://github.com/torvalds/linux/blob/v6.12/mm/page-writeback.c#L2746)).
#[inline(always)]
pub fn on_dirty_folio(folio: *const c_void, mapping: *const c_void) {
    let offsets = &CONFIG.offsets.disk;
    if folio.is_null() || mapping.is_null() {
        return;
    }
    // SAFETY: the tracepoint's argument is a typed pointer.
    let inode: *const c_void = unsafe { field(mapping, offset(&offsets.mapping_host)) };
    if inode.is_null() {
        return;
    }
    // SAFETY: the field of a typed pointer is one.
    let (mode, superblock): (u16, u64) = unsafe {
        (
            field(inode, offset(&CONFIG.offsets.inode_mode)),
            field(inode, offset(&CONFIG.offsets.inode_sb)),
        )
    };
    let bytes = count_pages(folio) << (frozen(&offsets.page_shift) & 63);
    let task = Task::current();
    if mode & S_IFMT == S_IFBLK {
        // SAFETY: as above.
        let device: u32 = unsafe { field(inode, offset(&offsets.inode_device_number)) };
        add(key(task.tgid(), device), Count::Dirtied, bytes);
        return;
    }
    // SAFETY: this CPU's own entry, which lives as long as the map.
    let Some(slot) = DIRTY_SLOTS.get_ptr_mut(0).map(|slot| unsafe { &mut *slot }) else { return };
    if slot.superblock != superblock || slot.key >> 32 != u64::from(task.tgid()) {
        begin_slot(slot, task, superblock);
    }
    slot.bytes += bytes;
}

/// Adds what is in a slot, and has it count for another process or filesystem.
#[inline(never)]
fn begin_slot(slot: &mut DirtySlot, task: Task, superblock: u64) {
    if slot.bytes != 0 {
        add(slot.key, Count::Dirtied, slot.bytes);
    }
    let device: u32 = peek(superblock + offset(&CONFIG.offsets.super_block_dev) as u64);
    let key = key(task.tgid(), device);
    // The name of a process is known now, and no longer when the slot is added.
    let _used = find_or_begin(key);
    *slot = DirtySlot { superblock, key, bytes: 0 };
}

/// Counts the pages of a folio.
#[inline(always)]
fn count_pages(folio: *const c_void) -> u64 {
    let offsets = &CONFIG.offsets.disk;
    if frozen(&offsets.folio_pages) == NO_OFFSET {
        return 1;
    }
    // SAFETY: the tracepoint's argument is a typed pointer.
    let flags: u64 = unsafe { field(folio, offset(&offsets.folio_flags)) };
    if flags & (1_u64 << (frozen(&offsets.folio_head_flag) & 63)) == 0 {
        return 1;
    }
    u64::from(peek::<u32>(folio as u64 + offset(&offsets.folio_pages) as u64))
}

/// Adds to what a process has done with a device.
#[inline(always)]
fn add(key: u64, count: Count, bytes: u64) {
    let Some(used) = find_or_begin(key) else { return };
    // SAFETY: the entry of a map lives as long as a program runs that has found it. Its counts are
    // changed by `atomic::add` alone.
    unsafe {
        let counter = match count {
            Count::Read => &raw mut (*used).read_bytes,
            Count::Submitted => &raw mut (*used).submitted_bytes,
            Count::Dirtied => &raw mut (*used).dirtied_bytes,
        };
        atomic::add(counter, bytes.cast_signed());
    }
}

#[inline(always)]
fn find_or_begin(key: u64) -> Option<*mut DiskUse> {
    DISK_USES.get_ptr_mut(key).or_else(|| begin(key))
}

/// Begins to count what the current task's process does with a device.
#[inline(never)]
fn begin(key: u64) -> Option<*mut DiskUse> {
    let used = DiskUse { comm: bpf_get_current_comm().unwrap_or_default(), ..DiskUse::default() };
    if DISK_USES.insert(key, used, BPF_NOEXIST).is_ok()
        && let Some(met) = DISK_USERS_MET.get_ptr_mut(0)
    {
        // SAFETY: the entry of an array lives as long as the map, and only this changes it.
        unsafe { atomic::add(met, 1) };
    }
    // Another CPU may have been first.
    DISK_USES.get_ptr_mut(key)
}

//! The file that made an `epoll` ready.
//!
//! A packet that its sender has left to a later softirq ends a wait far from the sender: in
//! `ksoftirqd`, or over a thread that has nothing to do with it. Who sent it is known by the socket
//! that it came to, and that an `epoll` alone can tell. Before it wakes anybody, the kernel puts
//! what became ready at the end of a list, which is empty while nothing is
//! ([`ep_poll_callback`](https://github.com/torvalds/linux/blob/v6.12/fs/eventpoll.c#L1255)):
//!
//! ```text
//! struct file --private_data--> struct eventpoll        struct epitem
//!                                 rdllist  <----------->  rdllink
//!                                 ovflist                 ep   (back to the eventpoll)
//!                                                         ffd  { file, fd }
//! ```

use profiler_ebpf::{
    offsets::NO_OFFSET,
    record::{WaitRecord, wake_flags},
};

use super::{
    config::{CONFIG, frozen, offset},
    file,
    task::{Task, peek},
};

/// `EP_UNACTIVE_PTR`: nobody is taking over what is ready just now.
/// <https://github.com/torvalds/linux/blob/v6.12/fs/eventpoll.c#L88>
const NO_OVERFLOW: u64 = u64::MAX;

/// Records the file that made the `epoll` ready for which a thread waits, as it is woken. Nothing is
/// recorded if several files are ready: which of them came last is not known then.
///
/// A function of its own: it takes seven reads, and few wakes need them.
#[inline(never)]
pub fn record_ready_file(wakee: Task, record: &mut WaitRecord) {
    if frozen(&CONFIG.offsets.epoll.item_file) == NO_OFFSET {
        return;
    }
    // The descriptor may stand for another file by now: nothing is an item then whose `ep` is this.
    let file = wakee.open_file(record.syscall.args[0] as u32);
    if file == 0 {
        return;
    }
    let offsets = &CONFIG.offsets.epoll;
    let epoll: u64 = peek(file + offset(&offsets.file_private_data) as u64);
    let list = epoll + offset(&offsets.ready_list) as u64;
    let [first, last]: [u64; 2] = peek(list);
    let overflow: u64 = peek(epoll + offset(&offsets.overflow_list) as u64);
    if first != last || first == list || overflow != NO_OVERFLOW {
        return;
    }
    let item = first - offset(&offsets.item_ready_link) as u64;
    let owner: u64 = peek(item + offset(&offsets.item_epoll) as u64);
    if owner != epoll {
        return;
    }
    let [ready, descriptor]: [u64; 2] = peek(item + offset(&offsets.item_file) as u64);
    if let Some(inode) = file::read_inode_of_file(ready) {
        record.polled_fd = descriptor as u32;
        record.wake.file = inode;
        record.wake.flags = record.wake.flags & !wake_flags::HAS_FILE | wake_flags::READY_FILE;
    }
}

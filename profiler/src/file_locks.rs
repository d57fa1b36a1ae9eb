//! Who holds the locks on files that others still wait for, by the kernel's list.
//!
//! ```text
//! 1: FLOCK  ADVISORY  WRITE 1957 fe:00:10273008 0 EOF      holds it
//! 1: -> FLOCK  ADVISORY  WRITE 2005 fe:00:10273008 0 EOF   waits for it
//! 1:  -> FLOCK  ADVISORY  WRITE 2009 fe:00:10273008 0 EOF  waits behind that one
//! ```
//! <https://github.com/torvalds/linux/blob/v6.12/fs/locks.c#L2720>

use std::{
    fs::{self, File},
    io::Read as _,
};

use offwake_analysis::blame::cause::syscalls;
use offwake_recording::{AwaitedFileLock, PeerProcess, Wait, units::Tgid};

/// The most bytes of the list that are read, and the most waiters that are kept. The kernel makes
/// others wait while it prints a page of the list.
const MAX_BYTES: u64 = 1 << 20;
const MAX_WAITERS: usize = 1_024;

/// Reads who holds the locks that are waited for, if one of these waits seems to be for such a lock.
pub(crate) fn read_awaited(open: &[Wait]) -> Vec<AwaitedFileLock> {
    if !open.iter().any(|wait| wait.syscall.as_ref().is_some_and(syscalls::waits_for_file_lock)) {
        return Vec::new();
    }
    let mut bytes = Vec::new();
    let list =
        File::open("/proc/locks").and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    if list.is_err() {
        return Vec::new();
    }
    let mut awaited = parse(&String::from_utf8_lossy(&bytes));
    for holder in awaited.iter_mut().filter_map(|lock| lock.holder.as_mut()) {
        let comm = fs::read_to_string(format!("/proc/{}/comm", holder.tgid));
        holder.comm = comm.unwrap_or_default().trim_end().to_owned();
    }
    awaited
}

/// Finds the waiters in the kernel's list, each with who holds what it waits for.
fn parse(list: &str) -> Vec<AwaitedFileLock> {
    let mut awaited = Vec::new();
    let mut holder: Option<Line<'_>> = None;
    for line in list.lines().filter_map(Line::parse) {
        if !line.waits {
            holder = Some(line);
        } else if let Some(holder) = holder.filter(|holder| holder.number == line.number)
            && awaited.len() < MAX_WAITERS
        {
            awaited.push(AwaitedFileLock {
                device: line.device,
                inode: line.inode,
                waiter: line.process,
                holder: holder.process.map(|tgid| PeerProcess { tgid, comm: String::new() }),
            });
        }
    }
    awaited
}

/// A line of the list.
#[derive(Clone, Copy)]
struct Line<'a> {
    /// Waiters have the number of what they wait for.
    number: &'a str,
    waits: bool,
    process: Option<Tgid>,
    device: u32,
    inode: u64,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let number = words.next()?;
        let mut kind = words.next()?;
        let waits = kind == "->";
        if waits {
            kind = words.next()?;
        }
        // Leases and delegations are no locks, and who waits for their end is in no such call.
        if !matches!(kind, "FLOCK" | "POSIX" | "OFDLCK") {
            return None;
        }
        let (_advisory, _access) = (words.next()?, words.next()?);
        // -1 for locks of open files; 0 for a process outside of the PID namespace.
        let process = words.next()?.parse::<u32>().ok().filter(|&tgid| tgid != 0).map(Tgid);
        let mut file = words.next()?.splitn(3, ':');
        let major = u32::from_str_radix(file.next()?, 16).ok()?;
        let minor = u32::from_str_radix(file.next()?, 16).ok()?;
        let inode = file.next()?.parse().ok()?;
        /// `MINORBITS`: how the kernel itself puts a device's number together
        /// ([`kdev_t.h`](https://github.com/torvalds/linux/blob/v6.12/include/linux/kdev_t.h#L7)).
        const MINOR_BITS: u32 = 20;
        Some(Self { number, waits, process, device: major << MINOR_BITS | minor, inode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 prints it, the last lines made up.
    const LIST: &str = "\
1: POSIX  ADVISORY  WRITE 1957 fe:00:10273009 0 EOF
1: -> POSIX  ADVISORY  WRITE 2006 fe:00:10273009 0 EOF
1:  -> OFDLCK ADVISORY  WRITE -1 fe:00:10273009 0 EOF
2: FLOCK  ADVISORY  WRITE 1957 fe:00:10273008 0 EOF
2: -> FLOCK  ADVISORY  WRITE 2005 fe:00:10273008 0 EOF
3: FLOCK  ADVISORY  WRITE 1608 fe:00:10084363 0 EOF
4: OFDLCK ADVISORY  READ -1 fe:00:10133506 0 EOF
4: -> OFDLCK ADVISORY  WRITE -1 fe:00:10133506 0 99
5: LEASE  BREAKING  WRITE 30252 fe:00:10012985 0 EOF
5: -> FLOCK  ADVISORY  WRITE 7 fe:00:10012985 0 EOF
6: FLOCK  ADV";

    #[test]
    fn waiters_are_found_with_who_holds_what_they_wait_for() {
        let device = 0xfe << 20;
        let lock = |inode, waiter: Option<u32>, holder: Option<u32>| AwaitedFileLock {
            device,
            inode,
            waiter: waiter.map(Tgid),
            holder: holder.map(|tgid| PeerProcess { tgid: Tgid(tgid), comm: String::new() }),
        };
        assert_eq!(
            parse(LIST),
            [
                lock(10_273_009, Some(2006), Some(1957)),
                lock(10_273_009, None, Some(1957)),
                lock(10_273_008, Some(2005), Some(1957)),
                lock(10_133_506, None, None),
            ]
        );
    }
}

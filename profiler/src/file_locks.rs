//! Who holds the locks on files that others still wait for, by the kernel's list.
//!
//! ```text
//! 1: FLOCK  ADVISORY  WRITE 1957 fe:00:10273008 0 EOF      holds it
//! 1: -> FLOCK  ADVISORY  WRITE 2005 fe:00:10273008 0 EOF   waits for it
//! 1:  -> FLOCK  ADVISORY  WRITE 2009 fe:00:10273008 0 EOF  waits behind that one
//! ```
//! <https://github.com/torvalds/linux/blob/v6.12/fs/locks.c#L2720>
//!
//! A lock that belongs to an open file (`flock`, `F_OFD_SETLKW`) is held by whoever has that file open,
//! which is not always the process in the list: see [`open_file_holders`].
//!
//! Who asks for a lock now and then, and sleeps in between, is not in the list. SQLite does, and is
//! known by the bytes that it locks: whoever has such a file open and sleeps may wait for its lock.
//!
//! ```text
//! 2: POSIX  ADVISORY  WRITE 1957 fe:00:10273008 1073741825 1073741825   1957 writes to a database
//! /proc/2005/fdinfo/4:  ino: 10273008                                   2005, asleep, has it open
//! ```

mod open_file_holders;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Instant,
};

use offwake_analysis::blame::cause::syscalls;
use offwake_recording::{
    AwaitedFileLock, PeerProcess, Syscall, Wait, loss::Diagnostics, units::Tgid,
};

use crate::{
    descriptor_search::{SEARCH_TIME, or_nobody},
    proc_files::{MINOR_BITS, OpenDescriptor, device_of_mount, has_path, read_beginning},
};

/// The most bytes of the list that are read, and the most waiters that are kept. The kernel makes
/// others wait while it prints a page of the list.
const MAX_BYTES: u64 = 1 << 20;
const MAX_WAITERS: usize = 1_024;

/// The bytes of a database's file that SQLite locks, and those of the index of its write-ahead log
/// ([`os.h`](https://github.com/sqlite/sqlite/blob/version-3.40.1/src/os.h#L160),
/// [`os_unix.c`](https://github.com/sqlite/sqlite/blob/version-3.40.1/src/os_unix.c#L4431)).
const DATABASE_BYTES: RangeInclusive<u64> = 0x4000_0000..=0x4000_01ff;
const LOG_INDEX_BYTES: RangeInclusive<u64> = 120..=127;

/// The most processes and descriptors that are searched for databases.
const MAX_SEARCHED: usize = 64;
const MAX_DESCRIPTORS: usize = 1_024;

/// Finds who holds the locks on files that some of these waits seem to be for: those of the kernel's
/// own list, and SQLite databases that processes have open which sleep, and that another process writes
/// to. It takes the right to look at other users' processes. A search that could not be completed is counted.
///
/// Each read of the list waits until no CPU is in the middle of an RCU read, which may take seconds where
/// threads get no CPU: the list is read once, and never by the thread that empties the rings.
pub(crate) fn find_awaited(open: &[Wait], diagnostics: &mut Diagnostics) -> Vec<AwaitedFileLock> {
    let mut calls = open.iter().filter_map(|wait| wait.syscall.as_ref());
    let asleep: BTreeSet<Tgid> = (open.iter())
        .filter(|wait| wait.syscall.as_ref().is_some_and(sleeps))
        .map(|wait| wait.tgid)
        .collect();
    let waits_for_lock = calls.any(syscalls::waits_for_file_lock);
    if asleep.is_empty() && !waits_for_lock {
        return Vec::new();
    }
    let list = read_beginning(Path::new("/proc/locks"), MAX_BYTES);
    let mut awaited = match waits_for_lock {
        true => with_holders(parse(&list), Instant::now() + SEARCH_TIME, diagnostics),
        false => Vec::new(),
    };
    awaited.extend(find_databases(&asleep, &locked_databases(&list)));
    with_names(awaited)
}

/// Puts whoever has the open file in place of the process that took its lock.
fn with_holders(
    parsed: Vec<(AwaitedFileLock, Option<&str>)>,
    deadline: Instant,
    diagnostics: &mut Diagnostics,
) -> Vec<AwaitedFileLock> {
    let locks = parsed.iter().filter_map(|(_, lock)| *lock).collect();
    let holders = or_nobody(open_file_holders::find_holders(&locks, deadline), diagnostics);
    let mut awaited = Vec::new();
    for (mut lock, of_open_file) in parsed {
        if let Some(text) = of_open_file {
            let holder = holders.get(text).copied();
            lock.holder = holder.map(|tgid| PeerProcess { tgid, comm: String::new() });
        }
        awaited.push(lock);
    }
    awaited
}

/// Adds the names of the processes that hold the locks.
fn with_names(mut awaited: Vec<AwaitedFileLock>) -> Vec<AwaitedFileLock> {
    for holder in awaited.iter_mut().filter_map(|lock| lock.holder.as_mut()) {
        let comm = fs::read_to_string(format!("/proc/{}/comm", holder.tgid));
        holder.comm = comm.unwrap_or_default().trim_end().to_owned();
    }
    awaited
}

fn sleeps(call: &Syscall) -> bool {
    matches!(syscalls::name(call), Some("nanosleep" | "clock_nanosleep" | "clock_nanosleep_time64"))
}

/// The databases to which one process alone writes, by device and inode.
fn locked_databases(list: &str) -> BTreeMap<(u32, u64), Tgid> {
    let mut writers: BTreeMap<(u32, u64), BTreeSet<Tgid>> = BTreeMap::new();
    for line in list.lines().filter_map(Line::parse) {
        if let Some(process) = line.process.filter(|_| line.is_of_database_writer()) {
            writers.entry((line.device, line.inode)).or_default().insert(process);
        }
    }
    let only = |(file, processes): ((u32, u64), BTreeSet<Tgid>)| {
        processes.first().filter(|_| processes.len() == 1).map(|&process| (file, process))
    };
    writers.into_iter().filter_map(only).collect()
}

/// Finds processes that have databases open to which others write.
fn find_databases(
    asleep: &BTreeSet<Tgid>,
    databases: &BTreeMap<(u32, u64), Tgid>,
) -> Vec<AwaitedFileLock> {
    let mut found = Vec::new();
    if databases.is_empty() {
        return found;
    }
    let deadline = Instant::now() + SEARCH_TIME;
    for &process in asleep.iter().take(MAX_SEARCHED) {
        if Instant::now() >= deadline || found.len() >= MAX_WAITERS {
            break;
        }
        for (device, inode) in open_files(process, databases) {
            let holder = databases.get(&(device, inode)).filter(|&&holder| holder != process);
            found.extend(holder.map(|&tgid| AwaitedFileLock {
                device,
                inode,
                waiter: Some(process),
                holder: Some(PeerProcess { tgid, comm: String::new() }),
            }));
        }
    }
    found
}

/// Returns those of these files that a process has open. Its descriptors' descriptions tell: nothing
/// is asked of the files themselves, whose file system may never answer.
fn open_files(process: Tgid, files: &BTreeMap<(u32, u64), Tgid>) -> BTreeSet<(u32, u64)> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let mut mounts: Option<String> = None;
    let mut open = BTreeSet::new();
    let descriptors = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    for entry in descriptors.take(MAX_DESCRIPTORS) {
        if !fs::read_link(entry.path()).is_ok_and(|leads_to| has_path(&leads_to)) {
            continue;
        }
        let info = folder.join("fdinfo").join(entry.file_name());
        let text = read_beginning(&info, MAX_BYTES);
        let Some(descriptor) = OpenDescriptor::parse(&text) else { continue };
        let Some(inode) = descriptor.inode else { continue };
        if !files.keys().any(|&(_, known)| known == inode) {
            continue;
        }
        let mounts =
            mounts.get_or_insert_with(|| read_beginning(&folder.join("mountinfo"), MAX_BYTES));
        open.extend(device_of_mount(mounts, descriptor.mount).map(|device| (device, inode)));
    }
    open.retain(|file| files.contains_key(file));
    open
}

/// Finds the waiters in the kernel's list, each with who took what it waits for, and with the lock as the
/// list has it if that is an open file's.
fn parse(list: &str) -> Vec<(AwaitedFileLock, Option<&str>)> {
    let mut awaited = Vec::new();
    let mut holder: Option<Line<'_>> = None;
    for line in list.lines().filter_map(Line::parse) {
        if !line.waits {
            holder = Some(line);
        } else if let Some(holder) = holder.filter(|holder| holder.number == line.number)
            && awaited.len() < MAX_WAITERS
        {
            let lock = AwaitedFileLock {
                device: line.device,
                inode: line.inode,
                waiter: line.process,
                holder: holder.process.map(|tgid| PeerProcess { tgid, comm: String::new() }),
            };
            awaited.push((lock, holder.of_open_file));
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
    is_write: bool,
    /// All from the kind on, if the lock belongs to an open file.
    of_open_file: Option<&'a str>,
    first_byte: Option<u64>,
}

impl<'a> Line<'a> {
    /// Returns whether a process has this lock to write to a SQLite database.
    fn is_of_database_writer(&self) -> bool {
        let is_sqlite =
            |byte: u64| DATABASE_BYTES.contains(&byte) || LOG_INDEX_BYTES.contains(&byte);
        !self.waits && self.is_write && self.first_byte.is_some_and(is_sqlite)
    }

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
        let text = line.split_once(kind).map_or("", |(before, _)| &line[before.len()..]).trim_end();
        let of_open_file = (kind != "POSIX").then_some(text);
        let (_advisory, access) = (words.next()?, words.next()?);
        // -1 for locks of open files; 0 for a process outside of the PID namespace.
        let process = words.next()?.parse::<u32>().ok().filter(|&tgid| tgid != 0).map(Tgid);
        let mut file = words.next()?.splitn(3, ':');
        let major = u32::from_str_radix(file.next()?, 16).ok()?;
        let minor = u32::from_str_radix(file.next()?, 16).ok()?;
        let inode = file.next()?.parse().ok()?;
        Some(Self {
            number,
            waits,
            process,
            device: major << MINOR_BITS | minor,
            inode,
            of_open_file,
            is_write: access == "WRITE",
            first_byte: words.next().and_then(|byte| byte.parse().ok()),
        })
    }
}

/// Parses any text as each of the files that are read here, for the fuzzer.
pub(crate) fn parse_hostile(text: &str) {
    assert!(parse(text).len() <= MAX_WAITERS);
    assert!(open_file_holders::parse_locks(text).count() <= text.lines().count());
    let _databases = locked_databases(text);
    let _descriptor = OpenDescriptor::parse(text);
    let _device = device_of_mount(text, 36);
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
    fn databases_are_known_by_the_bytes_that_their_writers_lock() {
        let list = "\
1: POSIX  ADVISORY  WRITE 10 fe:00:5 1073741825 1073741825
2: POSIX  ADVISORY  READ 11 fe:00:5 1073741826 1073742335
3: POSIX  ADVISORY  WRITE 12 fe:00:6 120 120
4: POSIX  ADVISORY  WRITE 13 fe:00:7 0 EOF
5: POSIX  ADVISORY  READ 14 fe:00:8 1073741826 1073742335
6: POSIX  ADVISORY  WRITE 15 fe:00:9 1073741824 1073741825
7: POSIX  ADVISORY  WRITE 16 fe:00:9 1073741826 1073742335
8: -> POSIX  ADVISORY  WRITE 17 fe:00:10 1073741825 1073741825";
        let device = 0xfe << 20;
        let expected = BTreeMap::from([((device, 5), Tgid(10)), ((device, 6), Tgid(12))]);
        assert_eq!(locked_databases(list), expected);
    }

    #[test]
    fn a_process_has_a_file_open_that_its_descriptors_tell() {
        use std::os::unix::fs::MetadataExt as _;
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let device = rustix::fs::major(metadata.dev()) << 20 | rustix::fs::minor(metadata.dev());
        let (own, other) = (Tgid(std::process::id()), Tgid(1));
        let databases = BTreeMap::from([((device, metadata.ino()), other)]);
        let found = find_databases(&BTreeSet::from([own]), &databases);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].waiter, found[0].inode), (Some(own), metadata.ino()));
        assert_eq!(found[0].holder.as_ref().map(|holder| holder.tgid), Some(other));
        // Who writes to it waits for nobody, and who has closed it neither.
        let databases = BTreeMap::from([((device, metadata.ino()), own)]);
        assert_eq!(find_databases(&BTreeSet::from([own]), &databases), []);
        drop(file);
        let databases = BTreeMap::from([((device, metadata.ino()), other)]);
        assert_eq!(find_databases(&BTreeSet::from([own]), &databases), []);
    }

    /// The process that took a lock may have ended, and another one have it: that one was not found.
    #[test]
    fn a_lock_of_an_open_file_has_no_holder_if_not_everybody_was_asked_in_time() {
        let mut diagnostics = Diagnostics::new();
        let awaited = with_holders(parse(LIST), Instant::now(), &mut diagnostics);
        let holders: Vec<_> = awaited.iter().map(|lock| lock.holder.is_some()).collect();
        assert_eq!(holders, [true, true, false, false]);
        assert_eq!(diagnostics, Diagnostics::from([("holder_searches_out_of_time", 1)]));
    }

    #[test]
    fn waiters_are_found_with_who_holds_what_they_wait_for() {
        let device = 0xfe << 20;
        let lock = |inode, waiter: Option<u32>, holder: Option<u32>| AwaitedFileLock {
            device,
            inode,
            waiter: waiter.map(Tgid),
            holder: holder.map(|tgid| PeerProcess { tgid: Tgid(tgid), comm: String::new() }),
        };
        let flock = "FLOCK  ADVISORY  WRITE 1957 fe:00:10273008 0 EOF";
        assert_eq!(
            parse(LIST),
            [
                (lock(10_273_009, Some(2006), Some(1957)), None),
                (lock(10_273_009, None, Some(1957)), None),
                (lock(10_273_008, Some(2005), Some(1957)), Some(flock)),
                (
                    lock(10_133_506, None, None),
                    Some("OFDLCK ADVISORY  READ -1 fe:00:10133506 0 EOF")
                ),
            ]
        );
    }
}

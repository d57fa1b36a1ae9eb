//! Who holds a lock that belongs to an open file rather than to a process: `flock`, `F_OFD_SETLKW`.
//!
//! Processes that inherit an open file hold its locks together. The kernel's list has the process that
//! took the lock, which may have ended since, or none (`-1`). A script that is to run once at a time:
//!
//! ```text
//! exec 9>/run/backup.lock                      process 1950 opens the file
//! flock 9                                      its child 1957 takes the lock, and ends
//! upload                                       its child 1958 works, and inherits the file as well
//!
//! /proc/locks            2: FLOCK  ADVISORY  WRITE 1957 fe:00:10273008 0 EOF
//! /proc/1950/fdinfo/9    lock:  1: FLOCK  ADVISORY  WRITE 1957 fe:00:10273008 0 EOF
//! /proc/1958/fdinfo/9    the same
//! ```
//!
//! The holder is the one from which the others inherited it, 1950.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::{Duration, Instant},
};

use offwake_recording::units::Tgid;

use crate::proc_files::{list_processes, read_beginning};

/// For how long the descriptors of all processes are searched. A descriptor takes some 3 us.
const SEARCH_TIME: Duration = Duration::from_millis(250);

/// The most bytes that are read of the description of a descriptor, or of a process.
const MAX_BYTES: u64 = 16 << 10;

/// Finds the process that holds each of these locks, which are lines of the kernel's list from the kind
/// of the lock on. A lock is not among the results if no process has it, or if several
/// have it of which none is the parent of all others: then it is not known who keeps it.
pub(super) fn find_holders<'a>(locks: &BTreeSet<&'a str>) -> BTreeMap<&'a str, Tgid> {
    let mut holders: BTreeMap<&str, BTreeSet<Tgid>> = BTreeMap::new();
    let deadline = Instant::now() + SEARCH_TIME;
    for (tgid, process) in list_processes() {
        if locks.is_empty() || Instant::now() >= deadline {
            break;
        }
        for lock in locks_of_process(&process, locks, deadline) {
            holders.entry(lock).or_default().insert(tgid);
        }
    }
    let first = |(lock, holders): (_, BTreeSet<Tgid>)| {
        find_first(&holders, parent_of_process).map(|first| (lock, first))
    };
    holders.into_iter().filter_map(first).collect()
}

/// Returns those of these locks that a process has, by what the kernel says of its descriptors. Nothing is
/// asked of the files themselves, whose file system may never answer.
fn locks_of_process<'a>(
    process: &Path,
    locks: &BTreeSet<&'a str>,
    deadline: Instant,
) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten() {
        if Instant::now() >= deadline {
            break;
        }
        let text = read_beginning(&entry.path(), MAX_BYTES);
        found.extend(parse_locks(&text).filter_map(|lock| locks.get(lock).copied()));
    }
    found
}

/// Returns the locks that an open file has, each from its kind on.
pub(super) fn parse_locks(fdinfo: &str) -> impl Iterator<Item = &str> {
    let lines = fdinfo.lines().filter_map(|line| line.strip_prefix("lock:"));
    // The number counts the locks of this file.
    lines.filter_map(|line| line.split_once(": ").map(|(_number, lock)| lock.trim()))
}

/// Returns the process from which all others descend, one after the other.
fn find_first(processes: &BTreeSet<Tgid>, parent: impl Fn(Tgid) -> Option<Tgid>) -> Option<Tgid> {
    let inherited = |process: &Tgid| parent(*process).is_some_and(|it| processes.contains(&it));
    let mut first = processes.iter().filter(|process| !inherited(process));
    let only = first.next().copied();
    only.filter(|_| first.next().is_none())
}

fn parent_of_process(process: Tgid) -> Option<Tgid> {
    let status = read_beginning(Path::new(&format!("/proc/{process}/status")), MAX_BYTES);
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok().map(Tgid)
}

#[cfg(test)]
mod tests {
    use std::{
        os::{fd::AsFd as _, unix::fs::MetadataExt as _},
        process::{Command, Stdio},
    };

    use rustix::fs::FlockOperation;

    use super::*;

    #[test]
    fn the_locks_of_an_open_file_are_those_of_its_description() {
        let fdinfo = "pos:\t0\nflags:\t0100002\nmnt_id:\t22\nino:\t77\n\
             lock:\t1: FLOCK  ADVISORY  WRITE 1957 fe:00:77 0 EOF\n\
             lock:\t2: OFDLCK ADVISORY  READ -1 fe:00:77 0 EOF\nlock:\tnone\n";
        let locks: Vec<_> = parse_locks(fdinfo).collect();
        let (flock, of_file) = (
            "FLOCK  ADVISORY  WRITE 1957 fe:00:77 0 EOF",
            "OFDLCK ADVISORY  READ -1 fe:00:77 0 EOF",
        );
        assert_eq!(locks, [flock, of_file]);
    }

    #[test]
    fn the_first_is_the_one_that_the_others_descend_from() {
        let processes = |tgids: &[u32]| tgids.iter().copied().map(Tgid).collect();
        // 10 has the children 11 and 12; 13 is a child of 12. 20 and 21 have other parents.
        let parent = |process: Tgid| match process.0 {
            11 | 12 => Some(Tgid(10)),
            13 => Some(Tgid(12)),
            _ => Some(Tgid(1)),
        };
        assert_eq!(find_first(&processes(&[13, 12, 11, 10]), parent), Some(Tgid(10)));
        assert_eq!(find_first(&processes(&[13, 12]), parent), Some(Tgid(12)));
        assert_eq!(find_first(&processes(&[20]), parent), Some(Tgid(20)));
        // Nobody knows which of two that are left keeps it.
        assert_eq!(find_first(&processes(&[11, 12]), parent), None);
        assert_eq!(find_first(&processes(&[10, 20]), parent), None);
        assert_eq!(find_first(&processes(&[]), parent), None);
    }

    /// A child that inherits the open file holds its lock after the one that took it has closed it.
    #[test]
    fn who_inherited_an_open_file_holds_its_lock() {
        let file = tempfile::tempfile().unwrap();
        rustix::fs::flock(file.as_fd(), FlockOperation::LockExclusive).unwrap();
        let inode = file.metadata().unwrap().ino();
        let list = fs::read_to_string("/proc/locks").unwrap();
        let is_it = |line: &&str| line.contains(&format!(":{inode} ")) && line.contains("FLOCK");
        let line = list.lines().find(is_it).unwrap();
        let locks = BTreeSet::from([line.split_once(": ").unwrap().1]);

        let own = Tgid(std::process::id());
        assert_eq!(find_holders(&locks).into_values().collect::<Vec<_>>(), [own]);

        let (mut sleep, input) = (Command::new("cat"), file.try_clone().unwrap());
        let mut child = sleep.stdin(Stdio::piped()).stdout(input).spawn().unwrap();
        drop(sleep);
        assert_eq!(find_holders(&locks).into_values().collect::<Vec<_>>(), [own]);
        drop(file);
        let holder = find_holders(&locks).into_values().collect::<Vec<_>>();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(holder, [Tgid(child.id())]);
        assert_eq!(find_holders(&locks), BTreeMap::new());
    }
}

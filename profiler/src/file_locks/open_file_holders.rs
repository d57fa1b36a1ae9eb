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
    path::Path,
    time::Instant,
};

use offwake_recording::units::Tgid;

use crate::{
    descriptor_search::{FIRST_PROCESS, FirstProcess, Incomplete, search_descriptors},
    proc_files::read_beginning,
};

/// The most bytes that are read of the description of a process.
const MAX_BYTES: u64 = 16 << 10;

/// Finds the process that holds each of these locks, which are lines of the kernel's list from the kind
/// of the lock on. A lock is not among the results if no process has it, or if several
/// have it of which none is the parent of all others: then it is not known who keeps it. Nor is it if the
/// first process took it and does not let its descriptors be seen.
///
/// # Errors
///
/// If not all processes were seen by the deadline: any of them may hold any of the locks as well.
pub(super) fn find_holders<'a>(
    locks: &BTreeSet<&'a str>,
    deadline: Instant,
) -> Result<BTreeMap<&'a str, Tgid>, Incomplete> {
    if locks.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut holders: BTreeMap<&str, BTreeSet<Tgid>> = BTreeMap::new();
    let first_process = search_descriptors(deadline, &mut |descriptor| {
        let Some(text) = descriptor.read_info_of_file()? else { return Ok(()) };
        for lock in parse_locks(&text).filter_map(|lock| locks.get(lock).copied()) {
            holders.entry(lock).or_default().insert(descriptor.tgid);
        }
        Ok(())
    })?;
    let first = |(lock, holders): (_, BTreeSet<Tgid>)| {
        find_first(&holders, parent_of_process).map(|first| (lock, first))
    };
    let is_known = |(lock, _): &(&str, Tgid)| match first_process {
        FirstProcess::Seen => true,
        FirstProcess::Refused => parse_taker(lock) != Some(FIRST_PROCESS),
    };
    Ok(holders.into_iter().filter_map(first).filter(is_known).collect())
}

/// Returns the locks that an open file has, each from its kind on.
pub(super) fn parse_locks(fdinfo: &str) -> impl Iterator<Item = &str> {
    let lines = fdinfo.lines().filter_map(|line| line.strip_prefix("lock:"));
    // The number counts the locks of this file.
    lines.filter_map(|line| line.split_once(": ").map(|(_number, lock)| lock.trim()))
}

/// Returns the process that took a lock; none of one that the kernel's list has as nobody's.
fn parse_taker(lock: &str) -> Option<Tgid> {
    lock.split_ascii_whitespace().nth(3)?.parse().ok().map(Tgid)
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
        fs::{self, File},
        os::{fd::AsFd as _, unix::fs::MetadataExt as _},
        process::{Command, Stdio},
        time::Duration,
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

    /// Makes a file that this process holds a lock of, and returns the lock as the kernel lists it.
    fn locked_file() -> (File, String) {
        let file = tempfile::tempfile().unwrap();
        rustix::fs::flock(file.as_fd(), FlockOperation::LockExclusive).unwrap();
        let inode = file.metadata().unwrap().ino();
        let list = fs::read_to_string("/proc/locks").unwrap();
        let is_it = |line: &&str| line.contains(&format!(":{inode} ")) && line.contains("FLOCK");
        let line = list.lines().find(is_it).unwrap();
        (file, line.split_once(": ").unwrap().1.to_owned())
    }

    fn holders(lock: &str) -> Vec<Tgid> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = find_holders(&BTreeSet::from([lock]), deadline).unwrap();
        found.into_values().collect()
    }

    /// A child that inherits the open file holds its lock after the one that took it has closed it.
    #[test]
    fn who_inherited_an_open_file_holds_its_lock() {
        let (file, lock) = locked_file();
        let own = Tgid(std::process::id());
        assert_eq!(parse_taker(&lock), Some(own));
        assert_eq!(holders(&lock), [own]);

        let (mut sleep, input) = (Command::new("cat"), file.try_clone().unwrap());
        let mut child = sleep.stdin(Stdio::piped()).stdout(input).spawn().unwrap();
        drop(sleep);
        assert_eq!(holders(&lock), [own]);
        drop(file);
        let holder = holders(&lock);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(holder, [Tgid(child.id())]);
        assert_eq!(holders(&lock), []);
    }

    /// Whoever was found so far may not be the only one.
    #[test]
    fn nobody_is_named_if_not_everybody_was_asked_in_time() {
        let (_file, lock) = locked_file();
        let found = find_holders(&BTreeSet::from([lock.as_str()]), Instant::now());
        assert_eq!(found, Err(Incomplete::OutOfTime));
        // Nobody is asked about no lock.
        assert_eq!(find_holders(&BTreeSet::new(), Instant::now()), Ok(BTreeMap::new()));
    }
}

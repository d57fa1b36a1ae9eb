//! The children that threads wait for by a descriptor.
//!
//! ```text
//! open waitid(P_PIDFD, 7) ──▶ /proc/PID/fdinfo/7   Pid: 815
//! ```
//!
//! `Pid` is the number as whoever mounted `/proc` sees it, and -1 of a process that has been reaped
//! ([`pidfd_show_fdinfo`](https://github.com/torvalds/linux/blob/v6.12/fs/pidfs.c#L36)).

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use offwake_analysis::blame::cause::syscalls;
use offwake_recording::{AwaitedChild, Wait, units::Tgid};

use crate::{proc_files::read_beginning, thread_call::ThreadCall};

/// The most waits that are looked into, and for how long.
const MAX_WAITS: usize = 4_096;
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes that are read of a descriptor's description.
const MAX_BYTES: u64 = 4_096;
/// `P_PIDFD` of waitid(2).
const BY_DESCRIPTOR: u32 = 3;

/// Finds the children that threads wait for by a descriptor: those of the target's threads first.
pub(crate) fn find_awaited_children(open: &[Wait]) -> Vec<AwaitedChild> {
    let deadline = Instant::now() + PATIENCE;
    let of_target = |in_target| open.iter().filter(move |wait| wait.in_target == in_target);
    let waits = of_target(true).chain(of_target(false)).filter(|wait| wait.wake.is_none());
    let by_descriptor = waits.filter_map(|wait| Some((wait, descriptor(wait)?))).take(MAX_WAITS);
    (by_descriptor.take_while(|_| Instant::now() < deadline))
        .filter_map(|(wait, fd)| find_child(wait, fd))
        .collect()
}

/// Returns the descriptor of the child that a thread waits for, if it names the child by one.
fn descriptor(wait: &Wait) -> Option<u32> {
    let syscall = wait.syscall.as_ref()?;
    let [kind, fd, ..] = syscall.args;
    // The kernel takes the lower halves of the registers for an `int`.
    let is_by_descriptor = syscalls::name(syscall)? == "waitid" && kind as u32 == BY_DESCRIPTOR;
    is_by_descriptor.then_some(fd as u32)
}

/// Finds the process that a descriptor stands for. The thread has to be in the same call
/// afterwards.
fn find_child(wait: &Wait, fd: u32) -> Option<AwaitedChild> {
    // Of an epoll, say, the kernel may take for ever to describe it.
    let link = fs::read_link(format!("/proc/{}/fd/{fd}", wait.tgid)).ok()?;
    if !is_of_process(&link) {
        return None;
    }
    let path = format!("/proc/{}/fdinfo/{fd}", wait.tgid);
    let child = parse_pid(&read_beginning(Path::new(&path), MAX_BYTES))?;
    let syscall = wait.syscall.as_ref()?;
    let call = ThreadCall::read(wait.tgid, wait.tid)?;
    let is_same = call.number == syscall.number
        && call.arguments.map(|argument| argument as u32)[..2] == [BY_DESCRIPTOR, fd];
    is_same.then_some(AwaitedChild { waiter: wait.tid, child })
}

/// Returns whether the link of a descriptor says that it stands for a process. Linux 6.1 to 6.18 give all
/// of them one name; the other one is that of inodes that have no other.
fn is_of_process(leads_to: &Path) -> bool {
    let link = leads_to.to_string_lossy();
    link == "anon_inode:[pidfd]" || link.starts_with("pidfd:[")
}

/// Parses the process that a descriptor stands for; none if it stands for none any more.
fn parse_pid(fdinfo: &str) -> Option<Tgid> {
    let pid = fdinfo.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid > 0).map(Tgid)
}

/// Parses any text as the description of a descriptor, for the fuzzer.
pub(crate) fn parse_hostile(text: &str) {
    let _pid = parse_pid(text);
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Tgid;

    use super::{is_of_process, parse_pid};

    #[test]
    fn only_descriptors_of_processes_are_described() {
        // Linux 6.1 and 6.18.
        for link in ["anon_inode:[pidfd]", "pidfd:[4711]"] {
            assert!(is_of_process(link.as_ref()), "{link}");
        }
        for link in ["anon_inode:[eventpoll]", "/tmp/pidfd:[1]", "socket:[7]", ""] {
            assert!(!is_of_process(link.as_ref()), "{link}");
        }
    }

    #[test]
    fn the_child_is_the_one_that_the_kernel_names() {
        // As Linux 6.18 prints it.
        let fdinfo = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t3\nPid:\t815\nNSpid:\t815\t7\n";
        assert_eq!(parse_pid(fdinfo), Some(Tgid(815)));
        for none in ["Pid:\t-1\n", "Pid:\t0\n", "NSpid:\t7\n", "Pid:\tx\n", ""] {
            assert_eq!(parse_pid(none), None, "{none:?}");
        }
    }
}

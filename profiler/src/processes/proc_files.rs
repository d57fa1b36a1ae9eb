//! Reads what `/proc/PID` says of a process.

use std::{
    fs::File,
    io::Read as _,
    os::fd::{AsFd, OwnedFd},
};

use offwake_analysis::text::cut_bytes;
use offwake_recording::{ProcessInfo, units::Tgid};
use rustix::fs::{CWD, Mode, OFlags};

use crate::{kernel::now, reader_process};

/// Bytes of `cmdline` that are kept.
const MAX_ARGUMENTS: u32 = 4096;
/// Bytes of `status` that are read. The 65,536 groups that a process can be in at most are some
/// 700 KB.
const MAX_STATUS: usize = 1 << 20;
/// Bytes of `cgroup` that are read. It has a line for each hierarchy, some 14 at most, with a path
/// of up to 4096 bytes.
const MAX_CGROUP: usize = 128 << 10;

/// What is read of `/proc/PID/status`.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    tgid: Tgid,
    parent: Option<Tgid>,
    pid_in_container: Option<u32>,
    uid: Option<u32>,
}

/// Reads what a process is; none if it is gone.
pub(super) fn read_process(tgid: Tgid) -> Option<ProcessInfo> {
    let at = now();
    // The open directory stands for this process alone, whichever process has the number next.
    let directory = open(CWD, &format!("/proc/{tgid}"), OFlags::PATH | OFlags::DIRECTORY)?;
    let status = Status::parse(&read(&directory, "status", MAX_STATUS)?)?;
    // A thread of another process answers to its number too.
    if status.tgid != tgid {
        return None;
    }
    let executable = rustix::fs::readlinkat(&directory, "exe", Vec::new()).ok();
    // They are in the process's memory, which may wait for somebody.
    let arguments = reader_process::read_entry(tgid, &directory, "cmdline", MAX_ARGUMENTS + 1);
    let arguments = arguments.unwrap_or_default();
    Some(ProcessInfo {
        tgid,
        at,
        parent: status.parent,
        executable: executable.map(|path| path.to_string_lossy().into_owned()),
        arguments: split_arguments(&arguments),
        cgroup: read_cgroup_line(&directory)
            .map(|path| String::from_utf8_lossy(&path).into_owned()),
        pid_in_container: status.pid_in_container,
        uid: status.uid,
    })
}

/// Reads what a process is whose first thread sleeps all the while; none if that is awake, or gone. A
/// process that runs may be in the middle of writing its title.
pub(super) fn read_sleeping_process(tgid: Tgid) -> Option<ProcessInfo> {
    let before = count_sleeps(tgid)?;
    let info = read_process(tgid)?;
    (count_sleeps(tgid) == Some(before)).then_some(info)
}

/// Counts how often the first thread of a process has gone to sleep; none if it does not sleep.
fn count_sleeps(tgid: Tgid) -> Option<u64> {
    let directory = open(CWD, &format!("/proc/{tgid}"), OFlags::PATH | OFlags::DIRECTORY)?;
    parse_sleeps(&read(&directory, "status", MAX_STATUS)?)
}

/// Parses how often a thread has gone to sleep, if its state is a sleep: S, or D.
fn parse_sleeps(status: &[u8]) -> Option<u64> {
    let field = |name: &[u8]| {
        let mut lines = status.split(|&byte| byte == b'\n');
        std::str::from_utf8(lines.find_map(|line| line.strip_prefix(name))?).ok()
    };
    let is_asleep = field(b"State:")?.trim_start().starts_with(['S', 'D']);
    let count = field(b"voluntary_ctxt_switches:")?.trim().parse().ok()?;
    is_asleep.then_some(count)
}

/// Reads the path of a process's cgroup in the v2 hierarchy, as the kernel writes it; none if the
/// process is gone.
pub(super) fn read_cgroup_path(tgid: Tgid) -> Option<Vec<u8>> {
    read_cgroup_path_of(tgid.0, Controllers::Unified)
}

/// Which hierarchy of cgroups a path is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controllers {
    /// The v2 hierarchy.
    Unified,
    /// The one of v1 that has the cpu controller.
    Cpu,
    /// The one of v1 that has the freezer.
    Freezer,
    /// The one of v1 that has the controller of block devices.
    BlockIo,
}

impl Controllers {
    /// The name of the controller of v1.
    fn v1_name(self) -> Option<&'static [u8]> {
        match self {
            Self::Unified => None,
            Self::Cpu => Some(b"cpu"),
            Self::Freezer => Some(b"freezer"),
            Self::BlockIo => Some(b"blkio"),
        }
    }
}

/// Reads the path of a thread's or a process's cgroup, as the kernel writes it; none if it is gone.
pub(super) fn read_cgroup_path_of(id: u32, controllers: Controllers) -> Option<Vec<u8>> {
    let directory = open(CWD, &format!("/proc/{id}"), OFlags::PATH | OFlags::DIRECTORY)?;
    find_cgroup_path(&read(&directory, "cgroup", MAX_CGROUP)?, controllers)
}

fn read_cgroup_line(directory: &OwnedFd) -> Option<Vec<u8>> {
    find_cgroup_path(&read(directory, "cgroup", MAX_CGROUP)?, Controllers::Unified)
}

/// Finds the path in one hierarchy: `0::/path`, or in v1 `3:cpu,cpuacct:/path`.
fn find_cgroup_path(text: &[u8], controllers: Controllers) -> Option<Vec<u8>> {
    // No name of a cgroup has a newline in it: the kernel refuses them.
    let path = text.split(|&byte| byte == b'\n').find_map(|line| match controllers.v1_name() {
        None => line.strip_prefix(b"0::"),
        Some(wanted) => {
            let mut parts = line.splitn(3, |&byte| byte == b':');
            let names = parts.nth(1)?;
            let path = parts.next()?;
            names.split(|&byte| byte == b',').any(|name| name == wanted).then_some(path)
        }
    })?;
    Some(path.to_vec())
}

fn open(directory: impl AsFd, name: &str, flags: OFlags) -> Option<OwnedFd> {
    rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Reads the first `limit` bytes of a file; none if it can't be read.
fn read(directory: &OwnedFd, name: &str, limit: usize) -> Option<Vec<u8>> {
    let file = File::from(open(directory, name, OFlags::RDONLY)?);
    let mut bytes = Vec::new();
    file.take(limit as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

impl Status {
    /// Parses `status`. The kernel writes a newline in a process's name as `\n`, so that every line
    /// is its own.
    fn parse(text: &[u8]) -> Option<Self> {
        let field = |name: &[u8]| {
            let mut lines = text.split(|&byte| byte == b'\n');
            std::str::from_utf8(lines.find_map(|line| line.strip_prefix(name))?).ok()
        };
        let numbers = |name: &[u8]| {
            let words = field(name).unwrap_or_default().split_ascii_whitespace();
            words.map_while(|word| word.parse::<u32>().ok())
        };
        let tgid = numbers(b"Tgid:").next()?;
        let parent = numbers(b"PPid:").next().filter(|&parent| parent != 0);
        Some(Self {
            tgid: Tgid(tgid),
            parent: parent.map(Tgid),
            // There is a number for each namespace, from that of /proc downwards.
            pid_in_container: numbers(b"NSpid:").skip(1).last(),
            // The line has the real, the effective, the saved and the filesystem's user id.
            uid: numbers(b"Uid:").nth(1),
        })
    }
}

/// Splits arguments, each of which ends in NUL. What a process writes over them to show something
/// else (`postgres`, `nginx`) is often filled up with more of these.
fn split_arguments(bytes: &[u8]) -> Vec<String> {
    let text = cut_bytes(&String::from_utf8_lossy(bytes), MAX_ARGUMENTS as usize);
    let text = text.trim_end_matches('\0');
    if text.is_empty() { Vec::new() } else { text.split('\0').map(str::to_owned).collect() }
}

/// Parses any bytes as each of these files, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    let _status = Status::parse(bytes);
    let _sleeps = parse_sleeps(bytes);
    for controllers in [Controllers::Unified, Controllers::Cpu, Controllers::Freezer] {
        let _path = find_cgroup_path(bytes, controllers);
    }
    let _arguments = split_arguments(bytes);
}

#[cfg(test)]
mod tests {
    use super::{Controllers, Status, find_cgroup_path, parse_sleeps, split_arguments};
    use offwake_recording::units::Tgid;

    const MAX_ARGUMENTS: usize = super::MAX_ARGUMENTS as usize;

    #[test]
    fn a_status_is_read_as_far_as_it_can_be() {
        let text = b"Name:\tx\\nTgid:\\t9\xff\nUmask:\t0022\nTgid:\t12\nPPid:\t4\n\
            Uid:\t1000\t33\t1000\t1000\nGroups:\t4 20 \nNSpid:\t12\t7\t1\n";
        let expected = Status {
            tgid: Tgid(12),
            parent: Some(Tgid(4)),
            pid_in_container: Some(1),
            uid: Some(33),
        };
        assert_eq!(Status::parse(text), Some(expected));
        let least = Status { tgid: Tgid(1), parent: None, pid_in_container: None, uid: None };
        let text = b"Tgid:\t1\nPPid:\t0\nUid:\t99999999999\t-1\nNSpid:\t1\n";
        assert_eq!(Status::parse(text), Some(least));
        for none in [&b""[..], b"\n\n", b"Tgid:", b"Tgid:\tx", b"Tgid:\t\xff", b"PPid:\t1"] {
            assert_eq!(Status::parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn sleeps_are_counted_of_who_is_asleep() {
        let status = |state: &str| {
            let text = format!("Name:\tx\nState:\t{state}\nvoluntary_ctxt_switches:\t31\n");
            parse_sleeps(text.as_bytes())
        };
        assert_eq!(status("S (sleeping)"), Some(31));
        assert_eq!(status("D (disk sleep)"), Some(31));
        assert_eq!(status("R (running)"), None);
        assert_eq!(parse_sleeps(b"State:\tS (sleeping)\nnonvoluntary_ctxt_switches:\t3\n"), None);
    }

    #[test]
    fn the_path_is_that_of_the_wanted_hierarchy() {
        let text = b"9:name=cpu:/n\n5:cpuset,cpuacct:/set\n3:cpu,io:/a:b\n0::/two\n";
        let path = |controllers| find_cgroup_path(text, controllers);
        assert_eq!(path(Controllers::Cpu), Some(b"/a:b".to_vec()));
        assert_eq!(path(Controllers::Freezer), None);
        assert_eq!(path(Controllers::Unified), Some(b"/two".to_vec()));
        assert_eq!(find_cgroup_path(b"0::/\n1:cpu\n", Controllers::Cpu), None);
    }

    #[test]
    fn arguments_end_in_nul_and_are_cut() {
        for (bytes, expected) in [
            (&b""[..], &[][..]),
            (b"\0\0\0", &[]),
            (b"sleep\x001\0", &["sleep", "1"]),
            (b"\0a\0\0b\0", &["", "a", "", "b"]),
            (b"postgres: writer\0\0\0\0", &["postgres: writer"]),
            (b"no end", &["no end"]),
            (b"\xff\0", &["\u{fffd}"]),
        ] {
            assert_eq!(split_arguments(bytes), expected, "{bytes:?}");
        }
        let long = split_arguments(&[b"sh\0".as_slice(), &[b'x'; 2 * MAX_ARGUMENTS]].concat());
        assert_eq!(long[1], format!("{}…", "x".repeat(MAX_ARGUMENTS - 3)));
        let whole = [b'x'; MAX_ARGUMENTS];
        assert_eq!(split_arguments(&whole), [String::from_utf8(whole.to_vec()).unwrap()]);
        let many = split_arguments(&[0xff; MAX_ARGUMENTS + 1]);
        assert_eq!(many[0].len(), MAX_ARGUMENTS - 1 + "…".len());
    }
}

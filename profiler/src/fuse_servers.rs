//! Who serves the FUSE filesystems that threads may wait for.
//!
//! ```text
//! /proc/PID/fd/N      -> /dev/fuse              PID has a connection open
//! /proc/PID/fdinfo/N     fuse_connection: 45    which one it is, since Linux 6.16
//! /sys/fs/fuse/connections/45/waiting           how many requests have no answer yet
//! ```
//! The number of a connection is that of the filesystem's device
//! ([`fuse_dev_show_fdinfo`](https://github.com/torvalds/linux/blob/v6.16/fs/fuse/dev.c#L2618),
//! [`fuse_ctl_add_conn`](https://github.com/torvalds/linux/blob/v6.12/fs/fuse/control.c#L245)).
//!
//! Nothing on such a filesystem is opened, nor asked about: whoever does that hangs as well.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use offwake_analysis::blame::cause::syscalls;
use offwake_recording::{FileKind, FuseServer, PeerProcess, ThreadKind, Wait};

use crate::proc_files::{list_processes, read_beginning};

/// How long the descriptors of all processes may be looked through.
const SCAN_TIME: Duration = Duration::from_millis(500);
/// The most servers that are kept.
const MAX_SERVERS: usize = 256;

/// Returns whether a wait may be for a filesystem: a program's call about a file or a path, or a page
/// fault.
pub(crate) fn may_be_for_filesystem(wait: &Wait) -> bool {
    let is_on_file =
        wait.file.is_some_and(|file| matches!(file.kind, FileKind::Regular | FileKind::Directory));
    let is_call = |call| syscalls::name(call).is_some_and(|name| PATH_CALLS.contains(&name));
    wait.kind != ThreadKind::Kernel && (is_on_file || wait.syscall.as_ref().is_none_or(is_call))
}

/// Calls about a path, or about a file whose descriptor is not recorded.
const PATH_CALLS: &[&str] = &[
    "access",
    "chdir",
    "chmod",
    "chown",
    "close",
    "creat",
    "execve",
    "execveat",
    "exit_group",
    "faccessat",
    "faccessat2",
    "fchmodat",
    "fchownat",
    "fstat",
    "fstatfs",
    "getxattr",
    "lgetxattr",
    "link",
    "linkat",
    "listxattr",
    "llistxattr",
    "lstat",
    "mkdir",
    "mkdirat",
    "mmap",
    "mount",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "readlink",
    "readlinkat",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "setxattr",
    "stat",
    "statfs",
    "statx",
    "symlink",
    "symlinkat",
    "sync",
    "truncate",
    "umount2",
    "unlink",
    "unlinkat",
    "utimensat",
];

/// Finds who serves FUSE filesystems, by the descriptors of all processes. It takes the right to look
/// at other users' processes.
pub(crate) fn find_servers() -> Vec<FuseServer> {
    let deadline = Instant::now() + SCAN_TIME;
    let mut servers = Vec::new();
    for (tgid, process) in list_processes() {
        if Instant::now() >= deadline || servers.len() >= MAX_SERVERS {
            break;
        }
        let connections = connections_of_process(&process);
        if connections.is_empty() {
            continue;
        }
        let comm = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let server = PeerProcess { tgid, comm: comm.trim_end().to_owned() };
        servers.extend(connections.into_iter().map(|device| FuseServer {
            device,
            unanswered: device.and_then(count_unanswered),
            server: server.clone(),
        }));
    }
    servers
}

/// Returns the connections that a process has open, each once.
fn connections_of_process(process: &Path) -> Vec<Option<u32>> {
    let mut connections = Vec::new();
    for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        // Reading where a link leads does not go there.
        let is_device =
            fs::read_link(entry.path()).is_ok_and(|path| path == Path::new("/dev/fuse"));
        if !is_device {
            continue;
        }
        let info = process.join("fdinfo").join(entry.file_name());
        let connection = parse_connection(&read_beginning(&info, 4_096));
        if !connections.contains(&connection) {
            connections.push(connection);
        }
    }
    connections
}

/// `fuse_connection: 45` → 45
fn parse_connection(fdinfo: &str) -> Option<u32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("fuse_connection:"))?.trim().parse().ok()
}

/// Returns how many requests of a connection have no answer yet, if the filesystem that tells is
/// mounted.
fn count_unanswered(connection: u32) -> Option<u32> {
    let path = format!("/sys/fs/fuse/connections/{connection}/waiting");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Parses any text as the description of a descriptor, for the fuzzer.
pub(crate) fn parse_hostile(text: &str) {
    let _connection = parse_connection(text);
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{self, fs::DirBuilderExt as _},
        path::Path,
    };

    use super::{connections_of_process, parse_connection};

    /// As Linux 6.18 prints it.
    const FDINFO: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t91\nfuse_connection:\t45\n";

    #[test]
    fn the_connection_is_what_the_kernel_says() {
        assert_eq!(parse_connection(FDINFO), Some(45));
        assert_eq!(parse_connection("pos:\t0\nflags:\t02100002\n"), None);
        assert_eq!(parse_connection("fuse_connection:\t-1\n"), None);
    }

    #[test]
    fn each_connection_of_a_process_is_found_once_and_other_files_are_none() {
        let process = tempfile::tempdir().unwrap();
        let create = |name: &str| {
            fs::DirBuilder::new().mode(0o700).create(process.path().join(name)).unwrap();
        };
        let descriptor = |number: &str, leads_to: &str, info: &str| {
            let path = |folder: &str| process.path().join(folder).join(number);
            unix::fs::symlink(Path::new(leads_to), path("fd")).unwrap();
            fs::write(path("fdinfo"), info).unwrap();
        };
        create("fd");
        create("fdinfo");
        descriptor("3", "/dev/fuse", FDINFO);
        descriptor("4", "/dev/fuse", FDINFO);
        descriptor("5", "/mnt/fuse", "pos:\t0\nfuse_connection:\t46\n");
        descriptor("6", "socket:[7]", "pos:\t0\n");
        assert_eq!(connections_of_process(process.path()), [Some(45)]);
        // Earlier kernels don't say which one it is.
        descriptor("7", "/dev/fuse", "pos:\t0\n");
        let mut found = connections_of_process(process.path());
        found.sort_unstable();
        assert_eq!(found, [None, Some(45)]);
        assert_eq!(connections_of_process(&process.path().join("gone")), []);
    }
}

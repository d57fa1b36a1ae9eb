//! What those who are locked in can do, tried by processes that are.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs::{self, File},
    net::TcpStream,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{
            fs::{PermissionsExt as _, chown},
            net::UnixStream,
        },
    },
    path::PathBuf,
    process::{Command, Output, Stdio},
    ptr,
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags,
        memfd_create, mknodat, setxattr, utimensat,
    },
    io::Errno,
    process::{Pid, test_kill_process},
    thread::{capabilities, remove_capability_from_bounding_set},
};

use seccompiler::{SeccompAction, SeccompFilter};

use super::*;

const ITSELF: &str =
    "parser::sandbox::tests::who_is_locked_in_can_read_below_usr_and_do_nothing_else";
/// Set in the environment of the process that is to lock itself in.
const IS_CHILD: &str = "OFFWAKE_TEST_LOCKED_IN";

/// Runs a test of this file in a process of its own, which finds `value` in [`IS_CHILD`] and is to lock itself in.
fn run_in_child(test: &str, value: impl AsRef<OsStr>) -> Output {
    let (_ours, its) = UnixStream::pair().unwrap();
    Command::new(env::current_exe().unwrap())
        // With one test thread, the test runs in the thread that the process begins with.
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(IS_CHILD, value)
        .stdin(Stdio::from(OwnedFd::from(its)))
        .output()
        .unwrap()
}

/// What is tried and refused. Only x86-64 has `open`, beside `openat`.
const REFUSED: usize = if cfg!(target_arch = "x86_64") { 33 } else { 28 };

#[test]
fn who_is_locked_in_can_read_below_usr_and_do_nothing_else() {
    if env::var_os(IS_CHILD).is_some() {
        return try_everything();
    }
    let child = run_in_child(ITSELF, "");
    let text = String::from_utf8_lossy(&child.stdout);
    let said: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("tried ")).map(|(_, said)| said).collect();
    if text.contains("no Landlock") {
        eprintln!("NOT RUN, this kernel has no Landlock: who_is_locked_in_can_read_…");
        return;
    }
    let (allowed, rest) = said.split_at_checked(5).expect("something was tried");
    assert!(allowed.iter().all(|tried| tried.ends_with(": it works")), "{child:?}");
    assert_eq!(rest.len(), REFUSED, "{child:?}");
    assert!(rest.iter().all(|tried| tried.ends_with(": it is refused")), "{rest:#?}");
}

const READER: &str = "parser::sandbox::tests::who_reads_others_can_read_them_and_change_nothing";

#[test]
fn who_reads_others_can_read_them_and_change_nothing() {
    if env::var_os(IS_CHILD).is_some() {
        return try_to_change_something();
    }
    let directory = tempfile::tempdir().unwrap();
    let child = run_in_child(READER, directory.path());
    let text = String::from_utf8_lossy(&child.stdout);
    let said: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once("tried ")?.1)).collect();
    let (allowed, rest) = said.split_at_checked(4).expect("something was tried");
    assert!(allowed.iter().all(|tried| tried.ends_with(": it works")), "{child:?}");
    assert_eq!(rest.len(), 17, "{child:?}");
    assert!(rest.iter().all(|tried| tried.ends_with(": it is refused")), "{rest:#?}");
}

fn try_to_change_something() {
    // Open in this process: the reader has nothing of whoever started it.
    let before = File::open("/usr/bin/env").unwrap();
    let directory = PathBuf::from(env::var_os(IS_CHILD).unwrap());
    let file = directory.join("file");
    fs::write(&file, "of the same user").unwrap();
    lock_in_reader("reads").unwrap();
    let say = |what: &str, works: bool| {
        println!("tried {what}: {}", if works { "it works" } else { "it is refused" });
    };
    // SAFETY: takes nothing, cannot fail.
    let parent = unsafe { libc::getppid() };
    let memory = File::open(format!("/proc/{parent}/mem"));
    say("to open its parent's memory", memory.is_ok());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open("/usr/bin/env", flags, Mode::empty());
    say("to read a file", opened.is_ok() && fs::read("/usr/bin/env").is_ok());
    say("to make memory a file", memfd_create("x", MemfdFlags::CLOEXEC).is_ok());
    let maps = fs::read(format!("/proc/{parent}/maps"));
    say("to see what its parent has mapped", maps.is_ok_and(|maps| !maps.is_empty()));

    // The number can be another file's by now.
    let same = fs::read_link(format!("/proc/self/fd/{}", before.as_raw_fd()));
    say("to keep a file open", same.is_ok_and(|path| path.ends_with("bin/env")));
    std::mem::forget(before);
    let old = rustix::fs::open("/tmp/offwake-was-here", OFlags::RDWR | OFlags::CREATE, Mode::RUSR);
    say("to make a file by another call", old.is_ok());
    let writable = File::options().write(true).open(format!("/proc/{parent}/mem"));
    say("to open its parent's memory to write", writable.is_ok());
    say("to write a file", fs::write("/tmp/offwake-was-here", "").is_ok());
    say("to remove a file", fs::remove_file("/tmp/offwake-is-not-here").is_ok());
    // SAFETY: no signal is sent: only whether one could be is asked.
    let signalled = unsafe { libc::syscall(libc::SYS_tgkill, parent, parent, 0) };
    say("to send its parent a signal", signalled == 0);
    say("to send signals", test_kill_process(Pid::INIT).is_ok());
    // SAFETY: an attempt alone, with no memory of ours.
    let traced = unsafe { libc::ptrace(libc::PTRACE_SEIZE, parent, 0, 0) };
    say("to trace its parent", traced == 0);
    say("to start a program", Command::new("/usr/bin/env").spawn().is_ok());
    say("to talk to others", std::net::UdpSocket::bind("127.0.0.1:0").is_ok());
    let read_only = fs::Permissions::from_mode(0o400);
    say("to change what a file permits", fs::set_permissions(&file, read_only.clone()).is_ok());
    let open = File::open(&file).unwrap();
    say("to change what an open file permits", open.set_permissions(read_only).is_ok());
    say("to give a file away", chown(&file, Some(65_534), None).is_ok());
    let epoch = Timespec { tv_sec: 0, tv_nsec: 0 };
    let times = Timestamps { last_access: epoch, last_modification: epoch };
    let dated = utimensat(CWD, &file, &times, AtFlags::empty());
    say("to date a file back", dated.is_ok());
    let attribute = setxattr(&file, "user.offwake", b"x", XattrFlags::empty());
    // A file system without attributes has another error.
    say("to set a file's attributes", attribute != Err(Errno::PERM));
    let fifo = directory.join("fifo");
    let made = mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0);
    say("to make a FIFO", made.is_ok());
    // SAFETY: a null pointer is an error for the kernel to find.
    let handle = unsafe { libc::syscall(libc::SYS_open_by_handle_at, libc::AT_FDCWD, 0, 0) };
    say("to open a file by its handle", handle != -1 || !is_refused());
}

/// Whether memory can be mapped so.
fn maps(protection: i32, flags: i32, file: Option<&File>) -> bool {
    let descriptor = file.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: a new mapping is nobody's memory; it is never used.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), 4096, protection, flags, descriptor, 0) };
    mapped != libc::MAP_FAILED || !is_refused()
}

fn is_refused() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

fn try_everything() {
    if lock_in("locked-in").unwrap() == RulesetStatus::NotEnforced {
        println!("no Landlock");
    }
    let say = |what: &str, works: bool| {
        println!("tried {what}: {}", if works { "it works" } else { "it is refused" });
    };
    let file = File::open("/usr/bin/env");
    say("to read below /usr", file.is_ok());
    let file = file.unwrap();
    say("to have a file twice", file.try_clone().is_ok());
    let read = libc::PROT_READ;
    say("to map a file", maps(read, libc::MAP_SHARED, Some(&file)));
    let anonymous = libc::MAP_ANONYMOUS;
    let write = read | libc::PROT_WRITE;
    say("to have memory", maps(write, libc::MAP_PRIVATE | anonymous, None));
    // SAFETY: no signal is sent: only whether one could be is asked.
    let signals = |process: i32, thread: i32| unsafe {
        libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 || !is_refused()
    };
    // SAFETY: takes nothing, cannot fail.
    let (itself, thread, parent) = unsafe { (libc::getpid(), libc::gettid(), libc::getppid()) };
    say("to send itself a signal", signals(itself, thread));

    say("to send its parent a signal", signals(parent, parent));
    // The kernel has no such process to protect: it is the filter that refuses.
    say("to send anybody a signal", signals(i32::MAX, i32::MAX));
    for (what, command) in
        [("to lock a file", libc::F_SETLK), ("to get signals of a file", libc::F_SETOWN)]
    {
        // SAFETY: a null pointer is an error for the kernel to find.
        say(what, unsafe { libc::fcntl(file.as_raw_fd(), command, 0) } == 0 || !is_refused());
    }
    say("to share memory", maps(write, libc::MAP_SHARED | anonymous, None));
    say("to share memory that it can't write to", maps(read, libc::MAP_SHARED | anonymous, None));
    say("to read elsewhere", File::open("/etc/hostname").is_ok());
    say("to look at processes", File::open("/proc/self/status").is_ok());
    say("to write", fs::write("/tmp/offwake-was-here", "").is_ok());
    say(
        "to connect",
        TcpStream::connect("127.0.0.1:1")
            .is_err_and(|error| error.kind() != io::ErrorKind::PermissionDenied),
    );
    say("to talk to others", UnixStream::pair().is_ok());
    say("to start a program", Command::new("/usr/bin/env").spawn().is_ok());
    say("to start a thread", thread::Builder::new().spawn(|| {}).is_ok());
    say("to send signals", test_kill_process(Pid::INIT).is_ok());
    say("to make memory a file", memfd_create("x", MemfdFlags::CLOEXEC).is_ok());

    let execute = read | libc::PROT_EXEC;
    say("to map code", maps(execute, libc::MAP_PRIVATE, Some(&file)));
    say("to share code", maps(execute, libc::MAP_SHARED, Some(&file)));
    say("to have memory for code", maps(execute, libc::MAP_PRIVATE | anonymous, None));
    say("to share a file that it can write to", maps(write, libc::MAP_SHARED, Some(&file)));
    let validate = libc::MAP_SHARED_VALIDATE;
    say("to share a file by another call", maps(read, validate, Some(&file)));
    // SAFETY: no mapping begins at a null pointer: it is an error for the kernel to find.
    let protected = unsafe { libc::mprotect(ptr::null_mut(), 4096, execute) };
    say("to make memory code", protected == 0 || !is_refused());
    // Each of these flags alone, by both calls.
    for flag in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_APPEND] {
        say("to open with a flag", opens(libc::SYS_openat, flag));
        #[cfg(target_arch = "x86_64")]
        say("to open with a flag by the older call", opens(libc::SYS_open, flag));
    }
    for (what, command) in
        [("to change a file's flags", libc::F_SETFL), ("to lease a file", libc::F_SETLEASE)]
    {
        // SAFETY: takes a number.
        say(what, unsafe { libc::fcntl(file.as_raw_fd(), command, 0) } == 0 || !is_refused());
    }
}

/// Whether nothing refuses to open a file with this flag that anybody may read.
fn opens(call: i64, flag: i32) -> bool {
    let path = c"/usr/bin/env".as_ptr();
    // SAFETY: the path is a C string, and the mode a number.
    let opened = unsafe {
        match call {
            libc::SYS_openat => libc::syscall(call, libc::AT_FDCWD, path, flag, 0o600),
            _ => libc::syscall(call, path, flag, 0o600),
        }
    };
    opened != -1 || !is_refused()
}

const BOUNDED: &str = "parser::sandbox::tests::who_stays_root_can_not_read_the_files_of_root";

#[test]
fn who_stays_root_can_not_read_the_files_of_root() {
    if env::var_os(IS_CHILD).is_some() {
        remove_capability_from_bounding_set(CapabilitySet::SETUID).unwrap();
        let rest = capabilities(None).unwrap().permitted - CapabilitySet::SETUID;
        let inheritable = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: rest, permitted: rest, inheritable })
            .unwrap();
        become_nobody();
        let user = geteuid();
        let files = lock_in("locked-in").unwrap();
        println!("tried as {user}: {files:?}, {}", File::open("/etc/shadow").is_ok());
        return;
    }
    if !geteuid().is_root() {
        eprintln!("NOT RUN, this takes root: who_stays_root_can_not_…");
        return;
    }
    let child = run_in_child(BOUNDED, "");
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(text.contains("tried as 0: FullyEnforced, false"), "{child:?}");
}

const BARRED: &str =
    "parser::sandbox::tests::what_keeps_the_kernel_from_locking_it_in_keeps_it_from_parsing";

/// Has this call fail with an error, as a container's filter does, or a kernel that lacks it.
fn bar(call: i64, error: i32) {
    let rules = BTreeMap::from([(call, Vec::new())]);
    let refuse = SeccompAction::Errno(error.cast_unsigned());
    let architecture = env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();
}

#[test]
fn what_keeps_the_kernel_from_locking_it_in_keeps_it_from_parsing() {
    let calls = [libc::SYS_seccomp, libc::SYS_landlock_create_ruleset];
    if let Some(wanted) = env::var_os(IS_CHILD) {
        let wanted = wanted.into_string().unwrap();
        let (call, error) = wanted.split_once(' ').unwrap();
        bar(call.parse().unwrap(), error.parse().unwrap());
        let lacking = lacking_parts().join(", ");
        let locked_in = lock_in("locked-in");
        println!("tried: {}, lacking: {lacking};", locked_in.is_ok());
        return;
    }
    for (call, name) in calls.into_iter().zip(["seccomp", "Landlock"]) {
        // Something keeps it from being used: nobody parses. The kernel lacks it: that is said.
        for (error, starts) in [(libc::EPERM, false), (libc::ENOSYS, true)] {
            let child = run_in_child(BARRED, format!("{call} {error}"));
            let text = String::from_utf8_lossy(&child.stdout);
            let lacking = if starts { name } else { "" };
            let words = format!("tried: {starts}, lacking: {lacking}");
            assert!(text.contains(&words), "{words}: {child:?}");
            assert!(starts || text.contains(&format!("{words};")), "{words}: {child:?}");
        }
    }
}

#[test]
fn there_is_a_wall_or_no_parser() {
    let (root, nobody) = (Uid::ROOT, Uid::from_raw(NOBODY));
    assert!(require_a_wall(root, &RulesetStatus::NotEnforced).is_err());
    assert!(require_a_wall(root, &RulesetStatus::PartiallyEnforced).is_ok());
    assert!(require_a_wall(nobody, &RulesetStatus::NotEnforced).is_ok());
}

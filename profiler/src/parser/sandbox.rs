//! Locks a process that parses in: it can do nearly nothing any more.
//!
//! | | |
//! |---|---|
//! | user | nobody, where it was root; no capability, and no way to any |
//! | files | its socket, and what it is handed. It can open what lies below `/usr`, to read it (Landlock), and memory that it was handed |
//! | system calls | those that reading and answering take (seccomp): it starts nothing, connects to nobody, makes no file |
//! | memory | [`MAX_DATA`] of its own |
//! | its own memory | nobody else's to read: it is no more dumpable than a setuid program |

use std::{collections::BTreeMap, ffi::CString, io, path::Path, thread};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{
        DumpableBehavior, Gid, Resource, Rlimit, Uid, geteuid, set_dumpable_behavior, setrlimit,
    },
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_name, set_no_new_privs,
        set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, apply_filter_all_threads,
};

use crate::privileges::{self, Task};

/// The user nobody.
const NOBODY: u32 = 65_534;
/// How many bytes of memory the process may write to. What it maps of files is not among them.
const MAX_DATA: u64 = 4 << 30;
/// The same for the reader, which has one answer at a time. What it copies is not among them.
const MAX_READER_DATA: u64 = 512 << 20;
/// How many files the process may have open at a time.
const MAX_OPEN: u64 = 1024;
/// Where programs and their debug information are that anybody may read.
pub(crate) const READABLE: &str = "/usr";

/// Gives up all that reading does not take, and returns how far Landlock goes. Call this before
/// there are other threads.
pub(super) fn lock_in(name: &str) -> io::Result<RulesetStatus> {
    set_name(&CString::new(name)?)?;
    close_all_but_standard()?;
    if geteuid().is_root() {
        become_nobody();
    }
    let nothing = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets { effective: nothing, permitted: nothing, inheritable: nothing },
    )?;
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    for (resource, limit) in [
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        (Resource::Memlock, 0),
        (Resource::Nofile, MAX_OPEN),
        (Resource::Data, MAX_DATA),
    ] {
        set_limit(resource, limit)?;
    }
    let files = restrict_files().map_err(io::Error::other)?;
    // The kernel counts a thread as one of the user's processes: this is the last one.
    thread::Builder::new().name(name.to_owned()).spawn(exit_with_other_end)?;
    set_limit(Resource::Nproc, 0)?;
    let filter = filter().map_err(io::Error::other)?;
    match apply_filter_all_threads(&filter) {
        Ok(()) => Ok(files),
        // This kernel was built without seccomp.
        Err(Error::Seccomp(error) | Error::Prctl(error)) if is_unknown(&error) => Ok(files),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Returns what of this the running kernel can't do. A process that parses does without it then.
pub(crate) fn lacking_parts() -> Vec<&'static str> {
    /// Asks for the version alone
    /// ([`landlock_create_ruleset(2)`](https://man7.org/linux/man-pages/man2/landlock_create_ruleset.2.html)).
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no pointer, and makes nothing.
    let landlock = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION)
    };
    let mut lacking = Vec::new();
    if landlock < 1 {
        lacking.push("Landlock (which files it may open)");
    }
    if !Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        lacking.push("seccomp (which system calls it may make)");
    }
    lacking
}

/// Gives up all that reading other processes does not take. It parses next to nothing, keeps its user,
/// and the rights to read.
pub(super) fn lock_in_reader(name: &str) -> io::Result<()> {
    set_name(&CString::new(name)?)?;
    close_all_but_standard()?;
    privileges::restrict_to(Task::Reading);
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    for (resource, limit) in
        [(Resource::Core, 0), (Resource::Memlock, 0), (Resource::Data, MAX_READER_DATA)]
    {
        set_limit(resource, limit)?;
    }
    thread::Builder::new().name(name.to_owned()).spawn(exit_with_other_end)?;
    match apply_filter_all_threads(&reader_filter().map_err(io::Error::other)?) {
        Ok(()) => Ok(()),
        Err(Error::Seccomp(error) | Error::Prctl(error)) if is_unknown(&error) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Gives up all that writing a file does not take. It keeps its user, and root's right to write anywhere. When
/// the other end is gone it ends by itself: there may be a file to be removed before.
pub(super) fn lock_in_writer(name: &str) -> io::Result<()> {
    set_name(&CString::new(name)?)?;
    close_all_but_standard()?;
    privileges::restrict_to(Task::Writing);
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    for (resource, limit) in
        [(Resource::Core, 0), (Resource::Memlock, 0), (Resource::Data, MAX_READER_DATA)]
    {
        set_limit(resource, limit)?;
    }
    Ok(())
}

/// The system calls that the reader may not make. It has no use for them, and they do more than read.
/// Landlock is no help: who is in a domain of its own may not look into processes that are not.
fn reader_filter() -> Result<BpfProgram, BackendError> {
    let refused = [
        libc::SYS_bpf,
        libc::SYS_connect,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_io_uring_setup,
        libc::SYS_kcmp,
        libc::SYS_kill,
        libc::SYS_linkat,
        libc::SYS_mkdirat,
        libc::SYS_mount,
        libc::SYS_move_mount,
        libc::SYS_perf_event_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_process_madvise,
        libc::SYS_process_vm_writev,
        libc::SYS_ptrace,
        // What is open for writing is written to at its end alone: the socket, and copies in memory.
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
        libc::SYS_pwritev2,
        libc::SYS_renameat2,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_setns,
        libc::SYS_socket,
        libc::SYS_symlinkat,
        libc::SYS_tkill,
        libc::SYS_truncate,
        libc::SYS_unlinkat,
        libc::SYS_unshare,
        libc::SYS_userfaultfd,
    ];
    #[cfg(target_arch = "x86_64")]
    let older = [
        libc::SYS_creat,
        libc::SYS_link,
        libc::SYS_mkdir,
        libc::SYS_rename,
        libc::SYS_renameat,
        libc::SYS_symlink,
        libc::SYS_unlink,
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let older: [i64; 0] = [];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        refused.into_iter().chain(older).map(|call| (call, Vec::new())).collect();
    // A program that aborts sends the signal to itself.
    let itself = u64::from(std::process::id());
    let others = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, itself)?;
    rules.insert(libc::SYS_tgkill, vec![rule([others])?]);
    // No file is opened to be written, nor the memory of a process.
    rules.insert(libc::SYS_openat, writing_rules(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, writing_rules(1)?);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}

/// Rules that apply if this argument has flags to open something for writing.
fn writing_rules(flags: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let accesses = [libc::O_WRONLY, libc::O_RDWR].map(|access| (libc::O_ACCMODE, access));
    let made = [libc::O_CREAT, libc::O_TRUNC].map(|flag| (flag, flag));
    (accesses.into_iter().chain(made))
        .map(|(bits, set)| rule([has_only(flags, bits, set)?]))
        .collect()
}

/// Becomes the user nobody, if the kernel allows it: in a user namespace that has no such user,
/// root without capabilities has to do.
fn become_nobody() {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    let _as_far_as_it_goes = set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(group, group, group))
        .and_then(|()| set_thread_res_uid(user, user, user));
}

/// Closes what the program that started offwake has left open.
fn close_all_but_standard() -> io::Result<()> {
    // SAFETY: nothing in this process owns a descriptor yet but the standard ones.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}

/// Sets both limits of a resource, or as much of them as is still allowed.
fn set_limit(resource: Resource, limit: u64) -> io::Result<()> {
    let hard = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Some(limit.min(hard));
    Ok(setrlimit(resource, Rlimit { current: limit, maximum: limit })?)
}

/// Allows no file but those below [`READABLE`], and no network, as far as the kernel supports that.
fn restrict_files() -> Result<RulesetStatus, RulesetError> {
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V6))?
        .handle_access(AccessNet::from_all(ABI::V6))?
        .scope(BitFlags::<Scope>::from(Scope::AbstractUnixSocket) | Scope::Signal)?
        .create()?;
    let restricted = match PathFd::new(READABLE) {
        Ok(readable) => created.add_rule(PathBeneath::new(readable, AccessFs::ReadFile))?,
        Err(_absent) => created,
    };
    Ok(restricted.restrict_self()?.ruleset)
}

/// Ends the process when the other end of its channel is closed: it may be in the middle of a long
/// file.
fn exit_with_other_end() {
    let socket = io::stdin();
    loop {
        let mut watched = [PollFd::new(&socket, PollFlags::empty())];
        if poll(&mut watched, None).is_ok() {
            std::process::exit(0);
        }
    }
}

/// The system calls that remain allowed. All others fail with `EPERM`.
fn filter() -> Result<BpfProgram, BackendError> {
    let any = [
        // Sending and receiving messages.
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_sendto,
        libc::SYS_ppoll,
        // Reading files, and writing to what is open: the socket, and /dev/null.
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_lseek,
        libc::SYS_newfstatat,
        libc::SYS_pread64,
        libc::SYS_read,
        libc::SYS_readlinkat,
        libc::SYS_readv,
        libc::SYS_statx,
        libc::SYS_write,
        libc::SYS_writev,
        // Managing memory.
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_munmap,
        // What the standard library and the C library do by themselves.
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_restart_syscall,
        libc::SYS_rseq,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_set_robust_list,
        libc::SYS_sigaltstack,
    ];
    #[cfg(target_arch = "x86_64")]
    let older =
        [libc::SYS_lstat, libc::SYS_open, libc::SYS_poll, libc::SYS_readlink, libc::SYS_stat];
    #[cfg(not(target_arch = "x86_64"))]
    let older: [i64; 0] = [];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        any.into_iter().chain(older).map(|call| (call, Vec::new())).collect();
    // A program that aborts sends the signal to itself. Without Landlock's scopes it could send one
    // to every process of its user.
    let itself = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![rule([equals(0, itself)?])?]);
    // The other commands lock files, choose who gets signals, and make pipes larger.
    let commands = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_GETFL, libc::F_GET_SEALS]
        .map(|command| rule([equals(1, u64::from(command.cast_unsigned()))?]));
    rules.insert(libc::SYS_fcntl, commands.into_iter().collect::<Result<_, _>>()?);
    let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
    rules.insert(libc::SYS_openat, vec![rule([has_none(2, writing)?])?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![rule([has_none(1, writing)?])?]);
    // No memory can become code that was not in the program when it began, and none is shared but
    // that of files, to be read: what is shared does not count as the process's data.
    let kind = libc::MAP_TYPE | libc::MAP_ANONYMOUS;
    rules.insert(
        libc::SYS_mmap,
        vec![
            rule([has_none(2, libc::PROT_EXEC)?, has_only(3, libc::MAP_TYPE, libc::MAP_PRIVATE)?])?,
            rule([
                has_none(2, libc::PROT_EXEC | libc::PROT_WRITE)?,
                has_only(3, kind, libc::MAP_SHARED)?,
            ])?,
        ],
    );
    rules.insert(libc::SYS_mprotect, vec![rule([has_none(2, libc::PROT_EXEC)?])?]);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

/// A rule that allows a system call if all of this is true of its arguments.
fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

/// Whether an argument, of which the kernel looks at 32 bits, is this number.
fn equals(argument: u8, number: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, number)
}

/// Whether an argument has none of these bits.
fn has_none(argument: u8, bits: i32) -> Result<SeccompCondition, BackendError> {
    has_only(argument, bits, 0)
}

/// Whether an argument has of these bits only those that are in `set`.
fn has_only(argument: u8, bits: i32, set: i32) -> Result<SeccompCondition, BackendError> {
    let masked = SeccompCmpOp::MaskedEq(u64::from(bits.cast_unsigned()));
    let set = u64::from(set.cast_unsigned());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, masked, set)
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        fs::{self, File},
        net::TcpStream,
        os::{
            fd::{AsRawFd as _, OwnedFd},
            unix::net::UnixStream,
        },
        process::{Command, Stdio},
        ptr,
    };

    use rustix::{
        fs::{MemfdFlags, Mode, OFlags, memfd_create},
        process::{Pid, test_kill_process},
    };

    use super::*;

    const ITSELF: &str =
        "parser::sandbox::tests::who_is_locked_in_can_read_below_usr_and_do_nothing_else";
    /// Set in the environment of the process that is to lock itself in.
    const IS_CHILD: &str = "OFFWAKE_TEST_LOCKED_IN";

    #[test]
    fn who_is_locked_in_can_read_below_usr_and_do_nothing_else() {
        if env::var_os(IS_CHILD).is_some() {
            return try_everything();
        }
        let (_ours, its) = UnixStream::pair().unwrap();
        let child = Command::new(env::current_exe().unwrap())
            // With one test thread, the test runs in the thread that the process begins with.
            .args([ITSELF, "--exact", "--nocapture", "--test-threads=1"])
            .env(IS_CHILD, "")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        let said: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once("tried "))
            .map(|(_, said)| said)
            .collect();
        if text.contains("no Landlock") {
            eprintln!("NOT RUN, this kernel has no Landlock: who_is_locked_in_can_read_…");
            return;
        }
        let (allowed, rest) = said.split_at_checked(5).expect("something was tried");
        assert!(allowed.iter().all(|tried| tried.ends_with(": it works")), "{child:?}");
        assert_eq!(rest.len(), 15, "{child:?}");
        assert!(rest.iter().all(|tried| tried.ends_with(": it is refused")), "{rest:#?}");
    }

    const READER: &str =
        "parser::sandbox::tests::who_reads_others_can_read_them_and_change_nothing";

    #[test]
    fn who_reads_others_can_read_them_and_change_nothing() {
        if env::var_os(IS_CHILD).is_some() {
            return try_to_change_something();
        }
        let (_ours, its) = UnixStream::pair().unwrap();
        let child = Command::new(env::current_exe().unwrap())
            .args([READER, "--exact", "--nocapture", "--test-threads=1"])
            .env(IS_CHILD, "")
            .stdin(Stdio::from(OwnedFd::from(its)))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        let said: Vec<&str> =
            text.lines().filter_map(|line| Some(line.split_once("tried ")?.1)).collect();
        let (allowed, rest) = said.split_at_checked(4).expect("something was tried");
        assert!(allowed.iter().all(|tried| tried.ends_with(": it works")), "{child:?}");
        assert_eq!(rest.len(), 10, "{child:?}");
        assert!(rest.iter().all(|tried| tried.ends_with(": it is refused")), "{rest:#?}");
    }

    fn try_to_change_something() {
        // Open in this process: the reader has nothing of whoever started it.
        let before = File::open("/usr/bin/env").unwrap();
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
        let old =
            rustix::fs::open("/tmp/offwake-was-here", OFlags::RDWR | OFlags::CREATE, Mode::RUSR);
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
        say(
            "to share memory that it can't write to",
            maps(read, libc::MAP_SHARED | anonymous, None),
        );
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
    }
}

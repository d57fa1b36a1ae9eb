//! Locks a process that parses in: it can do nearly nothing any more.
//!
//! | | |
//! |---|---|
//! | user | nobody, where it was root; no capability, and no way to any |
//! | files | its socket, and what it is handed. It can open what lies below `/usr`, to read it (Landlock), and memory that it was handed |
//! | system calls | those that reading and answering take (seccomp): it starts nothing, connects to nobody, makes no file |
//! | memory | [`MAX_DATA`] of its own |
//! | its own memory | nobody else's to read: it is no more dumpable than a setuid program |

use std::{collections::BTreeMap, ffi::CString, io, thread};

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
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter_all_threads,
};

/// The user nobody.
const NOBODY: u32 = 65_534;
/// How many bytes of memory the process may write to. What it maps of files is not among them.
const MAX_DATA: u64 = 4 << 30;
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
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let any = [
        // Sending and receiving messages.
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_sendmsg,
        libc::SYS_sendto,
        libc::SYS_ppoll,
        // Reading files, and writing to what is open: the socket, and /dev/null.
        libc::SYS_close,
        libc::SYS_fcntl,
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
        libc::SYS_tgkill,
    ];
    #[cfg(target_arch = "x86_64")]
    let older =
        [libc::SYS_lstat, libc::SYS_open, libc::SYS_poll, libc::SYS_readlink, libc::SYS_stat];
    #[cfg(not(target_arch = "x86_64"))]
    let older: [i64; 0] = [];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        any.into_iter().chain(older).map(|call| (call, Vec::new())).collect();
    let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
    rules.insert(libc::SYS_openat, allow_without(2, writing)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, allow_without(1, writing)?);
    // No memory can become code that was not in the program when it began.
    rules.insert(libc::SYS_mmap, allow_without(2, libc::PROT_EXEC)?);
    rules.insert(libc::SYS_mprotect, allow_without(2, libc::PROT_EXEC)?);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

/// A rule that allows a system call if an argument has none of these bits.
fn allow_without(argument: u8, bits: i32) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let masked = SeccompCmpOp::MaskedEq(u64::from(bits.cast_unsigned()));
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, masked, 0)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        fs::{self, File},
        net::TcpStream,
        os::{fd::OwnedFd, unix::net::UnixStream},
        process::{Command, Stdio},
    };

    use rustix::{
        fs::{MemfdFlags, memfd_create},
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
        let (opened, rest) = said.split_first().expect("something was tried");
        assert_eq!(*opened, "to read below /usr: it works", "{child:?}");
        assert_eq!(rest.len(), 9, "{child:?}");
        assert!(rest.iter().all(|tried| tried.ends_with(": it is refused")), "{rest:#?}");
    }

    fn try_everything() {
        if lock_in("locked-in").unwrap() == RulesetStatus::NotEnforced {
            println!("no Landlock");
        }
        let say = |what: &str, works: bool| {
            println!("tried {what}: {}", if works { "it works" } else { "it is refused" });
        };
        say("to read below /usr", File::open("/usr/bin/env").is_ok());
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

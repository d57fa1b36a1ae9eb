//! Locks a process that parses in: it can do nearly nothing any more.
//!
//! | | |
//! |---|---|
//! | user | nobody, where it was root; no capability, and no way to any |
//! | files | its socket, and what it is handed. It can open what lies below `/usr`, to read it (Landlock), and memory that it was handed |
//! | system calls | those that reading and answering take (seccomp): it starts nothing, connects to nobody, makes no file |
//! | memory | [`MAX_DATA`] of its own |
//! | its own memory | nobody else's to read: it is no more dumpable than a setuid program |

mod filters;
#[cfg(test)]
mod tests;

use std::{ffi::CString, io, thread};

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
use seccompiler::{BpfProgram, apply_filter_all_threads};

use crate::privileges::{self, Task};
use filters::{parser_filter, reader_filter};

/// The user nobody.
const NOBODY: u32 = 65_534;
/// How many bytes of memory the process may write to. What it maps of files is not among them.
const MAX_DATA: u64 = 4 << 30;
/// The same for the reader and the writer, which have one message at a time. What it copies is not among them.
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
    let user = geteuid();
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
    require_what_the_kernel_has(&files, has_landlock())?;
    require_a_wall(user, &files)?;
    // The kernel counts a thread as one of the user's processes: this is the last one.
    thread::Builder::new().name(name.to_owned()).spawn(exit_with_other_end)?;
    set_limit(Resource::Nproc, 0)?;
    restrict_system_calls(&parser_filter().map_err(io::Error::other)?)?;
    Ok(files)
}

/// Refuses to go without Landlock where the kernel does not lack it: something keeps it from being used.
fn require_what_the_kernel_has(files: &RulesetStatus, has_landlock: bool) -> io::Result<()> {
    if *files == RulesetStatus::NotEnforced && has_landlock {
        return Err(io::Error::other("the kernel has Landlock, and does not let it be used"));
    }
    Ok(())
}

/// Refuses to parse for root where nothing keeps the process from root's files: `CAP_SETUID` is
/// missing to become nobody, and the kernel has no Landlock.
fn require_a_wall(user: Uid, files: &RulesetStatus) -> io::Result<()> {
    if user.is_root() && *files == RulesetStatus::NotEnforced {
        return Err(io::Error::other("neither another user nor Landlock keeps it from files"));
    }
    Ok(())
}

/// Applies a filter to all threads, unless the kernel was built without seccomp.
fn restrict_system_calls(filter: &BpfProgram) -> io::Result<()> {
    if !has_seccomp() {
        return Ok(());
    }
    apply_filter_all_threads(filter).map_err(io::Error::other)
}

/// Returns whether the kernel can filter system calls
/// ([`seccomp(2)`](https://man7.org/linux/man-pages/man2/seccomp.2.html), since Linux 4.14).
fn has_seccomp() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads the action, which outlives it, and changes nothing.
    let found = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    // Any other error is no reason to go without.
    let lacks = [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP];
    found == 0 || !io::Error::last_os_error().raw_os_error().is_some_and(|e| lacks.contains(&e))
}

/// Returns whether the kernel can restrict which files a process opens
/// ([`landlock(7)`](https://man7.org/linux/man-pages/man7/landlock.7.html), since Linux 5.13).
fn has_landlock() -> bool {
    /// Asks for the version alone
    /// ([`landlock_create_ruleset(2)`](https://man7.org/linux/man-pages/man2/landlock_create_ruleset.2.html)).
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no pointer, and makes nothing.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION)
    };
    // It was not compiled in, or is not among the security modules that this kernel was booted with. Any
    // other error is no reason to go without.
    let lacks = [libc::ENOSYS, libc::EOPNOTSUPP];
    version > 0 || !io::Error::last_os_error().raw_os_error().is_some_and(|e| lacks.contains(&e))
}

/// Returns what of this the running kernel can't do. A process that parses does without it then.
pub(crate) fn lacking_parts() -> Vec<&'static str> {
    let mut lacking = Vec::new();
    if !has_landlock() {
        lacking.push("Landlock (which files it may open)");
    }
    if !has_seccomp() {
        lacking.push("seccomp (which system calls it may make)");
    }
    lacking
}

/// Gives up all that reading other processes does not take. It parses next to nothing, keeps its user,
/// and the rights to read.
pub(super) fn lock_in_reader(name: &str) -> io::Result<()> {
    restrict_to_task(name, Task::Reading)?;
    thread::Builder::new().name(name.to_owned()).spawn(exit_with_other_end)?;
    restrict_system_calls(&reader_filter().map_err(io::Error::other)?)
}

/// Gives up all that writing a file does not take. It keeps its user, and root's right to write anywhere. When
/// the other end is gone it ends by itself: there may be a file to be removed before.
pub(super) fn lock_in_writer(name: &str) -> io::Result<()> {
    restrict_to_task(name, Task::Writing)
}

/// Gives up all but the user and the rights that a task takes.
fn restrict_to_task(name: &str, task: Task) -> io::Result<()> {
    set_name(&CString::new(name)?)?;
    close_all_but_standard()?;
    privileges::restrict_to(task);
    set_no_new_privs(true)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    for (resource, limit) in
        [(Resource::Core, 0), (Resource::Memlock, 0), (Resource::Data, MAX_READER_DATA)]
    {
        set_limit(resource, limit)?;
    }
    Ok(())
}

/// Becomes the user nobody, if the kernel allows it. In a user namespace that has no such user, or
/// where offwake has no `CAP_SETUID`, it stays root without capabilities, and Landlock has to do.
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

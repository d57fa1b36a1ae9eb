//! What each thread is allowed to do: no more than it still needs.
//!
//! offwake is started as root, by sudo in general, and root is what it is for the shortest time.
//! What it writes, it writes as the user who called; what others made, it looks at with the right
//! to read, and with nothing else.
//!
//! ```text
//!  root ──▶ the caller's ids, with          attached    read, unwound      closed      named
//!           Recording ───────────────────────|────────────────────────────────|
//!             drain thread                    Draining ────────────────────────
//!             look-up thread                  LookingUp ──────────────────────  Naming ──
//!               names of containers             AskingEngines ──
//!             store                           Storing ───────────────────────────────────────
//! ```
//!
//! What parses is in processes of its own, which have none of these ([`crate::parser`]).
//!
//! Credentials are a thread's own in Linux, and a thread begins with those of the one that makes it
//! ([capabilities(7)](https://man7.org/linux/man-pages/man7/capabilities.7.html)).

use std::{io, os::unix::process::CommandExt as _, process::Command};

use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
        set_capabilities, set_keep_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};

/// A capability, and what offwake needs it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The capability's name.
    pub name: &'static str,
    /// What can't be done without the capability.
    pub allows: &'static str,
    bit: CapabilitySet,
}

impl Capability {
    const fn new(name: &'static str, bit: CapabilitySet, allows: &'static str) -> Self {
        Self { name, allows, bit }
    }

    /// Whether this thread has the capability.
    #[must_use]
    pub fn is_held(&self) -> bool {
        capabilities(None).is_ok_and(|sets| sets.effective.contains(self.bit))
    }
}

/// The capabilities without which nothing can be recorded.
pub const REQUIRED: [Capability; 3] = [
    Capability::new("CAP_BPF", CapabilitySet::BPF, "loading programs and their maps"),
    Capability::new("CAP_PERFMON", CapabilitySet::PERFMON, "attaching programs to tracepoints"),
    Capability::new(
        "CAP_SYS_PTRACE",
        CapabilitySet::SYS_PTRACE,
        "the mappings, files and stacks of other users' processes",
    ),
];

/// The capabilities without which something is missing from what is recorded.
pub const OPTIONAL: [Capability; 6] = [
    Capability::new(
        "CAP_DAC_READ_SEARCH",
        CapabilitySet::DAC_READ_SEARCH,
        "names from programs that only their owners can read",
    ),
    Capability::new(
        "CAP_CHECKPOINT_RESTORE",
        CapabilitySet::CHECKPOINT_RESTORE,
        "names from programs that were deleted or replaced while they run",
    ),
    Capability::new("CAP_SYSLOG", CapabilitySet::SYSLOG, "the names of kernel functions"),
    Capability::new(
        "CAP_SYS_ADMIN",
        CapabilitySet::SYS_ADMIN,
        "offwake's own cost, which the kernel measures for nobody else, and sockets of containers",
    ),
    Capability::new(
        "CAP_NET_ADMIN",
        CapabilitySet::NET_ADMIN,
        "the other ends of connections whose addresses are translated (published ports, services)",
    ),
    Capability::new(
        "CAP_SYS_NICE",
        CapabilitySet::SYS_NICE,
        "a CPU in time for what would be lost otherwise, where hundreds of threads want one",
    ),
];

/// What a thread does that it needs rights for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Attaches, looks at every thread, and detaches.
    Recording,
    /// Empties the rings and reads the counters.
    Draining,
    /// Looks at other processes while they are there.
    LookingUp,
    /// Reads the memory and the files of other processes, and does nothing else.
    Reading,
    /// Enters network namespaces, to query their sockets.
    EnteringNamespaces,
    /// Asks network namespaces for the connections that they track.
    AskingConntrack,
    /// Opens files that are held, to have names found in them.
    Naming,
    /// Has names found, and writes the recording.
    Storing,
    /// Asks the engines that run containers: their sockets can be root's alone.
    AskingEngines,
    /// Writes a recording's file.
    Writing,
    /// Reads recordings, which can be anybody's, and writes what is made of them.
    Reporting,
    /// Does what needs no rights.
    Other,
}

impl Task {
    fn needs(self) -> CapabilitySet {
        let reading = CapabilitySet::DAC_READ_SEARCH;
        match self {
            Self::Recording => REQUIRED
                .iter()
                .chain(&OPTIONAL)
                .fold(CapabilitySet::empty(), |all, capability| all | capability.bit),
            Self::Draining => {
                CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN
            }
            Self::LookingUp => {
                let others = CapabilitySet::SYS_PTRACE | CapabilitySet::CHECKPOINT_RESTORE;
                reading | others | CapabilitySet::BPF | CapabilitySet::SYSLOG
            }
            Self::Reading => {
                reading | CapabilitySet::SYS_PTRACE | CapabilitySet::CHECKPOINT_RESTORE
            }
            // setns(2): "CAP_SYS_ADMIN both in its own user namespace and in the user namespace that
            // owns the target network namespace".
            Self::EnteringNamespaces => CapabilitySet::SYS_ADMIN,
            // nfnetlink_rcv() answers nobody else.
            Self::AskingConntrack => CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN,
            Self::Naming | Self::Storing => reading | CapabilitySet::SYSLOG,
            Self::AskingEngines => reading | CapabilitySet::SYS_PTRACE | OVERRIDE,
            Self::Writing | Self::Reporting | Self::Other => CapabilitySet::empty(),
        }
    }

    /// What a task needs besides if root runs offwake: the processes that parse belong to the user
    /// nobody then, and one that does not answer has to be killed; root may write anywhere, and
    /// have kernel functions named.
    fn needs_as_root(self) -> CapabilitySet {
        match self {
            Self::LookingUp | Self::Naming => CapabilitySet::KILL,
            Self::Storing => CapabilitySet::KILL | WRITING_ANYWHERE,
            Self::Writing => WRITING_ANYWHERE,
            Self::Reporting => WRITING_ANYWHERE | CapabilitySet::SYSLOG,
            Self::Recording
            | Self::Draining
            | Self::Reading
            | Self::EnteringNamespaces
            | Self::AskingConntrack
            | Self::AskingEngines
            | Self::Other => CapabilitySet::empty(),
        }
    }

    /// What a task needs, and what the threads need that it starts.
    fn needs_with_children(self) -> CapabilitySet {
        match self {
            Self::Recording | Self::LookingUp => {
                self.needs() | Self::AskingEngines.needs() | Self::AskingConntrack.needs()
            }
            Self::Draining
            | Self::Reading
            | Self::EnteringNamespaces
            | Self::AskingConntrack
            | Self::Naming
            | Self::Storing
            | Self::AskingEngines
            | Self::Writing
            | Self::Reporting
            | Self::Other => self.needs(),
        }
    }
}

/// The right to write against the permissions of files, among other things.
const OVERRIDE: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// The rights to write where root may: in directories of others, and where everybody may write but only
/// owners may rename.
const WRITING_ANYWHERE: CapabilitySet = OVERRIDE.union(CapabilitySet::FOWNER);

/// Gives up all rights of the calling thread, and of those that it starts from now on, that this
/// task does not need.
pub fn restrict_to(task: Task) {
    let restricted = capabilities(None).and_then(|sets| {
        let more = match geteuid().is_root() {
            true => task.needs_as_root(),
            false => CapabilitySet::empty(),
        };
        let needed = sets.permitted & (task.needs() | more);
        set(needed, sets.permitted & (task.needs_with_children() | more))
    });
    // The kernel does not refuse to take rights away; should it all the same, nobody is worse off
    // than with a profiler that never tried.
    if let Err(error) = restricted {
        log::warn!("a thread keeps more rights than it needs: {error}");
    }
}

/// Does the same for a thread that writes files, unless root runs offwake: root may write anywhere.
pub fn restrict_unless_root(task: Task) {
    if !geteuid().is_root() {
        restrict_to(task);
    }
}

/// Has a program that is run keep the rights that this task needs, as far as this thread has them.
pub(crate) fn hand_over(task: Task, program: &mut Command) {
    let held = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let handed = held & task.needs();
    let raise = move || {
        let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
        set_capabilities(None, CapabilitySets { effective, permitted, inheritable: handed })?;
        // A program has the ambient ones, whoever runs it (capabilities(7)). What may not be handed on
        // so, root's program has all the same; another user's goes without.
        for capability in handed {
            let _as_far_as_it_goes = configure_capability_in_ambient_set(capability, true);
        }
        Ok(())
    };
    // SAFETY: `raise` only makes system calls: it takes no lock and no memory.
    unsafe { program.pre_exec(raise) };
}

/// Runs `body` without regard to the permissions of files, if this process may: it queries an
/// engine that only root can talk to, say. `body` must not write.
pub fn with_dac_override<T>(body: impl FnOnce() -> T) -> T {
    let Ok(before) = capabilities(None) else { return body() };
    let more = before.effective | before.permitted & OVERRIDE;
    let _as_before = set(more, before.permitted);
    let done = body();
    let _as_before = set(before.effective, before.permitted);
    done
}

/// A user that offwake can go on as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's id.
    pub id: Uid,
    /// The user's first group.
    pub group: Gid,
    /// All of the user's groups.
    pub groups: Vec<Gid>,
}

/// Root becomes a user with the rights that recording takes, and can go on to
/// [override](with_dac_override) the permissions of files. To be called before there are other
/// threads.
///
/// # Errors
///
/// If the kernel refuses, or if it is not root who calls.
pub fn become_user(user: &User) -> io::Result<()> {
    if !geteuid().is_root() {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    set_keep_capabilities(true)?;
    set_thread_groups(&user.groups)?;
    set_thread_res_gid(user.group, user.group, user.group)?;
    set_thread_res_uid(user.id, user.id, user.id)?;
    set_keep_capabilities(false)?;
    let recording = Task::Recording.needs() & capabilities(None)?.permitted;
    Ok(set(recording, recording | OVERRIDE)?)
}

/// Keeps this process's capabilities from the programs that it runs. Call this before anything else.
///
/// Without this, `setpriv --ambient-caps +bpf offwake record -- CMD` runs `CMD` with `CAP_BPF` too.
/// Root's programs have root's capabilities all the same.
///
/// # Errors
///
/// If the kernel refuses.
pub fn drop_inheritable() -> io::Result<()> {
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    Ok(set(effective, permitted)?)
}

fn set(effective: CapabilitySet, permitted: CapabilitySet) -> rustix::io::Result<()> {
    // A program that is run inherits nothing: it is the user's own. A capability that leaves the
    // inheritable set leaves the ambient set with it (capabilities(7)).
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective_in_a_thread(task: Task) -> CapabilitySet {
        std::thread::spawn(move || {
            restrict_to(task);
            capabilities(None).unwrap().effective
        })
        .join()
        .unwrap()
    }

    #[test]
    fn a_thread_keeps_what_its_task_needs_and_others_are_as_they_were() {
        let before = capabilities(None).unwrap();
        for task in [
            Task::Recording,
            Task::Draining,
            Task::LookingUp,
            Task::Naming,
            Task::Storing,
            Task::Reporting,
            Task::Other,
        ] {
            let more = match geteuid().is_root() {
                true => task.needs_as_root(),
                false => CapabilitySet::empty(),
            };
            assert_eq!(effective_in_a_thread(task), before.permitted & (task.needs() | more));
        }
        assert_eq!(capabilities(None).unwrap(), before);
    }

    #[test]
    fn no_task_can_write_where_its_user_can_not() {
        let writing = CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::CHOWN;
        let all = CapabilitySet::SETUID | CapabilitySet::SYS_MODULE | writing;
        for task in [
            Task::Recording,
            Task::Draining,
            Task::LookingUp,
            Task::Naming,
            Task::Storing,
            Task::Other,
        ] {
            assert!(!task.needs().intersects(all), "{task:?}");
        }
        // A thread that queries engines writes nothing, and starts no program.
        assert!(!Task::AskingEngines.needs().intersects(all - OVERRIDE));
    }

    #[test]
    fn every_task_of_a_recording_needs_no_more_than_recording_does() {
        for task in [Task::Draining, Task::LookingUp, Task::Naming, Task::Storing, Task::Other] {
            assert!(Task::Recording.needs().contains(task.needs()), "{task:?}");
        }
    }
}

//! Which child a process waits for that waits for one.
//!
//! ```text
//! waitpid(61), waitid(P_PIDFD, 7)           the child that the call names
//! wait, and 61 is the only child            61
//! wait, and of 61 and 62, 61 wants a lock   61, unless 62 runs, which may end at any moment
//! wait, and 61 and 62 serve                 nobody: a supervisor waits for that all its life
//! ```

use std::collections::BTreeSet;

use offwake_recording::{PeerProcess, Syscall, Wait, units::Tgid};

use crate::{
    blame::{
        FrameEvidence, IdleState,
        cause::{Cause, syscalls},
    },
    timeline::{State, ThreadIndex},
};

use super::{Awaited, Link, OpenWaitGraph, Owner};

/// The most generations that are followed to find out whether a child is held up.
const MAX_GENERATIONS: usize = 16;

/// The children that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedChild {
    /// Any of them, or any of a group.
    Any,
    /// The one with this number, as the caller sees it.
    Pid(u32),
    /// The one for which a descriptor of the caller stands.
    Descriptor,
}

/// What is known of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChildState {
    /// It has something to do, and something else keeps it from that.
    HeldUp,
    /// It works, so that it may end at any moment.
    Works,
    /// It sleeps, or has nothing to do.
    Rests,
}

impl OpenWaitGraph<'_> {
    /// The child that a process waits for: the one that it names, the only one that it has, or the
    /// only one that is held up, if no other works.
    pub(super) fn child_link(&self, wait: &Wait, generation: usize) -> Option<Link> {
        let named = named_child(wait.syscall.as_ref()?)?;
        let children = self.children(wait.tgid);
        let only = children.first().copied().filter(|_| children.len() == 1);
        let child = match named {
            NamedChild::Any => only.or_else(|| self.only_held_up(&children, generation)),
            NamedChild::Pid(pid) => {
                let number = |child: &Tgid| self.number_in_container(*child).unwrap_or(child.0);
                children.iter().copied().find(|child| number(child) == pid)
            }
            NamedChild::Descriptor => {
                let mut awaited = self.recording.awaited_children.iter();
                let known = awaited.find(|awaited| awaited.waiter == wait.tid);
                // Nobody can wait for a process that is not its child.
                known.map(|awaited| awaited.child).filter(|it| children.contains(it)).or(only)
            }
        }?;
        Some(Link { awaited: Awaited::Child, owner: self.child_owner(child) })
    }

    /// The same, whatever the children do: the one that the process names, or the only one.
    pub(super) fn certain_child_link(&self, wait: &Wait) -> Option<Link> {
        self.child_link(wait, MAX_GENERATIONS)
    }

    /// Returns the children of which any ends a thread's wait, where that is for several of them.
    pub(in crate::findings) fn awaited_children(&self, thread: ThreadIndex) -> BTreeSet<Tgid> {
        let wait = self.open_wait_record(thread);
        let any = wait
            .filter(|wait| wait.syscall.as_ref().and_then(named_child) == Some(NamedChild::Any));
        any.map_or_else(BTreeSet::new, |wait| self.children(wait.tgid))
    }

    /// Returns whether a thread waits for one child alone, by its call or as it has no other, which
    /// is held up itself and has been so for at least half as long. Who waits for any of several
    /// may be a supervisor, and not wait for that one.
    pub(in crate::findings) fn waits_for_held_up_child(&self, thread: ThreadIndex) -> bool {
        let link = self.find_link(thread).filter(|link| link.awaited == Awaited::Child);
        let Some(link) = link.filter(|_| self.awaited_children(thread).len() < 2) else {
            return false;
        };
        let child = match link.owner {
            Owner::Thread(child) => Some(child),
            Owner::Process(process) => self.first_thread(process.tgid),
            Owner::Unrecorded(..) => None,
        };
        child.is_some_and(|child| {
            self.state_of_child(child, 0) == ChildState::HeldUp
                && self.open_time(child).0 >= self.open_time(thread).0 / 2
        })
    }

    fn children(&self, parent: Tgid) -> BTreeSet<Tgid> {
        let is_child = |child: &Tgid| self.parents.get(child) == Some(&parent) && *child != parent;
        self.living.keys().copied().filter(is_child).collect()
    }

    fn only_held_up(&self, children: &BTreeSet<Tgid>, generation: usize) -> Option<Tgid> {
        if generation >= MAX_GENERATIONS {
            return None;
        }
        let states: Vec<(Tgid, ChildState)> = (children.iter())
            .map(|&child| {
                let first = self.first_thread(child);
                let state = |thread| self.state_of_child(thread, generation + 1);
                (child, first.map_or(ChildState::Works, state))
            })
            .collect();
        if states.iter().any(|(_, state)| *state == ChildState::Works) {
            return None;
        }
        let mut held_up = states.iter().filter(|(_, state)| *state == ChildState::HeldUp);
        let (only, _) = held_up.next()?;
        held_up.next().is_none().then_some(*only)
    }

    /// Finds out what is known of a child, by its first thread: a process ends when that returns.
    fn state_of_child(&self, first: ThreadIndex, generation: usize) -> ChildState {
        if self.is_stopped(first) {
            return ChildState::HeldUp;
        }
        let last = self.timeline.thread(first).and_then(|life| life.track.iter().next_back());
        let Some(State::Blocked(open)) = last.map(|last| last.state) else {
            return ChildState::Works;
        };
        if self.blame.own_idle_state(open) == IdleState::Idle {
            return ChildState::Rests;
        }
        let link = (generation < MAX_GENERATIONS)
            .then(|| self.find_link_of_generation(first, generation + 1))
            .flatten();
        let is_held_up = match link {
            Some(Link { awaited: Awaited::Child, owner: Owner::Thread(grandchild) }) => {
                return self.state_of_child(grandchild, generation + 1);
            }
            Some(Link { awaited: Awaited::Child, .. }) => false,
            // Over a connection it may be its client that it waits for.
            Some(link) => !link.awaited.is_message() || self.asks(open),
            None => match self.blame.cause(open) {
                Cause::Disk
                | Cause::PageFault
                | Cause::Memory
                | Cause::KernelLock
                | Cause::FileLock
                | Cause::Throttled => true,
                Cause::Socket | Cause::Poll => self.asks(open),
                _ => matches!(self.blame.frame_evidence(open), FrameEvidence::Lock(_)),
            },
        };
        if is_held_up { ChildState::HeldUp } else { ChildState::Rests }
    }

    /// A child, as whoever could end its parent's wait.
    fn child_owner(&self, child: Tgid) -> Owner {
        self.process_owner(&PeerProcess { tgid: child, comm: String::new() })
    }

    /// A process's own idea of its number, if it lives in a PID namespace of its own.
    fn number_in_container(&self, process: Tgid) -> Option<u32> {
        let known = self.recording.processes.iter().rev().find(|info| info.tgid == process);
        known?.pid_in_container
    }
}

/// Returns the children that a call waits for; none if it is not such a call.
fn named_child(syscall: &Syscall) -> Option<NamedChild> {
    /// `P_ALL`, `P_PID`, `P_PGID` and `P_PIDFD` of waitid(2).
    const ALL: u32 = 0;
    const PID: u32 = 1;
    const GROUP: u32 = 2;
    const DESCRIPTOR: u32 = 3;
    let [first, second, ..] = syscall.args;
    // The kernel takes the lower halves of the registers for an `int`.
    let (first, second) = (first as u32, second as u32);
    match syscalls::name(syscall)? {
        "wait4" | "waitpid" => Some(match u32::try_from(first.cast_signed()) {
            Ok(pid) if pid > 0 => NamedChild::Pid(pid),
            _ => NamedChild::Any,
        }),
        "waitid" => match first {
            ALL | GROUP => Some(NamedChild::Any),
            PID => Some(NamedChild::Pid(second)),
            DESCRIPTOR => Some(NamedChild::Descriptor),
            _ => None,
        },
        // A parent whose memory its child uses until that has a program of its own (`posix_spawn`).
        "vfork" | "clone" | "clone3" => Some(NamedChild::Any),
        _ => None,
    }
}

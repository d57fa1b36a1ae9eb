//! Who could end a wait for a FUSE filesystem: the thread of its server that has the request.
//!
//! ```text
//! reader 7 ──request──▶ bucketfs 60, one thread           that thread, whatever it does
//! reader 7 ──request──▶ bucketfs 60  serve-1  waits for its next request: has none
//!                                    serve-2  has read requests, and sleeps since this one: has it
//!                                    main     has slept since before: has none
//! ```
//!
//! Nobody sees which thread has read which request. So a server of which several threads could have
//! it is no link of a chain.

use std::collections::BTreeSet;

use offwake_recording::{FuseServer, Recording, Wait, units::Tgid};

use crate::{
    blame::{
        IdleHint,
        cause::{Cause, kernel_frames},
    },
    timeline::{State, ThreadIndex, WaitIndex},
};

use super::{
    super::kernel_waits::{KernelWait, find_kernel_wait},
    Awaited, Link, OpenWaitGraph, Owner,
};

/// How functions begin in which a server reads the next request.
const READING_FUNCTIONS: &[&str] = &["fuse_dev_do_read", "fuse_dev_read", "fuse_dev_splice_read"];

/// Whether a thread of a server may have a request that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    /// It waits for the next one.
    Idle,
    /// It can't have it: it has slept since before the request was made, and others read requests.
    Elsewhere,
    /// It may have it.
    MayHave,
    /// What it did was not recorded.
    Unknown,
}

/// Finds who may serve the filesystem that somebody waits for, whose file is on one of these
/// devices.
pub(in crate::findings) fn find_servers<'r>(
    recording: &'r Recording,
    devices: &BTreeSet<u32>,
    kernel: Option<KernelWait>,
) -> Vec<&'r FuseServer> {
    let all = || recording.fuse_servers.iter();
    let of_device = |server: &&FuseServer| server.device.is_some_and(|own| devices.contains(&own));
    let known: Vec<_> = all().filter(of_device).collect();
    if !known.is_empty() || kernel != Some(KernelWait::Fuse) {
        return known;
    }
    // A path tells no device: then it is one that owes an answer to somebody.
    let may_be_it = |server: &&FuseServer| {
        (devices.is_empty() || server.device.is_none()) && server.unanswered != Some(0)
    };
    all().filter(may_be_it).collect()
}

impl OpenWaitGraph<'_> {
    /// The only thread that can have the request for which a thread waits, if that is one of a FUSE
    /// filesystem's, and one process serves that.
    pub(super) fn filesystem_link(
        &self,
        waiter: ThreadIndex,
        wait: &Wait,
        cause: Cause,
    ) -> Option<Link> {
        if self.recording.fuse_servers.is_empty() {
            return None;
        }
        let kernel = find_kernel_wait(&self.recording.stacks, wait.kernel_stack, cause);
        if kernel != Some(KernelWait::Fuse) {
            return None;
        }
        let devices = wait.file.map(|file| file.device).into_iter().collect();
        let servers: BTreeSet<Tgid> = find_servers(self.recording, &devices, kernel)
            .into_iter()
            .map(|server| server.server.tgid)
            .collect();
        let server = servers.first().copied().filter(|_| servers.len() == 1)?;
        let owner = Owner::Thread(self.thread_with_request(server, waiter)?);
        Some(Link { awaited: Awaited::Filesystem, owner })
    }

    /// Returns the only thread of a server that can have the request of `waiter`.
    fn thread_with_request(&self, server: Tgid, waiter: ThreadIndex) -> Option<ThreadIndex> {
        let threads = self.living.get(&server)?;
        let states: Vec<RequestState> =
            threads.iter().map(|&thread| self.request_state(thread, waiter)).collect();
        if states.contains(&RequestState::Unknown) {
            return None;
        }
        if let [only] = threads.as_slice() {
            return (states.first() != Some(&RequestState::Idle)).then_some(*only);
        }
        let is_read_by_others = states.contains(&RequestState::Idle);
        let mut able = threads.iter().zip(states).filter_map(|(&thread, state)| {
            // Who made the request has it only if nobody else could read it.
            let may_have = match state {
                RequestState::MayHave => thread != waiter || !is_read_by_others,
                RequestState::Elsewhere => !is_read_by_others,
                RequestState::Idle | RequestState::Unknown => false,
            };
            may_have.then_some(thread)
        });
        let only = able.next().filter(|_| able.next().is_none())?;
        (!is_read_by_others || self.has_read_requests(only)).then_some(only)
    }

    /// Finds out whether a thread of a server may have the request of `waiter`.
    fn request_state(&self, thread: ThreadIndex, waiter: ThreadIndex) -> RequestState {
        if !self.timeline.are_waits_recorded(thread) {
            return RequestState::Unknown;
        }
        let last = self.timeline.thread(thread).and_then(|life| life.track.iter().next_back());
        match last.map(|last| last.state) {
            Some(State::Blocked(wait)) if self.blame.idle_hint(wait) == IdleHint::Idle => {
                RequestState::Idle
            }
            Some(State::Blocked(_)) if self.open_time(thread) > self.open_time(waiter) => {
                RequestState::Elsewhere
            }
            Some(State::Blocked(_) | State::OnCpu | State::Runnable(_) | State::Throttled(_)) => {
                RequestState::MayHave
            }
            Some(State::Lost | State::Summed(_)) | None => RequestState::Unknown,
        }
    }

    /// Returns whether a thread was seen waiting for a request.
    fn has_read_requests(&self, thread: ThreadIndex) -> bool {
        let track = self.timeline.thread(thread).into_iter().flat_map(|life| life.track.iter());
        let mut waits = track.filter_map(|interval| match interval.state {
            State::Blocked(wait) => Some(wait),
            _ => None,
        });
        waits.any(|wait| self.reads_request(wait))
    }

    fn reads_request(&self, wait: WaitIndex) -> bool {
        let stack = self.recording.waits.get(wait.0 as usize).map(|wait| wait.kernel_stack);
        stack.is_some_and(|stack| {
            kernel_frames(&self.recording.stacks, stack)
                .any(|name| READING_FUNCTIONS.iter().any(|start| name.starts_with(start)))
        })
    }
}

//! How threads slept: on what kind of thing, and in which stacks. Each distinct way is stored once.
//!
//! A [`super::Hop`] has the stack with which its thread woke the one before. That names who was
//! waited for, but not what that thread itself was held up by:
//!
//! ```text
//! waiter   ---- blocked ------------------+--
//! hop 1    --+-- blocked: slept here --+--^ woke the waiter from there
//! hop 2    --+-- …                     ^
//! ```

use indexmap::IndexSet;
use offwake_recording::{Recording, SocketRole, Wait, units::Tid};

use super::{
    StackPairId,
    cause::{
        Cause, kernel_frames,
        kernel_locks::{KernelLock, find_kernel_lock},
    },
    frame_evidence::FrameEvidence,
    only_filesystems::OnlyFilesystems,
    stops::Stop,
};

/// Identifies a way to sleep within one [`Sleeps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SleepId(u32);

impl SleepId {
    /// Nothing is known, or nobody asked.
    pub const NONE: Self = Self(0);

    /// Returns its place among all ways to sleep of a recording; 0 for [`Self::NONE`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A way to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sleep {
    /// What it was on.
    pub cause: Cause,
    /// The stacks that the thread slept in.
    pub stack: StackPairId,
    /// Which end of a connection the thread had, if it was on a socket and that could be told.
    pub role: Option<SocketRole>,
    /// What the functions of the program tell about it.
    pub evidence: FrameEvidence,
    /// What stopped the thread, if it was stopped.
    pub stop: Option<Stop>,
    /// The filesystem of the file that it was on, by its device, if the thread waited for a disk, or until
    /// the filesystem is frozen no more, and that is known.
    pub filesystem: Option<u32>,
    /// The thread, if it is one coroutine's own: its stacks do not tell what that waited for.
    pub own_coroutine: Option<Tid>,
}

/// The distinct ways in which a recording's threads slept.
#[derive(Debug)]
pub struct Sleeps(IndexSet<Sleep, foldhash::fast::RandomState>);

impl Default for Sleeps {
    fn default() -> Self {
        // The first stands for `SleepId::NONE`.
        let none = Sleep {
            cause: Cause::Other,
            stack: StackPairId::NONE,
            role: None,
            evidence: FrameEvidence::None,
            stop: None,
            filesystem: None,
            own_coroutine: None,
        };
        Self(IndexSet::from_iter([none]))
    }
}

impl Sleeps {
    /// Returns the id of the way in which `wait` was slept.
    pub(super) fn insert(
        &mut self,
        recording: &Recording,
        wait: &Wait,
        cause: Cause,
        stack: StackPairId,
        evidence: FrameEvidence,
        only_filesystems: &OnlyFilesystems,
    ) -> SleepId {
        let role = wait.file.and_then(|file| recording.files.role(file));
        let is_frozen = || {
            let functions = kernel_frames(&recording.stacks, wait.kernel_stack);
            find_kernel_lock(cause, functions) == Some(KernelLock::FrozenFilesystem)
        };
        let filesystem_of = |file| Some(recording.filesystem(file)?.device);
        let filesystem = match (cause, wait.file) {
            (Cause::Disk, Some(file)) => filesystem_of(file),
            (Cause::KernelLock, Some(file)) if is_frozen() => filesystem_of(file),
            (Cause::Disk | Cause::PageFault, None) => only_filesystems.get(wait.tgid),
            // It names the ring. Where a disk ended it, it was for what was read through that.
            (Cause::IoUring, _) => only_filesystems.get(wait.tgid),
            _ => None,
        };
        let stop =
            Stop::from_wait(cause, wait.state.letter(), &recording.stacks, wait.kernel_stack);
        let own_coroutine = (evidence == FrameEvidence::OwnCoroutine).then_some(wait.tid);
        let sleep = Sleep { cause, stack, role, evidence, stop, filesystem, own_coroutine };
        let (index, _) = self.0.insert_full(sleep);
        SleepId(u32::try_from(index).unwrap_or(0))
    }

    /// Returns every way to sleep.
    pub fn iter(&self) -> impl Iterator<Item = &Sleep> {
        self.0.iter().skip(1)
    }

    /// Returns the ids of all ways to sleep, [`SleepId::NONE`] first: by [`SleepId::index`].
    pub fn ids(&self) -> impl Iterator<Item = SleepId> {
        (0..).map(SleepId).take(self.0.len())
    }

    /// Returns a way to sleep; none for [`SleepId::NONE`].
    #[must_use]
    pub fn get(&self, id: SleepId) -> Option<&Sleep> {
        (id != SleepId::NONE).then(|| self.0.get_index(id.0 as usize))?
    }
}

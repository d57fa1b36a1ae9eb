//! Threads that exited, and the wakes that were part of their exit.
//!
//! A thread that ends closes its files, lets go of its robust futexes and tells its parent on its way
//! out ([`do_exit`](https://github.com/torvalds/linux/blob/v6.12/kernel/exit.c#L878)). Its last
//! switch-out, at which its end is recorded, comes after that:
//!
//! ```text
//! B  -- on-CPU --+-- do_exit: wake A ----+
//!                exit, or a signal       last switch-out
//! ```

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    AddressSpace, Frame, StackRef, ThreadExit,
    units::{StackId, Tgid, Tid, Timestamp},
};

use crate::{
    blame::cause::syscalls,
    timeline::{ThreadIndex, WaitIndex},
};

use super::{SpanInput, SpanStatus};

/// When and how threads exited.
pub(super) struct ThreadExits<'a> {
    evidence: SpanInput<'a>,
    /// The exits of each tid, in order of time.
    exits: HashMap<Tid, Vec<&'a ThreadExit>>,
    /// The kernel stacks of threads in `do_exit`.
    exiting_stacks: HashSet<StackId>,
}

impl<'a> ThreadExits<'a> {
    pub(super) fn new(evidence: SpanInput<'a>) -> Self {
        let mut exits: HashMap<_, Vec<_>> = HashMap::new();
        for exit in &evidence.recording.exits {
            exits.entry(exit.tid).or_default().push(exit);
        }
        let stacks = &evidence.recording.stacks;
        let is_exit = |frame: &Frame| frame.names().any(|name| name == "do_exit");
        let of_ending = (stacks.stacks.iter())
            .filter(|(_, stack)| stack.space == AddressSpace::Kernel)
            .filter(|(id, _)| stacks.frames_of(**id).any(is_exit))
            .map(|(id, _)| *id)
            .collect();
        Self { evidence, exits, exiting_stacks: of_ending }
    }

    /// Returns the processes of all threads that exited.
    pub(super) fn processes(&self) -> HashSet<Tgid> {
        self.evidence.recording.exits.iter().map(|exit| exit.tgid).collect()
    }

    /// Returns how the thread exited that ended a wait by exiting.
    pub(super) fn waker_exit_status(&self, wait: WaitIndex) -> Option<SpanStatus> {
        let wake = self.evidence.wait(wait)?.wake?;
        self.evidence.waker_task(wait)?;
        let call = wake.syscall.as_ref().and_then(syscalls::name);
        let is_ending = matches!(call, Some("exit" | "exit_group"))
            || matches!(wake.kernel_stack, StackRef::Id(id) if self.exiting_stacks.contains(&id));
        let waker = || self.evidence.waker_thread(wait);
        is_ending.then(|| {
            let end = waker()
                .and_then(|waker| self.exit_status_after(waker, self.evidence.woken_at(wait)));
            end.unwrap_or(SpanStatus::Exited(None))
        })
    }

    /// Returns how a thread exited, if it did inside the window, at `from` or later.
    pub(super) fn exit_status_after(
        &self,
        thread: ThreadIndex,
        from: Timestamp,
    ) -> Option<SpanStatus> {
        let thread = self.evidence.thread(thread)?;
        let exits = self.exits.get(&thread.tid)?;
        let exit = exits.get(exits.partition_point(|exit| exit.at < from))?;
        (exit.at <= thread.until).then(|| SpanStatus::from_exit_status(exit.status))
    }
}

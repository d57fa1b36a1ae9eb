//! Waits that the end of a child cut short.
//!
//! ```text
//! make   --+-- pselect6: a token, or a child's end --+--
//! child  ---- works ---- exit: tells its parent -----^ SIGCHLD
//! ```
//!
//! Make waits like that for a token of its jobserver and for its children at once.

use std::{cell::OnceCell, collections::HashSet};

use offwake_recording::{Frame, Recording, StackRef, Wait, WakeContext, units::Tgid};

use super::matches_any;

/// The function in which a process that ends tells its parent, in Linux 5.10 to 7.3. Who was stopped, or goes on, does
/// so elsewhere (`do_notify_parent_cldstop`).
const TELLS_OF_END: &[&str] = &["do_notify_parent"];

/// Who is whose child, as far as a recording tells.
pub(super) struct Children<'a> {
    recording: &'a Recording,
    /// Each child with its parent, and with who adopted it; made when it is needed first.
    known: OnceCell<HashSet<(Tgid, Tgid)>>,
}

impl<'a> Children<'a> {
    pub(super) fn new(recording: &'a Recording) -> Self {
        Self { recording, known: OnceCell::new() }
    }

    /// Returns whether a child of the waiter's process ended a wait by its own end. A process whose parent ends may tell
    /// of children that had ended before: it must be the child itself.
    pub(super) fn has_ended(&self, wait: &Wait) -> bool {
        let Some(wake) = wait.wake.filter(|wake| wake.context == WakeContext::Task) else {
            return false;
        };
        let StackRef::Id(stack) = wake.kernel_stack else { return false };
        let tells_of_end = || {
            let frames = self.recording.stacks.frames_of(stack);
            frames.flat_map(Frame::names).any(|function| matches_any(TELLS_OF_END, function))
        };
        let is_child = || self.known().contains(&(wake.current.tgid, wait.tgid));
        wake.current.tgid != wait.tgid && tells_of_end() && is_child()
    }

    fn known(&self) -> &HashSet<(Tgid, Tgid)> {
        self.known.get_or_init(|| {
            let events = self.recording.thread_events.iter();
            let seen = events.map(|event| (event.tgid, event.parent));
            let looked_up = self.recording.processes.iter();
            seen.chain(looked_up.filter_map(|info| Some((info.tgid, info.parent?)))).collect()
        })
    }
}

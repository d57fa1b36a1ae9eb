//! Processes of which no thread can go on: each waits, without a timeout, for what only a thread of the same
//! process can end.
//!
//! ```text
//! main       ------ waits for a job's result ------------------
//! worker 1   ------ waits for the result of a job in its queue --
//! worker 2   ------ waits for the result of a job in its queue --   nobody is left to take that job
//! ```
//!
//! It takes no knowledge of who waits for whom: a private futex is woken by a thread of the process, and a
//! thread that sleeps wakes nobody
//! ([`futex(2)`](https://man7.org/linux/man-pages/man2/futex.2.html), `FUTEX_PRIVATE_FLAG`). Only a signal's
//! handler can.

use offwake_recording::{Scope, units::Tgid};

use crate::{
    blame::cause::{self, WaitedOn},
    timeline::ThreadIndex,
};

use super::{LockCall, OpenWaitGraph};

impl OpenWaitGraph<'_> {
    /// Returns the threads of a process of which none can go on.
    pub(in crate::findings) fn threads_of_closed_process(
        &self,
        process: Tgid,
    ) -> Option<&[ThreadIndex]> {
        let threads = self.living.get(&process)?.as_slice();
        let knows_all_threads = self.recording.meta.scope == Scope::Machine
            && !self.recording.loss.counters.contains_key("threads_full");
        let is_closed =
            knows_all_threads && threads.iter().all(|&thread| self.waits_within_process(thread));
        is_closed.then_some(threads)
    }

    /// Returns whether only a thread of the same process can end the wait in which a thread is.
    fn waits_within_process(&self, thread: ThreadIndex) -> bool {
        let Some(open) = self.open_wait(thread) else { return false };
        let Some(wait) = self.open_wait_record(thread) else { return false };
        let is_private = matches!(
            cause::waited_on(&wait, self.blame.cause(open)),
            Some(WaitedOn::Futex { private: true, .. })
        );
        // The kernel ends it as the other thread exits, by a futex that is not private.
        let is_join = || self.lock_call(thread) == Some(LockCall::Join);
        wait.timeout.is_none() && (is_private || is_join()) && !self.is_frozen_asleep(thread)
    }
}

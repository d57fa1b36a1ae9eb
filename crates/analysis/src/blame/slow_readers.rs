//! Who has to read before a thread can go on that waits for room at a TCP socket of this machine.
//!
//! A reader makes room as it reads: its acknowledgement wakes the sender from inside its own call. But
//! when the reader has read enough for the sender's next data and sleeps again, the kernel takes these
//! in for it, and acknowledges them later, by a timer (40 ms). No thread makes that wake:
//!
//! ```text
//! sender   ------- blocked, no room ------------------------^ wake, by TCP's timer
//! reader   -- sleeps ------------------+#reads#+-- sleeps --------------------------
//! blame    |        the reader         |reader |  TCP      |
//! ```
//!
//! Until the reader last did anything, it might have read. After that, TCP kept to itself that there was
//! room.

use offwake_recording::{
    SocketEnd,
    units::{Tgid, Timestamp},
};

use crate::timeline::{State, ThreadIndex, WaitIndex};

use super::{
    Blame,
    cause::{Cause, syscalls},
    wake_source::find_tcp_socket,
};

/// The thread that a sender without room waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlowReader {
    pub(super) thread: ThreadIndex,
    /// When it last ran before the sender was woken, of the times that it came to a CPU during the wait.
    pub(super) last_ran: Timestamp,
}

impl Blame<'_> {
    /// Returns who had to read before a wait for room at a TCP socket could end, if that is the only
    /// thread of the only process that holds the other end.
    ///
    /// None if that thread waited for this very connection meanwhile, or may have: all that was sent had
    /// been read then, and what the sender waited for was TCP's acknowledgement alone. So it is with a
    /// small send buffer and a reader that is quicker than the sender.
    pub(super) fn slow_reader(&self, wait: WaitIndex) -> Option<SlowReader> {
        let whole = self.recording.waits.get(wait.0 as usize)?;
        let woken = self.pattern(wait)?.0.woken_at()?;
        let blocked = self.timeline.blocked_interval(wait)?;
        let sends = whole.syscall.as_ref().and_then(syscalls::name).is_some_and(syscalls::writes);
        let socket = find_tcp_socket(self.recording, &whole).filter(|_| sends)?;
        let [holder] = socket.peers.as_slice() else { return None };
        let thread = self.only_thread_between(holder.tgid, blocked.from, woken)?;
        let track = &self.timeline.thread(thread)?.track;
        let mut last_ran = None;
        for place in track.index_at(blocked.from)?..track.len() {
            let Some(interval) = track.get(place).filter(|it| it.from < woken) else { break };
            match interval.state {
                // Whether it has read since the wait began nobody knows of one that was at work before.
                State::OnCpu if interval.from <= blocked.from => {}
                State::OnCpu => last_ran = Some(interval.to.min(woken)),
                State::Blocked(own) if self.may_be_for_data(own, socket) => return None,
                // It may have been in any of these.
                State::Lost | State::Summed(_) => return None,
                State::Blocked(_) | State::Runnable(_) | State::Throttled(_) => {}
            }
        }
        last_ran.map(|last_ran| SlowReader { thread, last_ran })
    }

    /// Returns the thread of a process that lived then, if it was one alone, and its waits were recorded.
    fn only_thread_between(
        &self,
        process: Tgid,
        from: Timestamp,
        to: Timestamp,
    ) -> Option<ThreadIndex> {
        let lived = |index: &&ThreadIndex| {
            self.timeline.thread(**index).is_some_and(|life| life.from < to && life.until > from)
        };
        let mut living = self.threads_of(process).iter().filter(lived);
        let only = *living.next().filter(|_| living.next().is_none())?;
        self.timeline.are_waits_recorded(only).then_some(only)
    }

    /// Returns whether a thread that waits like this may wait for data from the other end of `sender`.
    fn may_be_for_data(&self, wait: WaitIndex, sender: &SocketEnd) -> bool {
        match self.cause(wait) {
            // Any of several files, or one that is not known.
            Cause::Poll | Cause::IoUring => true,
            Cause::Socket => {
                let whole = self.recording.waits.get(wait.0 as usize);
                let socket = whole.and_then(|whole| find_tcp_socket(self.recording, &whole));
                socket.is_none_or(|own| {
                    (own.local.as_str(), own.remote.as_str())
                        == (sender.remote.as_str(), sender.local.as_str())
                })
            }
            _ => false,
        }
    }
}

//! Who could end the wait of an event loop that has asked somebody for something, and sleeps since.
//!
//! ```text
//! loop     ..poll..[ asks .. ]..poll..[ asks ]---- poll -------------------------------
//! worker   ..... reads .[ answers ]..... reads .[ works ]---- sleeps --------------------
//! ```
//!
//! A loop waits for whatever comes. It waits for an answer if all of this is so: what it last did before it fell
//! asleep was to send something over one connection; the thread that got that has been busy with it since, and had
//! only just begun when the loop fell asleep; and the loop was seen to get answers from there before. Who only passes
//! on what nobody answers, such as lines of a log, waits for nothing.

use std::collections::BTreeSet;

use offwake_recording::{
    FileId, Wait,
    units::{Nanos, Tgid, Timestamp},
};

use crate::{
    blame::{
        FrameEvidence,
        cause::{self, Cause},
    },
    timeline::{State, ThreadIndex, WaitIndex},
};

use super::{Awaited, Link, OpenWaitGraph, Owner, connection_ends::EndUse};

/// How much a server has at most worked for an answer when the loop falls asleep. An answer that comes while the loop
/// is awake wakes nobody, and leaves no record: a server may have answered, and be busy with something else.
const BEFORE_ANSWER: Nanos = Nanos(200_000);

impl OpenWaitGraph<'_> {
    /// Finds the thread that an event loop has asked for something, and that has not answered, if it is one alone.
    pub(super) fn loop_link(&self, thread: ThreadIndex, wait: &Wait) -> Option<Link> {
        let open = self.open_wait(thread).filter(|&open| self.is_event_loop(open, wait))?;
        let awake_since = self.awake_since(thread, open)?;
        let ends = self.connection_ends();
        let asked = ends.asked_by(wait.tgid);
        // What came there last is what the loop sent.
        let is_unanswered = |file: &FileId| {
            let last = ends.uses(*file).last();
            last.is_some_and(|last| {
                let is_got = matches!(last.how, EndUse::Waited | EndUse::Polled | EndUse::MadeFor);
                is_got && last.at >= awake_since
            })
        };
        let mut unanswered = asked.iter().filter(|file| is_unanswered(file));
        let file = *unanswered.next().filter(|_| unanswered.next().is_none())?;
        let was_answered =
            |file: &FileId| ends.uses(*file).iter().any(|seen| seen.how == EndUse::Sent);
        let address = |file: FileId| {
            self.recording.files.socket(file).map(|socket| (&socket.remote, &socket.peers))
        };
        let answers =
            asked.iter().any(|other| address(*other) == address(file) && was_answered(other));
        let server = self.find_busy_server(ends.uses(file)).filter(|_| answers)?;
        let got = ends.uses(file).last()?.at;
        if !self.has_just_begun(server, got, wait.off) {
            return None;
        }
        Some(Link { awaited: Awaited::AnswerToLoop, owner: Owner::Thread(server) })
    }

    /// Returns whether a thread that got something at `got` had hardly worked for it by `until`, and had ended no wait
    /// meanwhile.
    fn has_just_begun(&self, server: ThreadIndex, got: Timestamp, until: Timestamp) -> bool {
        let Some(life) = self.timeline.thread(server) else { return false };
        let mut worked = Nanos(0);
        for interval in life.track.iter().rev().take_while(|interval| interval.to > got) {
            match interval.state {
                State::OnCpu if interval.from < until => {
                    worked += interval.to.min(until).since(interval.from.max(got));
                }
                State::Blocked(_) if interval.to <= until => return false,
                _ => {}
            }
        }
        worked <= BEFORE_ANSWER
    }

    /// Returns the processes that slept in event loops at the end.
    pub(super) fn sleeping_loops(&self) -> BTreeSet<Tgid> {
        let threads = (0..).take(self.timeline.threads.len()).map(ThreadIndex);
        threads
            .filter_map(|thread| {
                let open = self.open_wait(thread)?;
                let wait = self.recording.waits.get(open.0 as usize)?;
                self.is_event_loop(open, &wait).then_some(wait.tgid)
            })
            .collect()
    }

    fn is_event_loop(&self, index: WaitIndex, wait: &Wait) -> bool {
        matches!(self.blame.cause(index), Cause::Poll | Cause::IoUring)
            && wait.polled_fd.is_none()
            && cause::waits_for_any(wait)
            && matches!(
                self.blame.frame_evidence(index),
                FrameEvidence::None | FrameEvidence::WorkerLoop
            )
    }

    /// Returns since when a thread had been awake when it fell asleep for the last time.
    fn awake_since(&self, thread: ThreadIndex, open: WaitIndex) -> Option<Timestamp> {
        let life = self.timeline.thread(thread)?;
        let before = life.track.iter().rev().skip_while(|it| it.state == State::Blocked(open));
        for interval in before {
            match interval.state {
                State::Blocked(_) => return Some(interval.to),
                State::Lost | State::Summed(_) => return None,
                State::Runnable(_) | State::OnCpu | State::Throttled(_) => {}
            }
        }
        Some(life.from)
    }
}

//! What came for event loops, and can't be assigned to any of their requests.
//!
//! ```text
//! client  --asks on 1, 2, 3--..polls..--..polls..--..polls..--
//! server  ..polls..[ reads, answers ]..polls..[ reads, answers ]
//! ```
//!
//! Both ends serve several connections on one thread. Each wake tells one of the connections, and may have been for
//! others as well; nobody is seen to wait for one answer alone.

use std::collections::HashSet;

use offwake_recording::{
    FileKind, ThreadRef,
    units::{Tgid, Timestamp},
};

use crate::{
    blame::{ConnectionSide, ConnectionSides, WakeSource, is_woken_by_write_space},
    spans::{AskedRequests, LoopAnswer, Roles, SpanInput, waits_for_several},
    timeline::{State, ThreadIndex, WaitIndex},
};

use super::{
    model::NotToldApartReason,
    turns::{LoopWake, Turns, brings_event},
};

/// The end of a wait that can't be assigned to a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnassignedWake {
    pub(super) wait: WaitIndex,
    /// The thread that serves; if nothing tells which one does, the one that was woken.
    pub(super) server: ThreadIndex,
    pub(super) at: Timestamp,
    pub(super) reason: NotToldApartReason,
}

/// Finds what can't be assigned to any request that was found.
pub(super) fn find_unassigned_wakes(
    evidence: SpanInput<'_>,
    sides: &ConnectionSides<'_>,
    asked: &AskedRequests,
    turns: &Turns,
) -> Vec<UnassignedWake> {
    let loops = ClientLoops::find(evidence);
    let is_of_nobody = |wake: &&LoopWake| !asked.has_ask(wake.server, wake.at);
    let mut wakes: Vec<UnassignedWake> = (turns.loop_wakes.iter().filter(is_of_nobody))
        .map(|&LoopWake { wait, server, at }| {
            let reason = loops.reason(evidence, wait, server);
            UnassignedWake { wait, server, at, reason }
        })
        .collect();
    wakes.extend(find_wakes_of_unknown_sides(evidence, sides, asked));
    let known: HashSet<WaitIndex> = wakes.iter().map(|wake| wake.wait).collect();
    let mut servers: HashSet<ThreadIndex> = wakes.iter().map(|wake| wake.server).collect();
    servers.extend(turns.whole.iter().chain(&turns.cut).map(|turn| turn.server));
    let process = |thread| evidence.timeline.process_of_thread(thread);
    let is_new = |answer: &&LoopAnswer| {
        !known.contains(&answer.wait)
            && !servers.contains(&answer.server)
            && process(answer.asker) != process(answer.server)
    };
    wakes.extend(asked.to_loops.iter().filter(is_new).map(|answer| {
        let &LoopAnswer { wait, asker, server, at, roles, .. } = answer;
        let (server, reason) = match roles {
            Roles::Known => (server, NotToldApartReason::AskerWaitsForSeveral),
            Roles::Unknown => (asker, NotToldApartReason::SidesUnknown),
        };
        UnassignedWake { wait, server, at, reason }
    }));
    wakes
}

/// The processes whose event loops were woken by which others.
struct ClientLoops(HashSet<(Tgid, Tgid)>);

impl ClientLoops {
    fn find(evidence: SpanInput<'_>) -> Self {
        let pair = |wait: WaitIndex| {
            let WakeSource::Task(ThreadRef { tgid: waker, .. }) = (evidence.wake_source)(wait)
            else {
                return None;
            };
            let thread = evidence.timeline.blocked_interval(wait)?.thread;
            let waiter = evidence.timeline.process_of_thread(thread)?;
            (waiter != waker && waits_for_several(evidence, wait)).then_some((waiter, waker))
        };
        let count = u32::try_from(evidence.recording.waits.len()).unwrap_or(u32::MAX);
        Self((0..count).map(WaitIndex).filter_map(pair).collect())
    }

    /// Says why nothing tells which request ended a wait of a thread that serves several connections.
    fn reason(
        &self,
        evidence: SpanInput<'_>,
        wait: WaitIndex,
        server: ThreadIndex,
    ) -> NotToldApartReason {
        let timeline = evidence.timeline;
        let client = match (evidence.wake_source)(wait) {
            WakeSource::Task(client) => Some(client),
            _ => None,
        };
        let is_recorded = |client: &ThreadRef| {
            let at = timeline.blocked_interval(wait).map(|place| place.to);
            let thread = at.and_then(|at| timeline.find_thread(client.tid, at));
            thread.is_some_and(|thread| timeline.are_waits_recorded(thread))
        };
        let server = timeline.process_of_thread(server);
        match client.filter(is_recorded).zip(server) {
            None => NotToldApartReason::ClientNotSeen,
            Some((client, server)) if self.0.contains(&(client.tgid, server)) => {
                NotToldApartReason::ClientWaitsForSeveral
            }
            Some(_) => NotToldApartReason::ClientDidNotWait,
        }
    }
}

/// Finds what came from other processes for event loops of the target, through sockets of which nothing tells which end
/// it is.
fn find_wakes_of_unknown_sides(
    evidence: SpanInput<'_>,
    sides: &ConnectionSides<'_>,
    asked: &AskedRequests,
) -> Vec<UnassignedWake> {
    let mut wakes = Vec::new();
    for (thread, n) in evidence.timeline.threads.iter().zip(0..) {
        let server = ThreadIndex(n);
        if !thread.in_target || !evidence.timeline.are_waits_recorded(server) {
            continue;
        }
        wakes.extend(thread.track.iter().filter_map(|interval| {
            let State::Blocked(wait) = interval.state else { return None };
            let at = interval.to;
            let is_counted = waits_for_several(evidence, wait)
                && !asked.is_continued(wait)
                && !asked.has_ask(server, at)
                && is_woken_through_unknown_socket(evidence, sides, wait, thread.tgid);
            let reason = NotToldApartReason::SidesUnknown;
            is_counted.then_some(UnassignedWake { wait, server, at, reason })
        }));
    }
    wakes
}

/// Returns whether others ended a wait of a process through a socket, and nothing tells which end of it the process has.
fn is_woken_through_unknown_socket(
    evidence: SpanInput<'_>,
    sides: &ConnectionSides<'_>,
    index: WaitIndex,
    own: Tgid,
) -> bool {
    let Some(wait) = evidence.recording.waits.get(index.0 as usize) else { return false };
    let source = (evidence.wake_source)(index);
    let is_own = matches!(source, WakeSource::Task(waker) if waker.tgid == own);
    let file = wait.wake.as_ref().and_then(|wake| wake.ready.map(|ready| ready.file).or(wake.file));
    !is_own
        && brings_event(source)
        && !is_woken_by_write_space(&wait)
        && file.is_some_and(|file| file.kind == FileKind::Socket)
        && sides.waiter_side(&wait) == ConnectionSide::Unknown
}

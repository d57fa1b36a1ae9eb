//! Requests as those saw them who asked: one question at a time.

use std::collections::HashMap;

use offwake_recording::{
    Begin,
    units::{Nanos, Timestamp},
};

use crate::{
    blame::{
        ConnectionSide, Reason, WakeSource,
        cause::{Cause, syscalls},
        is_woken_by_write_space,
    },
    timeline::{ThreadIndex, WaitIndex},
};

use super::{SpanInput, exchange::Leg, findings::Findings, pieces::WaitPieces};

/// What is known of the moment at which a request began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestStart {
    /// The server was seen to be woken.
    Seen,
    /// The server was awake. The thread that asked had done so by the time it fell asleep; or the server had not
    /// waited for the request since it answered the one before.
    Unseen,
}

/// Whether it is known who asks and who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Roles {
    /// A socket tells.
    Known,
    /// The one that waited may have waited for its next request as well: pipes and futexes look the same from both
    /// ends.
    Unknown,
}

/// How many threads a request went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hands {
    /// The thread that was asked answered.
    One,
    /// It went from one thread to the next, and the last one answered.
    Several,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedRequest {
    /// The wait for the answer; its last piece, if it was begun anew.
    pub(crate) wait: WaitIndex,
    pub(crate) asker: ThreadIndex,
    /// The thread that was asked; the first one, if the request went from hand to hand.
    pub(crate) server: ThreadIndex,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) start: RequestStart,
    /// Whether something tells that it was the other thread which served.
    pub(crate) roles: Roles,
    pub(crate) hands: Hands,
    /// From when the first server was asked to when the last one answered.
    pub(crate) service: Nanos,
}

/// An answer to a thread that waits for several at once: nothing tells when it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopAnswer {
    /// The wait that it ended.
    pub(crate) wait: WaitIndex,
    pub(crate) asker: ThreadIndex,
    /// The thread that answered.
    pub(crate) server: ThreadIndex,
    pub(crate) at: Timestamp,
    pub(crate) roles: Roles,
    /// Whether the target had a part in the answer.
    pub(crate) is_served_by_target: bool,
}

/// Moments at which threads did something, in order.
type ThreadMoments = HashMap<ThreadIndex, Vec<Timestamp>, foldhash::fast::RandomState>;

/// The requests of a recording that concern the target.
pub(crate) struct AskedRequests {
    /// Those that were answered, in the order of their answers.
    pub(crate) answered: Vec<AskedRequest>,
    /// Those that the window cut.
    pub(crate) cut: Vec<AskedRequest>,
    /// Answers to threads that wait for several at once.
    pub(crate) to_loops: Vec<LoopAnswer>,
    /// When each thread was asked, in order.
    asks: ThreadMoments,
    /// When each thread answered, or handed a request on, in order.
    answers: ThreadMoments,
    pieces: WaitPieces,
}

impl AskedRequests {
    /// Returns whether a thread answered one of these requests between two moments.
    pub(crate) fn has_answer(&self, server: ThreadIndex, from: Timestamp, to: Timestamp) -> bool {
        let Some(answers) = self.answers.get(&server) else { return false };
        let first = answers.partition_point(|&at| at < from);
        answers.get(first).is_some_and(|&at| at <= to)
    }

    /// Returns whether a wait went on in another piece, so that what ended it brought nothing.
    pub(crate) fn is_continued(&self, wait: WaitIndex) -> bool {
        self.pieces.is_continued(wait)
    }

    /// Returns whether one of these requests had a thread woken at that moment.
    pub(crate) fn has_ask(&self, server: ThreadIndex, at: Timestamp) -> bool {
        self.asks.get(&server).is_some_and(|asks| asks.binary_search(&at).is_ok())
    }
}

/// Finds the requests that a thread of the target made or served, and in which the one that asked waited for nothing
/// else.
///
/// A thread that waits for several at once may have asked long before: its requests are counted alone.
pub(crate) fn find_asked_requests(evidence: SpanInput<'_>) -> AskedRequests {
    let findings = Findings::new(evidence, Nanos(0));
    let (mut answered, mut cut, mut to_loops) = (Vec::new(), Vec::new(), Vec::new());
    let (mut asks, mut answers) = (ThreadMoments::default(), ThreadMoments::default());
    for &wait in findings.span_waits.waits() {
        if !findings.is_request(wait) || findings.side(wait) == ConnectionSide::Serving {
            continue;
        }
        // Nobody asks a child: it does what it was created for, and its parent waits until it exits.
        if is_for_child(evidence, wait) {
            continue;
        }
        let Some(place) = evidence.interval(wait) else { continue };
        let legs = findings.legs(wait);
        let (Some(asker), Some(first), Some(last)) = (place.thread, legs.first(), legs.last())
        else {
            continue;
        };
        let is_served = legs.iter().any(|leg| findings.is_target(Some(leg.thread)));
        if !is_served && !findings.is_target(Some(asker)) {
            continue;
        }
        // The server has read the question, and has not answered it.
        if evidence.wait(wait).is_some_and(|wait| is_woken_by_write_space(&wait)) {
            continue;
        }
        let roles = match findings.side(wait) {
            ConnectionSide::Asking => Roles::Known,
            ConnectionSide::Serving | ConnectionSide::Unknown => Roles::Unknown,
        };
        if waits_for_several(evidence, wait) {
            if !is_cut(evidence, wait) {
                to_loops.push(LoopAnswer {
                    wait,
                    asker,
                    server: last.thread,
                    at: place.to,
                    roles,
                    is_served_by_target: is_served,
                });
            }
            continue;
        }
        let (from, start) = match findings.exchanges.asked_at(wait) {
            Some(asked) if asked <= place.from => (asked, RequestStart::Seen),
            _ => (findings.pieces.start(wait), RequestStart::Unseen),
        };
        let service = last.to.since(first.from.max(from).min(last.to));
        let request = AskedRequest {
            wait,
            asker,
            server: first.thread,
            from,
            to: place.to,
            start,
            roles,
            hands: if legs.len() == 1 { Hands::One } else { Hands::Several },
            service,
        };
        match is_cut(evidence, wait) {
            true => cut.push(request),
            false => answered.push(request),
        }
        for &Leg { thread, from, to, .. } in &legs {
            asks.entry(thread).or_default().push(from);
            answers.entry(thread).or_default().push(to);
        }
    }
    answered.sort_by_key(|request: &AskedRequest| (request.to, request.wait));
    asks.values_mut().chain(answers.values_mut()).for_each(|moments| moments.sort_unstable());
    AskedRequests { answered, cut, to_loops, asks, answers, pieces: findings.pieces }
}

/// Returns whether a wait was for any of several things.
pub(crate) fn waits_for_several(evidence: SpanInput<'_>, wait: WaitIndex) -> bool {
    let polls_one = || evidence.wait(wait).is_some_and(|wait| wait.polled_fd.is_some());
    match (evidence.cause)(wait) {
        Cause::IoUring => true,
        Cause::Poll => !polls_one(),
        _ => false,
    }
}

/// Returns whether a parent waited until its child exited, or until that runs a program of its own (`vfork`,
/// `posix_spawn`).
fn is_for_child(evidence: SpanInput<'_>, wait: WaitIndex) -> bool {
    let creates_child = || {
        let syscall = evidence.wait(wait).and_then(|wait| wait.syscall);
        let name = syscall.as_ref().and_then(syscalls::name);
        matches!(name, Some("clone" | "clone3" | "fork" | "vfork"))
    };
    (evidence.cause)(wait) == Cause::Child || creates_child()
}

/// Returns whether a wait began before the window, or had not ended when it did.
fn is_cut(evidence: SpanInput<'_>, wait: WaitIndex) -> bool {
    let begin = evidence.recording.waits.rows().get(wait.0 as usize).map(|row| row.begin());
    begin == Some(Begin::BeforeWindow)
        || matches!((evidence.wake_source)(wait), WakeSource::Unknown(Reason::StillBlocked))
}

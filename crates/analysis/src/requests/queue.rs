//! Requests that lay in a socket while the thread that served them worked for others.
//!
//! ```text
//! B       --asks--+======= waits =======+--
//! A       -----------asks--+============ waits ===========+--
//! server  ..waits..[ works for B        ^ works for A     ^ ]..waits..
//!                          |-- queued --|
//! ```
//!
//! Only threads that serve one request after the other have queues: those that were not seen to wait for other work
//! while they had a request. A loop that asks other servers on its clients' behalf does.

use std::collections::HashMap;

use offwake_recording::units::{Nanos, Timestamp};

use crate::{
    blame::Blame,
    timeline::{State, ThreadIndex, WaitIndex},
};

use super::found::{ClassId, Request};

/// A request that comes so soon after an answer may be taken together with the next one: the server has not looked at
/// its sockets yet.
const ANSWER_TO_POLL: Nanos = Nanos(50_000);

/// Answers that follow each other this closely may be those to requests that were worked on together: redis sends
/// the answers to all that it has read at once, the last one first.
const BETWEEN_ANSWERS: Nanos = Nanos(50_000);

/// So many requests that were answered as they came show that a thread serves one after the other.
const FEWEST_SERVED_AT_ONCE: usize = 10;

/// Of so many requests that a thread answers as they come, it may have kept one back.
const SERVED_AT_ONCE_PER_KEPT: usize = 100;

/// A stretch in which a server worked for others while a request lay in its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueuedStretch {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    /// The class of the request that the server answered at the end of it.
    pub(super) behind: ClassId,
    /// The wait that this answer ended.
    pub(super) answered: WaitIndex,
}

/// What threads answered, and when they began on something new.
pub(super) struct Queues {
    servers: HashMap<ThreadIndex, ServerTurns>,
}

/// One thread's answers.
#[derive(Default)]
struct ServerTurns {
    /// When it answered, a request of which class, and the wait that this ended, in order.
    answers: Vec<(Timestamp, ClassId, WaitIndex)>,
    /// When something came for it after it had waited for work, in order.
    slice_begins: Vec<Timestamp>,
    /// From when to when it is not known what it did, in order: it may have waited for work.
    unknown: Vec<(Timestamp, Timestamp)>,
    /// How many requests it answered in the slice that they began.
    at_once: usize,
    /// How many it had while it waited for other work.
    kept: usize,
    /// Whether its process was seen to ask nobody.
    only_serves: bool,
}

impl Queues {
    /// Finds out which threads serve one request after the other, of these requests.
    pub(super) fn find(blame: &Blame<'_>, requests: &[Request]) -> Self {
        let mut servers: HashMap<ThreadIndex, ServerTurns> = HashMap::new();
        for request in requests.iter().filter(|request| request.is_served_by_one()) {
            let server = servers.entry(request.server).or_default();
            server.answers.push((request.to, request.class, request.wait));
        }
        for (&thread, server) in &mut servers {
            server.answers.sort_unstable();
            server.slice_begins = find_slice_begins(blame, thread);
            server.unknown = find_unknown(blame, thread);
            server.only_serves = (blame.timeline().process_of_thread(thread))
                .is_some_and(|process| blame.only_serves(process));
        }
        for request in requests.iter().filter(|request| request.is_served_by_one()) {
            let Some(server) = servers.get_mut(&request.server) else { continue };
            match server.slice_begin(request.to) {
                Some(begin) if begin > request.from => server.kept += 1,
                Some(begin) if begin == request.from => server.at_once += 1,
                Some(_) | None => {}
            }
        }
        servers.retain(|_, server| server.serves_in_turn());
        Self { servers }
    }

    /// Returns the stretches in which the server of a request worked for others first, in order: the first one begins
    /// with the request, and each ends where the next one begins.
    pub(super) fn stretches(&self, request: &Request) -> Vec<QueuedStretch> {
        if !request.is_served_by_one() {
            return Vec::new();
        }
        let server = self.servers.get(&request.server);
        server.map(|server| server.stretches(request)).unwrap_or_default()
    }
}

impl ServerTurns {
    /// Returns when the slice began in which the thread is at `at`.
    fn slice_begin(&self, at: Timestamp) -> Option<Timestamp> {
        let begun = self.slice_begins.partition_point(|&begin| begin <= at);
        self.slice_begins.get(begun.checked_sub(1)?).copied()
    }

    /// Returns whether it is not known what the thread did at some time from a request to its answer.
    fn is_unknown_during(&self, request: &Request) -> bool {
        let begun = self.unknown.partition_point(|&(from, _)| from < request.to);
        let last = begun.checked_sub(1).and_then(|place| self.unknown.get(place));
        last.is_some_and(|&(_, to)| to > request.from)
    }

    fn serves_in_turn(&self) -> bool {
        self.kept * SERVED_AT_ONCE_PER_KEPT <= self.at_once
            && (self.at_once >= FEWEST_SERVED_AT_ONCE || self.only_serves)
    }

    fn stretches(&self, request: &Request) -> Vec<QueuedStretch> {
        let begin = self.slice_begin(request.to);
        // It came as the server was asleep, or the server kept it back, or may have done so.
        if begin.is_some_and(|begin| begin >= request.from) || self.is_unknown_during(request) {
            return Vec::new();
        }
        let first = self.answers.partition_point(|&(at, ..)| at <= request.from);
        let end = self.answers.partition_point(|&(at, ..)| at < request.to);
        let before = first.checked_sub(1).and_then(|place| self.answers.get(place));
        let begun = before.map(|&(at, ..)| at).max(begin);
        let mut others = self.answers.get(first..end).unwrap_or_default();
        let Some(&(last, ..)) = others.last() else { return Vec::new() };
        if request.to.since(last) < BETWEEN_ANSWERS {
            // What the server was at as the request came is not the request's, whatever came later.
            let is_sure = begun.is_some_and(|begun| begun + ANSWER_TO_POLL <= request.from);
            others = others.get(..usize::from(is_sure)).unwrap_or_default();
        }
        let mut stretches: Vec<QueuedStretch> = Vec::new();
        for &(to, behind, answered) in others {
            match stretches.last_mut() {
                Some(last) if last.behind == behind => (last.to, last.answered) = (to, answered),
                last => {
                    let from = last.map_or(request.from, |last| last.to);
                    stretches.push(QueuedStretch { from, to, behind, answered });
                }
            }
        }
        stretches
    }
}

/// Returns from when to when it is not known what a thread did.
fn find_unknown(blame: &Blame<'_>, thread: ThreadIndex) -> Vec<(Timestamp, Timestamp)> {
    let Some(thread) = blame.timeline().thread(thread) else { return Vec::new() };
    let unknown = thread.track.iter().filter(|interval| interval.state.is_unknown());
    unknown.map(|interval| (interval.from, interval.to)).collect()
}

/// Returns when something came for a thread after it had waited for work.
fn find_slice_begins(blame: &Blame<'_>, thread: ThreadIndex) -> Vec<Timestamp> {
    let Some(thread) = blame.timeline().thread(thread) else { return Vec::new() };
    let begins = thread.track.iter().filter_map(|interval| match interval.state {
        State::Blocked(wait) => blame.waits_for_work(wait).then_some(interval.to),
        _ => None,
    });
    begins.collect()
}

//! Requests as their servers saw them: one connection a thread, one request at a time.
//!
//! ```text
//! asker   --asks--..................................--asks--      a loop, or on another machine
//! server  ..waits.[ works, waits for others, answers ]..waits..
//!                 | turn                            |
//! ```
//!
//! A turn ends as the server wakes whoever asked, or else as it waits for its next request. Where it wakes the one
//! that asked several times, the next request had come before it could wait for it: each of them is a turn.
//!
//! A thread that serves several connections at once has no turns: what it does after a wake may be for any of
//! them.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    FileId, Recording,
    units::{Tgid, Timestamp},
};

use crate::{
    blame::{
        Blame, ConnectionSide, ConnectionSides, External, Reason, WakeSource,
        cause::{Cause, syscalls},
        descriptor, is_woken_by_write_space,
    },
    spans::{AskedRequests, LoopAnswer, RequestStart, Roles},
    timeline::{Interval, State, Thread, ThreadIndex, WaitIndex},
};

/// How many requests connections must have brought on average that one client made one after the other:
/// of connections with one request each, nothing tells whether there were others meanwhile.
const LEAST_PER_CONNECTION: usize = 3;

/// A thread's work on one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// The server's wait for the request.
    pub(super) wait: WaitIndex,
    pub(super) server: ThreadIndex,
    /// When the request came; when the server had answered the one before, if nobody saw it come.
    pub(super) from: Timestamp,
    /// When it was answered, or when the server began to wait for the next one.
    pub(super) to: Timestamp,
    pub(super) start: RequestStart,
}

/// The turns of the target's threads, and those in which others served it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) whole: Vec<Turn>,
    /// Those that the window cut.
    pub(super) cut: Vec<Turn>,
    /// What came for threads that serve several connections.
    pub(super) loop_wakes: Vec<LoopWake>,
}

/// Something that came for a thread which serves several connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopWake {
    /// The wait that it ended.
    pub(super) wait: WaitIndex,
    pub(super) server: ThreadIndex,
    pub(super) at: Timestamp,
}

/// What a wait for a request is on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServedFrom {
    /// A connection, of which the file is known.
    Connection(FileId),
    /// A listening socket.
    Listener,
    /// A connection of several, or one that is not known.
    Unknown,
}

/// A wait for a request.
struct ServingWait {
    wait: WaitIndex,
    from: Timestamp,
    to: Timestamp,
    served: ServedFrom,
    /// Whether a request ended it.
    brings_request: bool,
    /// Whether the thread would have been woken by others as well.
    is_for_several: bool,
}

/// Finds the turns of all threads of the target, and those of other threads in which they answered an event loop of the
/// target: pgbench asks each session of PostgreSQL through a connection of its own.
pub(super) fn find_turns(
    blame: &Blame<'_>,
    sides: &ConnectionSides<'_>,
    asked: &AskedRequests,
) -> Turns {
    let answers_targets_loop =
        |answer: &&LoopAnswer| !answer.is_served_by_target && answer.roles == Roles::Known;
    let servers_outside: HashSet<ThreadIndex> =
        asked.to_loops.iter().filter(answers_targets_loop).map(|answer| answer.server).collect();
    let timeline = blame.timeline();
    let serves = |thread| timeline.is_in_target(thread) || servers_outside.contains(&thread);
    let wakes = find_wakes_of_processes(blame, &serves);
    let mut turns = Turns::default();
    for (thread, n) in timeline.threads.iter().zip(0..) {
        let index = ThreadIndex(n);
        if !serves(index) || !timeline.are_waits_recorded(index) {
            continue;
        }
        let wakes = wakes.get(&index).map_or(&[][..], Vec::as_slice);
        let serving = find_serving_waits(blame, sides, thread, &|wait| asked.is_continued(wait));
        if thread.in_target {
            add_turns(blame, (index, thread, wakes), &serving, &mut turns);
            continue;
        }
        let mut outside = Turns::default();
        add_turns(blame, (index, thread, wakes), &serving, &mut outside);
        // A packet that came in a softirq over somebody else is whoever's: it came through the connection of
        // the target that the others came through.
        let is_for_target = |turn: &Turn| {
            !matches!(blame.wake_source(turn.wait), WakeSource::Task(_))
                || (blame.waker_thread(turn.wait))
                    .is_some_and(|(asker, _)| timeline.is_in_target(asker))
        };
        turns.whole.extend(outside.whole.into_iter().filter(is_for_target));
        turns.cut.extend(outside.cut.into_iter().filter(is_for_target));
    }
    turns
}

/// Returns when each thread that `serves` woke a thread of which other process, in order.
fn find_wakes_of_processes(
    blame: &Blame<'_>,
    serves: &dyn Fn(ThreadIndex) -> bool,
) -> HashMap<ThreadIndex, Vec<(Timestamp, Tgid)>> {
    let mut wakes: HashMap<ThreadIndex, Vec<(Timestamp, Tgid)>> = HashMap::new();
    let waits = &blame.recording().waits;
    for (row, n) in waits.rows().iter().zip(0..) {
        let waiter = waits.waiter(row).tgid;
        let wait = WaitIndex(n);
        let Some((waker, at)) = blame.waker_thread(wait) else { continue };
        // A timer that strikes meanwhile is no doing of the thread's. Nor is it an answer to have read the question.
        let is_answer = || {
            matches!(blame.wake_source(wait), WakeSource::Task(_))
                && waits.get(n as usize).is_some_and(|wait| !is_woken_by_write_space(&wait))
        };
        if serves(waker) && is_answer() {
            wakes.entry(waker).or_default().push((at, waiter));
        }
    }
    wakes.values_mut().for_each(|wakes| wakes.sort_unstable());
    wakes
}

/// Returns a thread's waits for requests, in order.
fn find_serving_waits(
    blame: &Blame<'_>,
    sides: &ConnectionSides<'_>,
    thread: &Thread,
    is_continued: &dyn Fn(WaitIndex) -> bool,
) -> Vec<ServingWait> {
    let find = |interval: Interval| match interval.state {
        State::Blocked(wait) => {
            let (served, is_for_several) = find_served(blame, sides, wait)?;
            let (from, to) = (interval.from, interval.to);
            let brings_request = !is_continued(wait) && brings_request(blame, wait);
            Some(ServingWait { wait, from, to, served, brings_request, is_for_several })
        }
        _ => None,
    };
    thread.track.iter().filter_map(find).collect()
}

fn add_turns(
    blame: &Blame<'_>,
    (index, thread, wakes): (ThreadIndex, &Thread, &[(Timestamp, Tgid)]),
    serving: &[ServingWait],
    turns: &mut Turns,
) {
    let polled = serving.iter().filter(|one| one.is_for_several && one.brings_request);
    if !is_one_connection_at_a_time(blame.recording(), polled.map(|one| one.served)) {
        let wakes = serving.iter().filter(|one| one.brings_request);
        let wake = |one: &ServingWait| LoopWake { wait: one.wait, server: index, at: one.to };
        turns.loop_wakes.extend(wakes.map(wake));
        return;
    }
    for (n, one) in serving.iter().enumerate() {
        // Who takes a connection may read from it next, or have somebody else do so.
        if !one.brings_request || one.served == ServedFrom::Listener {
            continue;
        }
        let turn = |from, to, start| Turn { wait: one.wait, server: index, from, to, start };
        let end = serving.get(n + 1).map_or(thread.track.end(), |next| next.from);
        let mut last = None;
        for at in answers_between(blame, one.wait, wakes, (one.to, end)) {
            let (from, start) = match last {
                None => (one.to, RequestStart::Seen),
                Some(before) => (before, RequestStart::Unseen),
            };
            turns.whole.push(turn(from, at, start));
            last = Some(at);
        }
        if last.is_none() {
            let turn = turn(one.to, end, RequestStart::Seen);
            match n + 1 < serving.len() {
                true => turns.whole.push(turn),
                false => turns.cut.push(turn),
            }
        }
    }
}

/// A connection, by its two addresses if they are known. Either end may be the one that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Connection<'r> {
    Addresses(&'r str, &'r str),
    End(FileId),
}

/// Returns whether requests came through one connection at a time, for all that is known: the next one
/// begins as the last one is over.
///
/// ```text
/// A A A A A  B B B B  C C C C C C     nginx ends a connection after 1,000 requests, and is asked anew
/// A B A A B  C A C B                  several clients
/// A B C D E                           several clients, or one: a connection for each request
/// ```
fn is_one_connection_at_a_time(
    recording: &Recording,
    served: impl Iterator<Item = ServedFrom>,
) -> bool {
    let (mut seen, mut last) = (HashSet::new(), None);
    let (mut requests, mut accepted) = (0, 0);
    for served in served {
        let file = match served {
            ServedFrom::Connection(file) => file,
            ServedFrom::Listener => {
                accepted += 1;
                continue;
            }
            ServedFrom::Unknown => return false,
        };
        requests += 1;
        let socket = recording.files.socket(file);
        let connection = match socket.map(|socket| (&*socket.local, &*socket.remote)) {
            Some((one, other)) if !one.is_empty() && !other.is_empty() => {
                Connection::Addresses(one.min(other), one.max(other))
            }
            _ => Connection::End(file),
        };
        if last.as_ref() == Some(&connection) {
            continue;
        }
        if !seen.insert(connection) {
            return false;
        }
        last = Some(connection);
    }
    let is_alone = seen.len() <= 1 && accepted == 0;
    is_alone || (requests >= LEAST_PER_CONNECTION * seen.len() && accepted <= seen.len())
}

/// Returns when a server woke somebody of the process whose request ended a wait, before it waited for the next one.
fn answers_between<'w>(
    blame: &Blame<'_>,
    request: WaitIndex,
    wakes: &'w [(Timestamp, Tgid)],
    (from, to): (Timestamp, Timestamp),
) -> impl Iterator<Item = Timestamp> + use<'w> {
    let asker = match blame.wake_source(request) {
        WakeSource::Task(asker) => Some(asker.tgid),
        _ => None,
    };
    let first = wakes.partition_point(|&(at, _)| at < from);
    let wakes = wakes.get(first..).unwrap_or_default().iter();
    wakes
        .take_while(move |&&(at, _)| at <= to)
        .filter(move |&&(_, woken)| Some(woken) == asker)
        .map(|&(at, _)| at)
}

/// Returns what a wait is on if it is for a request, and whether the thread waited for others as well.
fn find_served(
    blame: &Blame<'_>,
    sides: &ConnectionSides<'_>,
    index: WaitIndex,
) -> Option<(ServedFrom, bool)> {
    let cause = blame.cause(index);
    if !matches!(cause, Cause::Socket | Cause::Poll | Cause::IoUring) {
        return None;
    }
    let wait = blame.recording().waits.get(index.0 as usize)?;
    if sides.waiter_side(&wait) != ConnectionSide::Serving {
        return None;
    }
    let is_for_several = cause != Cause::Socket && wait.polled_fd.is_none();
    if matches!(wait.syscall.as_ref().and_then(syscalls::name), Some("accept" | "accept4")) {
        return Some((ServedFrom::Listener, false));
    }
    let own = descriptor(wait.syscall.as_ref(), wait.polled_fd, wait.file).map(|(_, file)| file);
    let wake = wait.wake.as_ref();
    let connects = wake.and_then(|wake| wake.syscall.as_ref()).and_then(syscalls::name);
    let file = match is_for_several {
        false => own,
        // The other end stands for the connection where its own is not known.
        true => wake.and_then(|wake| wake.ready.map(|ready| ready.file).or(wake.file)),
    };
    let served = match file {
        _ if connects == Some("connect") => ServedFrom::Listener,
        Some(file) => ServedFrom::Connection(file),
        None => ServedFrom::Unknown,
    };
    Some((served, is_for_several))
}

/// Returns whether what ended a wait may be a request. Whoever reads at the other end makes room, and brings nothing.
fn brings_request(blame: &Blame<'_>, index: WaitIndex) -> bool {
    let wait = blame.recording().waits.get(index.0 as usize);
    brings_event(blame.wake_source(index))
        && wait.is_some_and(|wait| !is_woken_by_write_space(&wait))
}

/// Returns whether another process or machine may have ended a wait.
pub(super) fn brings_event(source: WakeSource) -> bool {
    matches!(
        source,
        WakeSource::Task(_)
            | WakeSource::External(External::Network)
            | WakeSource::Interrupt(Reason::LocalSoftirq)
    )
}

//! Which threads were seen at the other ends of connections on which somebody still waits at the end.
//!
//! ```text
//! client  -- sends on F --|-- reads F ------------------------   still waits
//! worker  .. reads G ....[ works ]-- sleeps -----------------   G is the other end of F: it was there last
//! idle    .. reads H ........................................
//! ```
//!
//! Which socket is the other end, the addresses tell of TCP. A Unix socket has none that tells it: there it is
//! the socket through which somebody woke whoever waited on the first one, or the other way round.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use offwake_recording::{
    End, FileId, FileKind, OpenFile, Pattern, Recording, SocketEnd, SocketRole,
    units::{Tgid, Timestamp},
};

use crate::{
    blame::{
        Blame,
        cause::{Cause, syscalls},
    },
    timeline::{ThreadIndex, WaitIndex},
};

/// How a thread was seen at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum EndUse {
    /// The thread waited there, and that wait has ended: something came, or there was room.
    Waited,
    /// The thread waits there at the end.
    StillWaits,
    /// The thread waited for that and others at once, and something came for that.
    Polled,
    /// The thread sent something from there that ended a wait for it.
    Sent,
    /// The thread was made for the connection.
    MadeFor,
}

/// That a thread was seen at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenUse {
    pub(super) at: Timestamp,
    pub(super) thread: ThreadIndex,
    pub(super) how: EndUse,
}

/// Who was seen at the other ends of connections.
#[derive(Debug, Default)]
pub(super) struct ConnectionEnds {
    /// In the order of time, by the end on which somebody waits.
    uses: HashMap<FileId, Vec<SeenUse>>,
    /// The ends through which processes with loops have asked, by process.
    asked_by: HashMap<Tgid, BTreeSet<FileId>>,
}

impl ConnectionEnds {
    /// Finds who was seen at the other ends of these sockets, and of those through which processes that sleep in event
    /// loops have asked.
    pub(super) fn new(
        blame: &Blame<'_>,
        awaited: BTreeSet<FileId>,
        loops: &BTreeSet<Tgid>,
    ) -> Self {
        let recording = blame.recording();
        let asked_by = find_asked(recording, loops);
        let asked = asked_by.values().flatten().copied();
        let awaited: BTreeMap<FileId, &SocketEnd> = (awaited.into_iter().chain(asked))
            .filter_map(|file| Some((file, recording.files.socket(file)?)))
            .filter(|(_, socket)| !socket.peers.is_empty())
            .collect();
        if awaited.is_empty() {
            return Self::default();
        }
        let other_ends = OtherEnds::new(recording, awaited, &asked_by);
        let patterns = recording.waits.patterns().iter();
        let by_pattern: Vec<PatternUses> =
            patterns.map(|(_, pattern)| other_ends.uses_of_pattern(recording, pattern)).collect();
        let mut last: HashMap<(FileId, ThreadIndex, EndUse), Timestamp> = HashMap::new();
        let mut note = |file: Option<FileId>, seen: Option<SeenUse>| {
            if let (Some(file), Some(SeenUse { at, thread, how })) = (file, seen) {
                let known = last.entry((file, thread, how)).or_insert(at);
                *known = at.max(*known);
            }
        };
        for (row, n) in recording.waits.rows().iter().zip(0..) {
            let Some(uses) = by_pattern.get(row.pattern.index()) else { continue };
            let wait = WaitIndex(n);
            if uses.waited_for.is_some() || uses.polled_for.is_some() {
                let seen = seen_waiting(blame, wait);
                let is_poll = matches!(blame.cause(wait), Cause::Poll | Cause::IoUring);
                let polled = seen.filter(|_| is_poll);
                note(uses.waited_for, seen);
                note(uses.polled_for, polled.map(|it| SeenUse { how: EndUse::Polled, ..it }));
            }
            if uses.answered.is_some() {
                let sent = blame.waker_thread(wait);
                let how = EndUse::Sent;
                note(uses.answered, sent.map(|(thread, at)| SeenUse { at, thread, how }));
            }
            if uses.connected.is_some() {
                let made = blame.thread_made_for(wait).and_then(|thread| {
                    let at = blame.timeline().thread(thread)?.from;
                    Some(SeenUse { at, thread, how: EndUse::MadeFor })
                });
                note(uses.connected, made);
            }
        }
        let mut uses: HashMap<FileId, Vec<SeenUse>> = HashMap::new();
        for ((file, thread, how), at) in last {
            uses.entry(file).or_default().push(SeenUse { at, thread, how });
        }
        uses.values_mut().for_each(|of_end| of_end.sort_by_key(|it| (it.at, it.thread, it.how)));
        Self { uses, asked_by }
    }

    /// Returns who was seen at the other end of a socket, in the order of time: each thread the last time that it was
    /// there in each way.
    pub(super) fn uses(&self, file: FileId) -> &[SeenUse] {
        self.uses.get(&file).map_or(&[], Vec::as_slice)
    }

    /// Returns the sockets through which a process with a loop has asked.
    pub(super) fn asked_by(&self, process: Tgid) -> &BTreeSet<FileId> {
        static NONE: BTreeSet<FileId> = BTreeSet::new();
        self.asked_by.get(&process).unwrap_or(&NONE)
    }
}

/// Returns that a thread waited at an end of a connection: when it went on, or that it waits at the end.
fn seen_waiting(blame: &Blame<'_>, wait: WaitIndex) -> Option<SeenUse> {
    let recording = blame.recording();
    let row = recording.waits.rows().get(wait.0 as usize)?;
    let end = recording.meta.window.end;
    let (at, how) = match (row.end(), row.woken_at()) {
        (End::StillOff, None) => (end, EndUse::StillWaits),
        (End::StillOff, Some(woken)) => (woken.min(end), EndUse::Waited),
        (End::Seen | End::Missed, _) => (row.on.min(end), EndUse::Waited),
    };
    let thread = blame.timeline().find_thread(recording.waits.waiter(row).tid, at)?;
    Some(SeenUse { at, thread, how })
}

/// What the waits of one pattern show: each time the socket on which somebody waits.
#[derive(Clone, Copy, Debug, Default)]
struct PatternUses {
    /// They are at the other end of this one.
    waited_for: Option<FileId>,
    /// They are not on one socket alone, and what came to the other end of this one ends them. So do polls of several
    /// files.
    polled_for: Option<FileId>,
    /// They are on this one, and something from its other end ends them.
    answered: Option<FileId>,
    /// Whoever connected this one ends them.
    connected: Option<FileId>,
}

/// Finds the clients' ends of connections through which these processes have woken those at the other ends.
fn find_asked(recording: &Recording, loops: &BTreeSet<Tgid>) -> HashMap<Tgid, BTreeSet<FileId>> {
    let mut asked: HashMap<Tgid, BTreeSet<FileId>> = HashMap::new();
    for (_, waker) in recording.waits.wakers().iter() {
        let process = waker.current.tgid;
        if let Some(file) = waker.file
            && loops.contains(&process)
            && recording.files.role(file) == Some(SocketRole::Asking)
        {
            asked.entry(process).or_default().insert(file);
        }
    }
    asked
}

/// The sockets on which somebody waits, and their other ends.
struct OtherEnds<'r> {
    asked_by: &'r HashMap<Tgid, BTreeSet<FileId>>,
    awaited: BTreeMap<FileId, &'r SocketEnd>,
    /// By the other end. Addresses may be the same in several network namespaces.
    by_other_end: HashMap<FileId, Vec<FileId>>,
}

impl<'r> OtherEnds<'r> {
    fn new(
        recording: &'r Recording,
        awaited: BTreeMap<FileId, &'r SocketEnd>,
        asked_by: &'r HashMap<Tgid, BTreeSet<FileId>>,
    ) -> Self {
        let mut by_other_end: HashMap<FileId, Vec<FileId>> = HashMap::new();
        let mut by_addresses: HashMap<(Cow<'_, str>, Cow<'_, str>), Vec<FileId>> = HashMap::new();
        for (&file, socket) in awaited.iter().filter(|(_, socket)| is_connected_tcp(socket)) {
            let addresses = (plain(&socket.local), plain(&socket.remote));
            by_addresses.entry(addresses).or_default().push(file);
        }
        for (&file, open) in &recording.files.files {
            let OpenFile::Socket(socket) = open else { continue };
            let opposite = (plain(&socket.remote), plain(&socket.local));
            if let Some(first) = by_addresses.get(&opposite)
                && is_connected_tcp(socket)
            {
                by_other_end.entry(file).or_default().extend(first);
            }
        }
        for (first, others) in find_unix_pairs(recording, &awaited) {
            // One that talks to several is no end of a connection.
            if let (Some(&other), 1) = (others.first(), others.len()) {
                by_other_end.entry(other).or_default().push(first);
            }
        }
        Self { asked_by, awaited, by_other_end }
    }

    /// Returns the socket on which somebody waits whose other end `file` is, where `process` holds that.
    fn find_first(&self, file: FileId, process: Tgid) -> Option<FileId> {
        let mut firsts = (self.by_other_end.get(&file)?.iter())
            .filter(|first| self.holds_other_end(**first, process));
        firsts.next().copied().filter(|_| firsts.next().is_none())
    }

    fn holds_other_end(&self, first: FileId, process: Tgid) -> bool {
        let socket = self.awaited.get(&first);
        socket.is_some_and(|socket| socket.peers.iter().any(|peer| peer.tgid == process))
    }

    fn uses_of_pattern(&self, recording: &Recording, pattern: &Pattern) -> PatternUses {
        let waits = &recording.waits;
        let (waiter, call) = (&waits.waiters()[pattern.waiter], &waits.calls()[pattern.call]);
        let own = call.syscall.as_ref().and_then(|syscall| {
            syscalls::descriptor(syscall, call.polled_fd)?;
            waiter.file
        });
        let waker =
            pattern.wake.map(|(waker, call)| (&waits.wakers()[waker], &waits.calls()[call]));
        let wake = waker.and_then(|(waker, call)| {
            let call = syscalls::name(call.syscall.as_ref()?)?;
            Some((waker.current.tgid, waker.file?, call))
        });
        // Who waits at a socket alone was woken for that one.
        let polls = own.is_none_or(|own| own.kind != FileKind::Socket);
        let answered = wake.and_then(|(process, through, call)| {
            let first = self.find_first(through, process)?;
            let is_to_loop =
                || polls && self.asked_by.get(&waiter.tgid).is_some_and(|it| it.contains(&first));
            let is_its = own == Some(first) || is_to_loop();
            (syscalls::writes(call) && is_its).then_some(first)
        });
        let connected = wake.and_then(|(_, through, call)| {
            (call == "connect" && self.awaited.contains_key(&through)).then_some(through)
        });
        let waited_for = own.and_then(|own| self.find_first(own, waiter.tgid));
        let is_sent_to = |through: FileId| self.holds_other_end(through, waiter.tgid);
        let sent =
            wake.filter(|(_, _, call)| syscalls::writes(call)).map(|(_, through, _)| through);
        let ready = waker.and_then(|(waker, _)| waker.ready);
        let polled_for = (ready.and_then(|ready| self.find_first(ready.file, waiter.tgid)))
            .or_else(|| sent.filter(|&through| is_sent_to(through)))
            .filter(|_| polls);
        PatternUses { waited_for, polled_for, answered, connected }
    }
}

/// Finds the sockets through which somebody woke whoever waited on a Unix socket of these, or that somebody waited
/// on whom one woke through one of these.
fn find_unix_pairs(
    recording: &Recording,
    awaited: &BTreeMap<FileId, &SocketEnd>,
) -> BTreeMap<FileId, BTreeSet<FileId>> {
    let waits = &recording.waits;
    let is_unix =
        |file: FileId| awaited.get(&file).is_some_and(|socket| socket.protocol.starts_with("unix"));
    let mut pairs: BTreeMap<FileId, BTreeSet<FileId>> = BTreeMap::new();
    for (_, pattern) in waits.patterns().iter() {
        let (waiter, call) = (&waits.waiters()[pattern.waiter], &waits.calls()[pattern.call]);
        let Some((waker, waker_call)) = pattern.wake else { continue };
        let (waker, waker_call) = (&waits.wakers()[waker], &waits.calls()[waker_call]);
        let names_file = call
            .syscall
            .as_ref()
            .is_some_and(|syscall| syscalls::descriptor(syscall, call.polled_fd).is_some());
        let sends = waker_call.syscall.as_ref().and_then(syscalls::name);
        let (Some(own), Some(other)) = (waiter.file, waker.file) else { continue };
        let are_sockets = own.kind == FileKind::Socket && other.kind == FileKind::Socket;
        if !(names_file && are_sockets && sends.is_some_and(syscalls::writes)) || own == other {
            continue;
        }
        for (first, second) in [(own, other), (other, own)] {
            if is_unix(first) {
                pairs.entry(first).or_default().insert(second);
            }
        }
    }
    pairs
}

fn is_connected_tcp(socket: &SocketEnd) -> bool {
    socket.protocol == "tcp" && !socket.local.is_empty() && !socket.remote.is_empty()
}

/// Returns an address as the other end has it: one of IPv4 may be written as one of IPv6 at the end of a server that
/// listens for both.
fn plain(address: &str) -> Cow<'_, str> {
    let mapped = address.strip_prefix("[::ffff:").and_then(|rest| rest.split_once("]:"));
    match mapped {
        Some((host, port)) if host.contains('.') => Cow::Owned(format!("{host}:{port}")),
        _ => Cow::Borrowed(address),
    }
}

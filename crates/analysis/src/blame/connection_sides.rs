//! Tells whether a thread waits on the client's or the server's end of a connection.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use offwake_recording::{
    Call, FileId, FileKind, OpenFile, ReadyFile, Recording, SocketEnd, SocketRole, StackRef,
    Syscall, Wait,
    units::{StackId, Tgid},
};

use super::cause::syscalls;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSide {
    /// The client's end, which connected.
    Asking,
    /// The server's end, which was connected to: it waits for its next request.
    Serving,
    /// Nothing tells the ends apart: a pipe, a pair of sockets, a futex.
    Unknown,
}

impl ConnectionSide {
    /// Returns the other end.
    fn opposite(self) -> Self {
        match self {
            Self::Asking => Self::Serving,
            Self::Serving => Self::Asking,
            Self::Unknown => Self::Unknown,
        }
    }
}

/// The knowledge by which the ends of connections are told apart.
pub struct ConnectionSides<'a> {
    recording: &'a Recording,
    /// The ports on which some socket listened.
    listening_ports: HashSet<&'a str>,
    /// The end that a process's descriptor stood for while a thread waited on it.
    descriptors: HashMap<(Tgid, u32), ConnectionSide>,
    /// The end that a process waits on where another one wakes it, if all connections between the two
    /// that were seen agree on it.
    pairs: HashMap<(Tgid, Tgid), ConnectionSide>,
    /// The end that a process polls alone from a place of its program, if all sockets that were seen there
    /// agree on it.
    places: HashMap<(Tgid, StackId), ConnectionSide>,
}

impl<'a> ConnectionSides<'a> {
    /// Gathers what a recording's sockets tell.
    #[must_use]
    pub fn new(recording: &'a Recording) -> Self {
        let listening_ports = find_listening_ports(recording);
        let (descriptors, pairs, places) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut sides = Self { recording, listening_ports, descriptors, pairs, places };
        let waits = &recording.waits;
        for (_, pattern) in waits.patterns().iter() {
            let (waiter, call) = (&waits.waiters()[pattern.waiter], &waits.calls()[pattern.call]);
            let ready = pattern.wake.and_then(|(waker, _)| waits.wakers()[waker].ready);
            let own = ready_or_named(ready, call.syscall.as_ref(), call.polled_fd, waiter.file);
            if let Some((fd, file)) = own {
                let side = sides.file_side(file);
                if let (StackRef::Id(place), Some(_)) = (waiter.user_stack, call.polled_fd)
                    && side != ConnectionSide::Unknown
                {
                    note_side(&mut sides.places, (waiter.tgid, place), side);
                }
                // A number that was used again for something else tells nothing.
                note_side(&mut sides.descriptors, (waiter.tgid, fd), side);
            }
        }
        sides.pairs = sides.find_pairs();
        sides
    }

    /// Finds out which processes are servers of which others, by the ends of connections that were seen.
    /// Some connections live for one request, and are gone before anybody has looked at them.
    fn find_pairs(&self) -> HashMap<(Tgid, Tgid), ConnectionSide> {
        let waits = &self.recording.waits;
        let mut pairs = HashMap::new();
        for (_, pattern) in waits.patterns().iter() {
            let Some((waker, wakers_call)) = pattern.wake else { continue };
            let (waiter, waker) = (&waits.waiters()[pattern.waiter], &waits.wakers()[waker]);
            let (own, other) = (waiter.tgid, waker.current.tgid);
            let side = self.seen_side(
                &waits.calls()[pattern.call],
                (waiter.file, waker.ready),
                Some((other, waits.calls()[wakers_call].syscall.as_ref(), waker.file)),
            );
            let opposite = side.opposite();
            if own == other || side == ConnectionSide::Unknown {
                continue;
            }
            for (pair, side) in [((own, other), side), ((other, own), opposite)] {
                note_side(&mut pairs, pair, side);
            }
        }
        pairs
    }

    /// Returns the end that a wait was on; for an event loop, the end that the event came from.
    #[must_use]
    pub fn waiter_side(&self, wait: &Wait) -> ConnectionSide {
        let Wait { syscall, timeout, polled_fd, polled_events, .. } = *wait;
        let call = Call { syscall, timeout, polled_fd, polled_events };
        let waker =
            wait.wake.as_ref().map(|wake| (wake.current.tgid, wake.syscall.as_ref(), wake.file));
        let ready = wait.wake.as_ref().and_then(|wake| wake.ready);
        match self.seen_side(&call, (wait.file, ready), waker) {
            ConnectionSide::Unknown => self.side_of_unseen_connection(wait),
            side => side,
        }
    }

    /// Returns the end that a wait was on as the sockets tell that the waiter and the waker named.
    fn seen_side(
        &self,
        call: &Call,
        (file, ready): (Option<FileId>, Option<ReadyFile>),
        waker: Option<(Tgid, Option<&Syscall>, Option<FileId>)>,
    ) -> ConnectionSide {
        let syscall = call.syscall.as_ref();
        if matches!(syscall.and_then(syscalls::name), Some("accept" | "accept4")) {
            return ConnectionSide::Serving;
        }
        let own = ready_or_named(ready, syscall, call.polled_fd, file);
        match own.map(|(_, file)| self.file_side(file)) {
            Some(ConnectionSide::Unknown) | None => {
                waker.map_or(ConnectionSide::Unknown, |waker| self.waker_peer_side(waker))
            }
            Some(side) => side,
        }
    }

    /// Returns the opposite of the end that the waker woke through.
    fn waker_peer_side(
        &self,
        (process, syscall, file): (Tgid, Option<&Syscall>, Option<FileId>),
    ) -> ConnectionSide {
        // Who connects comes to somebody who listens.
        if syscall.and_then(syscalls::name) == Some("connect") {
            return ConnectionSide::Serving;
        }
        let waker_side = || {
            let fd = syscalls::descriptor(syscall?, None)?;
            let recorded = file
                .map(|file| self.file_side(file))
                .filter(|side| *side != ConnectionSide::Unknown);
            recorded.or_else(|| self.descriptors.get(&(process, fd)).copied())
        };
        waker_side().map_or(ConnectionSide::Unknown, ConnectionSide::opposite)
    }

    /// Returns the end that a wait was on where a socket was gone before anybody had looked at it. The
    /// waker's: that of the other connections between the two processes. The waiter's own, which it polls
    /// alone and gives up at a timeout: that of the others that it polls from the same place.
    fn side_of_unseen_connection(&self, wait: &Wait) -> ConnectionSide {
        let is_unseen = |file: FileId| {
            file.kind == FileKind::Socket && !self.recording.files.files.contains_key(&file)
        };
        let by_processes = || {
            let wake = wait.wake.filter(|wake| wake.file.is_some_and(is_unseen))?;
            self.pairs.get(&(wait.tgid, wake.current.tgid)).copied()
        };
        let by_place = || {
            wait.file.filter(|&file| wait.polled_fd.is_some() && is_unseen(file))?;
            let StackRef::Id(place) = wait.user_stack else { return None };
            self.places.get(&(wait.tgid, place)).copied()
        };
        by_processes().or_else(by_place).unwrap_or(ConnectionSide::Unknown)
    }

    fn file_side(&self, file: FileId) -> ConnectionSide {
        let Some(socket) = self.recording.files.socket(file) else {
            return ConnectionSide::Unknown;
        };
        match socket.role {
            Some(SocketRole::Serving) => return ConnectionSide::Serving,
            Some(SocketRole::Asking) => return ConnectionSide::Asking,
            None => {}
        }
        if socket.protocol.starts_with("unix") {
            // A connection has the name that its listener was bound to on one side alone.
            return match (socket.local.is_empty(), socket.remote.is_empty()) {
                (false, true) => ConnectionSide::Serving,
                (true, false) => ConnectionSide::Asking,
                _ => ConnectionSide::Unknown,
            };
        }
        let is_listened =
            |address| port(address).is_some_and(|port| self.listening_ports.contains(port));
        match (is_listened(&socket.local), is_listened(&socket.remote)) {
            (true, false) => ConnectionSide::Serving,
            (false, true) if !socket.peers.is_empty() => ConnectionSide::Asking,
            _ => ConnectionSide::Unknown,
        }
    }
}

/// Notes that something has a side. What has been seen with two of them has none.
fn note_side<K: Eq + Hash>(sides: &mut HashMap<K, ConnectionSide>, key: K, side: ConnectionSide) {
    let known = sides.entry(key).or_insert(side);
    if *known != side {
        *known = ConnectionSide::Unknown;
    }
}

/// Returns the descriptor of what made the `epoll` ready that a wait was for, or else the one that its
/// syscall names, and the file that it stood for.
pub(super) fn ready_or_named(
    ready: Option<ReadyFile>,
    syscall: Option<&Syscall>,
    polled_fd: Option<u32>,
    file: Option<FileId>,
) -> Option<(u32, FileId)> {
    let ready = ready.map(|ready| (ready.descriptor, ready.file));
    ready.or_else(|| descriptor(syscall, polled_fd, file))
}

/// Returns the descriptor that a syscall names, and the file that it stood for.
#[must_use]
pub fn descriptor(
    syscall: Option<&Syscall>,
    polled_fd: Option<u32>,
    file: Option<FileId>,
) -> Option<(u32, FileId)> {
    Some((syscalls::descriptor(syscall?, polled_fd)?, file?))
}

/// Finds the ports that were listened on: those of listening sockets, which have no other end, and
/// those that several connections share. A port that was picked for a single connection is not
/// shared, as long as there are enough of them
/// ([`__inet_hash_connect`](https://github.com/torvalds/linux/blob/v6.12/net/ipv4/inet_hashtables.c#L1007)).
///
/// Both ends of a connection can be seen, and do not have the same two addresses if these are
/// translated on the way (NAT). So a port must be shared as seen from one side:
///
/// ```text
/// client's end   172.18.0.2:40000 → 10.96.0.1:80       40000: once its own,
/// server's end   172.18.0.3:8000 → 172.18.0.2:40000           once the other end's
/// ```
fn find_listening_ports(recording: &Recording) -> HashSet<&str> {
    let mut connections: HashMap<(&str, bool), HashSet<(&str, &str)>> = HashMap::new();
    let mut listened = HashSet::new();
    for file in recording.files.files.values() {
        let OpenFile::Socket(SocketEnd { protocol, local, remote, .. }) = file else { continue };
        let Some(own) = port(local).filter(|_| protocol == "tcp") else { continue };
        match port(remote) {
            None => {
                listened.insert(own);
            }
            Some(other) => {
                for (port, is_own) in [(own, true), (other, false)] {
                    connections.entry((port, is_own)).or_default().insert((local, remote));
                }
            }
        }
    }
    let shared = connections.into_iter().filter(|(_, of_port)| of_port.len() > 1);
    listened.extend(shared.map(|((port, _), _)| port));
    listened
}

fn port(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.is_empty() && *port != "0")
}

//! Tells whether a thread waits on the client's or the server's end of a connection.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    FileId, OpenFile, Recording, SocketEnd, SocketRole, Syscall, Wait, units::Tgid,
};

use super::cause::{WokenThrough, syscalls, woken_through};

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

/// The knowledge by which the ends of connections are told apart.
pub struct ConnectionSides<'a> {
    recording: &'a Recording,
    /// The ports on which some socket listened.
    listening_ports: HashSet<&'a str>,
    /// The end that a process's descriptor stood for while a thread waited on it.
    descriptors: HashMap<(Tgid, u32), ConnectionSide>,
}

impl<'a> ConnectionSides<'a> {
    /// Gathers what a recording's sockets tell.
    #[must_use]
    pub fn new(recording: &'a Recording) -> Self {
        let listening_ports = find_listening_ports(recording);
        let mut sides = Self { recording, listening_ports, descriptors: HashMap::new() };
        let waits = &recording.waits;
        for (_, pattern) in waits.patterns().iter() {
            let (waiter, call) = (&waits.waiters()[pattern.waiter], &waits.calls()[pattern.call]);
            if let Some((fd, file)) = descriptor(call.syscall.as_ref(), call.polled_fd, waiter.file)
            {
                let side = sides.file_side(file);
                // A number that was used again for something else tells nothing.
                (sides.descriptors.entry((waiter.tgid, fd)))
                    .and_modify(|known| {
                        if *known != side {
                            *known = ConnectionSide::Unknown;
                        }
                    })
                    .or_insert(side);
            }
        }
        sides
    }

    /// Returns the end that a wait was on; for an event loop, the end that the event came from.
    #[must_use]
    pub fn waiter_side(&self, wait: &Wait) -> ConnectionSide {
        if matches!(wait.syscall.as_ref().and_then(syscalls::name), Some("accept" | "accept4")) {
            return ConnectionSide::Serving;
        }
        let own = descriptor(wait.syscall.as_ref(), wait.polled_fd, wait.file);
        match own.map(|(_, file)| self.file_side(file)) {
            Some(ConnectionSide::Unknown) | None => self.waker_peer_side(wait),
            Some(side) => side,
        }
    }

    /// Returns the opposite of the end that the waker woke through.
    fn waker_peer_side(&self, wait: &Wait) -> ConnectionSide {
        let Some(wake) = wait.wake.as_ref() else { return ConnectionSide::Unknown };
        // Who connects comes to somebody who listens.
        if wake.syscall.as_ref().and_then(syscalls::name) == Some("connect") {
            return ConnectionSide::Serving;
        }
        let waker_side = || {
            let WokenThrough::File { fd, file } = woken_through(wake)? else { return None };
            let recorded = file
                .map(|file| self.file_side(file))
                .filter(|side| *side != ConnectionSide::Unknown);
            recorded.or_else(|| self.descriptors.get(&(wake.current.tgid, fd)).copied())
        };
        match waker_side() {
            Some(ConnectionSide::Asking) => ConnectionSide::Serving,
            Some(ConnectionSide::Serving) => ConnectionSide::Asking,
            Some(ConnectionSide::Unknown) | None => ConnectionSide::Unknown,
        }
    }

    fn file_side(&self, file: FileId) -> ConnectionSide {
        let Some(OpenFile::Socket(socket)) = self.recording.files.files.get(&file) else {
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
fn find_listening_ports(recording: &Recording) -> HashSet<&str> {
    let mut connections: HashMap<&str, HashSet<(&str, &str)>> = HashMap::new();
    let mut listened = HashSet::new();
    for file in recording.files.files.values() {
        let OpenFile::Socket(SocketEnd { protocol, local, remote, .. }) = file else { continue };
        let Some(own) = port(local).filter(|_| protocol == "tcp") else { continue };
        match port(remote) {
            None => {
                listened.insert(own);
            }
            Some(other) => {
                // Both ends of a connection can be seen.
                let connection = (local.min(remote).as_str(), local.max(remote).as_str());
                connections.entry(own).or_default().insert(connection);
                connections.entry(other).or_default().insert(connection);
            }
        }
    }
    let shared = connections.into_iter().filter(|(_, of_port)| of_port.len() > 1);
    listened.extend(shared.map(|(port, _)| port));
    listened
}

fn port(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.is_empty() && *port != "0")
}

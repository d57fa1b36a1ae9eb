//! Which processes of this machine are connected with each other, by the connections of which both
//! ends were seen. Connections that live for one request are gone before anybody has looked who
//! holds their other end; those before and after them to the same server were not.

use std::collections::{HashMap, HashSet};

use offwake_recording::{OpenFile, Recording, SocketEnd, units::Tgid};

/// The processes at the other ends of connections.
#[derive(Debug, Default)]
pub(super) struct LocalServers<'a> {
    /// A process that waited on one end, and one that held the other.
    connected: HashSet<(Tgid, Tgid)>,
    /// By the address of the other end: who held that.
    by_address: HashMap<&'a str, HashSet<Tgid>>,
}

impl<'a> LocalServers<'a> {
    pub(super) fn new(recording: &'a Recording) -> Self {
        let mut servers = Self::default();
        for (_, waiter) in recording.waits.waiters().iter() {
            let file = waiter.file.and_then(|file| recording.files.files.get(&file));
            let Some(OpenFile::Socket(socket)) = file else { continue };
            for peer in &socket.peers {
                servers.connected.insert((waiter.tgid, peer.tgid));
                if !socket.remote.is_empty() {
                    servers.by_address.entry(&socket.remote).or_default().insert(peer.tgid);
                }
            }
        }
        servers
    }

    /// Returns whether the other end of a socket is on this machine, as another one to the same
    /// address is.
    pub(super) fn is_local(&self, socket: &SocketEnd) -> bool {
        self.by_address.contains_key(socket.remote.as_str())
    }

    /// Returns whether `sender` may hold the other end of a socket of `process` of which nobody
    /// knows who holds it: it held that of another one. `socket` is what is known of it.
    pub(super) fn may_hold_other_end(
        &self,
        process: Tgid,
        socket: Option<&SocketEnd>,
        sender: Tgid,
    ) -> bool {
        match socket {
            Some(socket) => {
                socket.peers.is_empty()
                    && (self.by_address.get(socket.remote.as_str()))
                        .is_some_and(|holders| holders.contains(&sender))
            }
            None => self.connected.contains(&(process, sender)),
        }
    }
}

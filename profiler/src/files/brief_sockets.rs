//! TCP sockets that are closed as soon as the wait on them ends: those of a client that gives up on a
//! server, and connects anew.
//!
//! A wait is told when it has ended, so such a socket is gone before anybody can look at it. Once a
//! process has had one, the sockets of its namespace are queried now and then, and the next such socket
//! is known before it is closed:
//!
//! ```text
//! client   connects, asks, waits ...... gives up, closes | connects, asks, waits ...... gives up
//! here                                    first is missed    queries    queries          known
//! ```

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use offwake_recording::units::{Nanos, Tgid};

use super::{
    FoundSocket, net_namespaces,
    sockets::{Protocol, Sockets},
};

/// Sockets on which waits are shorter than this are closed between two queries.
const LONG_WAIT: Nanos = Nanos(300_000_000);
/// Queries come no closer than this, and take a fiftieth of the time at most: a namespace may have very
/// many sockets.
const PAUSE: Duration = Duration::from_millis(250);
const IDLE_FACTOR: u32 = 49;
/// For how long a process is watched after it had such a socket.
const WATCH: Duration = Duration::from_secs(10);
/// How many processes are.
const MAX_PROCESSES: usize = 64;
/// How many namespaces are queried at a time.
const MAX_NAMESPACES: usize = 4;
/// How many sockets are remembered; as many again while they are replaced.
const MAX_SOCKETS: usize = 16_384;

/// The open TCP sockets of processes that close theirs soon.
pub(super) struct BriefSockets {
    watched: HashMap<Tgid, Instant>,
    /// By inode number.
    seen: HashMap<u64, FoundSocket>,
    next_query: Instant,
}

impl BriefSockets {
    pub(super) fn new() -> Self {
        Self { watched: HashMap::new(), seen: HashMap::new(), next_query: Instant::now() }
    }

    /// Watches a process of which a socket was gone after a wait of this length.
    pub(super) fn note_missed(&mut self, tgid: Tgid, waited: Nanos) {
        if waited < LONG_WAIT {
            return;
        }
        if self.watched.len() < MAX_PROCESSES || self.watched.contains_key(&tgid) {
            self.watched.insert(tgid, Instant::now() + WATCH);
        }
    }

    /// Returns what was seen of a socket, once.
    pub(super) fn remove_seen(&mut self, inode: u64) -> Option<FoundSocket> {
        self.seen.remove(&inode)
    }

    #[cfg(test)]
    pub(super) fn has_seen(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Queries the sockets of the processes that are watched, if it is time to.
    pub(super) fn poll(&mut self) {
        let start = Instant::now();
        self.watched.retain(|_, until| *until > start);
        if self.watched.is_empty() || start < self.next_query {
            return;
        }
        let mut namespaces: HashMap<u64, BTreeSet<Tgid>> = HashMap::new();
        for &tgid in self.watched.keys() {
            if let Some(namespace) = net_namespaces::namespace(tgid) {
                namespaces.entry(namespace).or_default().insert(tgid);
            }
        }
        for (namespace, processes) in namespaces.into_iter().take(MAX_NAMESPACES) {
            let Some(&process) = processes.first() else { continue };
            let dumps = Sockets::dump(namespace, processes, [Protocol::Tcp].into());
            if let Some(Ok(sockets)) = dumps.and_then(|mut dumps| dumps.remove(&Protocol::Tcp)) {
                self.add(namespace, process, &sockets);
            }
        }
        self.next_query = Instant::now() + PAUSE.max(start.elapsed() * IDLE_FACTOR);
    }

    fn add(&mut self, namespace: u64, process: Tgid, sockets: &Sockets) {
        if self.seen.len() >= MAX_SOCKETS {
            self.seen.clear();
        }
        for inode in sockets.connected_tcp_inodes().take(MAX_SOCKETS) {
            let Some((end, peer)) = sockets.get(Protocol::Tcp, inode) else { continue };
            let addresses = sockets.lone_addresses(Protocol::Tcp, inode);
            self.seen.insert(inode, FoundSocket { namespace, process, end, peer, addresses });
        }
    }
}

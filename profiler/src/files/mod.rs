//! What the file descriptors that threads waited on, and woke others through, stood for.
//!
//! A record names the inode, so nothing depends on a descriptor's number: it is only a hint where to
//! look, and what is found there counts only if it is that inode.
//!
//! ```text
//!  observe: /proc/PID/fd/N --> path, or a socket's protocol        at once
//!  poll:    sock_diag      --> addresses and the peer's inode      batched, now and then
//!           /proc/*/fd     --> the processes that hold the peer    batched, in small steps
//! ```
//!
//! What was found is handed out piece by piece; only that it was is remembered.

mod descriptor;
mod holders;
mod sockets;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use descriptor::Descriptor;
use holders::Scan;
use sockets::{Answers, Protocol, Sockets};

use crate::{
    recording::{
        FileId, FileKind, OpenFile, SocketEnd,
        loss::{Shortfalls, count},
    },
    units::Tgid,
};

/// Files that are remembered.
const MAX_FILES: usize = 65_536;
/// How often a file that is not found is looked for: it may be found through another thread's
/// descriptor, and else each of its waits would cost a look.
const MAX_ATTEMPTS: u8 = 3;
/// Look-ups come no closer than this, and are idle nine tenths of the time.
const PAUSE: Duration = Duration::from_millis(50);
/// Network namespaces that are looked at in one poll.
const MAX_NAMESPACES: usize = 16;
/// How long one poll may look for holders.
const SLICE: Duration = Duration::from_millis(5);
/// How long [`Files::finish`] may.
const LAST_SLICE: Duration = Duration::from_secs(5);

enum State {
    /// Looked for in vain, so many times.
    Missed(u8),
    /// A socket whose addresses are to be asked for.
    Queued,
    /// Found; of a socket the holders of its peer may still be [`Wanted`].
    Known,
}

struct Queued {
    file: FileId,
    tgid: Tgid,
    protocol: Protocol,
}

/// A known socket, the holders of whose peer are to be found.
struct Wanted {
    file: FileId,
    end: SocketEnd,
    peer: u64,
}

/// A module of the kernel that does not tell of its protocol's sockets.
#[derive(Debug)]
pub struct Untold {
    /// Its name: it may be neither there nor loadable.
    pub module: &'static str,
    /// Why.
    pub error: std::io::Error,
}

/// Asks the kernel for the sockets of every protocol, as [`Files`] does: which of them it does not tell of.
#[must_use]
pub fn untold_sockets() -> Vec<Untold> {
    let answers = Sockets::dump_here([Protocol::Tcp, Protocol::Udp, Protocol::Unix].into());
    let untold = answers.into_iter().filter_map(|(protocol, answer)| {
        Some(Untold { module: protocol.module(), error: answer.err()? })
    });
    untold.collect()
}

/// Finds out what files are.
pub struct Files {
    states: HashMap<FileId, State>,
    queued: Vec<Queued>,
    wanted: Vec<Wanted>,
    scan: Option<(Scan, Vec<Wanted>)>,
    new: BTreeMap<FileId, OpenFile>,
    next_dump: Instant,
    next_scan: Instant,
    pipes: Option<u32>,
    /// Files that were missed and are forgotten.
    missed_before: u64,
    shortfalls: Shortfalls,
}

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Files {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            states: HashMap::new(),
            queued: Vec::new(),
            wanted: Vec::new(),
            scan: None,
            new: BTreeMap::new(),
            next_dump: Instant::now(),
            next_scan: Instant::now(),
            pipes: descriptor::pipe_device(),
            missed_before: 0,
            shortfalls: Shortfalls::new(),
        }
    }

    /// `tgid` called with `file` by its descriptor with this number: looks it up while it is open.
    /// Cheap when it is known already.
    pub fn observe(&mut self, file: FileId, tgid: Tgid, descriptor: u32) {
        // All of them share one inode: it says nothing about which it is.
        if file.kind == FileKind::Anonymous {
            return;
        }
        let attempts = match self.states.get(&file) {
            None => {
                if self.states.len() >= MAX_FILES {
                    self.forget();
                }
                if self.states.len() >= MAX_FILES {
                    return count(&mut self.shortfalls, "files_over_limit");
                }
                0
            }
            Some(State::Missed(attempts)) if *attempts < MAX_ATTEMPTS => *attempts,
            Some(_) => return,
        };
        // A pipe's number is its name. A FIFO has a path, and another device.
        if file.kind == FileKind::Pipe && self.pipes == Some(file.device) {
            return self.hand_out(file, OpenFile::Named(format!("pipe:[{}]", file.inode)));
        }
        match descriptor::look(file, tgid, descriptor) {
            None => {
                self.states.insert(file, State::Missed(attempts + 1));
            }
            Some(Descriptor::Named(name)) => self.hand_out(file, OpenFile::Named(name)),
            Some(Descriptor::Socket(name)) => match Protocol::from_kernel(&name) {
                Some(protocol) => {
                    self.queued.push(Queued { file, tgid, protocol });
                    self.states.insert(file, State::Queued);
                }
                None => self.hand_out(
                    file,
                    OpenFile::Socket(SocketEnd {
                        protocol: name.to_lowercase(),
                        local: String::new(),
                        remote: String::new(),
                        role: None,
                        peers: Vec::new(),
                    }),
                ),
            },
        }
    }

    /// Forgets everything but what is still being looked up: the rest is looked up again if it must be.
    fn forget(&mut self) {
        self.missed_before = self.missed();
        self.states.retain(|_, state| matches!(state, State::Queued));
    }

    fn hand_out(&mut self, file: FileId, open: OpenFile) {
        self.states.insert(file, State::Known);
        self.new.insert(file, open);
    }

    /// How many files were gone before they could be looked at.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let missed = self.states.values().filter(|state| matches!(state, State::Missed(_)));
        self.missed_before + missed.count() as u64
    }

    /// Does a part of the look-ups that are due. To be called some ten times a second: a socket that
    /// is closed in between is missed.
    pub fn poll(&mut self) {
        let start = Instant::now();
        if !self.queued.is_empty() && start >= self.next_dump {
            self.ask_for_addresses(MAX_NAMESPACES);
            self.next_dump = Instant::now() + PAUSE.max(start.elapsed() * 9);
        }
        let start = Instant::now();
        if start >= self.next_scan && self.look_for_holders(SLICE) {
            self.next_scan = Instant::now() + PAUSE.max(start.elapsed() * 9);
        }
    }

    /// What was found since the last time, each file once. What is found of a file later takes the
    /// place of this: of a socket, who holds its peer.
    pub fn take_new(&mut self) -> Vec<(FileId, OpenFile)> {
        std::mem::take(&mut self.new).into_iter().collect()
    }

    /// What could not be done so far.
    #[must_use]
    pub fn shortfalls(&self) -> Shortfalls {
        let mut all = self.shortfalls.clone();
        let missed = self.missed();
        if missed > 0 {
            all.insert("files_missed", missed);
        }
        all
    }

    /// Does what is left to do. Gives back what was not taken yet, and what could not be done.
    #[must_use]
    pub fn finish(mut self) -> (Vec<(FileId, OpenFile)>, Shortfalls) {
        self.ask_for_addresses(usize::MAX);
        let deadline = Instant::now() + LAST_SLICE;
        while self.scan.is_some() || !self.wanted.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            self.look_for_holders(left);
            if left.is_zero() {
                count(&mut self.shortfalls, "files_holders_unfinished");
                break;
            }
        }
        let shortfalls = self.shortfalls();
        (self.take_new(), shortfalls)
    }

    /// Asks the kernel about the queued sockets, one network namespace after the other.
    fn ask_for_addresses(&mut self, namespaces: usize) {
        let mut by_namespace = BTreeMap::<u64, Vec<Queued>>::new();
        for queued in std::mem::take(&mut self.queued) {
            match sockets::namespace(queued.tgid) {
                Some(namespace) => by_namespace.entry(namespace).or_default().push(queued),
                None => self.miss(queued.file),
            }
        }
        for (turn, (namespace, queued)) in by_namespace.into_iter().enumerate() {
            if turn >= namespaces {
                self.queued.extend(queued);
                continue;
            }
            let processes = queued.iter().map(|queued| queued.tgid).collect();
            let protocols = queued.iter().map(|queued| queued.protocol).collect();
            let Some(answers) = Sockets::dump(namespace, processes, protocols) else {
                count(&mut self.shortfalls, "files_sock_diag_failed");
                queued.iter().for_each(|queued| self.miss(queued.file));
                continue;
            };
            self.take_answers(queued, &answers);
        }
    }

    fn take_answers(&mut self, queued: Vec<Queued>, answers: &Answers) {
        for (protocol, answer) in answers {
            match answer {
                Ok(sockets) if sockets.over_limit => {
                    count(&mut self.shortfalls, "files_sockets_over_limit");
                }
                Ok(_) => {}
                Err(_) => count(&mut self.shortfalls, protocol.unanswered()),
            }
        }
        for Queued { file, protocol, .. } in queued {
            let sockets = answers.get(&protocol).and_then(|answer| answer.as_ref().ok());
            let Some((end, peer)) = sockets.and_then(|of| of.get(protocol, file.inode)) else {
                self.miss(file);
                continue;
            };
            if let Some(peer) = peer {
                self.wanted.push(Wanted { file, end: end.clone(), peer });
            }
            self.hand_out(file, OpenFile::Socket(end));
        }
    }

    fn miss(&mut self, file: FileId) {
        self.states.insert(file, State::Missed(MAX_ATTEMPTS));
    }

    /// Goes on with the search for the peers' holders. True if one came to its end.
    fn look_for_holders(&mut self, slice: Duration) -> bool {
        if self.scan.is_none() && !self.wanted.is_empty() {
            let wanted = std::mem::take(&mut self.wanted);
            let inodes = wanted.iter().map(|wanted| wanted.peer).collect();
            self.scan = Some((Scan::new(inodes), wanted));
        }
        let Some((scan, _)) = &mut self.scan else { return false };
        if !scan.go_on(slice) {
            return false;
        }
        if let Some((scan, wanted)) = self.scan.take() {
            for Wanted { file, end, peer } in wanted {
                let peers = scan.holders(peer);
                if !peers.is_empty() {
                    self.hand_out(file, OpenFile::Socket(SocketEnd { peers, ..end }));
                }
            }
        }
        true
    }
}

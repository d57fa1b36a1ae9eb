//! What the file descriptors that threads waited on, and woke others through, stood for.
//!
//! A record names the inode, so nothing depends on a descriptor's number: it is only a hint where
//! to look, and what is found there counts only if it is that inode.
//!
//! ```text
//!  observe: /proc/PID/fd/N --> path, or a socket's protocol        at once
//!  poll:    sock_diag      --> addresses and the peer's inode      batched, now and then
//!           /proc/*/fd     --> the processes that hold the peer    batched, in small steps
//! ```
//!
//! What was found is handed out piece by piece; only that it was is remembered.

mod across_namespaces;
mod brief_sockets;
mod conntrack;
mod descriptor;
mod net_namespaces;
mod other_namespaces;
mod socket_holders;
mod sockets;
/// Parses any bytes as where a descriptor's link leads, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    let _inode = descriptor::socket_inode(bytes);
}

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    time::{Duration, Instant},
};

use offwake_recording::{
    FileId, FileKind, OpenFile, SocketEnd,
    loss::{Diagnostics, count},
    units::{Nanos, Tgid},
};

use across_namespaces::{Addresses, LoneEnd, LoneEnds};
use brief_sockets::BriefSockets;
use descriptor::Descriptor;
use net_namespaces::AddressOwners;
use socket_holders::HolderScan;
use sockets::{Protocol, SocketDumps, Sockets, is_own};

use crate::reader_process;

/// How many files are remembered.
const MAX_FILES: usize = 65_536;
/// How many sockets may wait for the holders of their peers, and for the search in other namespaces. One
/// search through all descriptors of a machine may take minutes.
const MAX_WAITING: usize = 65_536;
/// How often a file that is not found is looked for: it may be found through another thread's
/// descriptor, but without a limit each of its waits would cost a look-up.
const MAX_ATTEMPTS: u8 = 3;
/// Look-ups come no closer than this, and are idle nine tenths of the time.
const PAUSE: Duration = Duration::from_millis(50);
/// How many network namespaces are queried in one poll.
const MAX_NAMESPACES: usize = 16;
/// How long one poll may search for holders.
const SCAN_TIME: Duration = Duration::from_millis(5);
/// How long [`Files::finish`] may.
const FINAL_SCAN_TIME: Duration = Duration::from_secs(5);

/// How far the look-up of a file has come.
enum LookupState {
    /// The file was looked for in vain, so many times.
    Missed(u8),
    /// The file is a socket whose addresses are to be queried.
    Queued,
    /// The file was found; if it is a socket, the holders of its peer may still be searched for
    /// ([`AwaitedHolders`]).
    Found,
}

/// A socket whose addresses are to be queried.
struct QueuedSocket {
    file: FileId,
    tgid: Tgid,
    protocol: Protocol,
}

/// A socket as it was when it was seen last.
struct FoundSocket {
    namespace: u64,
    /// A process of that namespace.
    process: Tgid,
    end: SocketEnd,
    peer: Option<u64>,
    /// The socket's addresses, if its other end is not in its namespace.
    addresses: Option<Addresses>,
}

/// A socket that was found, and for whose peer holders are searched.
struct AwaitedHolders {
    file: FileId,
    end: SocketEnd,
    /// The peer's inode number; and after it that of the socket which listens there, as the peer may
    /// be closed before anybody has searched.
    candidates: Vec<u64>,
}

/// A kernel module without which nothing is known of a protocol's sockets, and which does not
/// answer.
#[derive(Debug)]
pub struct UnavailableSocketDiag {
    /// The module's name: it may be neither there nor loadable.
    pub module: &'static str,
    /// Why it does not answer.
    pub error: std::io::Error,
}

/// Queries the sockets of every protocol, as [`Files`] does, and returns the modules that do not
/// answer.
#[must_use]
pub fn unavailable_socket_diag() -> Vec<UnavailableSocketDiag> {
    let dumps = Sockets::dump_here([Protocol::Tcp, Protocol::Udp, Protocol::Unix].into());
    let unavailable = dumps.into_iter().filter_map(|(protocol, dump)| {
        Some(UnavailableSocketDiag { module: protocol.module(), error: dump.err()? })
    });
    unavailable.collect()
}

pub(crate) use descriptor::pipe_device;

/// Identifies the file that a descriptor of a process stands for.
pub(crate) fn identify_of_process(tgid: Tgid, descriptor: u32) -> Option<FileId> {
    descriptor::identify(descriptor::open_path(tgid, descriptor)?)
}

/// Identifies the file with a path of this machine: its device, and its size.
pub(crate) fn identify_path(path: &Path) -> Option<(u32, u64)> {
    let (held, _) = reader_process::open_path(path).ok()?;
    descriptor::device_and_size(held)
}

/// Finds out what files are.
pub struct Files {
    states: HashMap<FileId, LookupState>,
    queued: Vec<QueuedSocket>,
    awaited: Vec<AwaitedHolders>,
    lone_ends: LoneEnds,
    /// The ends that were found since other namespaces were searched for their other ends.
    unpaired: Vec<(Addresses, LoneEnd)>,
    address_owners: AddressOwners,
    scan: Option<(HolderScan, Vec<AwaitedHolders>)>,
    brief: BriefSockets,
    new: BTreeMap<FileId, OpenFile>,
    /// The processes that hold the other end, of every socket where they are known.
    peers: HashMap<FileId, Vec<Tgid>>,
    next_dump: Instant,
    next_scan: Instant,
    pipes: Option<u32>,
    /// Files that were missed and are forgotten.
    missed_before: u64,
    diagnostics: Diagnostics,
}

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Files {
    /// Has found nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            states: HashMap::new(),
            queued: Vec::new(),
            awaited: Vec::new(),
            lone_ends: LoneEnds::default(),
            unpaired: Vec::new(),
            address_owners: AddressOwners::new(),
            scan: None,
            brief: BriefSockets::new(),
            new: BTreeMap::new(),
            peers: HashMap::new(),
            next_dump: Instant::now(),
            next_scan: Instant::now(),
            pipes: descriptor::pipe_device(),
            missed_before: 0,
            diagnostics: Diagnostics::new(),
        }
    }

    /// Looks up `file`, on which `tgid` waited for so long by the descriptor with this number. A socket
    /// that is closed already may have been seen while it was open.
    pub fn observe_wait(&mut self, file: FileId, tgid: Tgid, descriptor: u32, waited: Nanos) {
        self.observe(file, tgid, descriptor);
        if file.kind != FileKind::Socket
            || !matches!(self.states.get(&file), Some(LookupState::Missed(_)))
        {
            return;
        }
        if !self.add_brief_socket(file) {
            self.brief.note_missed(tgid, waited);
        }
    }

    /// Looks up `file`, with which `tgid` made a syscall by the descriptor with this number, while
    /// it is open. Cheap when the file is known already.
    pub fn observe(&mut self, file: FileId, tgid: Tgid, descriptor: u32) {
        // All anonymous files share one inode: it does not tell them apart.
        if file.kind == FileKind::Anonymous {
            return;
        }
        let attempts = match self.states.get(&file) {
            None => {
                if self.states.len() >= MAX_FILES {
                    self.forget_finished();
                }
                if self.states.len() >= MAX_FILES {
                    return count(&mut self.diagnostics, "files_over_limit");
                }
                0
            }
            Some(LookupState::Missed(attempts)) if *attempts < MAX_ATTEMPTS => *attempts,
            Some(_) => return,
        };
        // A pipe's number is its name. A FIFO has a path, and another device.
        if file.kind == FileKind::Pipe && self.pipes == Some(file.device) {
            return self.record_found(file, OpenFile::Named(format!("pipe:[{}]", file.inode)));
        }
        match descriptor::identify_descriptor(file, tgid, descriptor) {
            None => {
                self.states.insert(file, LookupState::Missed(attempts + 1));
            }
            Some(Descriptor::Named(name)) => self.record_found(file, OpenFile::Named(name)),
            Some(Descriptor::Socket(name)) => match Protocol::from_kernel(&name) {
                Some(protocol) => {
                    self.queued.push(QueuedSocket { file, tgid, protocol });
                    self.states.insert(file, LookupState::Queued);
                }
                None => self.record_found(
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

    /// Forgets everything but what is still being looked up: the rest is looked up again if it must
    /// be.
    fn forget_finished(&mut self) {
        self.missed_before = self.missed();
        self.peers.clear();
        self.states.retain(|_, state| matches!(state, LookupState::Queued));
    }

    fn record_found(&mut self, file: FileId, open: OpenFile) {
        if let OpenFile::Socket(end) = &open
            && !end.peers.is_empty()
        {
            self.peers.insert(file, end.peers.iter().map(|peer| peer.tgid).collect());
        }
        self.states.insert(file, LookupState::Found);
        self.new.insert(file, open);
    }

    /// How many files were gone before they could be looked at.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let missed = self.states.values().filter(|state| matches!(state, LookupState::Missed(_)));
        self.missed_before + missed.count() as u64
    }

    /// Does a part of the look-ups that are due. Call it some ten times a second: a socket that is
    /// closed in between is missed.
    pub fn poll(&mut self) {
        let start = Instant::now();
        if !(self.queued.is_empty() && self.unpaired.is_empty()) && start >= self.next_dump {
            self.query_addresses(MAX_NAMESPACES);
            self.next_dump = Instant::now() + PAUSE.max(start.elapsed() * 9);
        }
        self.brief.poll();
        let start = Instant::now();
        if start >= self.next_scan && self.scan_for_holders(SCAN_TIME) {
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
    pub fn diagnostics(&self) -> Diagnostics {
        let mut all = self.diagnostics.clone();
        let missed = self.missed();
        if missed > 0 {
            all.insert("files_missed", missed);
        }
        let unpaired = self.lone_ends.count_left_out();
        if unpaired > 0 {
            all.insert("files_ends_over_limit", unpaired);
        }
        all
    }

    /// The processes that hold the other end of a file, as far as they were found.
    #[must_use]
    pub fn peers(&self, file: FileId) -> &[Tgid] {
        self.peers.get(&file).map_or(&[], Vec::as_slice)
    }

    /// Does what is left to do. Returns what was not taken yet, and what could not be done.
    #[must_use]
    pub fn finish(mut self) -> (Vec<(FileId, OpenFile)>, Diagnostics) {
        self.complete();
        let diagnostics = self.diagnostics();
        (self.take_new(), diagnostics)
    }

    /// Does what is left to do.
    pub fn complete(&mut self) {
        self.query_addresses(usize::MAX);
        let deadline = Instant::now() + FINAL_SCAN_TIME;
        while self.scan.is_some() || !self.awaited.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            self.scan_for_holders(left);
            if left.is_zero() {
                count(&mut self.diagnostics, "files_holders_unfinished");
                break;
            }
        }
    }

    /// Queries the addresses of the queued sockets, one network namespace after the other.
    fn query_addresses(&mut self, namespaces: usize) {
        let mut by_namespace = BTreeMap::<u64, Vec<QueuedSocket>>::new();
        for queued in std::mem::take(&mut self.queued) {
            match net_namespaces::namespace(queued.tgid) {
                Some(namespace) => by_namespace.entry(namespace).or_default().push(queued),
                None => self.record_missed(queued.file),
            }
        }
        for (turn, (namespace, queued)) in by_namespace.into_iter().enumerate() {
            if turn >= namespaces {
                self.queued.extend(queued);
                continue;
            }
            let processes = queued.iter().map(|queued| queued.tgid).collect();
            let protocols = queued.iter().map(|queued| queued.protocol).collect();
            let Some(dumps) = Sockets::dump(namespace, processes, protocols) else {
                count(&mut self.diagnostics, "files_sock_diag_failed");
                queued.iter().for_each(|queued| self.record_missed(queued.file));
                continue;
            };
            self.add_dumps(namespace, queued, &dumps);
        }
        self.search_other_namespaces(namespaces);
    }

    fn add_dumps(&mut self, namespace: u64, queued: Vec<QueuedSocket>, dumps: &SocketDumps) {
        for (protocol, dump) in dumps {
            match dump {
                Ok(sockets) if sockets.over_limit => {
                    count(&mut self.diagnostics, "files_sockets_over_limit");
                }
                Ok(_) => {}
                Err(_) => count(&mut self.diagnostics, protocol.failure_counter()),
            }
        }
        for QueuedSocket { file, tgid, protocol } in queued {
            let sockets = dumps.get(&protocol).and_then(|dump| dump.as_ref().ok());
            let found = sockets.and_then(|sockets| sockets.get(protocol, file.inode));
            let Some((end, peer)) = found else {
                if !self.add_brief_socket(file) {
                    self.record_missed(file);
                }
                continue;
            };
            let addresses =
                sockets.and_then(|sockets| sockets.lone_addresses(protocol, file.inode));
            self.add_socket(FoundSocket { namespace, process: tgid, end, peer, addresses }, file);
        }
    }

    /// Adds a socket that is closed as it was while it was open; false if nobody saw it then.
    fn add_brief_socket(&mut self, file: FileId) -> bool {
        let Some(seen) = self.brief.remove_seen(file.inode) else { return false };
        self.add_socket(seen, file);
        true
    }

    /// Adds what was found of a socket, and has its other end searched for.
    fn add_socket(&mut self, socket: FoundSocket, file: FileId) {
        let FoundSocket { namespace, process, end, peer, addresses } = socket;
        if let Some(addresses) = addresses {
            let lone = LoneEnd { file, namespace, process, end: end.clone(), listener: peer };
            // Every namespace has loopback addresses of its own.
            if !is_own(addresses.remote, addresses.local)
                && let Some([one, other]) = self.lone_ends.pair(addresses, lone.clone())
            {
                return self.record_connection(one, other);
            }
            self.add_unpaired(addresses, lone);
        } else if let Some(peer) = peer {
            let candidates = vec![peer];
            self.await_holders(AwaitedHolders { file, end: end.clone(), candidates });
        }
        self.record_found(file, OpenFile::Socket(end));
    }

    /// Records both ends of a connection between two namespaces.
    fn record_connection(&mut self, one: LoneEnd, other: LoneEnd) {
        let inodes = [other.file.inode, one.file.inode];
        for (LoneEnd { file, end, .. }, peer) in [one, other].into_iter().zip(inodes) {
            let candidates = vec![peer];
            self.await_holders(AwaitedHolders { file, end: end.clone(), candidates });
            self.record_found(file, OpenFile::Socket(end));
        }
    }

    /// Has holders searched for with the next scan, if there is room.
    fn await_holders(&mut self, socket: AwaitedHolders) {
        if self.awaited.len() >= MAX_WAITING {
            return count(&mut self.diagnostics, "files_over_limit");
        }
        self.awaited.push(socket);
    }

    /// Has the other end searched for in other namespaces, if there is room.
    fn add_unpaired(&mut self, addresses: Addresses, lone: LoneEnd) {
        if self.unpaired.len() >= MAX_WAITING {
            return count(&mut self.diagnostics, "files_over_limit");
        }
        self.unpaired.push((addresses, lone));
    }

    fn record_missed(&mut self, file: FileId) {
        self.states.insert(file, LookupState::Missed(MAX_ATTEMPTS));
    }

    /// Goes on with the search for the peers' holders for this time. True if a scan has come to its
    /// end.
    fn scan_for_holders(&mut self, time: Duration) -> bool {
        if self.scan.is_none() && !self.awaited.is_empty() {
            let awaited = std::mem::take(&mut self.awaited);
            let inodes =
                awaited.iter().flat_map(|socket| socket.candidates.iter().copied()).collect();
            self.scan = Some((HolderScan::new(inodes), awaited));
        }
        let Some((scan, _)) = &mut self.scan else { return false };
        if !scan.run_for(time) {
            return false;
        }
        if let Some((scan, awaited)) = self.scan.take() {
            for AwaitedHolders { file, end, candidates } in awaited {
                let mut found = candidates.into_iter().map(|inode| scan.holders(inode));
                if let Some(peers) = found.find(|holders| !holders.is_empty()) {
                    self.record_found(file, OpenFile::Socket(SocketEnd { peers, ..end }));
                }
            }
        }
        true
    }
}

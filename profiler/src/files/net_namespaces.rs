//! The network namespaces of this machine's processes, and which of them has an address.
//!
//! What looks like another host from a container can be the next container: its address is that of
//! another namespace's interface.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    net::IpAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use offwake_recording::units::Tgid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{conntrack, descriptor::namespace_number};
use crate::{
    own_threads::{self, OwnThread},
    privileges::{Task, restrict_to},
    proc_files::list_processes,
};

/// Scans come no closer than this, and take a fiftieth of the time at most.
const PAUSE: Duration = Duration::from_secs(1);
/// How many namespaces are entered in one scan.
const MAX_NAMESPACES: usize = 512;

/// The inode number of a process's network namespace; none if the process is gone.
pub(super) fn namespace(tgid: Tgid) -> Option<u64> {
    namespace_number(&format!("/proc/{tgid}/ns/net"))
}

/// Calls `query` in a namespace, which is reached through any of `processes`; none if it can't be.
/// No thread is needed for the namespace that this one is in.
pub(super) fn run_in<T: Send + 'static>(
    namespace: u64,
    processes: BTreeSet<Tgid>,
    query: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if namespace_number("/proc/thread-self/ns/net") == Some(namespace) {
        return Some(query());
    }
    let file = open(namespace, processes)?;
    run_in_thread(Task::EnteringNamespaces, Some(file), query)
}

/// Calls `query` in a namespace with the right to ask for the connections that it tracks.
pub(super) fn run_with_conntrack_in<T: Send + 'static>(
    namespace: u64,
    processes: BTreeSet<Tgid>,
    query: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let is_own = namespace_number("/proc/thread-self/ns/net") == Some(namespace);
    let file = if is_own { None } else { Some(open(namespace, processes)?) };
    run_in_thread(Task::AskingConntrack, file, query)
}

/// Opens a namespace through any of `processes`.
fn open(namespace: u64, processes: BTreeSet<Tgid>) -> Option<File> {
    processes.into_iter().find_map(|tgid| {
        let file = File::open(format!("/proc/{tgid}/ns/net")).ok()?;
        let number = rustix::fs::fstat(&file).ok()?.st_ino;
        (number == namespace).then_some(file)
    })
}

/// Calls `query` in a new thread, which enters the namespace, and ends there: no other thread ever is
/// in one not its own.
fn run_in_thread<T: Send + 'static>(
    task: Task,
    namespace: Option<File>,
    query: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let thread = own_threads::spawn(OwnThread::NetNamespace, move || {
        restrict_to(task);
        if let Some(file) = namespace {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        }
        Some(query())
    });
    thread.ok()?.join().ok()?
}

/// Which namespaces have an address, as of the last scan.
pub(super) struct AddressOwners {
    /// The namespaces with each address, and a process in each.
    owners: HashMap<IpAddr, BTreeMap<u64, Tgid>>,
    /// The namespaces that track connections, and a process in each.
    tracking: BTreeMap<u64, Tgid>,
    next_scan: Instant,
}

impl AddressOwners {
    pub(super) fn new() -> Self {
        Self { owners: HashMap::new(), tracking: BTreeMap::new(), next_scan: Instant::now() }
    }

    /// Finds the namespaces that have any of `addresses`. Scans all processes if some address is
    /// not known, and the last scan is long enough ago.
    pub(super) fn refresh_for(&mut self, mut addresses: impl Iterator<Item = IpAddr>) {
        let start = Instant::now();
        if start < self.next_scan || addresses.all(|ip| self.owners.contains_key(&ip)) {
            return;
        }
        self.scan();
        self.next_scan = Instant::now() + PAUSE.max(start.elapsed() * 50);
    }

    /// The namespaces with an address, and a process in each.
    pub(super) fn namespaces_with(&self, ip: IpAddr) -> impl Iterator<Item = (u64, Tgid)> + '_ {
        self.owners.get(&ip).into_iter().flatten().map(|(&namespace, &tgid)| (namespace, tgid))
    }

    /// The namespaces that track connections, and may translate their addresses.
    pub(super) fn tracking(&self) -> impl Iterator<Item = (u64, Tgid)> + '_ {
        self.tracking.iter().map(|(&namespace, &tgid)| (namespace, tgid))
    }

    /// Forgets the addresses of a namespace that can't be entered any more: another one may have got
    /// them.
    pub(super) fn forget(&mut self, namespace: u64) {
        self.tracking.remove(&namespace);
        self.owners.retain(|_, owners| {
            owners.remove(&namespace);
            !owners.is_empty()
        });
    }

    fn scan(&mut self) {
        self.owners.clear();
        self.tracking.clear();
        for (namespace, tgid) in find_namespaces() {
            let query = || (own_addresses(), conntrack::is_tracking());
            let Some((addresses, is_tracking)) = run_in(namespace, [tgid].into(), query) else {
                continue;
            };
            if is_tracking {
                self.tracking.insert(namespace, tgid);
            }
            for ip in addresses {
                self.owners.entry(ip).or_default().insert(namespace, tgid);
            }
        }
    }
}

/// Finds the namespaces of all processes, and a process in each.
fn find_namespaces() -> BTreeMap<u64, Tgid> {
    let mut found = BTreeMap::new();
    for (tgid, _) in list_processes() {
        let Some(namespace) = namespace(tgid) else { continue };
        found.entry(namespace).or_insert(tgid);
        if found.len() >= MAX_NAMESPACES {
            break;
        }
    }
    found
}

/// The addresses of the namespace that this thread is in, but for those that every namespace has.
fn own_addresses() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    addresses.filter(|ip| !ip.is_loopback()).collect()
}

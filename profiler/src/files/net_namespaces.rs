//! The network namespaces of this machine's processes, and which of them has an address.
//!
//! What looks like another host from a container can be the next container: its address is that of
//! another namespace's interface.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    net::IpAddr,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
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

/// How many addresses of one namespace are remembered. Whoever makes a namespace can give it as many as
/// there is memory for.
const MAX_ADDRESSES: usize = 4_096;
/// How long a query in a namespace may take. The kernel may hold what it waits for for long (`rtnl_lock`).
const PATIENCE: Duration = Duration::from_secs(5);
/// How many threads may be left behind in queries. No more are started until one of them has ended.
const MAX_LEFT_BEHIND: usize = 2;

/// The threads that were given up, and have not ended.
static LEFT_BEHIND: AtomicUsize = AtomicUsize::new(0);

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
    let query = move || {
        restrict_to(task);
        if let Some(file) = namespace {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        }
        Some(query())
    };
    run_within(PATIENCE, &LEFT_BEHIND, query)
}

/// Calls `query` in a new thread, which is left behind if it takes too long.
fn run_within<T: Send + 'static>(
    patience: Duration,
    left_behind: &'static AtomicUsize,
    query: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    if left_behind.load(Ordering::Relaxed) >= MAX_LEFT_BEHIND {
        return None;
    }
    let (sender, receiver) = mpsc::channel();
    let stage = Arc::new(Mutex::new(Stage::Runs));
    let end = EndOfQuery { stage: Arc::clone(&stage), left_behind };
    own_threads::spawn(OwnThread::NetNamespace, move || {
        let _end = end;
        // Nobody waits any more if it has taken too long.
        let _late = sender.send(query());
    })
    .ok()?;
    match receiver.recv_timeout(patience) {
        Ok(result) => result,
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            if replace_stage(&stage, Stage::LeftBehind) == Stage::Runs {
                left_behind.fetch_add(1, Ordering::Relaxed);
            }
            None
        }
    }
}

/// What becomes of a query.
#[derive(PartialEq, Eq)]
enum Stage {
    Runs,
    Ended,
    LeftBehind,
}

fn replace_stage(stage: &Mutex<Stage>, next: Stage) -> Stage {
    std::mem::replace(&mut *stage.lock().unwrap_or_else(PoisonError::into_inner), next)
}

/// Is dropped as the query ends, by a panic too.
struct EndOfQuery {
    stage: Arc<Mutex<Stage>>,
    left_behind: &'static AtomicUsize,
}

impl Drop for EndOfQuery {
    fn drop(&mut self) {
        if replace_stage(&self.stage, Stage::Ended) == Stage::LeftBehind {
            self.left_behind.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Which namespaces have an address, as of the last scan.
pub(super) struct AddressOwners {
    /// The namespaces with each address, and a process in each.
    owners: HashMap<IpAddr, BTreeMap<u64, Tgid>>,
    /// The namespaces with more addresses than are remembered, and a process in each: they may have any.
    any_address: BTreeMap<u64, Tgid>,
    /// The namespaces that track connections, and a process in each.
    tracking: BTreeMap<u64, Tgid>,
    next_scan: Instant,
}

impl AddressOwners {
    pub(super) fn new() -> Self {
        let (owners, any_address, tracking) = Default::default();
        Self { owners, any_address, tracking, next_scan: Instant::now() }
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

    /// The namespaces that have an address, or may have it, and a process in each.
    pub(super) fn namespaces_with(&self, ip: IpAddr) -> impl Iterator<Item = (u64, Tgid)> + '_ {
        let known = self.owners.get(&ip).into_iter().flatten();
        known.chain(&self.any_address).map(|(&namespace, &tgid)| (namespace, tgid))
    }

    /// The namespaces that track connections, and may translate their addresses.
    pub(super) fn tracking(&self) -> impl Iterator<Item = (u64, Tgid)> + '_ {
        self.tracking.iter().map(|(&namespace, &tgid)| (namespace, tgid))
    }

    /// Forgets the addresses of a namespace that can't be entered any more: another one may have got
    /// them.
    pub(super) fn forget(&mut self, namespace: u64) {
        self.tracking.remove(&namespace);
        self.any_address.remove(&namespace);
        self.owners.retain(|_, owners| {
            owners.remove(&namespace);
            !owners.is_empty()
        });
    }

    fn scan(&mut self) {
        self.owners.clear();
        self.any_address.clear();
        self.tracking.clear();
        for (namespace, tgid) in find_namespaces() {
            let query = || (own_addresses(), conntrack::is_tracking());
            let Some((addresses, is_tracking)) = run_in(namespace, [tgid].into(), query) else {
                continue;
            };
            if is_tracking {
                self.tracking.insert(namespace, tgid);
            }
            self.add_addresses(namespace, tgid, &addresses);
        }
    }

    fn add_addresses(&mut self, namespace: u64, tgid: Tgid, addresses: &[IpAddr]) {
        if addresses.len() > MAX_ADDRESSES {
            self.any_address.insert(namespace, tgid);
            return;
        }
        for ip in addresses {
            self.owners.entry(*ip).or_default().insert(namespace, tgid);
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
    // One more shows that there are more.
    addresses.filter(|ip| !ip.is_loopback()).take(MAX_ADDRESSES + 1).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_namespace_with_too_many_addresses_may_have_any_and_takes_no_memory_for_them() {
        let ip = |number: u32| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + number));
        let mut owners = AddressOwners::new();
        owners.add_addresses(1, Tgid(10), &[ip(1), ip(2)]);
        let many: Vec<_> = (0..=MAX_ADDRESSES as u32).map(|number| ip(1 << 16 | number)).collect();
        owners.add_addresses(2, Tgid(20), &many);
        assert_eq!(owners.owners.len(), 2);
        // Nobody may stand in for the only owner of an address, as there may be another one.
        let with = |number| owners.namespaces_with(ip(number)).collect::<Vec<_>>();
        assert_eq!(with(1), [(1, Tgid(10)), (2, Tgid(20))]);
        assert_eq!(with(77), [(2, Tgid(20))]);
        owners.forget(2);
        assert_eq!(owners.namespaces_with(ip(1)).collect::<Vec<_>>(), [(1, Tgid(10))]);
    }

    #[test]
    fn a_query_that_hangs_is_left_behind_and_after_some_no_more_are_made() {
        static LEFT: AtomicUsize = AtomicUsize::new(0);
        let (ended, end) = mpsc::channel::<()>();
        let end = Arc::new(Mutex::new(end));
        for count in 1..=MAX_LEFT_BEHIND {
            let end = Arc::clone(&end);
            let hang = move || end.lock().ok()?.recv().ok();
            assert_eq!(run_within(Duration::from_millis(1), &LEFT, hang), None);
            assert_eq!(LEFT.load(Ordering::Relaxed), count);
        }
        let long = Duration::from_secs(60);
        assert_eq!(run_within(long, &LEFT, || Some(7)), None);
        for _ in 0..MAX_LEFT_BEHIND {
            ended.send(()).unwrap();
        }
        let until = Instant::now() + long;
        while LEFT.load(Ordering::Relaxed) > 0 {
            assert!(Instant::now() < until, "they have not ended");
            std::thread::yield_now();
        }
        assert_eq!(run_within(long, &LEFT, || Some(7)), Some(7));
    }
}

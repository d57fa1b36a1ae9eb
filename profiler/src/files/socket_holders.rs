//! Finds the processes that hold a socket: a walk over `/proc/*/fd`, a bit at a time.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs::ReadDir,
    io,
    os::unix::ffi::OsStrExt,
    time::{Duration, Instant},
};

use offwake_recording::{PeerProcess, units::Tgid};

use super::descriptor::socket_inode;
use crate::proc_files::list_processes;

/// How many holders of one socket are kept: of a listener with a thousand workers, the first ones
/// will do.
const MAX_HOLDERS: usize = 64;

/// One walk over all processes.
pub(super) struct HolderScan {
    sockets: HashSet<u64>,
    processes: std::vec::IntoIter<Tgid>,
    current: Option<(Tgid, ReadDir)>,
    holders: HashMap<u64, BTreeSet<Tgid>>,
}

impl HolderScan {
    /// Begins a walk over the processes that there are now, for the sockets with these inode
    /// numbers.
    pub(super) fn new(sockets: HashSet<u64>) -> Self {
        let processes: Vec<_> = list_processes().map(|(tgid, _)| tgid).collect();
        Self { sockets, processes: processes.into_iter(), current: None, holders: HashMap::new() }
    }

    /// Goes on for about this time. True if the walk is over.
    pub(super) fn run_for(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            let Some((tgid, directory)) = &mut self.current else {
                let Some(tgid) = self.processes.next() else { return true };
                // A process that is gone has no such directory, nor has a kernel thread.
                let directory = std::fs::read_dir(format!("/proc/{tgid}/fd")).ok();
                self.current = directory.map(|directory| (tgid, directory));
                continue;
            };
            let Some(entry) = directory.next() else {
                self.current = None;
                continue;
            };
            let link = entry.and_then(|entry| std::fs::read_link(entry.path()));
            // Who refuses one descriptor refuses all: an agent had 268, at 25 us each.
            if link.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
                self.current = None;
                continue;
            }
            if let Ok(link) = link
                && let Some(inode) = socket_inode(link.as_os_str().as_bytes())
                && self.sockets.contains(&inode)
            {
                let holders = self.holders.entry(inode).or_default();
                if holders.len() < MAX_HOLDERS {
                    holders.insert(*tgid);
                }
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }

    /// The processes that hold a socket; none if no process does, or it was not searched for.
    pub(super) fn holders(&self, inode: u64) -> Vec<PeerProcess> {
        let holders = self.holders.get(&inode).into_iter().flatten();
        holders
            .filter_map(|&tgid| {
                let comm = std::fs::read(format!("/proc/{tgid}/comm")).ok()?;
                let comm = String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm));
                Some(PeerProcess { tgid, comm: comm.into_owned() })
            })
            .collect()
    }
}

//! The perf maps of processes, `/tmp/perf-PID.map`, held by their names alone: a JIT writes there what
//! it made.
//!
//! blazesym reads these too, but by path: it can't ask who owns the file that it opened, waits for
//! ever on a FIFO, follows a container's links out of it, and gives up on a half-written line.

use std::{collections::HashMap, os::fd::OwnedFd, sync::Arc};

use offwake_recording::{
    loss::Diagnostics,
    units::{Nanos, Tgid, Timestamp},
};

use rustix::{fs::FileType, io::Errno};

use super::process_root::LastLink;
use crate::{reader_process, symbols::clock::monotonic_now};

/// Files held open at most.
const MAX_OPEN: usize = 1024;
/// Processes with code in memory at a time, including those that ended and left a file.
const MAX_MAPS: usize = 65_536;
/// The permissions with which somebody else than the owner can write: the group, or everybody.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The shortest time between two attempts to open a file.
const RETRY: Nanos = Nanos(100_000_000);

/// The number of a perf map, whether its file exists or not. Numbers are not used twice: frames
/// keep them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PerfMapId(u32);

#[derive(Default)]
struct PerfMap {
    file: Option<Arc<OwnedFd>>,
    tried: Option<Timestamp>,
    refused: bool,
}

/// The perf maps of the processes that ran code in memory.
pub(crate) struct PerfMaps {
    maps: HashMap<PerfMapId, PerfMap>,
    added: u32,
    /// The number of files that are held open.
    open: usize,
    refused: u64,
    over_limit: u64,
}

enum Attempt {
    Opened(OwnedFd),
    Absent,
    Refused,
}

impl PerfMaps {
    pub(crate) fn new() -> Self {
        Self { maps: HashMap::new(), added: 0, open: 0, refused: 0, over_limit: 0 }
    }

    /// Adds a map whose file is not open yet. None if there are too many.
    pub(crate) fn add(&mut self) -> Option<PerfMapId> {
        if self.maps.len() >= MAX_MAPS {
            self.over_limit += 1;
            return None;
        }
        self.added = self.added.checked_add(1)?;
        let id = PerfMapId(self.added);
        self.maps.insert(id, PerfMap::default());
        Some(id)
    }

    /// Drops a map whose program has ended, unless its file is open: it will never be opened now.
    pub(crate) fn end(&mut self, id: PerfMapId) {
        if self.maps.get(&id).is_some_and(|map| map.file.is_none()) {
            self.maps.remove(&id);
        }
    }

    /// Opens the file of a process, if that was not done or tried just now.
    pub(crate) fn open(&mut self, id: PerfMapId, tgid: Tgid) {
        let tried = self.maps.get(&id).and_then(|map| map.tried);
        if tried.is_none_or(|tried| monotonic_now().since(tried) >= RETRY) {
            self.open_now(id, tgid);
        }
    }

    /// Opens the file of a process, if that was not done.
    pub(crate) fn open_now(&mut self, id: PerfMapId, tgid: Tgid) {
        let Some(map) = self.maps.get_mut(&id) else { return };
        if map.file.is_some() || map.refused {
            return;
        }
        map.tried = Some(monotonic_now());
        if self.open >= MAX_OPEN {
            self.over_limit += 1;
            return;
        }
        match attempt(tgid) {
            Attempt::Opened(file) => {
                map.file = Some(Arc::new(file));
                self.open += 1;
            }
            Attempt::Refused => {
                map.refused = true;
                self.refused += 1;
            }
            Attempt::Absent => {}
        }
    }

    /// The file of a map, held by its name alone, if there is one.
    pub(crate) fn file(&self, id: PerfMapId) -> Option<Arc<OwnedFd>> {
        self.maps.get(&id)?.file.clone()
    }

    pub(crate) fn add_diagnostics(&self, all: &mut Diagnostics) {
        let counted = [
            ("symbols_perf_maps_refused", self.refused),
            ("symbols_perf_maps_over_limit", self.over_limit),
        ];
        for (name, count) in counted.into_iter().filter(|(_, count)| *count > 0) {
            *all.entry(name).or_default() += count;
        }
    }
}

/// Opens a process's map inside of its own root, if the process itself can have written it: anybody
/// can put a file of that name into `/tmp`.
fn attempt(tgid: Tgid) -> Attempt {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{tgid}/status")) else {
        return Attempt::Absent;
    };
    // The file is named after the number that the process knows itself by.
    let inner = field(&status, "NStgid:").and_then(|ids| ids.split_ascii_whitespace().next_back());
    let inner = inner.and_then(|id| id.parse().ok()).unwrap_or(tgid.0);

    let path = format!("tmp/perf-{inner}.map");
    let (held, stat) = match reader_process::open_below(tgid, &path, LastLink::Kept) {
        Ok(held) => held,
        // The process has no such file, is gone, or its file system does not answer.
        Err(Errno::NOENT | Errno::SRCH | Errno::TIMEDOUT) => return Attempt::Absent,
        Err(_) => return Attempt::Refused,
    };
    let is_owned = stat.uid == 0 || effective_user(&status) == Some(stat.uid);
    // Where others can write, the owner says nothing about who wrote it.
    if !is_owned || stat.mode & WRITABLE_BY_OTHERS != 0 {
        return Attempt::Refused;
    }
    match FileType::from_raw_mode(stat.mode) {
        FileType::RegularFile => Attempt::Opened(held),
        _ => Attempt::Refused,
    }
}

/// A line of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The user whose files a process makes: with a setuid program, not the user who started it.
fn effective_user(status: &str) -> Option<u32> {
    // Real, effective, saved and filesystem user.
    field(status, "Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::effective_user;

    #[test]
    fn the_owner_of_a_map_is_who_the_process_acts_for() {
        let status = "Name:\tUid: 7\nUid:\t1000\t33\t0\t1000\nGid:\t5\t5\t5\t5\n";
        assert_eq!(effective_user(status), Some(33));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }
}

//! What keeps threads stopped that are not stopped by a signal.
//!
//! ```text
//!  state t        /proc/PID/task/TID/status: TracerPid       --> StopOrigin::Tracer
//!  state S, D, …  /proc/PID/cgroup, cgroup.freeze of each
//!                 cgroup from there up to the root: 1        --> StopOrigin::FrozenCgroup
//! ```
//!
//! A thread of a frozen cgroup may sleep on in the kernel, where the freezer does not reach it. Whether it is
//! frozen itself, its stack tells: what is found here is not believed without that. The freezer of v1 leaves no
//! trace in the stack of who sleeps. But it knows when all of a cgroup is frozen, and shows each frozen thread as
//! one in state D
//! ([`__task_state_index`](https://github.com/torvalds/linux/blob/v6.12/include/linux/sched.h#L1668)):
//!
//! ```text
//!  state D        /proc/PID/cgroup, freezer.state: FROZEN    --> StopOrigin::FrozenAsleep
//! ```

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::{Duration, Instant},
};

use offwake_recording::{
    PeerProcess, StopOrigin, StoppedThread, ThreadKind, Wait,
    units::{Tgid, Tid},
};

use super::{
    cgroup_paths::CgroupHierarchy,
    proc_files::{self, Controllers},
};
use crate::{cgroup2, proc_files::read_beginning};

/// The most threads that are looked at.
const MAX_THREADS: usize = 4_096;
/// The most processes whose cgroups are looked at: `offwake top` does so once a second.
const MAX_PROCESSES: usize = 256;
/// How long it may take in all.
const PATIENCE: Duration = Duration::from_millis(100);
/// The most bytes that are read of `status`. What is wanted of it comes before the groups, which can be long.
const MAX_STATUS: u64 = 4_096;
/// The file of a cgroup of v1 that says how far it is frozen: `THAWED`, `FREEZING`, `FROZEN`.
const STATE: &str = "freezer.state";
/// Bytes of a file of a cgroup that are read: a digit, or a word.
const MAX_FILE: usize = 16;

/// Finds the tracers of threads that are stopped by one, and the frozen cgroups that others are in: those of
/// the target first.
pub(crate) fn find_stopped_threads(open: &[Wait]) -> Vec<StoppedThread> {
    let until = Instant::now() + PATIENCE;
    let mut waits: Vec<&Wait> = (open.iter())
        .filter(|wait| wait.wake.is_none() && wait.kind != ThreadKind::Kernel)
        .collect();
    waits.sort_by_key(|wait| !wait.in_target);
    let mut freezers = Freezers::open();
    (waits.into_iter())
        .take(MAX_THREADS)
        .take_while(|_| Instant::now() < until)
        .filter_map(|wait| {
            let origin = match wait.state.letter() {
                't' => StopOrigin::Tracer(find_tracer(wait.tgid, wait.tid)?),
                'T' => return None,
                _ => match freezers.find_frozen_cgroup(wait.tgid)? {
                    Frozen { cgroup, extent: Extent::All } if is_in_state_d(wait) => {
                        StopOrigin::FrozenAsleep(cgroup)
                    }
                    Frozen { cgroup, .. } => StopOrigin::FrozenCgroup(cgroup),
                },
            };
            Some(StoppedThread { tid: wait.tid, origin })
        })
        .collect()
}

/// Returns whether a thread shows as one that no signal wakes.
fn is_in_state_d(wait: &Wait) -> bool {
    let status = read_status(&format!("{}/task/{}", wait.tgid, wait.tid));
    field(status.as_bytes(), "State:").is_some_and(|state| state.starts_with('D'))
}

/// Finds who traces a thread, if that one has it stopped just now.
fn find_tracer(tgid: Tgid, tid: Tid) -> Option<PeerProcess> {
    let tracer = parse_tracer(read_status(&format!("{tgid}/task/{tid}")).as_bytes())?;
    // Each thread of a debugger may be the one that traces.
    let process = parse_process(read_status(&tracer.to_string()).as_bytes())?;
    let comm = read_beginning(Path::new(&format!("/proc/{process}/comm")), MAX_STATUS);
    let comm = comm.trim_end_matches('\n').to_owned();
    Some(PeerProcess { tgid: process, comm })
}

fn read_status(task: &str) -> String {
    read_beginning(Path::new(&format!("/proc/{task}/status")), MAX_STATUS)
}

/// Parses the tracer's thread from the `status` of a thread that is stopped by it. A tracer of another PID
/// namespace has no number here (0).
fn parse_tracer(status: &[u8]) -> Option<Tid> {
    let is_stopped = field(status, "State:")?.starts_with('t');
    let tracer = field(status, "TracerPid:")?.parse().ok()?;
    (is_stopped && tracer != 0).then_some(Tid(tracer))
}

fn parse_process(status: &[u8]) -> Option<Tgid> {
    field(status, "Tgid:")?.parse().ok().map(Tgid)
}

fn field<'t>(status: &'t [u8], name: &str) -> Option<&'t str> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name.as_bytes()))?;
    std::str::from_utf8(value).ok().map(str::trim)
}

/// The hierarchies that have a freezer, and what they said so far.
struct Freezers {
    hierarchies: Vec<Freezer>,
    by_process: HashMap<Tgid, Option<Frozen>>,
}

/// A cgroup that was told to freeze.
#[derive(Clone)]
struct Frozen {
    cgroup: String,
    extent: Extent,
}

/// How far a cgroup is frozen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All threads of the cgroup that was asked about are.
    All,
    /// Some may not be, or nothing tells.
    NotKnown,
}

struct Freezer {
    hierarchy: CgroupHierarchy,
    controllers: Controllers,
    /// The file of a cgroup that says whether it was told to freeze.
    file: &'static str,
    /// The cgroups that were looked at and not told to.
    free: HashSet<Vec<u8>>,
}

impl Freezers {
    /// The v2 hierarchy, and that of v1 if there is one.
    fn open() -> Self {
        let unified = CgroupHierarchy::open()
            .map(|hierarchy| Freezer::new(hierarchy, Controllers::Unified, "cgroup.freeze"));
        let v1 = cgroup2::v1_mount_point_with("freezer").and_then(CgroupHierarchy::at).map(
            |hierarchy| Freezer::new(hierarchy, Controllers::Freezer, "freezer.self_freezing"),
        );
        Self { hierarchies: unified.into_iter().chain(v1).collect(), by_process: HashMap::new() }
    }

    /// Finds the nearest cgroup that was told to freeze, of a process's own and those above it.
    fn find_frozen_cgroup(&mut self, tgid: Tgid) -> Option<Frozen> {
        if self.by_process.len() >= MAX_PROCESSES && !self.by_process.contains_key(&tgid) {
            return None;
        }
        let hierarchies = &mut self.hierarchies;
        let found = self.by_process.entry(tgid).or_insert_with(|| {
            hierarchies.iter_mut().find_map(|freezer| {
                let path = proc_files::read_cgroup_path_of(tgid.0, freezer.controllers)?;
                let frozen = freezer.find_frozen(&path)?;
                let cgroup = String::from_utf8_lossy(&frozen).into_owned();
                Some(Frozen { cgroup, extent: freezer.extent(&path) })
            })
        });
        found.clone()
    }
}

impl Freezer {
    fn new(hierarchy: CgroupHierarchy, controllers: Controllers, file: &'static str) -> Self {
        Self { hierarchy, controllers, file, free: HashSet::new() }
    }

    /// How far a cgroup is frozen that was told to, or is in one that was.
    fn extent(&self, path: &[u8]) -> Extent {
        // There is no such file in v2.
        let state = self.hierarchy.open_path(path).and_then(|cgroup| cgroup.read(STATE, MAX_FILE));
        match state.is_some_and(|state| state.trim_ascii() == b"FROZEN") {
            true => Extent::All,
            false => Extent::NotKnown,
        }
    }

    fn find_frozen(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let mut path = path;
        while !matches!(path, b"" | b"/") && !self.free.contains(path) {
            let text = self.hierarchy.open_path(path)?.read(self.file, MAX_FILE);
            if text.is_some_and(|text| text.trim_ascii() == b"1") {
                return Some(path.to_vec());
            }
            self.free.insert(path.to_vec());
            path = path.iter().rposition(|&byte| byte == b'/').map_or(&[], |end| &path[..end]);
        }
        None
    }
}

/// Parses any bytes as a thread's `status`, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    let _tracer = parse_tracer(bytes);
    let _process = parse_process(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_is_that_of_a_thread_which_it_has_stopped() {
        let status = |state: &str, tracer: &str| {
            let text = format!("Name:\tx\nState:\t{state}\nTgid:\t9\nTracerPid:\t{tracer}\n");
            text.into_bytes()
        };
        assert_eq!(parse_tracer(&status("t (tracing stop)", "812")), Some(Tid(812)));
        assert_eq!(parse_process(&status("S (sleeping)", "0")), Some(Tgid(9)));
        for (state, tracer) in [
            // strace is attached, and lets it sleep.
            ("S (sleeping)", "812"),
            // Of another PID namespace.
            ("t (tracing stop)", "0"),
            ("t (tracing stop)", "x"),
            ("", "812"),
        ] {
            assert_eq!(parse_tracer(&status(state, tracer)), None, "{state} {tracer}");
        }
        for none in [&b""[..], b"\n", b"State:\tt", b"TracerPid:\t3", b"State:\xff\nTracerPid:\t3"]
        {
            assert_eq!(parse_tracer(none), None, "{none:?}");
        }
    }
}

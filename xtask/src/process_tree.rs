//! Ends a program together with everything that it has started.

use std::{
    collections::{HashMap, HashSet},
    fs,
    process::Child,
    thread,
    time::Duration,
};

/// How long programs have to end by themselves once they are asked to.
const GRACE: Duration = Duration::from_secs(20);

/// A process. The time at which it started tells it from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    pid: libc::pid_t,
    /// In ticks since boot.
    started: u64,
}

/// Asks a program and its descendants to end, and kills what is left after 20 s.
pub fn end_process_tree(root: &mut Child) {
    let tree = find_descendants(root.id());
    send_to_all(&tree, libc::SIGTERM);
    let _ = root.kill();
    let _ = root.wait();
    let step = Duration::from_millis(100);
    let mut waited = Duration::ZERO;
    while waited < GRACE && !still_running(&tree).is_empty() {
        thread::sleep(step);
        waited += step;
    }
    send_to_all(&still_running(&tree), libc::SIGKILL);
}

fn send_to_all(processes: &HashSet<Process>, signal: libc::c_int) {
    for process in still_running(processes) {
        // SAFETY: takes plain integers, and the process was there, as itself, a moment ago.
        unsafe { libc::kill(process.pid, signal) };
    }
}

fn still_running(processes: &HashSet<Process>) -> HashSet<Process> {
    let running: HashSet<Process> = list_processes().into_keys().collect();
    processes.intersection(&running).copied().collect()
}

/// Finds the processes that a process has started, and those that these have started.
fn find_descendants(root: u32) -> HashSet<Process> {
    let parents = list_processes();
    let mut found: HashSet<Process> = HashSet::new();
    let mut ids: HashSet<libc::pid_t> = libc::pid_t::try_from(root).into_iter().collect();
    loop {
        let before = found.len();
        for (process, parent) in &parents {
            if ids.contains(parent) {
                found.insert(*process);
                ids.insert(process.pid);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Lists all processes, each with its parent.
fn list_processes() -> HashMap<Process, libc::pid_t> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (parent, started) = parse_stat(&stat)?;
            Some((Process { pid, started }, parent))
        })
        .collect()
}

/// Returns the parent of a process and when it started, by its `/proc/PID/stat`; none of a zombie.
fn parse_stat(stat: &str) -> Option<(libc::pid_t, u64)> {
    // The name is in parentheses, and can hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::{process::Command, time::Instant};

    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        let rest = "S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0";
        assert_eq!(parse_stat(&format!("12 (a) b) {rest}")), Some((7, 4242)));
        assert_eq!(parse_stat(&format!("12 (a) {}", rest.replacen('S', "Z", 1))), None);
        assert_eq!(parse_stat("12 (a"), None);
    }

    #[test]
    fn what_a_program_has_started_ends_with_it() {
        let mut shell = Command::new("sh").args(["-c", "sleep 1000 & wait"]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let started = loop {
            let found = find_descendants(shell.id());
            if !found.is_empty() {
                break found;
            }
            assert!(Instant::now() < deadline, "the shell has started nothing");
            thread::sleep(Duration::from_millis(10));
        };
        end_process_tree(&mut shell);
        assert_eq!(still_running(&started), HashSet::new());
    }
}

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use offwake_recording::{
    CgroupInfo, ContainerId, ContainerNames, ProcessInfo,
    units::{CgroupId, Tgid},
};

use super::{NewProcesses, Processes};
use crate::{cgroup2, kernel};

/// A child, killed and reaped when it is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        let child = Self(command.stdin(Stdio::piped()).spawn().unwrap());
        // spawn() returns when the exec has got its memory, which is before that has its arguments.
        let arguments = format!("/proc/{}/cmdline", child.tgid());
        wait_for("the arguments", || !fs::read(&arguments).unwrap().is_empty());
        child
    }

    fn sleep() -> Self {
        Self::start(Command::new("sleep").arg("1000"))
    }

    fn tgid(&self) -> Tgid {
        Tgid(self.0.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cgroup below the root of the hierarchy, removed when it is dropped; whoever is in it must have
/// been reaped by then.
struct Cgroup(PathBuf);

impl Cgroup {
    /// None where there is no hierarchy that can be written to.
    fn make(name: &str) -> Option<Self> {
        let path = cgroup2::mount_point()?.join(name);
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    fn id(&self) -> CgroupId {
        CgroupId(fs::metadata(&self.0).unwrap().ino())
    }

    fn adopt(&self, process: &Running) {
        fs::write(self.0.join("cgroup.procs"), process.tgid().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        wait_for("the cgroup to be empty", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
    }
}

fn own() -> Tgid {
    Tgid(std::process::id())
}

fn only(mut new: NewProcesses) -> ProcessInfo {
    assert_eq!((new.processes.len(), new.cgroups.len()), (1, 0), "{new:?}");
    new.processes.remove(0)
}

#[test]
fn this_process_is_seen_as_it_is() {
    let before = kernel::now();
    let mut processes = Processes::new();
    processes.observe_process(own());
    let info = only(processes.take_new());
    assert!(before <= info.at && info.at <= kernel::now());
    assert_eq!(info.tgid, own());
    assert_eq!(info.parent, Some(Tgid(std::os::unix::process::parent_id())));
    let program = std::env::current_exe().unwrap();
    assert_eq!(info.executable.as_deref(), program.to_str());
    assert_eq!(info.arguments, std::env::args().collect::<Vec<_>>());
    assert_eq!(info.pid_in_container, None);
    assert_eq!(info.uid, Some(rustix::process::geteuid().as_raw()));
    let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap();
    let cgroup = cgroup.lines().find_map(|line| line.strip_prefix("0::"));
    assert_eq!(info.cgroup.as_deref(), cgroup);
    assert_eq!(processes.finish().1.len(), 0);
}

#[test]
fn arguments_are_read_only_so_far() {
    let long = "é".repeat(50_000);
    let child = Running::start(Command::new("sh").args(["-c", "read line", "name", &long]));
    let mut processes = Processes::new();
    processes.observe_process(child.tgid());
    let info = only(processes.take_new());
    assert_eq!(info.arguments[..4], ["sh", "-c", "read line", "name"]);
    let last = &info.arguments[4];
    assert!(last.ends_with("é…") && (4000..4100).contains(&last.len()), "{last}");
}

#[test]
fn a_process_is_found_again_when_it_has_changed() {
    let mut child = Running::start(Command::new("sh").args(["-c", "read line; exec sleep 1000"]));
    let tgid = child.tgid();
    let mut processes = Processes::new();
    processes.observe_process(tgid);
    let shell = only(processes.take_new());
    assert_eq!(shell.arguments[0], "sh");
    processes.observe_process(tgid);
    assert_eq!(processes.take_new(), NewProcesses::default());

    drop(child.0.stdin.take());
    wait_for("the exec", || {
        fs::read(format!("/proc/{tgid}/cmdline")).is_ok_and(|text| text.starts_with(b"sleep"))
    });
    processes.observe_process(tgid);
    let sleep = only(processes.take_new());
    assert_eq!(sleep.arguments, ["sleep", "1000"]);
    assert_ne!(sleep.executable, shell.executable);
    assert!(sleep.at > shell.at);

    // Whoever has the number next is another one, even if nothing else tells them apart.
    processes.observe_exit(tgid);
    processes.observe_process(tgid);
    assert_eq!(only(processes.finish().0).arguments, sleep.arguments);
}

#[test]
fn what_has_ended_is_counted_and_a_thread_is_no_process() {
    let mut child = Command::new("true").spawn().unwrap();
    let ended = Tgid(child.id());
    child.wait().unwrap();
    let mut processes = Processes::new();
    processes.observe_process(ended);
    assert_eq!(processes.diagnostics().get("processes_gone"), Some(&1));
    let thread = std::thread::spawn(|| {
        // SAFETY: the call has no preconditions.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let mut processes = Processes::new();
        processes.observe_process(Tgid(tid));
        processes.finish()
    });
    let (new, diagnostics) = thread.join().unwrap();
    assert_eq!(new, NewProcesses::default());
    assert_eq!(diagnostics.get("processes_gone"), Some(&1));
}

#[test]
fn a_zombie_is_seen_as_far_as_it_is_there() {
    let mut child = Command::new("true").spawn().unwrap();
    let tgid = Tgid(child.id());
    wait_for("the end", || {
        let stat = fs::read_to_string(format!("/proc/{tgid}/stat")).unwrap();
        stat.contains(") Z ")
    });
    let mut processes = Processes::new();
    processes.observe_process(tgid);
    let info = only(processes.finish().0);
    assert_eq!((info.executable, info.arguments), (None, Vec::new()));
    assert_eq!(info.parent, Some(own()));
    child.wait().unwrap();
}

#[test]
fn the_number_inside_a_pid_namespace_is_found() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("NOT RUN, only root can make a PID namespace: the_number_inside_…");
    }
    let outer = Running::start(Command::new("unshare").args([
        "--pid",
        "--fork",
        "--kill-child",
        "sleep",
        "1000",
    ]));
    let children = format!("/proc/{0}/task/{0}/children", outer.tgid());
    let mut processes = Processes::new();
    wait_for("the child", || {
        let inner = fs::read_to_string(&children).unwrap();
        let Ok(inner) = inner.trim().parse() else { return false };
        processes.observe_process(Tgid(inner));
        let info = only(processes.take_new());
        // Until its exec it is `unshare`.
        processes.observe_exit(info.tgid);
        assert_eq!((info.pid_in_container, info.parent), (Some(1), Some(outer.tgid())));
        info.arguments == ["sleep", "1000"]
    });
}

#[test]
fn a_cgroup_is_found_through_the_process_and_without_it() {
    let id = format!("{:064x}", own().0);
    let name = format!("docker-{id}.scope");
    let Some(cgroup) = Cgroup::make(&name) else {
        return eprintln!("NOT RUN, needs a cgroup2 that can be written to: a_cgroup_is_found_…");
    };
    let child = Running::sleep();
    cgroup.adopt(&child);
    let expected = CgroupInfo::new(cgroup.id(), format!("/{name}"));
    assert_eq!(expected.container.as_ref().map(ContainerId::as_str), Some(id.as_str()));
    // The second one is elsewhere: only the handle leads there.
    for tgid in [child.tgid(), own()] {
        let mut processes = Processes::new();
        processes.observe_cgroup(cgroup.id(), tgid);
        processes.observe_cgroup(cgroup.id(), tgid);
        let (new, diagnostics) = processes.finish();
        assert_eq!((new.cgroups.as_slice(), diagnostics.len()), (&[expected.clone()][..], 0));
    }
    let mut processes = Processes::new();
    processes.observe_process(child.tgid());
    assert_eq!(only(processes.finish().0).cgroup, Some(expected.path));
}

#[test]
fn a_cgroups_name_is_its_own_whatever_it_ends_in() {
    let name = format!("offwake-unit-{} (deleted)", own());
    let Some(cgroup) = Cgroup::make(&name) else {
        return eprintln!("NOT RUN, needs a cgroup2 that can be written to: a_cgroups_name_…");
    };
    let mut processes = Processes::new();
    processes.observe_cgroup(cgroup.id(), own());
    assert_eq!(processes.finish().0.cgroups, [CgroupInfo::new(cgroup.id(), format!("/{name}"))]);
}

#[test]
fn a_cgroup_that_is_gone_is_counted_once() {
    let Some(cgroup) = Cgroup::make(&format!("offwake-unit-{}-gone", own())) else {
        return eprintln!(
            "NOT RUN, needs a cgroup2 that can be written to: a_cgroup_that_is_gone_…"
        );
    };
    let id = cgroup.id();
    drop(cgroup);
    let mut processes = Processes::new();
    processes.observe_cgroup(id, own());
    processes.observe_cgroup(id, own());
    processes.observe_cgroup(CgroupId(0), own());
    let (new, diagnostics) = processes.finish();
    assert_eq!(new, NewProcesses::default());
    assert_eq!(diagnostics, [("cgroups_unresolved", 1)].into());
}

#[test]
fn the_limits_hold_and_are_counted() {
    let children = [Running::sleep(), Running::sleep()];
    let mut processes = Processes { limit: 1, ..Processes::new() };
    processes.observe_process(children[0].tgid());
    processes.observe_process(children[1].tgid());
    assert_eq!(only(processes.take_new()).tgid, children[0].tgid());
    assert_eq!(*processes.diagnostics(), [("processes_over_limit", 1)].into());
    processes.observe_exit(children[0].tgid());
    processes.observe_process(children[1].tgid());
    // There is room for it, but not for one more that waits to be taken.
    processes.observe_exit(children[1].tgid());
    processes.observe_process(children[0].tgid());
    assert_eq!(only(processes.take_new()).tgid, children[1].tgid());
    // The root's id, and one that nothing has.
    processes.observe_cgroup(CgroupId(1), own());
    processes.observe_cgroup(CgroupId(u64::MAX), own());
    let (_, diagnostics) = processes.finish();
    assert_eq!(diagnostics.get("processes_over_limit"), Some(&2));
    assert_eq!(diagnostics.get("cgroups_over_limit"), Some(&1));
}

/// A process chooses its arguments, and whoever makes a cgroup its path.
#[test]
fn what_processes_and_cgroups_are_takes_so_many_bytes_until_it_is_taken() {
    let child = Running::sleep();
    let mut processes = Processes { max_bytes: 1, ..Processes::new() };
    processes.observe_process(child.tgid());
    assert_eq!(*processes.diagnostics(), [("processes_over_limit", 1)].into());
    if let Some(cgroup) = Cgroup::make(&format!("offwake-unit-{}-bytes", own())) {
        processes.observe_cgroup(cgroup.id(), own());
        assert_eq!(processes.diagnostics().get("cgroups_over_limit"), Some(&1));
    }
    assert_eq!(processes.take_new(), NewProcesses::default());
    processes.max_bytes = 4096;
    // It is looked for again when it is seen again.
    for _ in 0..2 {
        processes.observe_process(child.tgid());
        assert_eq!(only(processes.take_new()).tgid, child.tgid());
        processes.observe_exit(child.tgid());
    }
}

#[test]
fn a_cgroup_comes_again_when_its_container_is_named_and_later_ones_have_the_name() {
    let id = "4f1c0b5a9d3e7f2846b0c8d1e5a37f904f1c0b5a9d3e7f2846b0c8d1e5a37f90";
    let container = ContainerId::new(id).unwrap();
    let names = ContainerNames { name: Some("web".to_owned()), ..ContainerNames::default() };
    let cgroup = |number, path: String| CgroupInfo::new(CgroupId(number), path);
    let rows = |processes: &mut Processes| -> Vec<_> {
        let rows = std::mem::take(&mut processes.new.cgroups).into_iter();
        rows.map(|row| (row.id.0, row.container.is_some(), row.names.name)).collect()
    };
    let web = || Some("web".to_owned());

    let mut processes = Processes::new();
    processes.add_cgroup(cgroup(1, "/system.slice".to_owned()));
    processes.add_cgroup(cgroup(2, format!("/docker/{id}")));
    // Nothing says that this is one, but somebody may.
    processes.add_cgroup(cgroup(3, format!("/mine/{id}")));
    assert_eq!(rows(&mut processes), [(1, false, None), (2, true, None), (3, false, None)]);
    processes.add_names(vec![(container, names)]);
    assert_eq!(rows(&mut processes), [(2, true, web()), (3, true, web())]);
    processes.add_cgroup(cgroup(4, format!("/docker/{id}/inner")));
    assert_eq!(rows(&mut processes), [(4, true, web())]);
}

/// A title changes while a process runs, and says nothing of it then.
#[test]
fn who_sleeps_is_read_again_with_the_time_and_who_runs_is_not() {
    let sleeper = Running::sleep();
    let spinner = Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let status = |child: &Running| fs::read_to_string(format!("/proc/{}/status", child.tgid()));
    wait_for("the sleeper to sleep", || status(&sleeper).unwrap().contains("State:\tS"));
    let mut processes = Processes::new();
    processes.observe_process(sleeper.tgid());
    let before = kernel::now();
    let found = |processes: &mut Processes| processes.take_new().processes;
    assert_eq!(found(&mut processes).len(), 1);
    processes.observe_again(&[spinner.tgid(), sleeper.tgid()], Duration::from_secs(10));
    let again = found(&mut processes);
    let [again] = &again[..] else { panic!("{again:?}") };
    assert_eq!(again.tgid, sleeper.tgid());
    assert!(again.at >= before, "{again:?}");
    processes.observe_again(&[sleeper.tgid()], Duration::ZERO);
    assert_eq!(found(&mut processes), []);
}

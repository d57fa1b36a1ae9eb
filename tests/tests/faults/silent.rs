//! File systems and processes that do not answer: [`silent_fs.c`](../../programs/silent_fs.c).

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    kernel_objects::KernelObjects,
    offwake::Offwake,
    paths,
    process::{descendants, wait_for_state},
    programs::{Compiled, Program, Source},
    report::Unanswered,
    wait_until::{wait_at_most, wait_until},
};

/// A second is recorded, and nobody waits for what does not answer for longer than this on a busy machine.
const IN_TIME: Duration = Duration::from_secs(30);

/// Who mounts the file system: root, or whoever likes to, in namespaces of its own.
const OWNERS: [&str; 2] = ["root", "own"];

/// How long after the death of offwake something of it may be in the kernel.
const FREED_IN: Duration = Duration::from_secs(1);

/// The program is its own file system, and a child.
struct Silent {
    server: Program,
    target: u32,
}

impl Silent {
    /// Starts it: `owner` mounts the file system, which falls silent, and the program does `what`.
    fn start(owner: &str, what: &str) -> Result<Self> {
        let source = Source { compiler: "cc", file: "silent_fs.c", flags: &["-O1", "-g"] };
        let compiled = Compiled::compile_one(source)?;
        let mount = paths::scratch_directory()?;
        let mut command = Command::new(compiled.path("silent_fs"));
        command.arg(mount.path()).args([owner, what]);
        // The mount goes with the server, whose directory outlives it.
        let mut server = Program::start_and_wait(&mut command, mount)?;
        let target = descendants(server.pid())?.into_keys().next().context("it has no child")?;
        server.signal_itself(libc::SIGUSR1)?;
        wait_for_state(target, if what == "locked" { 'D' } else { 'S' })?;
        Ok(Self { server, target })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Without a server nobody waits for it any more. A mount of its own namespace is gone then.
        drop(self.server.signal_itself(libc::SIGKILL));
        let directory: &Path = self.server.directory();
        drop(Command::new("umount").arg("--lazy").arg(directory).output());
    }
}

/// What a profile of one second says on standard error.
fn profile(silent: &Silent) -> Result<(String, offwake_tests::report::Report)> {
    let target = silent.target.to_string();
    let began = Instant::now();
    let offwake = Offwake::profile()?.args(["-p", &target, "-d", "1s", "-o", "x.json", "--full"]);
    let outcome = offwake.start()?.outcome_within(IN_TIME)?;
    ensure!(outcome.status.success(), "{outcome}");
    eprintln!("{:?}: {}", began.elapsed(), outcome.stderr);
    Ok((outcome.stderr.clone(), outcome.report("x.json")?))
}

#[test]
fn a_stack_in_a_silent_file_costs_that_stack() -> Result<()> {
    for owner in OWNERS {
        let silent = Silent::start(owner, "stack")?;
        let (said, report) = profile(&silent)?;
        ensure!(report.loss_count("reader_processes_unanswered") == 1, "{:?}", report.loss);
        let words = format!("not answered: the memory of process {}", silent.target);
        ensure!(said.contains(&words), "{said}");
        let is_its_memory =
            |row: &Unanswered| row.kind == "memory" && row.tgid == Some(silent.target);
        ensure!(report.loss.unanswered.iter().any(is_its_memory), "{:?}", report.loss);
        let ledger = report.thread(silent.target)?;
        ensure!(ledger.wall_ns == report.window.duration_ns, "{ledger:?}");
    }
    Ok(())
}

#[test]
fn a_program_on_a_silent_file_system_costs_the_names_of_its_functions() -> Result<()> {
    for owner in OWNERS {
        let silent = Silent::start(owner, "run")?;
        let (said, report) = profile(&silent).context(owner)?;
        ensure!(report.loss_count("reader_files_unanswered") >= 1, "{owner}: {:?}", report.loss);
        ensure!(said.contains("not answered: ") && said.contains("/file"), "{owner}: {said}");
        // A mount of another namespace has no place here.
        let mount = silent.server.directory().to_str().context("its path is text")?;
        let is_it = |row: &Unanswered| {
            let is_there = match owner {
                "root" => row.place == mount,
                _ => row.place.starts_with("device "),
            };
            row.kind == "file" && is_there
        };
        ensure!(report.loss.unanswered.iter().any(is_it), "{owner}: {:?}", report.loss);
        let ledger = report.thread(silent.target)?;
        ensure!(ledger.blocked_ns * 2 > ledger.wall_ns, "it sleeps nearly always: {ledger:?}");
    }
    Ok(())
}

/// The kernel waits for the server with each file that is closed, and with the end of a process that
/// has one open.
#[test]
fn a_file_that_can_not_be_closed_costs_the_names_of_its_functions() -> Result<()> {
    for owner in OWNERS {
        let silent = Silent::start(owner, "close")?;
        let (said, report) = profile(&silent).context(owner)?;
        ensure!(report.loss_count("reader_files_unanswered") >= 1, "{owner}: {:?}", report.loss);
        ensure!(said.contains("not answered: ") && said.contains("/file"), "{owner}: {said}");
        ensure!(report.thread(silent.target)?.wall_ns == report.window.duration_ns, "{report:?}");
    }
    Ok(())
}

#[test]
fn a_process_that_holds_the_lock_on_its_mappings_costs_its_names() -> Result<()> {
    for owner in OWNERS {
        let silent = Silent::start(owner, "locked")?;
        let (said, report) = profile(&silent).context(owner)?;
        ensure!(
            report.loss_count("reader_processes_unanswered") >= 1,
            "{owner}: {:?}",
            report.loss
        );
        ensure!(said.contains(&format!("process {}", silent.target)), "{owner}: {said}");
    }
    Ok(())
}

/// Each of its twenty files takes some seconds to be read, and no read takes longer than allowed.
#[test]
fn a_slow_file_system_costs_the_names_of_its_functions_however_many_files_it_has() -> Result<()> {
    let silent = Silent::start("root", "slow")?;
    let (said, report) = profile(&silent)?;
    let mount = silent.server.directory().to_str().context("its path is text")?;
    let is_it = |row: &Unanswered| row.kind == "file" && row.place == mount;
    ensure!(report.loss.unanswered.iter().any(is_it), "{said}: {:?}", report.loss);
    let ledger = report.thread(silent.target)?;
    ensure!(ledger.blocked_ns * 2 > ledger.wall_ns, "it sleeps nearly always: {ledger:?}");
    Ok(())
}

/// A thread adds a file there to an epoll, and has the epoll's mutex for as long as the server does not
/// answer. Whoever reads what `/proc` says of the epoll waits for that mutex, and no signal ends it.
#[test]
fn an_epoll_of_a_silent_file_does_not_keep_the_holder_of_a_lock_from_being_found() -> Result<()> {
    for owner in OWNERS {
        let silent = Silent::start(owner, "epoll")?;
        let holder = silent.target.to_string();
        let (_said, report) = profile(&silent).context(owner)?;
        ensure!(report.loss_count("holder_searches_out_of_time") == 0, "{:?}", report.loss);
        let is_known = |found: &offwake_tests::report::Finding| {
            found.text.contains("waits for a file lock") && found.cause.text.contains(&holder)
        };
        ensure!(report.findings.iter().any(is_known), "{owner}: {:?}", report.findings);
    }
    Ok(())
}

/// Nobody serves the faults of that memory, and the kernel waits for nobody on our behalf.
#[test]
fn a_stack_that_somebody_would_have_to_serve_is_not_waited_for() -> Result<()> {
    let silent = Silent::start("root", "served")?;
    let (_said, report) = profile(&silent)?;
    let ledger = report.thread(silent.target)?;
    ensure!(ledger.wall_ns == report.window.duration_ns, "{ledger:?}");
    Ok(())
}

/// Neither the search for a command nor its start waits for ever, and nothing is left of either.
#[test]
fn a_command_that_lies_on_a_silent_file_system_ends_the_start_with_one_line() -> Result<()> {
    let silent = Silent::start("root", "run")?;
    let mount = silent.server.directory();
    let paths = format!("{}:/usr/bin:/bin", mount.display());
    let start = |command: &Path| {
        let offwake = Offwake::profile()?.env("PATH", &paths).args(["-d", "1s", "--"]);
        offwake.arg(command).start()
    };
    // One is looked for there, and the other one is there.
    for command in [Path::new("true"), &mount.join("file")] {
        let outcome = start(command)?.outcome_within(IN_TIME)?;
        eprintln!("{:?}: {}", outcome.ran_for, outcome.stderr);
        outcome.check_failure(1, &["has not answered for 4 s"])?;
        ensure!(outcome.stderr.contains("cannot run `"), "{outcome}");
    }
    Ok(())
}

#[test]
fn a_cgroup_on_a_silent_file_system_ends_the_start_with_one_line() -> Result<()> {
    let silent = Silent::start("root", "run")?;
    let path = silent.server.directory().join("cgroup");
    let offwake = Offwake::profile()?.args(["-d", "1s", "--cgroup"]).arg(&path);
    let outcome = offwake.start()?.outcome_within(IN_TIME)?;
    eprintln!("{:?}: {}", outcome.ran_for, outcome.stderr);
    let words = format!("the cgroup {}: no answer from its file system", path.display());
    outcome.check_failure(1, &[&words])
}

/// An engine's socket is where the caller says, and the caller's own directory is where sessions put it.
#[test]
fn the_socket_of_an_engine_on_a_silent_file_system_is_not_waited_for() -> Result<()> {
    let silent = Silent::start("root", "stack")?;
    let mount = silent.server.directory().display().to_string();
    let socket = format!("unix://{mount}/docker.sock");
    for (variable, value) in [("XDG_RUNTIME_DIR", &mount), ("DOCKER_HOST", &socket)] {
        let offwake = Offwake::profile()?.env(variable, value).args(["--container", "no-such"]);
        let outcome = offwake.start()?.outcome_within(IN_TIME)?;
        eprintln!("{:?}: {}", outcome.ran_for, outcome.stderr);
        let words = format!("no answer from the file system of {mount}");
        outcome.check_failure(1, &[&words])?;
    }
    Ok(())
}

#[test]
fn killed_while_a_file_does_not_answer_it_leaves_nothing_in_the_kernel() -> Result<()> {
    for what in ["stack", "run", "close", "locked", "epoll"] {
        let silent = Silent::start("root", what)?;
        let mut recorder = Offwake::record()?
            .args(["-p", &silent.target.to_string(), "-o", "x.offwake"])
            .start_recording()?;
        // One that reads waits for what never comes, in a state that no signal ends.
        if what == "stack" {
            wait_until("somebody to wait for the file", || {
                let helpers = descendants(recorder.pid())?;
                Ok(helpers.into_iter().find_map(|(pid, name)| {
                    let is_stuck = name == "offwake-reader" && is_in_state(pid, 'D');
                    is_stuck.then_some(pid)
                }))
            })
            .and_then(|reader| {
                let held = KernelObjects::held_by(reader)?;
                ensure!(held.is_empty(), "the process that reads has {held:?}");
                Ok(())
            })?;
        }
        let held = KernelObjects::held_by(recorder.pid())?;
        ensure!(!held.links.is_empty(), "nothing is attached: {held:?}");
        recorder.signal(libc::SIGKILL)?;
        recorder.outcome()?;
        wait_at_most(FREED_IN, "the kernel to free everything", || {
            Ok(held.still_loaded().is_empty().then_some(()))
        })
        .with_context(|| format!("{what}: left {:?}", held.still_loaded()))?;
    }
    Ok(())
}

fn is_in_state(pid: u32, wanted: char) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(wanted))
}

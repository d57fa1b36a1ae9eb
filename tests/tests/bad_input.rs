//! What users get wrong, and what the machine does: one clear line, the right status, nothing left.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::{WINDOW, duration_argument},
    full_disk::{FullDisk, is_device, make_full_device},
    offwake::{Offwake, Outcome},
    paths,
    process::{Process, wait_for_state},
    report::Report,
    workload::Workload,
};

/// What a complaint that comes before the recording may take, on a machine that compiles beside.
/// The runs that it is asked of would record for a minute.
const AT_ONCE: Duration = Duration::from_secs(15);
const A_MINUTE: &str = "60s";

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NOTHING_RECORDED: i32 = 3;

/// Runs `offwake profile` for a minute, if it does not refuse.
fn refused(arguments: &[&str]) -> Result<Outcome> {
    let offwake = Offwake::profile()?.args(["-d", A_MINUTE]);
    let outcome = offwake.args(arguments).start()?.outcome_within(AT_ONCE)?;
    nothing_left(outcome)
}

/// Demands that a failed run leaves no file.
fn nothing_left(outcome: Outcome) -> Result<Outcome> {
    let left: Vec<_> = fs::read_dir(outcome.path("."))?.flatten().map(|e| e.file_name()).collect();
    ensure!(left.is_empty(), "files are left behind: {left:?}");
    Ok(outcome)
}

#[test]
fn a_process_that_does_not_exist() -> Result<()> {
    // Above the kernel's greatest limit (PID_MAX_LIMIT, 4194304).
    refused(&["--pid", "4194305", "-o", "x.json"])?.check_failure(FAILED, &["4194305"])?;
    let mut gone = Process::start("true", &[])?;
    gone.0.wait()?;
    let pid = gone.pid().to_string();
    refused(&["--pid", &pid, "-o", "x.json"])?.check_failure(FAILED, &[&pid])?;
    // One of several is enough.
    let there = Workload::start("sleeper")?;
    let pids = format!("{},4194305", there.pid());
    refused(&["--pid", &pids, "-o", "x.json"])?.check_failure(FAILED, &["4194305"])
}

#[test]
fn a_process_that_is_dead_and_not_yet_gone() -> Result<()> {
    let dead = Process::start("true", &[])?;
    wait_for_state(dead.pid(), 'Z')?;
    let pid = dead.pid().to_string();
    let outcome = refused(&["--pid", &pid, "-o", "x.json"])?;
    let status = outcome.status.code().unwrap_or_default();
    // It exists, and there will never be anything to record of it: either is true.
    ensure!([FAILED, NOTHING_RECORDED].contains(&status), "{outcome}");
    outcome.check_failure(status, &[&pid])
}

/// Whether there was anything to record depends on who was faster; that it ends in order does not.
#[test]
fn a_process_that_dies_at_once() -> Result<()> {
    let dying = Process::start("sleep", &["0.05"])?;
    let pid = dying.pid().to_string();
    let outcome = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-o", "x.json", "--pid", &pid])
        .run()?;
    match outcome.status.code() {
        Some(0) => drop(outcome.report("x.json")?),
        Some(status @ (FAILED | NOTHING_RECORDED)) => {
            outcome.check_failure(status, &[&pid, "recorded", "nothing"])?;
            nothing_left(outcome)?;
        }
        _ => anyhow::bail!("{outcome}"),
    }
    Ok(())
}

#[test]
fn a_process_that_dies_in_the_window_is_reported() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let (pid, sleeper) = (workload.pid().to_string(), workload.role("sleeper")?.tid);
    let running =
        Offwake::profile()?.args(["-d", "3s", "-o", "x.json", "-p", &pid]).start_recording()?;
    workload.stop()?;
    let report = running.outcome()?.report("x.json")?;
    ensure!(report.blocked_ns(sleeper, "timer") > 0, "{:?}", report.threads);
    Ok(())
}

#[test]
fn a_thread_given_as_a_process_is_told_its_process() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let (process, thread) = (workload.pid(), workload.role("sleeper")?.tid);
    let outcome = refused(&["--pid", &thread.to_string(), "-o", "x.json"])?;
    outcome.check_failure(FAILED, &[&thread.to_string()])?;
    outcome.check_failure(FAILED, &[&process.to_string()])
}

#[test]
fn a_thread_that_does_not_exist() -> Result<()> {
    refused(&["--tid", "4194305", "-o", "x.json"])?.check_failure(FAILED, &["4194305"])
}

#[test]
fn a_cgroup_that_is_none() -> Result<()> {
    let plain = paths::scratch_directory()?;
    let plain = plain.path().to_str().context("a path that is no text")?;
    for path in ["/no/such/cgroup", plain, "/etc/passwd", "/proc"] {
        refused(&["--cgroup", path, "-o", "x.json"])?.check_failure(FAILED, &["cgroup"])?;
    }
    Ok(())
}

#[test]
fn a_command_that_can_not_be_run() -> Result<()> {
    let no_program = "offwake-no-such-command";
    refused(&["-o", "x.json", "--", no_program])?.check_failure(FAILED, &[no_program])?;
    refused(&["-o", "x.json", "--", "/etc/passwd"])?.check_failure(FAILED, &["/etc/passwd"])
}

#[test]
fn nobody_is_told_that_root_is_wanted() -> Result<()> {
    // Where the binary is, nobody may not be allowed to go; a copy is where all may.
    let open = tempfile::tempdir()?;
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777))?;
    let copy = open.path().join("offwake");
    fs::copy(paths::offwake_binary()?, &copy)?;
    let outcome = Offwake::in_directory(open.path())?
        .binary(&copy)
        .args(["profile", "-d", A_MINUTE, "-o", "x.json"])
        .as_nobody()
        .start()?
        .outcome_within(AT_ONCE)?;
    outcome.check_failure(FAILED, &["root", "sudo", "privilege", "CAP_BPF"])?;
    ensure!(!outcome.path("x.json").exists(), "a file is left behind");
    Ok(())
}

#[test]
fn an_output_that_can_not_be_written_is_found_before_the_recording() -> Result<()> {
    for path in ["/no/such/directory/x.json", "/proc/x.json", "/etc/passwd/x.svg"] {
        refused(&["-o", path])?.check_failure(FAILED, &[path])?;
        // Also if it is not the first.
        refused(&["-o", "x.svg", "-o", path])?.check_failure(FAILED, &[path])?;
    }
    let directory = paths::scratch_directory()?;
    let path = directory.path().join("directory.json");
    fs::create_dir(&path)?;
    let path = path.to_str().context("a path that is no text")?;
    refused(&["-o", path])?.check_failure(FAILED, &[path])
}

/// The places that the next tests use are as scarce as they say.
#[test]
fn the_scarce_places_are_scarce() -> Result<()> {
    let directory = paths::scratch_directory()?;
    let disk = FullDisk::mount(directory.path())?;
    ensure!(fs::write(directory.path().join("x"), vec![1; 8192]).is_err(), "there is room");
    ensure!(disk.files()? == ["x"], "{:?}", disk.files()?);
    drop(disk);
    ensure!(fs::read_dir(directory.path())?.next().is_none(), "still mounted");
    let device = directory.path().join("full");
    make_full_device(&device)?;
    ensure!(is_device(&device)? && fs::write(&device, "x").is_err(), "it takes what it gets");
    Ok(())
}

#[test]
fn an_output_that_is_full() -> Result<()> {
    let directory = paths::scratch_directory()?;
    let device = directory.path().join("full.json");
    make_full_device(&device)?;
    let path = device.to_str().context("a path that is no text")?;
    let workload = Workload::start("sleeper")?;
    let outcome =
        Offwake::profile()?.args(["-d", "300ms", "-p", &workload.pids(), "-o", path]).run()?;
    outcome.check_failure(FAILED, &[path])?;
    ensure!(is_device(&device)?, "the device was replaced");
    let files = fs::read_dir(directory.path())?.count();
    ensure!(files == 1, "{files} files where there was one");
    Ok(())
}

#[test]
fn a_full_disk_leaves_no_half_written_file() -> Result<()> {
    let directory = paths::scratch_directory()?;
    let disk = FullDisk::mount(directory.path())?;
    let workload = Workload::start("futex-handoff")?;
    for name in ["x.json", "x.svg", "x.folded"] {
        let path = directory.path().join(name);
        let path = path.to_str().context("a path that is no text")?;
        let outcome = Offwake::profile()?.args(["-d", "300ms", "--all", "-o", path]).run()?;
        outcome.check_failure(FAILED, &[name])?;
        ensure!(disk.files()?.is_empty(), "left behind: {:?}", disk.files()?);
    }
    drop(workload);
    Ok(())
}

#[test]
fn an_old_output_is_kept_if_the_new_one_can_not_be_written() -> Result<()> {
    const OLD: &str = "old and whole";
    let directory = paths::scratch_directory()?;
    let disk = FullDisk::mount(directory.path())?;
    let path = directory.path().join("x.json");
    fs::write(&path, OLD)?;
    let name = path.to_str().context("a path that is no text")?;
    Offwake::profile()?
        .args(["-d", "300ms", "--all", "-o", name])
        .run()?
        .check_failure(FAILED, &[name])?;
    ensure!(fs::read_to_string(&path)? == OLD, "the old output is gone");
    ensure!(disk.files()? == ["x.json"], "left behind: {:?}", disk.files()?);
    Ok(())
}

#[test]
fn an_extension_that_stands_for_nothing() -> Result<()> {
    for name in ["x.docx", "x", "x.", ".json.", "x.spans", "x.gz"] {
        refused(&["-o", name])?.check_failure(USAGE, &[name, "extension", "format"])?;
    }
    // Standard output has no extension.
    refused(&["-o", "-"])?.check_failure(USAGE, &["format"])?;
    refused(&["-o", "-", "--format", "docx"])?.check_failure(USAGE, &["docx"])
}

#[test]
fn a_duration_that_is_none() -> Result<()> {
    for duration in ["0", "0s", "0ms", "-1", "-5s", "1y", "ten", "", "1e3s", "nan", "inf", "s"] {
        duration_refused(duration)?;
    }
    // More than 64 bits of nanoseconds, and more than anybody lives.
    for duration in ["99999999999999999999", "18446744073709551615s", "1000000000h"] {
        duration_refused(duration)?;
    }
    Ok(())
}

fn duration_refused(duration: &str) -> Result<()> {
    let outcome = Offwake::profile()?
        .args(["-o", "x.json", &format!("--duration={duration}")])
        .start()?
        .outcome_within(AT_ONCE)?;
    nothing_left(outcome)?.check_failure(USAGE, &["duration", duration])
}

#[test]
fn arguments_that_make_no_sense() -> Result<()> {
    for arguments in [
        &["--pid", "-1"][..],
        &["--pid", "self"],
        &["--pid", ""],
        &["--pid", "1,,2"],
        &["--pid", "99999999999"],
        &["--state", "Q"],
        &["-u", "-k"],
        &["--stacks", "some"],
        &["--pid", "1", "--all"],
        &["--no-such-flag"],
    ] {
        refused(arguments)?.check_failure(USAGE, &["error"])?;
    }
    Ok(())
}

#[test]
fn ctrl_c_and_sigterm_end_in_a_complete_output() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let workload = Workload::start("futex-handoff")?;
        let mut running = Offwake::profile()?
            .args(["-d", A_MINUTE, "-p", &workload.pids()])
            .args(["-o", "x.json", "-o", "x.svg", "-o", "x.folded"])
            .start_recording()?;
        running.signal(signal)?;
        let outcome = running.outcome_within(AT_ONCE)?;
        let report = outcome.report("x.json")?;
        ensure!(report.blocked_ns(workload.role("waiter")?.tid, "futex") > 0);
        ensure!(outcome.text("x.svg")?.trim_end().ends_with("</svg>"), "half a picture");
        ensure!(outcome.text("x.folded")?.ends_with('\n'), "half a line");
    }
    Ok(())
}

#[test]
fn ctrl_c_without_a_duration_ends_it_too() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let running =
        Offwake::profile()?.args(["-p", &workload.pids(), "-o", "x.json"]).start_recording()?;
    let report = running.interrupt()?.report("x.json")?;
    ensure!(report.blocked_ns(workload.role("sleeper")?.tid, "timer") > 0);
    Ok(())
}

#[test]
fn a_second_ctrl_c_leaves_at_once() -> Result<()> {
    let mut running =
        Offwake::profile()?.args(["-d", A_MINUTE, "--all", "-o", "x.json"]).start_recording()?;
    running.signal(libc::SIGINT)?;
    // It may have finished by now, then there is nothing to leave.
    drop(running.signal(libc::SIGINT));
    let outcome = running.outcome_within(AT_ONCE)?;
    ensure!(!outcome.terminal().contains("panicked"), "{outcome}");
    // Whatever it got to: a whole file, or none.
    whole_or_absent(&outcome.path("x.json"))?;
    let left: Vec<_> = fs::read_dir(outcome.path("."))?.flatten().map(|e| e.file_name()).collect();
    ensure!(left.iter().all(|name| name == "x.json"), "left behind: {left:?}");
    Ok(())
}

fn whole_or_absent(path: &Path) -> Result<()> {
    if path.exists() {
        Report::parse(&fs::read_to_string(path)?).context("half a report")?;
    }
    Ok(())
}

#[test]
fn nothing_recorded_is_said_with_its_reason() -> Result<()> {
    // No wait is that long in a window that short.
    let workload = Workload::start("sleeper")?;
    let outcome = Offwake::profile()?
        .args(["-d", "300ms", "-p", &workload.pids(), "-m", "60m", "-o", "x.json"])
        .run()?;
    outcome.check_failure(NOTHING_RECORDED, &["recorded", "nothing", "no wait"])
}

#[test]
fn a_report_on_standard_output_is_nothing_but_the_report() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let outcome = Offwake::profile()?
        .args(["-d", "300ms", "-p", &workload.pids(), "-o", "-", "--format", "json"])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = Report::parse(&outcome.stdout)?;
    offwake_tests::ledger::check(&report)?;
    ensure!(report.blocked_ns(workload.role("waiter")?.tid, "futex") > 0);
    Ok(())
}

/// `offwake … -o - | head -c 0`: who reads may leave at any time.
#[test]
fn a_reader_that_leaves_is_no_panic() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let output = Command::new("sh")
        .args(["-c", r#""$0" profile -d 300ms -p "$1" -o - --format json | true"#])
        .arg(paths::offwake_binary()?)
        .arg(workload.pids())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!said.contains("panicked"), "{said}");
    Ok(())
}

#[test]
fn nothing_stays_mounted() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let mounts = || fs::read_to_string("/proc/self/mounts");
    let before = mounts()?;
    for duration in ["200ms", "0"] {
        drop(
            Offwake::profile()?
                .args(["-d", duration, "-p", &workload.pids(), "-o", "x.json"])
                .run()?,
        );
    }
    // tracefs may have to be mounted for good: it is the one mount that may be new.
    let after = mounts()?;
    let new: Vec<&str> = after
        .lines()
        .filter(|mount| !before.contains(mount) && !mount.contains(" tracefs "))
        .collect();
    ensure!(new.is_empty(), "left mounted: {new:?}");
    Ok(())
}

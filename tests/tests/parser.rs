//! The processes that parse: what they can't do, and what it costs if they fail.

use std::{
    fs,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use offwake_tests::{
    offwake::{NOBODY, Offwake, Outcome, Running},
    process::Process,
    report::Report,
    wait_until::wait_until,
    workload::Workload,
};

/// Names functions.
const PARSER: &str = "offwake-parser";
/// Unwinds stacks.
const UNWINDER: &str = "offwake-unwind";
/// Reads the memory and the files of others.
const READER: &str = "offwake-reader";

/// A program that nothing has run yet while the recording lasts.
fn sleeper() -> Result<Process> {
    Process::start("/usr/bin/sleep", &["1000"])
}

fn status(pid: u32, field: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Finds the child process of this name of a running offwake.
fn find_child(pid: u32, name: &str) -> Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is = |field: &str, value: &str| status(id, field).is_ok_and(|found| found == value);
        if is("Name:", name) && is("PPid:", &pid.to_string()) && !is("State:", "Z (zombie)") {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Sends a signal to a process of offwake.
fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: takes plain integers; its parent, which is stopped by nobody, has not reaped it.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// Kills the child process of this name of a running offwake, and no other that has got its number since.
fn kill_child(offwake: u32, name: &str) -> Result<bool> {
    let Some(id) = find_child(offwake, name)? else { return Ok(false) };
    // SAFETY: takes plain integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    let Ok(descriptor) = i32::try_from(descriptor) else { return Ok(false) };
    if descriptor < 0 {
        return Ok(false);
    }
    // SAFETY: it was just made, and nobody else has it.
    let process = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // The descriptor stands for whoever had the number when it was made.
    if !status(id, "PPid:").is_ok_and(|parent| parent == offwake.to_string()) {
        return Ok(false);
    }
    let (descriptor, none) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: the descriptor is open, and there is no further information.
    let sent =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, descriptor, libc::SIGKILL, none, 0) };
    Ok(sent == 0)
}

/// A flight recorder that has written a snapshot, so that names were looked up.
fn recorder(workload: &Workload, offwake: Offwake) -> Result<(Running, u32)> {
    let mut recorder = offwake
        .args(["--keep", "2s", "-p", &workload.pids(), "-o", "x.offwake"])
        .start_recording()?;
    snapshot(&mut recorder, 1)?;
    let parser =
        find_child(recorder.pid(), PARSER)?.context("names were looked up, and nobody did")?;
    Ok((recorder, parser))
}

fn snapshot(recorder: &mut Running, number: u32) -> Result<()> {
    recorder.signal(libc::SIGUSR1)?;
    let path = recorder.path(&format!("x.{number}.offwake"));
    wait_until("the snapshot", || Ok(path.exists().then_some(())))
}

/// What was waited for has the workload's functions.
fn is_named(report: &Report) -> bool {
    report.waits.iter().any(|waits| waits.has_frame("ow_") || waits.has_frame("main"))
}

fn has_no_rights(parser: u32) -> Result<()> {
    let ids = [NOBODY; 4].map(|id| id.to_string()).join(" ");
    // SAFETY: takes a plain integer.
    let group = unsafe { libc::getpgid(parser.cast_signed()) };
    ensure!(group.cast_unsigned() == parser, "Ctrl-C reaches it: it is in group {group}");
    for (field, expected) in [
        ("Uid:", ids.as_str()),
        ("Gid:", &ids),
        ("CapInh:", "0000000000000000"),
        ("CapPrm:", "0000000000000000"),
        ("CapAmb:", "0000000000000000"),
        ("Threads:", "2"),
    ] {
        let found = status(parser, field)?;
        ensure!(found == expected, "{field} {found}");
    }
    for thread in fs::read_dir(format!("/proc/{parser}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
            ensure!(status.contains(line), "{status}");
        }
    }
    for descriptor in fs::read_dir(format!("/proc/{parser}/fd"))? {
        let descriptor = descriptor?;
        let path = fs::read_link(descriptor.path())?;
        let path = path.to_string_lossy();
        let number = descriptor.file_name();
        let about = fs::read_to_string(format!("/proc/{parser}/fdinfo/{}", number.display()))?;
        let is_copy = path.starts_with("/memfd:module");
        // What it was handed, to read it.
        let is_read = about.lines().any(|line| {
            let flags = line.strip_prefix("flags:").map(str::trim);
            flags
                .and_then(|flags| i32::from_str_radix(flags, 8).ok())
                .is_some_and(|flags| flags & libc::O_ACCMODE == libc::O_RDONLY)
        });
        ensure!(
            path.starts_with("socket:") || path == "/dev/null" || is_read || is_copy,
            "{path} is open"
        );
    }
    ensure!(fs::read(format!("/proc/{parser}/environ"))?.is_empty(), "it has an environment");
    Ok(())
}

#[test]
fn they_have_no_rights_and_nothing_open_but_their_sockets() -> Result<()> {
    let workload = Workload::start("pipe")?;
    for offwake in [Offwake::record()?, Offwake::record()?.called_by_nobody()?] {
        let (recorder, parser) = recorder(&workload, offwake)?;
        let unwinder = find_child(recorder.pid(), UNWINDER)?.context("nobody unwinds")?;
        has_no_rights(parser)?;
        has_no_rights(unwinder)?;
        let (_, report) = recorder.interrupt()?.report_on("x.offwake")?;
        ensure!(is_named(&report), "{:?}", report.waits);
        for (id, name) in [(parser, PARSER), (unwinder, UNWINDER)] {
            wait_until("its end", || {
                Ok(status(id, "Name:").map_or(true, |found| found != name).then_some(()))
            })?;
        }
    }
    Ok(())
}

#[test]
fn stopped_it_costs_the_names_that_it_was_asked_for_and_this_is_said() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let (mut recorder, parser) = recorder(&workload, Offwake::record()?)?;
    signal(parser, libc::SIGSTOP);
    let _sleeping = sleeper()?;
    // Each is a question, until one is about the program that is new.
    let mut number = 1;
    wait_until("its end", || {
        number += 1;
        snapshot(&mut recorder, number)?;
        Ok((find_child(recorder.pid(), PARSER)? != Some(parser)).then_some(()))
    })?;
    let (shown, report) = recorder.interrupt()?.report_on("x.offwake")?;
    ensure!(report.loss_count("parser_silent") == 1, "{:?}", report.loss);
    ensure!(report.loss_count("parser_files_unread") == 1, "{:?}", report.loss);
    ensure!(is_named(&report), "{:?}", report.waits);
    let said = shown.terminal();
    ensure!(said.contains("missing are names of functions of files (1)"), "{said}");
    Ok(())
}

#[test]
fn killed_while_nobody_asks_it_costs_nothing() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let (mut recorder, parser) = recorder(&workload, Offwake::record()?)?;
    signal(parser, libc::SIGKILL);
    let _sleeping = sleeper()?;
    let mut number = 1;
    wait_until("another one", || {
        number += 1;
        snapshot(&mut recorder, number)?;
        Ok(find_child(recorder.pid(), PARSER)?.is_some_and(|now| now != parser).then_some(()))
    })?;
    let (_, report) = recorder.interrupt()?.report_on("x.offwake")?;
    ensure!(report.loss_count("parser_died") == 1, "{:?}", report.loss);
    ensure!(report.loss_count("parser_files_unread") == 0, "{:?}", report.loss);
    ensure!(is_named(&report), "{:?}", report.waits);
    Ok(())
}

/// At whatever moment: while it starts, while it is asked, while it answers, and as the recording ends.
#[test]
fn killed_again_and_again_they_cost_names_and_stacks_alone() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let recorder =
        Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start_recording()?;
    let (offwake, is_over) = (recorder.pid(), AtomicBool::new(false));
    let (killed, recorded) = thread::scope(|scope| {
        let killer = scope.spawn(|| -> Result<usize> {
            let mut killed = 0;
            while !is_over.load(Ordering::Relaxed) {
                for name in [UNWINDER, PARSER, READER] {
                    killed += usize::from(kill_child(offwake, name)?);
                }
            }
            Ok(killed)
        });
        let recorded = record_new_programs(recorder);
        is_over.store(true, Ordering::Relaxed);
        (killer.join(), recorded)
    });
    let killed = killed.map_err(|_panic| anyhow!("who kills died"))??;
    let (shown, report) = recorded?.report_on("x.offwake")?;
    let counted: u64 = ["parser_died", "reader_failed", "parser_not_started"]
        .iter()
        .map(|counter| report.loss_count(counter))
        .sum();
    ensure!(killed > 3 && counted > 3, "killed {killed}: {:?}", report.loss);
    ensure!(shown.terminal().contains("missing are"), "{}", shown.terminal());
    // The waits, and who ended them, are the kernel half's.
    let (client, server) = (workload.role("client")?.tid, workload.role("server")?.tid);
    report.check_only_each_other(client, server, "pipe")
}

/// Has programs start that have stacks and names to be found, and ends the recording.
fn record_new_programs(recorder: Running) -> Result<Outcome> {
    let mut sleeping = Vec::new();
    for _ in 0..3 {
        sleeping.push(sleeper()?);
        recorder.wait_for_slices("x.offwake", 1)?;
    }
    recorder.interrupt()
}

#[test]
fn what_unwinds_is_left_out_as_offwake_is() -> Result<()> {
    for stacks in ["cached", "exact"] {
        let workload = Workload::start("pipe")?;
        let arguments = ["-a", "-d", "1s", "--stacks", stacks, "-o", "x.json"];
        let outcome = Offwake::profile()?.args(arguments).run()?;
        ensure!(outcome.status.success(), "{outcome}");
        let report = outcome.report("x.json")?;
        ensure!(
            report.threads.iter().any(|thread| workload.pids().contains(&thread.tgid.to_string()))
        );
        ensure!(
            report.threads.iter().all(|thread| thread.comm != UNWINDER),
            "{:?}",
            report.threads
        );
    }
    Ok(())
}

#[test]
fn killed_while_nothing_is_to_be_unwound_it_costs_nothing() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let report = without_unwinder(&workload, libc::SIGKILL)?;
    // It may have been at work.
    ensure!(
        report.loss_count("parser_died") == 1 && report.loss_count("parser_stacks_lost") <= 1,
        "{:?}",
        report.loss
    );
    ensure!(is_named(&report), "{:?}", report.waits);
    Ok(())
}

/// The stacks of a question are asked for again, each alone, if there are several.
#[test]
fn stopped_it_costs_no_more_than_the_stack_that_it_was_at_and_this_is_said() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let report = without_unwinder(&workload, libc::SIGSTOP)?;
    ensure!(
        report.loss_count("parser_silent") == 1 && report.loss_count("parser_stacks_lost") <= 1,
        "{:?}",
        report.loss
    );
    ensure!(is_named(&report), "{:?}", report.waits);
    Ok(())
}

/// Records while what unwinds gets this signal, and until there is another one.
fn without_unwinder(workload: &Workload, number: libc::c_int) -> Result<Report> {
    let recorder =
        Offwake::record()?.args(["-p", &workload.pids(), "-o", "x.offwake"]).start_recording()?;
    let unwinder = find_child(recorder.pid(), UNWINDER)?.context("nobody unwinds")?;
    signal(unwinder, number);
    // A stack that is new, and when that was given up another one.
    let mut sleeping = Vec::new();
    let mut began = Instant::now();
    wait_until("another one", || {
        if sleeping.is_empty() || began.elapsed().as_secs() >= 1 {
            began = Instant::now();
            sleeping.push(sleeper()?);
        }
        Ok(find_child(recorder.pid(), UNWINDER)?.is_some_and(|now| now != unwinder).then_some(()))
    })?;
    Ok(recorder.interrupt()?.report_on("x.offwake")?.1)
}

/// Whoever looks at everybody looks for who is at fault, and that is none of these.
#[test]
fn a_recording_of_everybody_has_none_of_offwakes_processes() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let recorder = Offwake::record()?.args(["-a", "-o", "x.offwake"]).start_recording()?;
    recorder.wait_for_slices("x.offwake", 2)?;
    // Those that come instead are started while the programs are attached.
    let killed = [UNWINDER, READER].map(|name| kill_child(recorder.pid(), name));
    for killed in killed {
        ensure!(killed?, "there was none");
    }
    recorder.wait_for_slices("x.offwake", 3)?;
    let own = offwake_tests::process::descendants(recorder.pid())?;
    ensure!(own.len() > 1, "who writes and reads? {own:?}");
    let outcome = recorder.interrupt()?;
    let (_, report) = outcome.report_on("x.offwake")?;
    let is_own = |comm: &str| comm.starts_with("offwake") && !comm.starts_with("offwake-workl");
    let recorded: Vec<_> = (report.threads.iter())
        .filter(|thread| is_own(&thread.comm) || own.contains_key(&thread.tgid))
        .map(|thread| (thread.tgid, &thread.comm))
        .collect();
    ensure!(recorded.is_empty(), "{recorded:?}");
    let waiter = workload.role("waiter")?.tid;
    ensure!(report.threads.iter().any(|thread| thread.tid == waiter), "{:?}", report.threads);
    Ok(())
}

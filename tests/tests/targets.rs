//! What to profile: each way to say it takes in what it ought to, and nothing else.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::{Case, WINDOW, at_least, duration_argument, is_close},
    cgroup::Cgroup,
    ground_truth::{Activity, GroundTruth},
    offwake::{Offwake, Outcome},
    paths,
    process::Process,
    report::Report,
    wait_until::wait_until,
    workload::Workload,
};

/// `offwake profile -d … -o report.json` with more arguments.
fn profile(arguments: &[&str]) -> Result<Outcome> {
    Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-o", "report.json"])
        .args(arguments)
        .run()
}

#[test]
fn a_process_brings_the_children_that_it_forks() -> Result<()> {
    let case = Case::profile("fork-churn")?;
    let parent = case.tid("parent");
    let window = case.window();
    let children: BTreeSet<u32> = case.tied_to("parent");
    let processes = case.report.tgids();
    ensure!(processes.contains(&parent), "the parent is missing");
    let strangers: Vec<_> =
        processes.iter().filter(|tgid| **tgid != parent && !children.contains(tgid)).collect();
    ensure!(strangers.is_empty(), "these are no children of {parent}: {strangers:?}");
    // A child is forked just before the wait for it begins, which may have been before the window
    // for the first of them; the others were born in it.
    let waits =
        case.log("parent").entries_of(Activity::Wait).map(|wait| (wait.interval(), wait.tied_to));
    let inside = waits.filter(|(wait, _)| wait.inside(window)).skip(1);
    let (mut seen, mut lost_sight_of) = (0, 0);
    for (_, child) in inside {
        let ledger = case.report.thread(child)?;
        let slept = case.report.blocked_ns(child, "timer");
        // A kernel that hides a process of its own also hides what happens while that runs: the
        // timer that ends a sleep, say. Then the report says so, and calls it nothing else.
        let lost = ledger.lost_ns();
        ensure!(at_least(slept + lost, 0.9, 5_000_000), "a child sleeps 5 ms: {ledger:?}");
        lost_sight_of += u32::from(lost > 0);
        seen += 1;
    }
    ensure!(lost_sight_of * 20 <= seen, "lost sight of {lost_sight_of} of {seen} children");
    // Some 150 on a machine with nothing else to do.
    ensure!(seen >= 10, "only {seen} children came and went in the window");
    Ok(())
}

#[test]
fn a_process_brings_all_its_threads_and_no_other_process() -> Result<()> {
    let bystander = Workload::start("sleeper")?;
    let case = Case::profile("futex-handoff")?;
    let tids: BTreeSet<u32> = case.report.tids().collect();
    ensure!(tids.contains(&case.tid("waiter")) && tids.contains(&case.tid("worker")));
    ensure!(!tids.contains(&bystander.role("sleeper")?.tid), "a bystander is in: {tids:?}");
    ensure!(case.report.tgids().len() == 1, "several processes: {tids:?}");
    Ok(())
}

/// A machine that starts many processes gives each id again within minutes.
#[test]
fn whoever_gets_the_id_of_a_target_that_ended_is_none() -> Result<()> {
    const LAST_ID: &str = "/proc/sys/kernel/ns_last_pid";
    let mut target = Process::start("sleep", &["1000"])?;
    let pid = target.pid();
    let recorder =
        Offwake::record()?.args(["-p", &pid.to_string(), "-o", "x.offwake"]).start_recording()?;
    target.end()?;
    let mut stranger = wait_until("the id to be given again", || {
        fs::write(LAST_ID, (pid - 1).to_string())?;
        // It waits for ever: nobody writes.
        let next = Process::start("cat", &[])?;
        Ok((next.pid() == pid).then_some(next))
    })?;
    recorder.wait_for_slices("x.offwake", 2)?;
    stranger.end()?;
    let (_, report) = recorder.interrupt()?.report_on("x.offwake")?;
    let comms: Vec<&str> = report.threads.iter().map(|thread| thread.comm.as_str()).collect();
    ensure!(comms == ["sleep"], "{:?}", report.threads);
    ensure!(report.threads[0].wall_ns < report.window.duration_ns, "{:?}", report.threads);
    Ok(())
}

#[test]
fn several_processes_are_the_target_together() -> Result<()> {
    let workload = Workload::start("unix-socket")?;
    let bystander = Workload::start("sleeper")?;
    let (client, server) = (workload.role("client")?.pid, workload.role("server")?.pid);
    for list in [vec!["-p".to_owned(), format!("{client},{server}")], {
        let pid = |pid: u32| ["-p".to_owned(), pid.to_string()];
        [pid(client), pid(server)].concat()
    }] {
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let report = profile(&list)?.report("report.json")?;
        ensure!(report.tgids() == BTreeSet::from([client, server]), "{list:?}: {report:?}");
    }
    drop(bystander);
    Ok(())
}

#[test]
fn a_thread_is_the_target_alone() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let (waiter, worker) = (workload.role("waiter")?.tid, workload.role("worker")?.tid);
    let one = profile(&["--tid", &waiter.to_string()])?.report("report.json")?;
    ensure!(one.tids().eq([waiter]), "{:?}", one.threads);
    let both = profile(&["--tid", &format!("{waiter},{worker}")])?.report("report.json")?;
    let tids: BTreeSet<u32> = both.tids().collect();
    ensure!(tids == BTreeSet::from([waiter, worker]), "{tids:?}");
    Ok(())
}

#[test]
fn a_cgroup_brings_its_subtree_and_nothing_else() -> Result<()> {
    // Dropped in the opposite order: the processes go first, then the inner group, then the outer.
    let outer = Cgroup::new("subtree")?;
    let inner = outer.child("inner")?;
    let beside = Cgroup::new("beside")?;
    let in_outer = Workload::start("sleeper")?;
    let in_inner = Workload::start("futex-handoff")?;
    let outside = Workload::start("condvar")?;
    outer.adopt(in_outer.pid())?;
    inner.adopt(in_inner.pid())?;
    beside.adopt(outside.pid())?;
    let cgroup = outer.path().to_str().context("a path that is no text")?;
    let outcome = profile(&["--cgroup", cgroup])?;
    let report = outcome.report("report.json")?;
    let wanted = BTreeSet::from([in_outer.pid(), in_inner.pid()]);
    ensure!(report.tgids() == wanted, "{wanted:?}, got {:?}", report.threads);
    drop(outside);
    drop(in_outer);
    let case = Case::from_outcome(in_inner, outcome, "report.json")?;
    case.check_blocked_on("waiter", "futex")?;
    case.check_woken_by("waiter", "futex", &BTreeSet::from([case.tid("worker")]))
}

#[test]
fn all_is_everybody_and_the_default() -> Result<()> {
    for arguments in [&["--all"][..], &["-a"], &[]] {
        let workload = Workload::start("futex-handoff")?;
        let outcome = profile(arguments)?;
        let case = Case::from_outcome(workload, outcome, "report.json")?;
        case.check_woken_by("waiter", "futex", &BTreeSet::from([case.tid("worker")]))?;
        let kernel = case.report.threads.iter().any(|thread| is_kernel_threads_name(&thread.comm));
        ensure!(kernel, "{arguments:?}: no kernel thread is in the report");
        ensure!(case.report.tgids().len() > 2, "{arguments:?}: hardly anybody is in the report");
    }
    Ok(())
}

#[test]
fn the_profiler_leaves_itself_out() -> Result<()> {
    let running = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-o", "report.json", "--all"])
        .start()?;
    let itself = running.pid();
    let report = running.outcome()?.report("report.json")?;
    ensure!(!report.tgids().contains(&itself), "the profiler profiled itself");
    Ok(())
}

/// The command sleeps 30 ms with its first breath: that wait is in the report.
#[test]
fn the_first_wait_of_a_command_is_not_missed() -> Result<()> {
    let offwake = Offwake::profile()?.args(["-o", "report.json", "--"]);
    let truth_path = offwake.directory().join("truth.json");
    let outcome = offwake
        .arg(paths::workload_binary()?)
        .args(["first-wait".as_ref(), truth_path.as_os_str()]);
    // No duration: the command's end is the end.
    let outcome = outcome.run()?;
    let report = outcome.report_of_command(7, "report.json")?;
    let truth: GroundTruth = serde_json::from_slice(&fs::read(&truth_path)?)?;
    let wait = truth.roles["command"].entries[0];
    ensure!(wait.interval().inside(report.interval()), "{wait:?} is not in {:?}", report.window);
    let command = report.threads.iter().find(|thread| thread.comm == "ow-command");
    let command = command.with_context(|| format!("no command: {:?}", report.threads))?;
    let slept = report.blocked_ns(command.tid, "timer");
    // One wait of 30 ms and no other: within the 20 ms of the other tests it would prove little.
    let limit = wait.interval().length_ns();
    ensure!(slept >= 29_000_000 && slept <= limit, "slept for {slept} of {limit}: {command:?}");
    ensure!(report.tgids() == BTreeSet::from([command.tgid]), "{:?}", report.threads);
    // Nor are its first instructions: they are a part of its time on the CPU.
    ensure!(command.on_cpu_ns > 0, "{command:?}");
    Ok(())
}

/// `-p PID -- sleep 0.5`, as with perf.
#[test]
fn a_command_beside_a_target_says_how_long() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let report = Offwake::profile()?
        .args(["-p", &workload.pids(), "-o", "report.json", "--", "sleep", "0.5"])
        .run()?
        .report("report.json")?;
    ensure!(report.meta.closed_by == "command", "{:?}", report.meta);
    ensure!(report.window.duration_ns >= 490_000_000, "{:?}", report.window);
    ensure!(report.threads.iter().all(|thread| thread.comm != "sleep"), "{:?}", report.threads);
    ensure!(report.blocked_ns(workload.role("sleeper")?.tid, "timer") > 0, "{:?}", report.threads);
    Ok(())
}

/// As shells do: 128 and the number of the signal that ended it.
#[test]
fn a_commands_exit_status_is_passed_on() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    for (script, status) in [("sleep 0.1", 0), ("sleep 0.1; exit 3", 3), ("kill -KILL $$", 137)] {
        let outcome =
            Offwake::profile()?.args(["-o", "report.json", "--", "sh", "-c", script]).run()?;
        let report = outcome.report_of_command(status, "report.json")?;
        ensure!(report.meta.closed_by == "command", "{:?}", report.meta);
        let says = outcome.stderr.contains("the command sh");
        ensure!(says == (status != 0), "{outcome}");
    }
    let beside = ["-p", &workload.pids(), "-o", "x.offwake", "--", "sh", "-c", "exit 4"];
    let outcome = Offwake::record()?.args(beside).run()?;
    ensure!(outcome.status.code() == Some(4), "{outcome}");
    ensure!(outcome.report_of("x.offwake", &[])?.status.success(), "{outcome}");
    // offwake's own failure comes first, and so does an end that is not the command's own.
    let outcome = Offwake::profile()?
        .args(["-o", "/proc/nowhere/x.json", "--", "sh", "-c", "exit 7"])
        .run()?;
    ensure!(outcome.status.code() == Some(1), "{outcome}");
    let outcome =
        Offwake::record()?.args(["-d", "200ms", "-o", "x.offwake", "--", "sleep", "100"]).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    Ok(())
}

/// It computes from before the window to after it: nothing to wait for, and much to report.
#[test]
fn a_target_that_only_computes_is_reported() -> Result<()> {
    let spinner = Process::start("sh", &["-c", "while :; do :; done"])?;
    let pid = spinner.pid().to_string();
    let report = profile(&["-p", &pid])?.report("report.json")?;
    let thread = report.thread(spinner.pid())?;
    ensure!(thread.on_cpu_ns > 0 && report.waits.is_empty(), "{report:?}");
    let outcome = Offwake::record()?.args(["-p", &pid, "-d", "300ms", "-o", "x.offwake"]).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    Ok(())
}

#[test]
fn a_command_that_outlives_the_duration_does_not_outlive_offwake() -> Result<()> {
    let marker = format!("{}.125", 1000 + std::process::id() % 1000);
    let outcome = Offwake::profile()?
        .args(["-d", "300ms", "-o", "report.json", "--", "sleep", &marker])
        .run()?;
    let report = outcome.report("report.json")?;
    ensure!(report.threads.iter().any(|thread| thread.comm == "sleep"), "{:?}", report.threads);
    for process in fs::read_dir("/proc")?.flatten() {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let left = command.split(|&byte| byte == 0).any(|word| word == marker.as_bytes());
        if left {
            let pid = process.file_name().to_string_lossy().parse()?;
            // SAFETY: takes plain integers. The marker says that it is ours.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            anyhow::bail!("the command is left behind: {:?}", process.path());
        }
    }
    Ok(())
}

#[test]
fn a_shortest_and_a_longest_wait_keep_what_lies_between() -> Result<()> {
    // Waits of 2 ms and of 20 ms by turns.
    let workload = Workload::start("short-and-long-sleeps")?;
    let (pids, sleeper) = (workload.pids(), workload.role("sleeper")?.tid);
    let sleeps = |report: &Report| -> (u64, u64) {
        report.waits_of(sleeper, Some("timer")).fold((0, 0), |(count, blocked), waits| {
            (count + waits.count, blocked + waits.blocked_ns)
        })
    };
    let long = profile(&["-p", &pids, "-m", "10ms"])?.report("report.json")?;
    let (count, blocked) = sleeps(&long);
    ensure!(count > 0, "the long waits are gone");
    // Of 20 ms, but for the two that the window cuts; with the short ones it would be 11.
    ensure!(blocked / count >= 19_000_000, "{count} waits of {blocked} ns: short ones too");
    let short = profile(&["-p", &pids, "-M", "10ms"])?.report("report.json")?;
    let (count, blocked) = sleeps(&short);
    ensure!(count > 0, "the short waits are gone");
    ensure!(blocked / count < 10_000_000, "{count} waits of {blocked} ns: long ones too");
    let none = profile(&["-p", &pids, "-m", "10s"])?;
    none.check_failure(3, &["recorded", "nothing", "no wait"])
}

#[test]
fn kernel_and_user_threads_can_be_kept_apart() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let waiter = workload.role("waiter")?.tid;
    let waiting = |report: &Report| -> BTreeSet<(u32, String)> {
        report.waits.iter().map(|waits| (waits.tid, waits.comm.clone())).collect()
    };
    let kernel = waiting(&profile(&["--all", "-k"])?.report("report.json")?);
    ensure!(!kernel.is_empty(), "no kernel thread waited for a second");
    ensure!(!kernel.iter().any(|(tid, _)| *tid == waiter), "-k keeps a user thread");
    let user = waiting(&profile(&["--all", "-u"])?.report("report.json")?);
    ensure!(user.iter().any(|(tid, _)| *tid == waiter), "-u lost a user thread");
    let kernels = user.iter().find(|(_, comm)| is_kernel_threads_name(comm));
    ensure!(kernels.is_none(), "-u keeps {kernels:?}");
    Ok(())
}

#[test]
fn a_state_keeps_the_waits_in_it() -> Result<()> {
    // One thread in D (the disk), the other computing.
    let workload = Workload::start("fsync")?;
    let (pids, writer) = (workload.pids(), workload.role("writer")?.tid);
    let disk = profile(&["-p", &pids, "--state", "D"])?.report("report.json")?;
    ensure!(disk.blocked_ns(writer, "disk") > 0, "no waits for the disk: {:?}", disk.waits);
    drop(workload);
    // Nobody in D here.
    let workload = Workload::start("sleeper")?;
    let (pids, sleeper) = (workload.pids(), workload.role("sleeper")?.tid);
    let asleep = profile(&["-p", &pids, "--state", "S"])?;
    let case = Case::from_outcome(workload, asleep, "report.json")?;
    let (slept, truth) = (case.report.blocked_ns(sleeper, "timer"), case.waited_ns("sleeper"));
    let runnable = case.report.thread(sleeper)?.runnable_ns;
    ensure!(is_close(slept + runnable, truth), "{slept} and {runnable} of {truth} ns");
    let workload = Workload::start("sleeper")?;
    profile(&["-p", &workload.pids(), "--state", "D"])?
        .check_failure(3, &["recorded", "nothing", "no wait"])
}

/// Names that only kernel threads have on a machine in its right mind.
fn is_kernel_threads_name(comm: &str) -> bool {
    ["kworker/", "rcu_", "ksoftirqd/", "migration/"].iter().any(|name| comm.starts_with(name))
}

//! Loss that is forced: it is counted, dated and said, and what is left is still true.

use std::{collections::BTreeSet, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{Case, WINDOW, duration_argument},
    loop_disk::LoopDisk,
    offwake::{Offwake, Outcome},
    paths,
    process::Process,
    programs,
    report::{Finding, Report, Waits},
    workload::Workload,
};

/// Makes each of the kernel half's rings this small. A wait's record has 280 bytes and a header of 8,
/// so a page holds fourteen.
const TINY_RINGS: [&str; 2] = ["--ring-size", "4096"];

fn profile(workload: &Workload, arguments: &[&str]) -> Result<Outcome> {
    Offwake::profile()?
        .args(["-v", "-d", &duration_argument(WINDOW), "-p", &workload.pids(), "-o", "x.json"])
        .args(arguments)
        .run()
}

/// Demands that the summary speaks of loss exactly if there was any.
fn check_summary(report: &Report, outcome: &Outcome) -> Result<()> {
    let text = outcome.terminal();
    let loss = &report.loss;
    let nothing = text.contains("lost: nothing");
    let any = loss.records > 0 || loss.stacks > 0 || loss.gaps > 0;
    ensure!(any != nothing, "{loss:?}, and the summary says: {text}");
    let count = format!("{} records", loss.records);
    ensure!(loss.records == 0 || text.contains(&count), "{loss:?}, and the summary says: {text}");
    Ok(())
}

/// Two processes that switch as fast as they can fill fourteen records in less than a millisecond.
#[test]
fn a_ring_that_is_full_is_counted_and_dated() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let outcome = profile(&workload, &TINY_RINGS)?;
    // Its ledgers close: `report` sees to it.
    let report = outcome.report("x.json")?;
    let loss = &report.loss;
    ensure!(loss.records > 0, "nothing was lost, this proves nothing: {loss:?}");
    ensure!(loss.gaps > 0 && loss.gap_ns > 0, "lost, and no gap: {loss:?}");
    ensure!(loss.counters.keys().any(|name| name.starts_with("ring_full")), "{loss:?}");
    check_summary(&report, &outcome)?;
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    for tid in [ping, pong] {
        let ledger = report.thread(tid)?;
        ensure!(ledger.wall_ns == report.window.duration_ns, "{ledger:?}");
    }
    report.check_only_each_other(ping, pong, "pipe")
}

/// No copy of a user stack fits into a page. The waits are all there, with who ended them.
#[test]
fn a_ring_of_copies_that_is_full_costs_stacks_and_nothing_else() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let outcome = profile(&workload, &["--copy-ring-size", "4096"])?;
    let report = outcome.report("x.json")?;
    let loss = &report.loss;
    let lost = report.loss_count("ring_full_copy");
    ensure!(lost > 0 && loss.stacks >= lost && loss.records == 0, "{loss:?}");
    check_summary(&report, &outcome)?;
    let (client, server) = (workload.role("client")?.tid, workload.role("server")?.tid);
    let failed = |waits: &&Waits| waits.stack.iter().any(|frame| frame == "[user stack failed]");
    let is_own = |waits: &&Waits| waits.tid == client && waits.cause == "pipe";
    let own: Vec<_> = report.waits.iter().filter(is_own).collect();
    ensure!(!own.is_empty() && own.iter().all(failed), "{own:?}");
    report.check_only_each_other(client, server, "pipe")
}

/// Each wait of two processes that switch as fast as they can is copied here, which is more than can be
/// unwound. Copies are left out before the ring is full, by chance: both processes have stacks, and both
/// lack some. All of their waits are there.
#[test]
fn stacks_that_can_not_be_unwound_in_time_are_left_out_of_all_threads_alike() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let ring = ["--stacks", "exact", "--budget", "none", "--copy-ring-size", "1M"];
    let outcome = profile(&workload, &ring)?;
    let report = outcome.report("x.json")?;
    let thinned_out = report.meta.stack_counts.thinned_out;
    ensure!(thinned_out > 0, "nothing was left out: {:?}", report.meta.stack_counts);
    ensure!(report.loss_count("ring_full_copy") == 0, "{:?}", report.loss);
    let line = format!("{thinned_out} user stacks were not taken, of all threads alike");
    ensure!(outcome.terminal().contains(&line), "no {line:?}: {}", outcome.terminal());
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    let has_failed = |waits: &&Waits| waits.stack.iter().any(|f| f == "[user stack failed]");
    for tid in [ping, pong] {
        let own: Vec<_> = report.waits.iter().filter(|waits| waits.tid == tid).collect();
        let failed: u64 = own.iter().copied().filter(has_failed).map(|waits| waits.count).sum();
        let all: u64 = own.iter().map(|waits| waits.count).sum();
        ensure!(0 < failed && failed < all, "of {all} waits of {tid}, {failed} have no stack");
    }
    report.check_only_each_other(ping, pong, "pipe")
}

/// A database with eight clients, and 400 threads in groups that send each other bytes, are more than two
/// CPUs have time for, and new threads are when most stacks are copied: none is in the cache.
#[test]
fn beside_a_database_and_400_threads_that_talk_nothing_is_lost() -> Result<()> {
    const BEGINNINGS: u32 = 3;
    let postgres = programs::postgres()?;
    let host = postgres.directory().display().to_string();
    let server = ["-h", &host, "-U", "postgres", "postgres"];
    let fill = Command::new("pgbench").args(["-i", "-q", "-s", "4"]).args(server).output()?;
    ensure!(fill.status.success(), "{fill:?}");
    let running = Offwake::record()?.args(["-a", "-o", "x.offwake"]).start_recording()?;
    let mut clients =
        Process::start("pgbench", &[&["-c", "8", "-T", "600"], &server[..]].concat())?;
    for _ in 0..BEGINNINGS {
        let mut talk = Command::new("perf");
        talk.args(["bench", "sched", "messaging", "-t", "-g", "10", "-l", "100"]);
        let talk = talk.output().context("cannot run perf")?;
        ensure!(talk.status.success(), "{talk:?}");
    }
    clients.end()?;
    // The ledgers close: `report_on` sees to it.
    let (_, report) = running.interrupt()?.report_on("x.offwake")?;
    let loss = &report.loss;
    ensure!(loss.records == 0 && loss.gaps == 0, "{loss:?}");
    ensure!(report.loss_count("ring_full_copy") == 0, "{loss:?}");
    Ok(())
}

/// The same load with rings as they are made: whatever is lost is said, and the rest is true.
#[test]
fn a_flood_is_survived() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let outcome = profile(&workload, &[])?;
    let report = outcome.report("x.json")?;
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    report.check_only_each_other(ping, pong, "pipe")?;
    check_summary(&report, &outcome)
}

/// Demands that client and server are known to wait for each other.
fn check_wakers_of_the_pipe(case: &Case) -> Result<()> {
    for (waiter, waker) in [("client", "server"), ("server", "client")] {
        case.check_cause(waiter, "pipe")?;
        case.check_woken_by(waiter, "pipe", &BTreeSet::from([case.tid(waker)]))?;
    }
    case.check_blocked_on("client", "pipe")
}

#[test]
fn without_task_storage_a_map_stands_in() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let outcome = profile(&workload, &["--stand-in", "8192"])?;
    let case = Case::from_outcome(workload, outcome, "x.json")?;
    ensure!(case.report.loss.records == 0, "{:?}", case.report.loss);
    check_wakers_of_the_pipe(&case)
}

/// The map that stands in has room for two threads of the whole machine.
#[test]
fn a_stand_in_that_is_full_is_counted() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let outcome = profile(&workload, &["--stand-in", "2"])?;
    // Nothing may be left to show; if there is, it is true.
    if outcome.status.code() == Some(3) {
        return outcome.check_failure(3, &["recorded"]);
    }
    let report = outcome.report("x.json")?;
    let full = report.loss_count("stand_in_full");
    ensure!(full > 0, "nothing was lost, this proves nothing: {:?}", report.loss);
    report.check_only_each_other(workload.role("ping")?.tid, workload.role("pong")?.tid, "pipe")
}

/// There is room for no thread but the target's: those are recorded whole, the others counted.
#[test]
fn threads_beyond_their_number_are_left_out_and_counted() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let outcome = profile(&workload, &["--max-threads", "1"])?;
    let case = Case::from_outcome(workload, outcome, "x.json")?;
    let full = case.report.loss_count("threads_full");
    ensure!(full > 0, "no thread was left out, this proves nothing: {:?}", case.report.loss);
    let said = case.outcome.terminal();
    ensure!(said.contains("(--max-threads)"), "{said}");
    check_wakers_of_the_pipe(&case)
}

/// Of the whole machine, too, only so many threads are recorded, and what is recorded is true.
#[test]
fn only_so_many_threads_of_the_whole_machine_are_recorded() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let outcome = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "--all", "--max-threads", "20", "-o", "x.json"])
        .run()?;
    let report = outcome.report("x.json")?;
    workload.stop()?;
    let full = report.loss_count("threads_full");
    ensure!(full > 0, "no thread was left out, this proves nothing: {:?}", report.loss);
    let with_waits: BTreeSet<_> = report.waits.iter().map(|waits| waits.tid).collect();
    // One that ends makes room for another.
    let is_there_all_along =
        |tid: &&u32| report.thread(**tid).is_ok_and(|t| t.wall_ns == report.window.duration_ns);
    let all_along = with_waits.iter().filter(is_there_all_along).count();
    ensure!(!with_waits.is_empty() && all_along <= 20, "{with_waits:?}");
    Ok(())
}

/// There is room for one process in the target; each child that it forks is one too many.
#[test]
fn children_that_are_not_followed_are_counted() -> Result<()> {
    let workload = Workload::start("fork-churn")?;
    let outcome = profile(&workload, &["--max-targets", "1"])?;
    let report = outcome.report("x.json")?;
    let full = report.loss_count("targets_full");
    ensure!(full > 0, "no child was left out, this proves nothing: {:?}", report.loss);
    let said = outcome.terminal();
    ensure!(
        said.contains(&format!("{full} processes")) && said.contains("--max-targets"),
        "{said}"
    );
    report.thread(workload.role("parent")?.tid)?;
    Ok(())
}

/// There is room for what 4,096 processes do with a disk; more come, one after the other. Those that wait
/// for the disk are told all the same.
#[test]
fn processes_that_used_a_disk_and_are_forgotten_are_counted() -> Result<()> {
    let scratch = paths::scratch_directory()?;
    let mount_point = scratch.path().join("disk");
    let disk = LoopDisk::make(Path::new("/dev/shm"), &mount_point)?;
    let workload = Workload::start_with("beside-many-readers", |directory| {
        Ok(std::os::unix::fs::symlink(&mount_point, directory.join("waiter"))?)
    })?;
    let waiter = workload.role("waiter")?.pid.to_string();
    let arguments = ["-d", "10s", "-p", &waiter, "-o", "x.json"];
    let outcome = Offwake::profile()?.args(arguments).run()?;
    drop((workload, disk));
    let report = outcome.report("x.json")?;
    let evicted = report.loss_count("disk_users_evicted");
    ensure!(evicted > 0, "none was forgotten, this proves nothing: {:?}", report.loss);
    println!("| {evicted} processes were forgotten |");
    let waits = |finding: &Finding| finding.text.contains("waits for the disk loop");
    ensure!(report.findings.iter().any(waits), "{:#?}", report.findings);
    Ok(())
}

/// There is room for eight processes; many more come, one after the other.
#[test]
fn a_process_that_has_ended_takes_up_no_room_in_the_target() -> Result<()> {
    let workload = Workload::start("fork-churn")?;
    let parent = workload.role("parent")?.tid;
    let outcome = profile(&workload, &["--max-targets", "8"])?;
    let report = outcome.report("x.json")?;
    let children = report.threads.iter().filter(|thread| thread.tid != parent).count();
    ensure!(children > 16, "only {children} children came, this proves nothing");
    ensure!(report.loss_count("targets_full") == 0, "{:?}", report.loss);
    Ok(())
}

/// Each kind of record finds its ring full at least once, and has a counter of its own.
#[test]
fn every_kind_of_record_that_is_lost_is_counted() -> Result<()> {
    const KINDS: [&str; 6] = [
        "ring_full_wait",
        "ring_full_preemption",
        "ring_full_thread",
        "ring_full_exit",
        "ring_full_sample",
        "ring_full_stack",
    ];
    // Switches without end fill the rings; the others make records of the rarer kinds meanwhile.
    let _flood = Workload::start("ping-pong")?;
    let _forks = Workload::start("fork-churn")?;
    let _spinners = Workload::start("two-spinners")?;
    let outcome = Offwake::profile()?
        .args(["-d", "3s", "--all", "--sample", "5000", "-o", "x.json"])
        .args(TINY_RINGS)
        .run()?;
    let report = outcome.report("x.json")?;
    for kind in KINDS {
        let count = report.loss_count(kind);
        ensure!(count > 0, "no {kind}: {:?}", report.loss);
    }
    check_summary(&report, &outcome)
}

/// A minute was asked for; the memory is used up long before.
#[test]
fn memory_that_is_used_up_closes_the_window() -> Result<()> {
    let workload = Workload::start("ping-pong")?;
    let (ping, pong) = (workload.role("ping")?.tid, workload.role("pong")?.tid);
    let outcome = Offwake::profile()?
        .args(["-d", "60s", "-p", &workload.pids(), "-o", "x.json", "--max-memory", "8M"])
        .start()?
        .outcome_within(Duration::from_secs(20))?;
    let report = outcome.report("x.json")?;
    ensure!(report.meta.closed_by == "memory", "{:?}", report.meta);
    ensure!(outcome.terminal().contains("--max-memory"), "the summary does not say so");
    report.check_only_each_other(ping, pong, "pipe")
}

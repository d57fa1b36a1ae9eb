//! The death of any of offwake's own threads ends the run at once, or costs what that thread alone brings: by
//! a panic that offwake injects where `OFFWAKE_TEST_PANIC` says so.

use std::{
    fs, panic,
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use offwake::own_threads::{DeathCost, OwnThread};
use offwake_tests::{
    docker::Engine,
    machine_lock::MachineLock,
    offwake::{Offwake, Outcome},
    paths,
    report::Report,
    wait_until::wait_until,
    workload::Workload,
};

/// Who has lost a thread without which there is nothing to record ends by itself, long before this.
const AT_ONCE: Duration = Duration::from_secs(40);

/// What has such a thread at work.
enum Scenario {
    /// Recording a workload. The panic comes when the thread has done so often what it does, or as it begins.
    Workload { name: &'static str, passes: u64, arguments: &'static [&'static str] },
    /// Recording a container.
    Container { arguments: &'static [&'static str] },
    /// None of `record`.
    Elsewhere(&'static str),
}

const fn recording(passes: u64) -> Scenario {
    Scenario::Workload { name: "futex-handoff", passes, arguments: &[] }
}

fn scenario(thread: OwnThread) -> Scenario {
    match thread {
        // Every 20 ms.
        OwnThread::Main => recording(150),
        OwnThread::Load
        | OwnThread::Finish
        | OwnThread::BuildIds
        | OwnThread::Print
        | OwnThread::TagSymbols => recording(0),
        OwnThread::Sync => recording(0),
        // Every 10 ms, the time before the window included.
        OwnThread::Drain => recording(500),
        // As often as it is asked something, and every few milliseconds.
        OwnThread::LookUp => recording(1000),
        // With every second, and with what was looked up.
        OwnThread::Store => recording(10),
        OwnThread::LockOwners => {
            Scenario::Workload { name: "mutex-held-by-left", passes: 0, arguments: &[] }
        }
        OwnThread::PolledFiles => {
            Scenario::Workload { name: "polled-left-hangs", passes: 0, arguments: &[] }
        }
        OwnThread::NetNamespace => {
            Scenario::Workload { name: "between-namespaces", passes: 0, arguments: &[] }
        }
        OwnThread::Write => {
            Scenario::Workload { name: "futex-handoff", passes: 0, arguments: &["--keep", "5s"] }
        }
        OwnThread::ContainerNames => Scenario::Container { arguments: &[] },
        OwnThread::Follow => Scenario::Container { arguments: &["--follow"] },
        OwnThread::View | OwnThread::ViewNames | OwnThread::Session => Scenario::Elsewhere("top"),
    }
}

/// Records until offwake ends by itself, or for two seconds if it loses nothing but a part.
fn record(thread: OwnThread, passes: u64, arguments: &[&str]) -> Result<Outcome> {
    let panics = match passes {
        0 => thread.name().to_owned(),
        passes => format!("{}:{passes}", thread.name()),
    };
    let mut offwake = Offwake::record()?
        .env("OFFWAKE_TEST_PANIC", &panics)
        .args(["-o", "x.offwake"])
        .args(arguments);
    // Who has to end by itself gets no end from elsewhere.
    if matches!(thread.death_cost(), DeathCost::Part(_)) || thread == OwnThread::Finish {
        offwake = offwake.args(["-d", "2s"]);
    }
    offwake.start()?.outcome_within(AT_ONCE)
}

/// Demands what the death of a thread may cost, and returns what is left of the recording.
fn check(thread: OwnThread, outcome: &Outcome) -> Result<Option<Report>> {
    let said = &outcome.stderr;
    // A helper process has no standard error.
    let is_told = thread == OwnThread::Sync || said.contains("OFFWAKE_TEST_PANIC wants it");
    ensure!(is_told, "there was no such thread: {outcome}");
    match thread.death_cost() {
        DeathCost::Part(cost) => {
            let words = format!("offwake's own thread {} failed: {cost}", thread.name());
            ensure!(outcome.status.success() && said.contains(&words), "{outcome}");
            let report = report(outcome)?;
            ensure!(report.recording.is_whole(), "{:?}", report.recording);
            // The look-up thread counts, and some die only afterwards.
            if !matches!(thread, OwnThread::Sync) {
                ensure!(report.loss_count("own_threads_failed") == 1, "{:?}", report.loss);
                let summary = outcome.report_of("x.offwake", &[])?.stdout;
                let words = format!("offwake's thread {} died: {cost}", thread.name());
                ensure!(summary.contains(&words), "{summary}");
            }
            Ok(Some(report))
        }
        DeathCost::Run => {
            ensure!(!outcome.status.success(), "{outcome}");
            // The first thread is all that could say more than its panic.
            if thread != OwnThread::Main {
                let words = match thread {
                    // It is gone with what it had to write.
                    OwnThread::Write => "the thread that writes snapshots has died".to_owned(),
                    _ => format!("offwake's own thread {} failed", thread.name()),
                };
                ensure!(said.contains(&words), "{outcome}");
            }
            // Nothing was recorded before.
            if matches!(thread, OwnThread::Load | OwnThread::Follow | OwnThread::Write) {
                return Ok(None);
            }
            report(outcome).map(Some)
        }
    }
}

fn report(outcome: &Outcome) -> Result<Report> {
    outcome.report_of("x.offwake", &["-o", "x.json", "--full"])?.report("x.json")
}

/// Recordings at a time: each mostly waits until its thread has done so often what it does.
const AT_A_TIME: usize = 4;

#[test]
fn the_death_of_any_thread_ends_the_run_or_costs_what_it_alone_brings() -> Result<()> {
    let remaining = Mutex::new(OwnThread::ALL.into_iter());
    let kill_some = || -> Result<()> {
        let _shared = MachineLock::acquire_shared()?;
        loop {
            let next = remaining.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(thread) = next else { return Ok(()) };
            let Scenario::Workload { name, passes, arguments } = scenario(thread) else { continue };
            kill_beside_workload(thread, name, passes, arguments)
                .with_context(|| format!("{thread:?}"))?;
        }
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(kill_some)).collect();
        running.into_iter().try_for_each(|one| match one.join() {
            Ok(result) => result,
            Err(panic) => panic::resume_unwind(panic),
        })
    })
}

fn kill_beside_workload(
    thread: OwnThread,
    workload: &str,
    passes: u64,
    arguments: &[&str],
) -> Result<()> {
    let workload = Workload::start(workload)?;
    let pids = workload.pids();
    let outcome = record(thread, passes, &[&["-p", pids.as_str()], arguments].concat())?;
    eprintln!("{thread:?} after {:?}: {}", outcome.ran_for, outcome.stderr);
    if let Some(report) = check(thread, &outcome)? {
        ensure!(report.window.duration_ns > 300_000_000, "{:?}", report.window);
        let blocked: u64 = report.threads.iter().map(|thread| thread.blocked_ns).sum();
        ensure!(blocked > 0, "the waits are gone: {outcome}");
    }
    Ok(())
}

#[test]
fn the_death_of_a_thread_for_containers_ends_the_run_or_costs_their_names() -> Result<()> {
    let engine = Engine::start()?;
    let volume = paths::scratch_directory()?;
    let container =
        engine.run("offwake-watched", volume.path(), "while true; do sleep 0.01; done")?;
    for thread in OwnThread::ALL {
        let Scenario::Container { arguments } = scenario(thread) else { continue };
        let id = container.id()?;
        let outcome = record(thread, 0, &[&["--container", id.as_str()], arguments].concat())?;
        eprintln!("{thread:?} after {:?}: {}", outcome.ran_for, outcome.stderr);
        if let Some(report) = check(thread, &outcome).with_context(|| format!("{thread:?}"))? {
            ensure!(!report.threads.is_empty(), "{outcome}");
        }
    }
    drop(container);
    engine.end()
}

/// What the panic of a helper process costs: it dies with its third message, and so does each that takes its
/// place.
#[test]
fn a_helper_process_that_panics_again_and_again_costs_what_it_was_asked() -> Result<()> {
    for (helper, counters) in [
        ("offwake-unwind", &["parser_stacks_lost"][..]),
        ("offwake-parser", &["parser_files_unread"]),
        ("offwake-reader", &["reader_failed", "parser_not_started"]),
    ] {
        let workload = Workload::start("futex-handoff")?;
        let outcome = Offwake::record()?
            .env("OFFWAKE_TEST_PANIC", &format!("{helper}:3"))
            .args(["-p", &workload.pids(), "-o", "x.offwake", "-d", "2s", "--stacks", "exact"])
            .start()?
            .outcome_within(AT_ONCE)?;
        eprintln!("{helper} after {:?}: {}", outcome.ran_for, outcome.stderr);
        ensure!(outcome.status.success(), "{helper}: {outcome}");
        let report = report(&outcome)?;
        ensure!(report.recording.is_whole(), "{helper}: {:?}", report.recording);
        let lost: u64 = counters.iter().map(|counter| report.loss_count(counter)).sum();
        ensure!(lost > 0, "{helper} cost nothing: {:?}", report.loss);
        let summary = outcome.report_of("x.offwake", &[])?.stdout;
        let words = ["offwake's own process that reads programs died", "nobody could ask"];
        ensure!(words.iter().any(|words| summary.contains(words)), "{helper}: {summary}");
        let blocked: u64 = report.threads.iter().map(|thread| thread.blocked_ns).sum();
        ensure!(blocked > 0, "{helper}: the waits are gone: {summary}");
    }
    Ok(())
}

/// The process that writes dies with its third message, and so does each that takes its place. Files have no name
/// by then, and are lost.
#[test]
fn the_process_that_writes_and_panics_again_and_again_costs_what_it_had_to_write() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let offwake = |arguments: &[&str]| -> Result<Offwake> {
        let offwake = Offwake::record()?.env("OFFWAKE_TEST_PANIC", "offwake-writer:3");
        Ok(offwake.args(arguments).args(["-p", &workload.pids(), "-o"]))
    };
    let died = |name: &str| format!("cannot write {name}: the process that writes died");
    let check = |outcome: &Outcome, name: &str| -> Result<()> {
        eprintln!("after {:?}: {}", outcome.ran_for, outcome.stderr);
        ensure!(outcome.status.code() == Some(1), "{outcome}");
        ensure!(outcome.stderr.contains(&died(name)), "{outcome}");
        ensure!(!outcome.path(name).exists(), "half of {name} is left");
        Ok(())
    };
    // A recording ends by itself, and does not go on in vain.
    check(&offwake(&[])?.arg("x.offwake").start()?.outcome_within(AT_ONCE)?, "x.offwake")?;
    // A recording into memory goes on without the snapshot.
    let mut recorder = offwake(&["--keep", "5s"])?.arg("x.offwake").start_recording()?;
    recorder.signal(libc::SIGUSR1)?;
    wait_until("word of the snapshot", || {
        Ok(recorder.said()?.contains(&died("x.1.offwake")).then_some(()))
    })?;
    recorder.signal(libc::SIGINT)?;
    let outcome = recorder.outcome_within(AT_ONCE)?;
    check(&outcome, "x.offwake")?;
    ensure!(!outcome.path("x.1.offwake").exists(), "half of a snapshot is left");
    Ok(())
}

/// Whoever starts another kind of thread, or helper process, has to say in docs/reliability.md what its death
/// costs.
#[test]
fn each_thread_is_in_the_table_of_what_its_death_costs() -> Result<()> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reliability.md");
    let document = fs::read_to_string(&document)?;
    for thread in OwnThread::ALL {
        let row =
            document.lines().find(|line| line.starts_with(&format!("| `{}` ", thread.name())));
        let row = row.with_context(|| format!("no row of {}", thread.name()))?;
        if let DeathCost::Part(cost) = thread.death_cost() {
            ensure!(row.contains(cost), "{row}");
        }
        if let Scenario::Elsewhere(where_) = scenario(thread) {
            ensure!(row.contains(where_), "{row}");
        }
    }
    Ok(())
}

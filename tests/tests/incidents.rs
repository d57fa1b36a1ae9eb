//! Incidents that are quick, and whose cause offwake names. `cargo xtask incidents` runs all of them.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, bail, ensure};
use offwake_tests::{
    incidents::{self, FIRST_CARD, INCIDENTS, Keep, Measure, Options},
    offwake::Offwake,
    paths,
    report::FindingHop,
};

/// The browser that reads the page of one incident must not take the CPU of the next: then that is what
/// the next one waits for.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Demands that the trouble is what the incident says, by evidence that is none of offwake's.
fn check_trouble(name: &str) -> Result<()> {
    let truth = incidents::check_trouble(incidents::find(name)?)?;
    ensure!(truth.lines().count() > 1, "no evidence: {truth}");
    Ok(())
}

/// Demands that offwake names the cause in the first lines and on the page's first card, and blames
/// nobody else.
fn check_cause(name: &str) -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = paths::scratch_directory()?;
    let options = Options {
        keep: Keep::In(directory.path().to_owned()),
        measure: Measure::Nothing,
        card: FIRST_CARD.to_owned(),
    };
    let verdict = incidents::run(incidents::find(name)?, &options)?;
    // What is seen of a failure on another machine is this text alone.
    let summary = fs::read_to_string(directory.path().join(format!("{name}.summary")));
    ensure!(verdict.is_expected(), "{name}: {verdict:?}\n{}", summary?);
    Ok(())
}

#[test]
fn a_file_lock_is_blamed_on_who_holds_it() -> Result<()> {
    check_cause("file-lock")
}

#[test]
fn a_lock_that_a_script_inherited_is_blamed_on_what_the_script_does() -> Result<()> {
    check_cause("script-lock")
}

#[test]
fn an_exhausted_pool_is_blamed_on_who_has_the_connection() -> Result<()> {
    check_cause("starved-pool")
}

#[test]
fn a_row_lock_is_blamed_on_the_client_of_the_session_that_holds_it() -> Result<()> {
    check_cause("postgres-row-lock")
}

#[test]
fn who_has_the_only_connection_of_a_pooler_is_waited_for() -> Result<()> {
    check_cause("pooled-transaction")
}

#[test]
fn what_tcp_holds_back_is_blamed_on_nobody() -> Result<()> {
    check_cause("delayed-ack")
}

#[test]
fn who_waits_for_a_stopped_server_is_told_that_it_is_stopped() -> Result<()> {
    check_cause("stopped-cache")
}

#[test]
fn a_lock_of_a_sqlite_database_is_no_sleep() -> Result<()> {
    check_cause("sqlite-lock")
}

#[test]
fn who_waits_at_a_queue_waits_for_who_fills_it() -> Result<()> {
    check_cause("redis-queue")
}

#[test]
fn an_fsync_waits_for_the_disk_that_others_write_to() -> Result<()> {
    check_cause("noisy-disk")
}

#[test]
fn threads_in_a_deadlock_are_told_as_one() -> Result<()> {
    check_cause("deadlock")
}

#[test]
fn a_deadlock_is_one() -> Result<()> {
    check_trouble("deadlock")
}

#[test]
fn a_full_pipe_is_one() -> Result<()> {
    check_trouble("slow-pipe")
}

#[test]
fn a_thread_that_computes_with_the_interpreters_lock_is_named_with_its_function() -> Result<()> {
    check_cause("gil")
}

#[test]
fn a_slow_script_in_redis_is_named_and_not_its_callers() -> Result<()> {
    check_cause("redis-slow-script")
}

#[test]
fn a_slow_server_behind_nginx_is_blamed_and_no_other_client() -> Result<()> {
    check_cause("nginx-slow-upstream")
}

#[test]
fn a_java_lock_is_blamed_on_the_thread_that_sleeps_with_it() -> Result<()> {
    check_cause("java-lock")
}

#[test]
fn a_go_mutex_is_blamed_on_the_disk_below_its_holder() -> Result<()> {
    check_cause("go-mutex")
}

#[test]
fn a_server_in_another_network_namespace_is_blamed_with_its_function() -> Result<()> {
    check_cause("network-server")
}

#[test]
fn a_full_executor_is_blamed_on_what_its_threads_do() -> Result<()> {
    check_cause("full-executor")
}

#[test]
fn a_file_system_that_hangs_is_blamed_on_its_server() -> Result<()> {
    check_cause("fuse-hang-seen")
}

#[test]
fn a_worker_under_a_quota_is_throttled_by_it() -> Result<()> {
    check_cause("cpu-quota")
}

/// The demo has a known fault, and offwake names it first. Nothing of the service outlives it.
#[test]
fn the_demo_finds_the_lock_that_is_kept_while_the_store_reads_its_archive() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = Offwake::demo()?.args(["-d", "2s", "-o", "x.json"]).run()?;
    let report = outcome.report("x.json")?;
    let first = report.findings.first().with_context(|| format!("no finding: {outcome}"))?;
    let (holder, end) = match &first.chain[..] {
        [.., holder, end] => (holder, end),
        _ => bail!("no chain: {first:#?}"),
    };
    let is_in = |hop: &FindingHop, function: &str| {
        hop.function.as_ref().is_some_and(|found| found.contains(function))
    };
    ensure!(is_in(end, "read_archive") && first.cause.share > 0.5, "{first:#?}");
    ensure!(is_in(holder, "refill_cache") || is_in(holder, "ask_store"), "{first:#?}");
    let service: BTreeSet<u32> = first.chain.iter().filter_map(|hop| hop.pid).collect();
    ensure!(service.len() == 2, "the worker and the store, not {service:?}: {first:#?}");
    let is_alive = |pid: &u32| Path::new(&format!("/proc/{pid}/exe")).exists();
    ensure!(!service.iter().any(is_alive), "a process of {service:?} goes on");
    Ok(())
}

#[test]
fn every_incident_has_a_name_of_its_own_and_sources() -> Result<()> {
    let names: BTreeSet<_> = INCIDENTS.iter().map(|incident| incident.name).collect();
    ensure!(names.len() == INCIDENTS.len(), "a name is there twice");
    for incident in INCIDENTS {
        let found = incidents::find(incident.name).context("not found by its name")?;
        ensure!(found.about == incident.about && !incident.about.is_empty());
    }
    ensure!(incidents::find("nothing").is_err());
    Ok(())
}

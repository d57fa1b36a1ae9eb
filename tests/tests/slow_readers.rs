//! Senders that wait for room at a TCP socket of this machine, where timers of TCP's make the wakes: who
//! reads is known by construction, and so is one who reads as fast as it can.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{blame_accuracy::BlameAccuracy, case::Case, workload::Workload};

/// Some ten waits of 200 to 400 ms.
const WINDOW: Duration = Duration::from_secs(3);

/// The part of the time that must be the reader's: the rest is TCP's own delay, 40 ms of each wait.
const READERS: f64 = 0.6;

fn profile(name: &str, target: &str) -> Result<Case> {
    let workload = Workload::start(name)?;
    let pid = workload.role(target)?.pid.to_string();
    let target =
        |offwake: offwake_tests::offwake::Offwake, _: &Workload| offwake.args(["--pid", &pid]);
    Case::profile_window(WINDOW, workload, target, || Ok(()))
}

#[test]
fn a_sender_waits_for_a_reader_that_reads_seldom_and_for_tcp() -> Result<()> {
    let case = profile("slow-reader-seldom", "writer")?;
    let reader = case.tid("reader");
    // It sleeps, or runs.
    let accuracy =
        BlameAccuracy::for_role(&case, "writer", "socket", |blame| blame.path() == [reader]);
    println!("| slow-reader-seldom | {accuracy}");
    accuracy.check_share(READERS, &case, "writer")?;
    ensure!(accuracy.wrong_external_ns == 0, "{accuracy}");
    let found = case.report.findings.first().context("there are findings")?;
    ensure!(found.cause.text.contains("sleeps"), "{found:#?}");
    Ok(())
}

#[test]
fn a_sender_with_a_small_buffer_does_not_wait_for_a_reader_that_has_read_all() -> Result<()> {
    let case = profile("slow-reader-quick", "writer")?;
    let reader = case.tid("reader");
    let accuracy = BlameAccuracy::for_role(&case, "writer", "socket", |blame| {
        blame.path().first() == Some(&reader) && blame.blamed_tid().is_some()
    });
    println!("| slow-reader-quick | {accuracy}");
    // Nobody slept: no timer but TCP's own had a part in it.
    ensure!(accuracy.wrong_ns == 0 && accuracy.wrong_external_ns == 0, "{accuracy}");
    Ok(())
}

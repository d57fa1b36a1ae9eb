//! What goes wrong on machines: offwake is killed, stopped, crowded and starved, and so is whom it looks at.
//! Whatever comes of it is true, and what is lost is counted.

mod machine;
mod own;
mod targets;

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use offwake_tests::{
    offwake::{Outcome, Running},
    report::Report,
    wait_until::wait_until,
};

/// Waits until a recorder has written more than it has now, which may be nothing: what it had seen by
/// then is in its file.
fn wait_for_a_slice(path: &Path) -> Result<()> {
    let size = || fs::metadata(path).map_or(0, |metadata| metadata.len());
    let before = size();
    wait_until("another slice", || Ok((size() > before).then_some(())))
}

/// Ends a recorder as Ctrl-C does, and reads what it wrote.
fn end(mut recorder: Running) -> Result<(Outcome, Report)> {
    recorder.signal(libc::SIGINT)?;
    ended(recorder)
}

/// Waits for the end of a recorder, and reads what it wrote. The ledgers close: `report` sees to it.
fn ended(recorder: Running) -> Result<(Outcome, Report)> {
    let outcome = recorder.outcome()?;
    ensure!(outcome.status.success(), "{outcome}");
    let reported = outcome.report_of("x.offwake", &["-o", "x.json"])?;
    let report = reported.report("x.json")?;
    ensure!(report.recording.is_whole(), "{:?}", report.recording);
    Ok((reported, report))
}

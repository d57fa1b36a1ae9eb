//! offwake's own file is on a file system that does not answer: a helper process that is started anew can't become
//! it, and waits between fork and exec.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    kernel_objects::KernelObjects,
    offwake::Offwake,
    paths,
    process::descendants,
    wait_until::{wait_at_most, wait_until},
    workload::Workload,
};

use crate::hung_output::StoppingFs;

/// How long after the death of offwake something of it may be in the kernel.
const FREED_IN: Duration = Duration::from_secs(1);

#[test]
fn killed_while_a_helper_can_not_begin_it_leaves_nothing_in_the_kernel() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let mut fs = StoppingFs::start()?;
    let binary = fs.directory().join("offwake");
    let elsewhere = paths::scratch_directory()?;
    // The file system has room for files of 256 MiB.
    let small = elsewhere.path().join("small");
    let stripped =
        Command::new("strip").arg("-o").arg(&small).arg(paths::offwake_binary()?).status()?;
    ensure!(stripped.success(), "strip: {stripped}");
    fs::copy(&small, &binary)?;
    let mut recorder = Offwake::in_directory(elsewhere.path())?
        .binary(&binary)
        .args(["record", "-p", &workload.pids(), "-o", "x.offwake"])
        .start_recording()?;
    // Its own pages are in memory from here on: nobody waits for those.
    fs::read(&binary)?;
    fs.fall_silent()?;
    let held = KernelObjects::held_by(recorder.pid())?;
    ensure!(!held.links.is_empty(), "nothing is attached: {held:?}");
    for (pid, name) in descendants(recorder.pid())? {
        if name == "offwake-reader" {
            // SAFETY: takes plain integers; its parent has not reaped it.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
    }
    let helper = wait_until("a helper to wait for its own program", || {
        // Whatever begins is looked up, by a reader.
        Command::new("sleep").arg("0.1").status()?;
        let helpers = descendants(recorder.pid())?;
        Ok(helpers.into_keys().find(|pid| waits_for_file_system(*pid)))
    })?;
    let of_helper = KernelObjects::held_by(helper)?;
    ensure!(of_helper.is_empty(), "the helper has {of_helper:?}");
    recorder.signal(libc::SIGKILL)?;
    recorder.outcome_within(Duration::from_secs(5))?;
    wait_at_most(FREED_IN, "the kernel to free everything", || {
        Ok(held.still_loaded().is_empty().then_some(()))
    })
    .with_context(|| format!("left {:?}", held.still_loaded()))
}

fn waits_for_file_system(pid: u32) -> bool {
    let waits = fs::read_to_string(format!("/proc/{pid}/stack")).unwrap_or_default();
    waits.contains("fuse_") && waits.contains("exec")
}

//! The loads of the benchmarks on their own, without offwake and without root.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    loads::{Count, LOADS},
    process::Process,
    wait_until::wait_until,
};

/// How often each load is started: what goes wrong between two threads does not do so every time.
const TIMES: u32 = 20;

#[test]
fn every_load_ends_when_its_input_does_and_says_how_often_it_switched() -> Result<()> {
    for (name, _) in LOADS {
        for _ in 0..TIMES {
            start_and_stop(name).with_context(|| format!("the load {name}"))?;
        }
    }
    Ok(())
}

fn start_and_stop(name: &str) -> Result<()> {
    // Enough of everything: threads, paths, switches a second.
    let mut command = Command::new(env!("CARGO_BIN_EXE_offwake-load"));
    let command = command.args([name, "5000"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut load = Process(command.spawn().context("cannot start it")?);
    let mut output = BufReader::new(load.0.stdout.take().context("it has no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(line == "ready\n", "it said {line:?} instead of ready");
    drop(load.0.stdin.take());
    let status = wait_until("its end", || Ok(load.0.try_wait()?))?;
    ensure!(status.success(), "it failed: {status}");
    line.clear();
    output.read_to_string(&mut line)?;
    let count: Count = serde_json::from_str(&line).with_context(|| format!("it said {line:?}"))?;
    ensure!(count.seconds > 0.0, "it ran for no time: {count:?}");
    Ok(())
}

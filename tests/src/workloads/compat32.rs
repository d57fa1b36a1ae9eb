//! A 32-bit program, whose syscall numbers mean other things in the 64-bit table.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::stage::Stage;

const SOURCE: &str = include_str!("compat32.c");

/// What the asker does between two requests.
const WORK: Duration = Duration::from_millis(5);

pub(super) fn sleeping(stage: &Stage) -> Result<()> {
    alone(stage, "s")
}

pub(super) fn in_a_futex(stage: &Stage) -> Result<()> {
    alone(stage, "f")
}

/// The 32-bit program answers what a thread of ours asks over a pipe.
pub(super) fn answering(stage: &Stage) -> Result<()> {
    let (compat, asker) = (stage.role("compat32")?, stage.role("asker")?);
    let (mut child, requests, replies) = start(stage.argument()?, "p")?;
    compat.assign_to(child.id(), "ow-compat32");
    let stopped = stage.stopped();
    stage.thread(move || {
        let (mut requests, mut replies) = (requests, replies);
        asker.claim("ow-asker");
        while stopped.load(SeqCst) == 0 {
            asker.works(WORK);
            let asked = requests.write_all(b"request!");
            let answered = asker.waits(|| replies.read_exact(&mut [0; 8]));
            assert!(asked.is_ok() && answered.is_ok(), "no answer: {asked:?} {answered:?}");
        }
    })?;
    // The end of its input ends the child.
    stage.play(|| ())?;
    ensure!(child.wait().context("cannot wait for the 32-bit program")?.success());
    Ok(())
}

fn alone(stage: &Stage, mode: &str) -> Result<()> {
    let compat = stage.role("compat32")?;
    let (mut child, requests, replies) = start(stage.argument()?, mode)?;
    compat.assign_to(child.id(), "ow-compat32");
    let played = stage.play(|| ());
    drop((requests, replies));
    child.kill().and_then(|()| child.wait()).context("cannot end the 32-bit program")?;
    played
}

/// Compiles the program into `directory` and starts it.
fn start(directory: &str, mode: &str) -> Result<(Child, ChildStdin, ChildStdout)> {
    let source = Path::new(directory).join("compat32.c");
    let binary = Path::new(directory).join("compat32");
    std::fs::write(&source, SOURCE)
        .with_context(|| format!("cannot write {}", source.display()))?;
    let compiled = Command::new("cc")
        .args(["-m32", "-O1", "-ffreestanding", "-nostdlib", "-static", "-fno-pic", "-no-pie"])
        .args(["-fno-stack-protector", "-o"])
        .args([&binary, &source])
        .output()
        .context("cannot run cc")?;
    ensure!(
        compiled.status.success(),
        "cc cannot make a 32-bit program: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let mut child = Command::new(&binary)
        .arg(mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run a 32-bit program")?;
    let requests = child.stdin.take().context("no standard input")?;
    let replies = child.stdout.take().context("no standard output")?;
    Ok((child, requests, replies))
}

//! Processes that compute, so that a test can put one of them under a CPU quota.

use std::{os::fd::AsRawFd, sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::{Result, ensure};

use super::{
    lines::{self, Line},
    raw, sleeps,
    stage::{Role, Stage, allowed_cpus, bind, pin_to_last_cpu},
};

/// The CPU time that the server needs for an answer: two answers use up a quota of 10 ms.
const ANSWER: Duration = Duration::from_millis(5);

/// A process that does nothing but compute.
pub(super) fn spinner(stage: &Stage) -> Result<()> {
    let role = stage.role("spinner")?;
    spin_in_a_process(stage, role, "ow-spinner")?;
    stage.play(|| ())
}

/// The same, and another one on the same CPU.
pub(super) fn spinner_beside_a_hog(stage: &Stage) -> Result<()> {
    let (spinner, hog) = (stage.role("spinner")?, stage.role("hog")?);
    pin_to_last_cpu()?;
    spin_in_a_process(stage, spinner, "ow-spinner")?;
    spin_in_a_process(stage, hog, "ow-hog")?;
    stage.play(|| ())
}

fn spin_in_a_process(stage: &Stage, role: &'static Role, comm: &str) -> Result<()> {
    let stopped = stage.stopped();
    stage.process(|| {
        role.claim(comm);
        sleeps::hogs(role, || stopped.load(SeqCst) == 0);
    })
}

/// A client on one CPU; on another one the server that it asks, and a hog, who has nothing to do
/// with either.
pub(super) fn server_beside_a_hog(stage: &Stage) -> Result<()> {
    let (client, server) = (stage.role("client")?, stage.role("server")?);
    let hog = stage.role("hog")?;
    let cpus = allowed_cpus()?;
    ensure!(cpus.len() >= 2, "there is only one CPU");
    let (own, shared) = (cpus[0], cpus[1]);
    let lines = lines::pipes()?;
    let (asks, answers) = (&lines.client, &lines.server);
    stage.process(|| {
        assert!(bind(0, shared).is_ok(), "cannot be bound");
        server.claim("ow-server");
        let mut request = [0; 8];
        while raw::read(answers.reads.as_raw_fd(), &mut request) == 8 && &request != b"theend!!" {
            server.computes(ANSWER);
            raw::write(answers.writes.as_raw_fd(), b"reply..!");
        }
    })?;
    stage.process(|| {
        assert!(bind(0, own).is_ok(), "cannot be bound");
        client.claim("ow-client");
        ask(stage, client, asks);
    })?;
    let stopped = stage.stopped();
    stage.process(|| {
        assert!(bind(0, shared).is_ok(), "cannot be bound");
        hog.claim("ow-hog");
        sleeps::hogs(hog, || stopped.load(SeqCst) == 0);
    })?;
    stage.play(|| ())
}

fn ask(stage: &Stage, client: &Role, line: &Line) {
    let mut reply = [0; 8];
    while stage.stopped().load(SeqCst) == 0 {
        raw::write(line.writes.as_raw_fd(), b"request!");
        client.waits(|| raw::read(line.reads.as_raw_fd(), &mut reply));
    }
    raw::write(line.writes.as_raw_fd(), b"theend!!");
}

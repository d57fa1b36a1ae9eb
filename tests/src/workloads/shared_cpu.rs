//! An asker on one CPU; on another one who answers, and a hog who has nothing to do with either.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Result, ensure};

use super::{
    condvar::Queue,
    sleeps,
    stage::{Role, Stage, allowed_cpus, bind},
};

/// What the asker computes before each request.
const PAUSE: Duration = Duration::from_millis(1);

/// For an answer: longer than the scheduler lets anybody have a CPU that another one wants.
const ANSWER: Duration = Duration::from_millis(8);

/// The answer takes computing: half of the CPU is the hog's.
pub(super) fn worker_beside_a_hog(stage: &Stage) -> Result<()> {
    run(stage, |answerer| answerer.computes(ANSWER))
}

/// The answer takes a sleep: its timer expires over the hog.
pub(super) fn sleeper_beside_a_hog(stage: &Stage) -> Result<()> {
    run(stage, |answerer| answerer.waits(|| sleeps::sleeps(ANSWER)))
}

fn run(stage: &Stage, answers: fn(&Role)) -> Result<()> {
    let (asker, answerer) = (stage.role("asker")?, stage.role("answerer")?);
    let hog = stage.role("hog")?;
    let cpus = allowed_cpus()?;
    ensure!(cpus.len() >= 2, "there is only one CPU");
    let (own, shared) = (cpus[0], cpus[1]);
    let (stopped, ended) = (stage.stopped(), stage.word()?);
    let (requests, replies) = (Queue::empty(), Queue::empty());
    {
        let (requests, replies) = (Arc::clone(&requests), Arc::clone(&replies));
        stage.thread(move || {
            assert!(bind(0, own).is_ok(), "cannot be bound");
            asker.claim("ow-asker");
            while stopped.load(SeqCst) == 0 {
                asker.computes(PAUSE);
                requests.put();
                asker.waits(|| replies.drain());
            }
            ended.store(1, SeqCst);
            requests.put();
        })?;
    }
    stage.thread(move || {
        assert!(bind(0, shared).is_ok(), "cannot be bound");
        answerer.claim("ow-answerer");
        loop {
            requests.drain();
            if ended.load(SeqCst) != 0 {
                break;
            }
            answers(answerer);
            replies.put();
        }
    })?;
    stage.thread(move || {
        assert!(bind(0, shared).is_ok(), "cannot be bound");
        hog.claim("ow-hog");
        sleeps::hogs(hog, || stopped.load(SeqCst) == 0);
    })?;
    stage.play(|| ())
}

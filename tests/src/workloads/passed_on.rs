//! Workers that are asked directly, and one process that passes all of their results on.
//!
//! ```text
//! a        asks slow |=========================== waits ==========================|
//! slow     ..........| computes, sleeps ..................................| result
//! passer   ..wait..[ to b ]..wait..[ to b ]..wait..[ to b ]..wait..........[ to a ]..
//! b, fast  ask, answer, sleep, ask, answer, sleep …
//! ```

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::Result;

use super::{
    mailboxes::{Message, Put, Take, pipe},
    raw,
    stage::{Role, Stage},
};

/// What `a` computes before each question.
const PAUSE: Duration = Duration::from_millis(2);
/// How long the slow worker sleeps for each question,
const DELAY: Duration = Duration::from_millis(15);
/// … and computes.
const SLOW_WORK: Duration = Duration::from_millis(3);
/// What the fast worker computes.
const TRIVIAL: Duration = Duration::from_micros(50);
/// How long `b` sleeps between two questions.
const OTHERS_PAUSE: Duration = Duration::from_millis(2);

const FOR_A: Message = *b"for a..!";
const FOR_B: Message = *b"for b..!";
const END: Message = *b"theend!!";

pub(super) fn results_of_two(stage: &Stage) -> Result<()> {
    let [results, to_slow, to_fast] = [pipe()?, pipe()?, pipe()?];
    let [to_a, to_b] = [pipe()?, pipe()?];
    let [a, b] = [stage.role("a")?, stage.role("b")?];
    let [slow, fast] = [stage.role("slow")?, stage.role("fast")?];
    let passer = stage.role("passer")?;
    let stopped = stage.stopped();
    let put_result = results.0;
    stage.process(|| pass_on(passer, results.1, &to_a.0, &to_b.0))?;
    stage.process(|| {
        slow.claim("ow-slow");
        answer(to_slow.1, &put_result, FOR_A, || {
            slow.computes(SLOW_WORK);
            raw::nanosleep(DELAY);
        });
    })?;
    stage.process(|| {
        fast.claim("ow-fast");
        answer(to_fast.1, &put_result, FOR_B, || fast.computes(TRIVIAL));
    })?;
    stage.process(|| {
        a.claim("ow-a");
        ask(a, to_a.1, &to_slow.0, stopped, || a.computes(PAUSE));
    })?;
    stage.process(|| {
        b.claim("ow-b");
        ask(b, to_b.1, &to_fast.0, stopped, || {
            raw::nanosleep(OTHERS_PAUSE);
        });
    })?;
    stage.play(|| ())
}

fn pass_on(role: &Role, mut take: Take, to_a: &Put, to_b: &Put) {
    role.claim("ow-passer");
    let mut workers = 2;
    while workers > 0 {
        match take() {
            FOR_A => to_a(FOR_A),
            FOR_B => to_b(FOR_B),
            _ => workers -= 1,
        }
    }
}

fn answer(mut take: Take, put_result: &Put, result: Message, work: impl Fn()) {
    while take() != END {
        work();
        put_result(result);
    }
    put_result(END);
}

fn ask(role: &Role, mut take: Take, worker: &Put, stopped: &AtomicU32, pause: impl Fn()) {
    while stopped.load(SeqCst) == 0 {
        pause();
        worker(FOR_A);
        role.waits(&mut take);
    }
    worker(END);
}

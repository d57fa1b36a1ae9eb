//! A ring of threads with one baton: each is woken by the one before, wakes the next, and waits
//! again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, ensure};

use super::{Count, baton::Baton, until_told_to_stop};
use crate::workloads::stage::{allowed_cpus, bind};

/// Ten thousand of them are little then.
const THREAD_STACK: usize = 64 * 1024;

/// A turn of one thread: take the first baton, give the second.
pub(super) type Turn = fn(&Baton, &Baton, u64);

pub(super) fn run(threads: u32) -> Result<Count> {
    ensure!(threads >= 2, "a thread alone wakes nobody");
    around(threads, |mine, next, _| {
        mine.acquire();
        next.hand_over();
    })
}

/// Has `threads` threads take turns on the first CPU until told to stop. A turn is told which one
/// of its thread's it is.
pub(super) fn around(threads: u32, turn: Turn) -> Result<Count> {
    bind(0, *allowed_cpus()?.first().context("the CPU mask is empty")?)?;
    let batons: Arc<[Baton]> = (0..threads).map(|_| Baton::default()).collect();
    let stopped = Arc::new(AtomicBool::new(false));
    let players = (0..batons.len())
        .map(|place| player(&batons, place, &stopped, turn))
        .collect::<Result<Vec<JoinHandle<()>>>>()?;
    batons[0].hand_over();
    let count = until_told_to_stop();
    stopped.store(true, SeqCst);
    // The one baton may be with a thread that has left already.
    batons.iter().for_each(Baton::hand_over);
    for player in players {
        ensure!(player.join().is_ok(), "a thread panicked");
    }
    count
}

fn player(
    batons: &Arc<[Baton]>,
    place: usize,
    stopped: &Arc<AtomicBool>,
    turn: Turn,
) -> Result<JoinHandle<()>> {
    let (batons, stopped) = (Arc::clone(batons), Arc::clone(stopped));
    let play = move || {
        let (mine, next) = (&batons[place], &batons[(place + 1) % batons.len()]);
        for count in 0.. {
            turn(mine, next, count);
            if stopped.load(SeqCst) {
                break;
            }
        }
    };
    thread::Builder::new()
        .stack_size(THREAD_STACK)
        .spawn(play)
        .with_context(|| format!("cannot start thread {place}"))
}

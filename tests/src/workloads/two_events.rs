//! One condition for two kinds of events, of which one comes often: whoever waits for the other is
//! woken again and again, looks, and sleeps on.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use anyhow::Result;

use super::stage::{Role, Stage};

/// What comes of one kind computes before each.
const SELDOM: Duration = Duration::from_millis(25);
/// How long the other kind sleeps before each.
const OFTEN: Duration = Duration::from_millis(2);
/// What each does with what it waited for.
const WORK: Duration = Duration::from_millis(1);

/// How many of each kind have come.
#[derive(Default)]
struct Events {
    counts: Mutex<[u64; 2]>,
    changed: Condvar,
}

#[derive(Clone, Copy)]
enum Kind {
    Seldom,
    Often,
}

impl Events {
    fn announce(&self, kind: Kind) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts[kind as usize] += 1;
        self.changed.notify_all();
    }

    /// Waits until more of a kind have come than were `seen`.
    #[inline(never)]
    fn waits_for(&self, kind: Kind, seen: u64) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        while counts[kind as usize] == seen {
            counts = self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
        counts[kind as usize]
    }
}

pub(super) fn on_one_condition(stage: &Stage) -> Result<()> {
    let events = Arc::new(Events::default());
    let stopped = stage.stopped();
    let waiter = |role: &'static Role, comm: &'static str, kind: Kind| {
        let events = Arc::clone(&events);
        stage.thread(move || {
            role.claim(comm);
            let mut seen = 0;
            while stopped.load(SeqCst) == 0 {
                seen = role.waits(|| events.waits_for(kind, seen));
                role.computes(WORK);
            }
        })
    };
    waiter(stage.role("for-seldom")?, "ow-for-seldom", Kind::Seldom)?;
    waiter(stage.role("for-often")?, "ow-for-often", Kind::Often)?;
    let [seldom, often] = [stage.role("seldom")?, stage.role("often")?];
    let of_often = Arc::clone(&events);
    stage.thread(move || {
        often.claim("ow-often");
        while stopped.load(SeqCst) == 0 {
            thread::sleep(OFTEN);
            of_often.announce(Kind::Often);
        }
        of_often.announce(Kind::Often);
    })?;
    stage.thread(move || {
        seldom.claim("ow-seldom");
        while stopped.load(SeqCst) == 0 {
            seldom.computes(SELDOM);
            events.announce(Kind::Seldom);
        }
        events.announce(Kind::Seldom);
    })?;
    stage.play(|| ())
}

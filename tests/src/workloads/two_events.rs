//! One condition for two kinds of events, of which one comes often: whoever waits for the other is
//! woken again and again, looks, and sleeps on.

use std::{
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::SeqCst},
    thread::{self, Thread},
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
struct Events {
    counts: Mutex<[u64; 2]>,
    changed: Condition,
}

/// How all waiters are woken.
enum Condition {
    /// By one call.
    AtOnce(Condvar),
    /// By a call for each, as languages do that keep a list of waiters.
    InTurn(Mutex<Vec<Thread>>),
}

impl Condition {
    fn notify_all(&self) {
        match self {
            Self::AtOnce(condvar) => condvar.notify_all(),
            Self::InTurn(waiters) => {
                let waiters =
                    mem::take(&mut *waiters.lock().unwrap_or_else(PoisonError::into_inner));
                waiters.iter().for_each(Thread::unpark);
            }
        }
    }

    /// Lets go of the counts until all are woken, and once in a while for nothing.
    fn wait<'c>(
        &self,
        counts: MutexGuard<'c, [u64; 2]>,
        all: &'c Mutex<[u64; 2]>,
    ) -> MutexGuard<'c, [u64; 2]> {
        match self {
            Self::AtOnce(condvar) => condvar.wait(counts).unwrap_or_else(PoisonError::into_inner),
            Self::InTurn(waiters) => {
                let own = thread::current();
                waiters.lock().unwrap_or_else(PoisonError::into_inner).push(own);
                drop(counts);
                thread::park();
                all.lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }
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
            counts = self.changed.wait(counts, &self.counts);
        }
        counts[kind as usize]
    }
}

pub(super) fn on_one_condition(stage: &Stage) -> Result<()> {
    play(stage, Condition::AtOnce(Condvar::new()))
}

pub(super) fn woken_in_turn(stage: &Stage) -> Result<()> {
    play(stage, Condition::InTurn(Mutex::default()))
}

fn play(stage: &Stage, changed: Condition) -> Result<()> {
    let events = Arc::new(Events { counts: Mutex::default(), changed });
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

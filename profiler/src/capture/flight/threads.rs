//! What is known of each living thread from before the kept stretch.

use std::collections::HashMap;

use crate::{
    recording::{Preemption, Sighting, SightingReason, ThreadExit, Wait},
    units::{Tid, Timestamp},
};

/// A time off the CPU.
#[derive(Clone, Debug)]
pub(super) enum Off {
    /// A wait.
    Wait(Box<Wait>),
    /// A preemption.
    Preemption(Preemption),
}

impl Off {
    fn began(&self) -> Timestamp {
        match self {
            Self::Wait(wait) => wait.off,
            Self::Preemption(preemption) => preemption.off,
        }
    }

    fn ended(&self) -> Timestamp {
        match self {
            Self::Wait(wait) => wait.on,
            Self::Preemption(preemption) => preemption.on,
        }
    }
}

/// A slice's last word on its threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Doings {
    /// The newest record of each thread.
    pub newest: HashMap<Tid, Off>,
    /// In order of time.
    pub sightings: Vec<Sighting>,
    /// In order of time.
    pub exits: Vec<ThreadExit>,
}

impl Doings {
    /// Adds the records of a slice. Each thread's come in the order in which it made them, but for
    /// those of different rings.
    pub fn add(&mut self, waits: &[Wait], preemptions: &[Preemption]) {
        let mut newest = HashMap::<Tid, &Wait>::new();
        for wait in waits {
            let held = newest.entry(wait.tid).or_insert(wait);
            if held.off <= wait.off {
                *held = wait;
            }
        }
        // Copied once for each thread, not once for each record.
        self.newest.extend(newest.into_iter().map(|(tid, wait)| (tid, Off::Wait(Box::new(*wait)))));
        for preemption in preemptions {
            match self.newest.get_mut(&preemption.tid) {
                Some(held) if held.began() > preemption.off => {}
                Some(held) => *held = Off::Preemption(*preemption),
                None => {
                    self.newest.insert(preemption.tid, Off::Preemption(*preemption));
                }
            }
        }
    }

    /// About what it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.newest.len() * (size_of::<Wait>() + 64)
            + self.sightings.len() * (size_of::<Sighting>() + 16)
            + self.exits.len() * size_of::<ThreadExit>()
    }
}

/// One thread.
#[derive(Clone, Debug, Default)]
struct Known {
    /// How it stood when the recording began.
    opening: Option<Box<Sighting>>,
    /// The newest one, if that is another.
    newest: Option<Box<Sighting>>,
    off: Option<Off>,
}

impl Known {
    fn seen(&self) -> Option<&Sighting> {
        self.newest.as_deref().or(self.opening.as_deref())
    }

    fn see(&mut self, sighting: Sighting) {
        if let Some(seen) = self.seen() {
            if seen.created > sighting.created {
                return;
            }
            if seen.created < sighting.created {
                // Another thread that bears the same number.
                *self = Self::default();
            } else if seen.at > sighting.at {
                return;
            }
        }
        let slot = match sighting.reason {
            SightingReason::Opening => &mut self.opening,
            _ => &mut self.newest,
        };
        *slot = Some(Box::new(sighting));
    }

    fn go_off(&mut self, off: Off) {
        if self.off.as_ref().is_none_or(|known| known.began() <= off.began()) {
            self.off = Some(off);
        }
    }

    /// Forgets what is not newer than an exit. Whether anything is left: of the next thread with the
    /// same number.
    fn survives(&mut self, exit: Timestamp) -> bool {
        self.off.take_if(|off| off.ended() <= exit);
        self.opening.take_if(|sighting| sighting.at <= exit);
        self.newest.take_if(|sighting| sighting.at <= exit);
        self.off.is_some() || self.seen().is_some()
    }
}

/// The living threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads(HashMap<Tid, Known>);

impl Threads {
    /// Takes over what a retired slice had to say. There are never more threads than numbers for
    /// them: one whose exit was lost gives way to the next that bears its number.
    pub fn fold(&mut self, doings: Doings) {
        let Doings { newest, sightings, exits } = doings;
        for sighting in sightings {
            self.0.entry(sighting.tid).or_default().see(sighting);
        }
        for (tid, off) in newest {
            self.0.entry(tid).or_default().go_off(off);
        }
        for exit in exits {
            if let Some(known) = self.0.get_mut(&exit.tid)
                && !known.survives(exit.at)
            {
                self.0.remove(&exit.tid);
            }
        }
    }

    /// Everything, for a recording.
    pub fn records(&self) -> (Vec<Wait>, Vec<Preemption>, Vec<Sighting>) {
        let (mut waits, mut preemptions, mut sightings) = (Vec::new(), Vec::new(), Vec::new());
        for Known { opening, newest, off } in self.0.values() {
            sightings.extend(opening.iter().chain(newest).map(|sighting| (**sighting).clone()));
            match off {
                Some(Off::Wait(wait)) => waits.push(**wait),
                Some(Off::Preemption(preemption)) => preemptions.push(*preemption),
                None => {}
            }
        }
        (waits, preemptions, sightings)
    }

    /// About what they take, in bytes.
    pub fn memory(&self) -> usize {
        self.0.len() * (size_of::<Known>() + size_of::<Wait>() + 2 * size_of::<Sighting>() + 128)
    }
}

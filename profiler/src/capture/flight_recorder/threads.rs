//! What is known of each living thread from before the retained slices.

use std::collections::HashMap;

use offwake_recording::{
    Preemption, ThreadEvent, ThreadEventReason, ThreadExit, Wait,
    units::{Tid, Timestamp},
};

/// A record of a time off the CPU.
#[derive(Clone, Debug)]
pub(super) enum OffCpuRecord {
    /// A wait.
    Wait(Box<Wait>),
    /// A preemption.
    Preemption(Preemption),
}

impl OffCpuRecord {
    fn began_at(&self) -> Timestamp {
        match self {
            Self::Wait(wait) => wait.off,
            Self::Preemption(preemption) => preemption.off,
        }
    }

    fn ended_at(&self) -> Timestamp {
        match self {
            Self::Wait(wait) => wait.on,
            Self::Preemption(preemption) => preemption.on,
        }
    }
}

/// What a slice says last of each of its threads.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadActivity {
    /// The newest record of each thread.
    pub newest: HashMap<Tid, OffCpuRecord>,
    /// In order of time.
    pub thread_events: Vec<ThreadEvent>,
    /// In order of time.
    pub exits: Vec<ThreadExit>,
}

impl ThreadActivity {
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
        self.newest.extend(
            newest.into_iter().map(|(tid, wait)| (tid, OffCpuRecord::Wait(Box::new(*wait)))),
        );
        for preemption in preemptions {
            match self.newest.get_mut(&preemption.tid) {
                Some(held) if held.began_at() > preemption.off => {}
                Some(held) => *held = OffCpuRecord::Preemption(*preemption),
                None => {
                    self.newest.insert(preemption.tid, OffCpuRecord::Preemption(*preemption));
                }
            }
        }
    }

    /// About what it takes, in bytes.
    pub fn memory(&self) -> usize {
        self.newest.len() * (size_of::<Wait>() + 64)
            + self.thread_events.len() * (size_of::<ThreadEvent>() + 16)
            + self.exits.len() * size_of::<ThreadExit>()
    }
}

/// What is known of one thread.
#[derive(Clone, Debug, Default)]
struct ThreadHistory {
    /// How the thread stood when the recording began.
    opening: Option<Box<ThreadEvent>>,
    /// The newest one, if that is another.
    newest: Option<Box<ThreadEvent>>,
    off: Option<OffCpuRecord>,
}

impl ThreadHistory {
    fn newest_event(&self) -> Option<&ThreadEvent> {
        self.newest.as_deref().or(self.opening.as_deref())
    }

    fn add_event(&mut self, thread_event: ThreadEvent) {
        if let Some(seen) = self.newest_event() {
            if seen.created > thread_event.created {
                return;
            }
            if seen.created < thread_event.created {
                // This is another thread with the same number.
                *self = Self::default();
            } else if seen.at > thread_event.at {
                return;
            }
        }
        let slot = match thread_event.reason {
            ThreadEventReason::Opening => &mut self.opening,
            _ => &mut self.newest,
        };
        *slot = Some(Box::new(thread_event));
    }

    fn add_record(&mut self, off: OffCpuRecord) {
        if self.off.as_ref().is_none_or(|known| known.began_at() <= off.began_at()) {
            self.off = Some(off);
        }
    }

    /// Forgets what is not newer than an exit. True if anything is left: that is of the next thread
    /// with the same number.
    fn outlives(&mut self, exit: Timestamp) -> bool {
        self.off.take_if(|off| off.ended_at() <= exit);
        self.opening.take_if(|thread_event| thread_event.at <= exit);
        self.newest.take_if(|thread_event| thread_event.at <= exit);
        self.off.is_some() || self.newest_event().is_some()
    }
}

/// What is known of the living threads.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadHistories(HashMap<Tid, ThreadHistory>);

impl ThreadHistories {
    /// Adds what a retired slice says last of its threads. There are never more threads than
    /// numbers for them: one whose exit was lost gives way to the next that bears its number.
    pub fn add(&mut self, activity: ThreadActivity) {
        let ThreadActivity { newest, thread_events, exits } = activity;
        for thread_event in thread_events {
            self.0.entry(thread_event.tid).or_default().add_event(thread_event);
        }
        for (tid, off) in newest {
            self.0.entry(tid).or_default().add_record(off);
        }
        for exit in exits {
            if let Some(known) = self.0.get_mut(&exit.tid)
                && !known.outlives(exit.at)
            {
                self.0.remove(&exit.tid);
            }
        }
    }

    /// Everything as records.
    pub fn records(&self) -> (Vec<Wait>, Vec<Preemption>, Vec<ThreadEvent>) {
        let (mut waits, mut preemptions, mut thread_events) = (Vec::new(), Vec::new(), Vec::new());
        for ThreadHistory { opening, newest, off } in self.0.values() {
            thread_events
                .extend(opening.iter().chain(newest).map(|thread_event| (**thread_event).clone()));
            match off {
                Some(OffCpuRecord::Wait(wait)) => waits.push(**wait),
                Some(OffCpuRecord::Preemption(preemption)) => preemptions.push(*preemption),
                None => {}
            }
        }
        (waits, preemptions, thread_events)
    }

    /// About what they take, in bytes.
    pub fn memory(&self) -> usize {
        self.0.len()
            * (size_of::<ThreadHistory>() + size_of::<Wait>() + 2 * size_of::<ThreadEvent>() + 128)
    }
}

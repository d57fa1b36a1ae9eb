//! How long threads slept at a time that others waited for.
//!
//! ```text
//! others    --- wait ---------------------------+--- wait …
//! sleeper   --+-- 380 ms --+--+-- 380 ms --+----^     "380 ms at a time"
//! ```
//!
//! A sleep in the middle of others' waits is the cause of these, however harmless it reads.

use std::collections::{BTreeMap, HashMap};

use offwake_recording::units::Nanos;

use crate::{
    blame::{FrameEvidence, cause::Cause},
    timeline::{ThreadIndex, WaitIndex},
};

use super::{
    meaning::{SharedMeaning, SleepMeaning},
    model::FindingSleep,
    wait_meanings::WaitMeanings,
};

/// Sleeps are alike if the longest is no longer than this many times the shortest.
const ALIKE: f64 = 1.25;

/// How long each thread slept at a time, by what its sleeps mean.
#[derive(Default)]
pub(super) struct SleepLengths(HashMap<(ThreadIndex, SharedMeaning), FindingSleep>);

impl SleepLengths {
    /// Measures all sleeps that began and ended in the window.
    pub(super) fn measure(meanings: &WaitMeanings<'_>) -> Self {
        let blame = meanings.blame;
        let window = blame.recording().meta.window;
        let mut lengths = Self::default();
        for wait in (0..).map(WaitIndex).take(blame.recording().waits.len()) {
            let meaning = meanings.get(meanings.meaning_of_wait(wait));
            let Some(meaning) = meaning.filter(|meaning| is_sleep(meaning)) else { continue };
            let Some(place) = blame.timeline().blocked_interval(wait) else { continue };
            if place.from > window.start && place.to < window.end {
                let known = lengths.0.entry((place.thread, meaning.clone())).or_default();
                known.add(&FindingSleep::once(place.to.since(place.from)));
            }
        }
        lengths
    }

    /// Returns how long some threads slept at a time in one way.
    pub(super) fn add_up(
        &self,
        threads: &BTreeMap<ThreadIndex, Nanos>,
        meaning: &SharedMeaning,
    ) -> FindingSleep {
        let mut all = FindingSleep::default();
        for &thread in threads.keys() {
            if let Some(known) = self.0.get(&(thread, meaning.clone())) {
                all.add(known);
            }
        }
        all
    }
}

/// Returns whether a thread slept until its own timer was over, and for nothing else.
fn is_sleep(meaning: &SleepMeaning) -> bool {
    meaning.lock().is_none()
        && (meaning.cause == Cause::Timer || meaning.evidence == FrameEvidence::Sleep)
}

impl FindingSleep {
    fn once(time: Nanos) -> Self {
        Self { count: 1, shortest_ns: time, longest_ns: time, waiting_threads: None }
    }

    fn add(&mut self, other: &Self) {
        self.shortest_ns = match self.count {
            0 => other.shortest_ns,
            _ => self.shortest_ns.min(other.shortest_ns),
        };
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.count += other.count;
    }

    /// `380 ms at a time while 5 threads wait`. A sleep never ends too early, so the shortest of those that
    /// are alike tells best what was asked for.
    pub(super) fn describe(&self) -> String {
        let Self { count, shortest_ns, longest_ns, waiting_threads } = self;
        let length = match *count {
            0 => String::new(),
            1 => format!("for {longest_ns} "),
            _ if longest_ns.0 as f64 <= shortest_ns.0 as f64 * ALIKE => {
                format!("{shortest_ns} at a time ")
            }
            _ => format!("up to {longest_ns} at a time "),
        };
        match waiting_threads {
            Some(1) => format!("{length}while 1 thread waits"),
            Some(threads) => format!("{length}while {threads} threads wait"),
            None => format!("{length}while others wait"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_that_are_alike_have_one_length() {
        let describe = |milliseconds: &[u64]| {
            let mut all = FindingSleep::default();
            milliseconds.iter().for_each(|ms| all.add(&FindingSleep::once(Nanos(ms * 1_000_000))));
            all.describe()
        };
        assert_eq!(describe(&[]), "while others wait");
        assert_eq!(describe(&[300]), "for 300 ms while others wait");
        assert_eq!(describe(&[304, 300, 311]), "300 ms at a time while others wait");
        assert_eq!(describe(&[300, 380]), "up to 380 ms at a time while others wait");
    }
}

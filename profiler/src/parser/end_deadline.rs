//! When nobody is asked anything any more, since a run is to end: each question has a deadline of its own, and
//! there can be any number of them.
//!
//! ```text
//! the window closes ── questions, each in its time ── the deadline ── every further one is refused at once
//! ```
//!
//! What is not asked for that reason is named for whoever waits.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How many things that were given up are named.
const MAX_NAMED: usize = 8;
/// How many are told apart; what comes later is counted each time.
const MAX_KNOWN: usize = 65_536;

static STATE: Mutex<State> = Mutex::new(State { deadline: None, given_up: GivenUp::new() });

struct State {
    deadline: Option<Instant>,
    given_up: GivenUp,
}

/// What was not looked up any more.
struct GivenUp {
    known: BTreeSet<String>,
    /// The first ones, in their order.
    named: Vec<String>,
    count: u64,
}

impl GivenUp {
    const fn new() -> Self {
        Self { known: BTreeSet::new(), named: Vec::new(), count: 0 }
    }

    /// Adds something, once.
    fn add(&mut self, words: String) {
        if self.known.contains(&words) {
            return;
        }
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(words.clone());
        }
        if self.known.len() < MAX_KNOWN {
            self.known.insert(words);
        }
    }

    fn describe(&self) -> Option<String> {
        let named = self.named.join(", ");
        match self.count.saturating_sub(self.named.len() as u64) {
            _ if named.is_empty() => None,
            0 => Some(named),
            more => Some(format!("{named} and {more} more")),
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has no process that parses or reads be asked anything after this moment, nor be waited for.
pub(crate) fn set(deadline: Instant) {
    state().deadline = Some(deadline);
}

/// Lets questions be asked again: the recording has ended, and somebody may still make something of it.
pub(crate) fn clear() {
    state().deadline = None;
}

/// How much time is left; none if there is no deadline.
pub(crate) fn time_left() -> Option<Duration> {
    state().deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Whether nobody is to be asked anything any more.
pub(crate) fn has_passed() -> bool {
    time_left() == Some(Duration::ZERO)
}

/// Notes what was not looked up for that reason.
pub(crate) fn note_given_up(words: String) {
    state().given_up.add(words);
}

/// Describes what was not looked up any more since the time for the end was over; none if that is nothing.
#[must_use]
pub fn describe_given_up() -> Option<String> {
    state().given_up.describe()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_named_once_and_not_without_end() {
        let mut given_up = GivenUp::new();
        assert_eq!(given_up.describe(), None);
        for words in ["stacks", "functions of /a", "stacks"] {
            given_up.add(words.to_owned());
        }
        assert_eq!(given_up.describe().as_deref(), Some("stacks, functions of /a"));
        for number in 0..1000 {
            given_up.add(format!("functions of /{number}"));
        }
        let words = given_up.describe().unwrap();
        assert!(words.ends_with(", functions of /5 and 994 more"), "{words}");
    }
}

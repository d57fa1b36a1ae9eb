//! What answers, but slowly: how long each device and process may be waited for in all, and how much is
//! copied. A server that takes a second for each page answers every question in time, and a recording
//! of a hundred of its files would never end.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use offwake_recording::units::Tgid;

use super::messages::Subject;
use crate::parser::{LEAST, TimeBudget};

/// How long the answers of one device, one process or one directory are waited for by all threads. A
/// twentieth of the time that goes by comes back.
const WAITING: Duration = Duration::from_secs(10);
/// Devices, processes and directories that are told apart.
const MAX_KNOWN: usize = 65_536;

/// Bytes of files that are copied at once, and each second from then on.
const COPIED: u64 = 8 << 30;
const COPIED_PER_SECOND: u64 = 64 << 20;

static SOURCES: LazyLock<Mutex<Sources>> = LazyLock::new(Mutex::default);
static COPIES: Mutex<Option<Copies>> = Mutex::new(None);

/// Where answers come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Source {
    Device((u32, u32)),
    Process(Tgid),
    Directory(String),
}

impl From<&Subject> for Source {
    fn from(subject: &Subject) -> Self {
        match (subject, subject.process()) {
            (_, Some(tgid)) => Self::Process(tgid),
            (Subject::File { device, .. }, _) => Self::Device(*device),
            (Subject::Directory(path), _) => Self::Directory(path.clone()),
            // Every other subject has a process.
            _ => Self::Directory(String::new()),
        }
    }
}

/// How long each was waited for.
#[derive(Default)]
struct Sources {
    /// None for those that have used up their time: they are not asked again.
    known: HashMap<Source, Option<TimeBudget>>,
}

impl Sources {
    /// How long the next answer may be waited for; none if it is not to be asked. `left` is what the
    /// thread may still wait for all: who has none left asks only those that have always answered at
    /// once.
    fn allowance(
        &mut self,
        source: &Source,
        left: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        match (self.known.get_mut(source), left) {
            (Some(None), _) | (None, None) => None,
            (None, Some(left)) => Some(left.min(WAITING)),
            (Some(Some(budget)), Some(left)) => {
                Some(budget.allowance(now).unwrap_or(LEAST).min(left))
            }
            (Some(Some(budget)), None) => (budget.allowance(now)? == WAITING).then_some(LEAST),
        }
    }

    fn spend(&mut self, source: Source, waited: Duration, now: Instant) {
        if !self.known.contains_key(&source) && self.known.len() >= MAX_KNOWN {
            return;
        }
        let known = self.known.entry(source);
        let budget = known.or_insert_with(|| Some(TimeBudget::new(WAITING, now)));
        if let Some(left) = budget {
            left.spend(waited);
            if left.allowance(now).is_none() {
                *budget = None;
            }
        }
    }
}

/// Bytes that may still be copied.
#[derive(Clone, Copy, Debug)]
struct Copies {
    left: u64,
    at: Instant,
}

impl Copies {
    fn new(now: Instant) -> Self {
        Self { left: COPIED, at: now }
    }

    fn remaining_bytes(&mut self, now: Instant) -> u64 {
        let gone = now.saturating_duration_since(self.at).as_millis();
        let back = u64::try_from(gone).unwrap_or(u64::MAX).saturating_mul(COPIED_PER_SECOND / 1000);
        // What is less than a millisecond counts the next time.
        if back > 0 {
            self.left = self.left.saturating_add(back).min(COPIED);
            self.at = now;
        }
        self.left
    }
}

fn sources() -> MutexGuard<'static, Sources> {
    SOURCES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the answer to the next question about this may be waited for; none if it is not to be asked.
pub(super) fn allowance(subject: &Subject, left: Option<Duration>) -> Option<Duration> {
    sources().allowance(&subject.into(), left, Instant::now())
}

/// Adds how long an answer was waited for.
pub(super) fn spend(subject: &Subject, waited: Duration) {
    sources().spend(subject.into(), waited, Instant::now());
}

/// Forgets a process: it has ended, or runs another program.
pub(super) fn forget(tgid: Tgid) {
    sources().known.remove(&Source::Process(tgid));
}

/// How many bytes may be copied now.
pub(super) fn bytes_to_copy() -> u64 {
    let now = Instant::now();
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    copies.get_or_insert_with(|| Copies::new(now)).remaining_bytes(now)
}

/// Adds what was copied.
pub(super) fn add_copied(bytes: u64) {
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(copies) = copies.as_mut() {
        copies.left = copies.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn device(minor: u32) -> Source {
        Source::Device((0, minor))
    }

    #[test]
    fn who_answers_slowly_is_asked_until_its_time_is_used_up() {
        let (mut sources, now) = (Sources::default(), Instant::now());
        let mut ask = |source: &Source, waited: Duration| {
            let allowed = sources.allowance(source, Some(20 * SECOND), now);
            if allowed.is_some() {
                sources.spend(source.clone(), waited, now);
            }
            allowed
        };
        assert_eq!(ask(&device(1), SECOND), Some(10 * SECOND));
        for left in (1..10).rev() {
            assert_eq!(ask(&device(1), SECOND), Some(left * SECOND));
        }
        assert_eq!(ask(&device(1), SECOND), None);
        // A device that answers at once is asked whenever somebody likes to.
        for _ in 0..100_000 {
            assert_eq!(ask(&device(2), Duration::ZERO), Some(10 * SECOND));
        }
    }

    /// Somebody can make any number of devices that are slow: those that are not go on.
    #[test]
    fn once_all_time_is_used_up_those_alone_are_asked_that_were_never_waited_for() {
        let (mut sources, now) = (Sources::default(), Instant::now());
        sources.spend(device(1), Duration::ZERO, now);
        sources.spend(device(2), SECOND, now);
        assert_eq!(sources.allowance(&device(1), None, now), Some(LEAST));
        assert_eq!(sources.allowance(&device(2), None, now), None);
        assert_eq!(sources.allowance(&device(3), None, now), None);
        assert_eq!(sources.allowance(&device(3), Some(SECOND), now), Some(SECOND));
    }

    #[test]
    fn so_many_bytes_are_copied_at_once_and_each_second() {
        let now = Instant::now();
        let mut copies = Copies::new(now);
        assert_eq!(copies.remaining_bytes(now), COPIED);
        copies.left = 0;
        assert_eq!(copies.remaining_bytes(now), 0);
        assert!(copies.remaining_bytes(now + SECOND).abs_diff(COPIED_PER_SECOND) < 1 << 20);
        assert_eq!(copies.remaining_bytes(now + 1000 * SECOND), COPIED);
    }
}

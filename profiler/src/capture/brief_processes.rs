//! When processes are looked up that may not live for long.
//!
//! A look-up takes some 300 us of CPU time. On two CPUs that do nothing but start processes, 1,500 a
//! second, look-ups took 70 % of one CPU. So no more than [`RATE`] a second are looked up at once;
//! the others once they have lived for [`LEAST_LIFE`], which few do where there are so many.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use offwake_recording::{
    loss::{Diagnostics, count},
    units::Tgid,
};

use crate::stacks::LookupTime;

/// Programs that are looked up as they begin, each second, and as many at one time.
const RATE: f64 = 200.0;
/// How long others have to run before they are looked up.
const LEAST_LIFE: Duration = Duration::from_millis(50);

/// The processes that are looked up later.
pub(super) struct BriefProcesses {
    allowance: f64,
    allowed_at: Instant,
    /// In the order in which they are due.
    later: VecDeque<(Instant, Tgid)>,
    /// When the newest program of each of these is due. An older entry in `later` has no effect.
    due: HashMap<Tgid, Instant, RandomState>,
}

impl BriefProcesses {
    pub(super) fn new(now: Instant) -> Self {
        Self { allowance: RATE, allowed_at: now, later: VecDeque::new(), due: HashMap::default() }
    }

    /// Decides when the program is looked up that a process has just begun.
    pub(super) fn begin(&mut self, tgid: Tgid, now: Instant) -> LookupTime {
        self.due.remove(&tgid);
        let more = now.duration_since(self.allowed_at).as_secs_f64() * RATE;
        self.allowance = (self.allowance + more).min(RATE);
        self.allowed_at = now;
        if self.allowance >= 1.0 {
            self.allowance -= 1.0;
            return LookupTime::Now;
        }
        let due = now + LEAST_LIFE;
        self.later.push_back((due, tgid));
        self.due.insert(tgid, due);
        LookupTime::Later
    }

    /// A process has ended: if it was not looked up yet, it never is, which is counted.
    pub(super) fn end(&mut self, tgid: Tgid, diagnostics: &mut Diagnostics) {
        if self.due.remove(&tgid).is_some() {
            count(diagnostics, "processes_too_brief");
        }
    }

    /// Returns a process that is to be looked up now.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Tgid> {
        while let Some(&(due, tgid)) = self.later.front()
            && due <= now
        {
            self.later.pop_front();
            if self.due.get(&tgid) == Some(&due) {
                self.due.remove(&tgid);
                return Some(tgid);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::{
        iter,
        time::{Duration, Instant},
    };

    use super::{BriefProcesses, LEAST_LIFE, LookupTime, RATE};
    use offwake_recording::{loss::Diagnostics, units::Tgid};

    const MANY: u32 = RATE as u32;

    #[test]
    fn few_are_looked_up_at_once_and_of_many_those_that_live() {
        let start = Instant::now();
        let mut brief = BriefProcesses::new(start);
        for n in 0..MANY {
            assert_eq!(brief.begin(Tgid(n), start), LookupTime::Now);
        }
        for n in MANY..MANY + 10 {
            assert_eq!(brief.begin(Tgid(n), start), LookupTime::Later);
        }
        assert_eq!(brief.pop_due(start), None);
        let mut diagnostics = Diagnostics::new();
        brief.end(Tgid(MANY), &mut diagnostics);
        brief.end(Tgid(0), &mut diagnostics);
        assert_eq!(diagnostics.get("processes_too_brief"), Some(&1));
        let now = start + LEAST_LIFE;
        let due: Vec<_> = iter::from_fn(|| brief.pop_due(now)).collect();
        assert_eq!(due, (MANY + 1..MANY + 10).map(Tgid).collect::<Vec<_>>());
        assert!(brief.later.is_empty() && brief.due.is_empty());
    }

    #[test]
    fn allowance_comes_back_with_time() {
        let start = Instant::now();
        let mut brief = BriefProcesses::new(start);
        for n in 0..MANY {
            brief.begin(Tgid(n), start);
        }
        let now = start + Duration::from_secs_f64(10.5 / RATE);
        let looked_up = (0..MANY).filter(|&n| brief.begin(Tgid(n), now) == LookupTime::Now);
        assert_eq!(looked_up.count(), 10);
    }

    #[test]
    fn a_later_program_of_the_same_process_is_due_later() {
        let start = Instant::now();
        let mut brief = BriefProcesses::new(start);
        for n in 0..=MANY {
            brief.begin(Tgid(n), start);
        }
        let later = start + Duration::from_millis(1);
        assert_eq!(brief.begin(Tgid(MANY), later), LookupTime::Later);
        assert_eq!(brief.pop_due(start + LEAST_LIFE), None);
        assert_eq!(brief.pop_due(later + LEAST_LIFE), Some(Tgid(MANY)));
        assert_eq!(brief.pop_due(later + LEAST_LIFE), None);
    }
}

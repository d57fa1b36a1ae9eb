//! How long offwake may wait for other processes, all questions taken together: each may be answered
//! within its deadline, and there can be any number of them.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    time::{Duration, Instant},
};

/// Whoever has less left is asked nothing more. A disk answers sooner.
pub(crate) const LEAST: Duration = Duration::from_millis(200);
/// The part of the time that goes by which comes back: a run of days may wait longer than one of seconds.
const REFILL: u32 = 20;

/// Time that is used up by waiting, and comes back slowly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeBudget {
    capacity: Duration,
    left: Duration,
    at: Instant,
}

impl TimeBudget {
    pub(crate) fn new(capacity: Duration, now: Instant) -> Self {
        Self { capacity, left: capacity, at: now }
    }

    /// How long may be waited for the answer to the next question; none if that is too little.
    pub(crate) fn allowance(&mut self, now: Instant) -> Option<Duration> {
        let back = now.saturating_duration_since(self.at) / REFILL;
        self.left = self.capacity.min(self.left.saturating_add(back));
        self.at = now;
        (self.left >= LEAST).then_some(self.left)
    }

    pub(crate) fn spend(&mut self, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
    }
}

/// How long a child has neither computed nor waited for a CPU while this thread waited for it.
pub(crate) struct WaitMeter {
    /// None where the kernel keeps no such account.
    child: Option<File>,
    own: Option<File>,
    began: Instant,
    before: Duration,
}

impl WaitMeter {
    pub(crate) fn new(child: u32) -> Self {
        let child = File::open(format!("/proc/{child}/schedstat")).ok();
        Self { child, own: None, began: Instant::now(), before: Duration::ZERO }
    }

    /// Begins a question. The thread that asks the first one asks all.
    pub(crate) fn begin(&mut self) {
        if self.own.is_none() {
            self.own = File::open("/proc/thread-self/schedstat").ok();
        }
        self.before = self.excused();
        self.began = Instant::now();
    }

    /// How long was waited since then.
    pub(crate) fn waited(&self) -> Duration {
        let elapsed = self.began.elapsed();
        // Nobody notices that, and it need not be looked up.
        if elapsed < Duration::from_millis(5) {
            return Duration::ZERO;
        }
        elapsed.saturating_sub(self.excused().saturating_sub(self.before))
    }

    /// What was computed, and waited for a CPU, on both sides.
    fn excused(&self) -> Duration {
        let [used, delayed] = self.child.as_ref().and_then(read_schedstat).unwrap_or_default();
        let [_, own_delayed] = self.own.as_ref().and_then(read_schedstat).unwrap_or_default();
        Duration::from_nanos(used.saturating_add(delayed).saturating_add(own_delayed))
    }
}

/// How long a thread was on a CPU, and waited for one, in nanoseconds
/// ([sched-stats.rst](https://github.com/torvalds/linux/blob/v6.12/Documentation/scheduler/sched-stats.rst)).
fn read_schedstat(file: &File) -> Option<[u64; 2]> {
    let mut bytes = [0; 80];
    let length = file.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use super::*;

    #[test]
    fn what_is_used_up_comes_back_slowly() {
        let second = Duration::from_secs(1);
        let begin = Instant::now();
        let mut budget = TimeBudget::new(5 * second, begin);
        assert_eq!(budget.allowance(begin), Some(5 * second));
        budget.spend(2 * second);
        assert_eq!(budget.allowance(begin), Some(3 * second));
        budget.spend(9 * second);
        assert_eq!(budget.allowance(begin), None);
        assert_eq!(budget.allowance(begin + 2 * second), None);
        assert_eq!(budget.allowance(begin + 20 * second), Some(second));
        assert_eq!(budget.allowance(begin + 1000 * second), Some(5 * second));
    }

    /// Who sleeps is waited for; who computes, or wants to, is not.
    #[test]
    fn time_of_a_child_that_works_is_not_waited_time() {
        let long = Duration::from_millis(300);
        let measure = |program: &str, argument: &str| {
            let mut child = Command::new(program).arg("-c").arg(argument).spawn().unwrap();
            let mut meter = WaitMeter::new(child.id());
            meter.begin();
            thread::sleep(long);
            let waited = meter.waited();
            child.kill().unwrap();
            child.wait().unwrap();
            waited
        };
        let slept = measure("sh", "exec sleep 9");
        assert!(slept >= long / 2, "{slept:?}");
        let worked = measure("sh", "while :; do :; done");
        assert!(worked <= long / 2, "{worked:?}");
    }
}

//! What a profiler leaves of a recording that sums up short waits (`--max-overhead`).

use std::collections::{BTreeMap, BTreeSet};

use offwake_analysis::timeline::{WakeUse, wake_use};
use offwake_recording::{
    Begin, End, Preemption, Recording, SummedWaits, Wait, Waits,
    units::{Nanos, Tid},
};

use super::records;

/// What is summed up.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    /// Times off the CPU that are shorter than this.
    pub below: Nanos,
    /// The longest time on a CPU within a sum.
    pub longest_break: Nanos,
}

impl Sums {
    /// Sums the shortest of a recording's times off the CPU up, so many of a thousand.
    pub fn of_shortest(recording: &Recording, permille: usize, longest_break: Nanos) -> Self {
        let mut lengths: Vec<u64> = (records::waits(recording).iter())
            .map(|wait| wait.on.since(wait.off).0)
            .chain(recording.preemptions.iter().map(|p| p.on.since(p.off).0))
            .collect();
        lengths.sort_unstable();
        let below = lengths.get(lengths.len() * permille / 1_000).copied().unwrap_or(u64::MAX);
        Self { below: Nanos(below), longest_break }
    }

    /// What is recorded in place of a recording.
    pub fn apply(&self, recording: &Recording) -> Recording {
        let mut recording = recording.clone();
        let mut by_thread: BTreeMap<Tid, Vec<SummedWaits>> = BTreeMap::new();
        let waits = records::waits(&recording);
        for wait in waits.iter().filter(|wait| wait.begin == Begin::Seen && wait.end == End::Seen) {
            if let Some(blocked) = blocked_time(wait) {
                by_thread.entry(wait.tid).or_default().push(of_wait(wait, blocked));
            }
        }
        for preemption in &recording.preemptions {
            if (preemption.begin, preemption.end) == (Begin::Seen, End::Seen) {
                by_thread.entry(preemption.tid).or_default().push(of_preemption(preemption));
            }
        }
        let mut gone = BTreeSet::new();
        for (tid, mut short) in by_thread {
            short.retain(|one| self.is_summed(&recording, one));
            short.sort_by_key(|one| one.seq);
            gone.extend(short.iter().map(|one| (tid, one.seq)));
            self.sum_up(&short, &mut recording.summed);
        }
        let left = waits.into_iter().filter(|wait| !gone.contains(&(wait.tid, wait.seq)));
        recording.waits = left.collect::<Waits>();
        recording.preemptions.retain(|p| !gone.contains(&(p.tid, p.seq)));
        recording.sort();
        recording
    }

    fn is_summed(&self, recording: &Recording, one: &SummedWaits) -> bool {
        let window = recording.meta.window;
        let is_throttled = recording.throttles.iter().any(|throttle| {
            throttle.tid == one.tid && throttle.from <= one.until && one.from <= throttle.until
        });
        one.until.since(one.from) < self.below
            && window.start <= one.from
            && one.until <= window.end
            && !is_throttled
    }

    fn sum_up(&self, short: &[SummedWaits], summed: &mut Vec<SummedWaits>) {
        let mut open: Option<SummedWaits> = None;
        for &one in short {
            match &mut open {
                Some(sum)
                    if sum.seq + 1 == one.seq && one.from.since(sum.until) < self.longest_break =>
                {
                    sum.seq = one.seq;
                    sum.waits += one.waits;
                    sum.preemptions += one.preemptions;
                    sum.until = one.until;
                    sum.on_cpu = one.on_cpu;
                    sum.blocked += one.blocked;
                    sum.runnable += one.runnable;
                    sum.longest = sum.longest.max(one.longest);
                }
                _ => summed.extend(open.replace(one)),
            }
        }
        summed.extend(open);
    }
}

/// How long a thread was blocked in a wait; none if that is not known.
fn blocked_time(wait: &Wait) -> Option<Nanos> {
    let alone: Waits = [*wait].into_iter().collect();
    let woken = wait.wake?.at;
    match wake_use(alone.rows().first()?) {
        WakeUse::Ended => Some(woken.min(wait.on).since(wait.off)),
        WakeUse::Early => Some(Nanos(0)),
        WakeUse::None | WakeUse::Stale => None,
    }
}

fn of_wait(wait: &Wait, blocked: Nanos) -> SummedWaits {
    SummedWaits {
        tid: wait.tid,
        tgid: wait.tgid,
        kind: wait.kind,
        in_target: wait.in_target,
        seq: wait.seq,
        waits: 1,
        preemptions: 0,
        from: wait.off,
        until: wait.on,
        off_cpu: wait.off_cpu,
        on_cpu: wait.on_cpu,
        blocked,
        runnable: Nanos(wait.on.since(wait.off).0 - blocked.0),
        longest: blocked,
    }
}

fn of_preemption(preemption: &Preemption) -> SummedWaits {
    SummedWaits {
        tid: preemption.tid,
        tgid: preemption.tgid,
        kind: preemption.kind,
        in_target: preemption.in_target,
        seq: preemption.seq,
        waits: 0,
        preemptions: 1,
        from: preemption.off,
        until: preemption.on,
        off_cpu: preemption.off_cpu,
        on_cpu: preemption.on_cpu,
        blocked: Nanos(0),
        runnable: preemption.on.since(preemption.off),
        longest: Nanos(0),
    }
}

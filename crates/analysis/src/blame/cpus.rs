//! Which thread was on which CPU at what time.

use offwake_recording::{
    Begin, End, Preemption, Recording,
    units::{Cpu, Nanos, Timestamp},
};
use rayon::prelude::*;

use crate::{
    search::partition_near,
    timeline::{Interval, RunnableSince, ThreadIndex, Timeline},
};

/// An interval of a thread's track in which it was on a CPU. Its end is here as well: to fetch it from the
/// track of each thread that ran took half of the time in which CPU queues are walked.
#[derive(Clone, Copy, Debug)]
struct OnCpuInterval {
    from: Timestamp,
    to: Timestamp,
    thread: ThreadIndex,
}

/// Which threads held each CPU, and when.
#[derive(Debug, Default)]
pub(super) struct CpuOccupancy {
    /// The intervals of each CPU in order of time, indexed by the CPU's number.
    intervals: Vec<Vec<OnCpuInterval>>,
}

impl CpuOccupancy {
    pub(super) fn new(timeline: &Timeline) -> Self {
        let mut stays: Vec<Vec<OnCpuInterval>> =
            count_intervals(timeline).into_iter().map(Vec::with_capacity).collect();
        for (thread, n) in timeline.threads.iter().zip(0..) {
            for (place, interval) in thread.track.iter().enumerate() {
                let Some(cpu) = thread.track.cpu(place) else { continue };
                let Some(of_cpu) = stays.get_mut(usize::from(cpu.0)) else { continue };
                let Interval { from, to, .. } = interval;
                of_cpu.push(OnCpuInterval { from, to, thread: ThreadIndex(n) });
            }
        }
        // Each thread's are in order: that sort merges them.
        stays.par_iter_mut().for_each(|of_cpu| of_cpu.sort_by_key(|stay| (stay.from, stay.thread)));
        Self { intervals: stays }
    }

    /// Divides `from..to`, in which a thread waited for a CPU, among the threads that ran there,
    /// and calls `tell` with each thread and its share.
    ///
    /// ```text
    /// waits    |-------------------------------|
    /// its CPU  == a ==|    |=== b ===|== c ========
    /// told        a     none    b         c
    /// ```
    pub(super) fn holders(
        &self,
        recording: &Recording,
        queued: RunnableSince,
        (from, to): (Timestamp, Timestamp),
        near: &mut CpuSearchHints,
        mut tell: impl FnMut(Option<ThreadIndex>, Nanos),
    ) {
        let all = to.since(from);
        let Some((cpu, since)) = cpu_queued_on(recording, queued) else { return tell(None, all) };
        let from = from.max(since).min(to);
        let stays = self.intervals.get(usize::from(cpu.0)).map_or([].as_slice(), Vec::as_slice);
        let begun = near.count_begun_before(cpu, stays, to);
        let (mut until, mut held) = (to, Nanos(0));
        for stay in stays.get(..begun).unwrap_or_default().iter().rev() {
            // Two at once would contradict each other: the later one counts.
            let (begin, end) = (stay.from.max(from), stay.to.min(until));
            let time = end.since(begin);
            if time > Nanos(0) {
                held += time;
                tell(Some(stay.thread), time);
            }
            until = until.min(stay.from);
            if stay.from <= from {
                break;
            }
        }
        if held < all {
            tell(None, all - held);
        }
    }
}

/// Counts the on-CPU intervals of each CPU, indexed by the CPU's number.
fn count_intervals(timeline: &Timeline) -> Vec<usize> {
    let mut counts = Vec::new();
    for track in timeline.threads.iter().map(|thread| &thread.track) {
        for cpu in (0..track.len()).filter_map(|place| track.cpu(place)) {
            let cpu = usize::from(cpu.0);
            if counts.len() <= cpu {
                counts.resize(cpu + 1, 0);
            }
            counts[cpu] += 1;
        }
    }
    counts
}

/// Where the last search in each CPU's intervals ended: the next one is likely to end near there.
#[derive(Debug)]
pub(super) struct CpuSearchHints(Vec<u32>);

impl CpuSearchHints {
    pub(super) fn new(cpus: &CpuOccupancy) -> Self {
        Self(vec![0; cpus.intervals.len()])
    }

    fn count_begun_before(&mut self, cpu: Cpu, stays: &[OnCpuInterval], to: Timestamp) -> usize {
        let Some(near) = self.0.get_mut(usize::from(cpu.0)) else { return 0 };
        let is_before = |n: usize| stays.get(n).is_some_and(|stay| stay.from < to);
        let begun = partition_near(stays.len(), *near as usize, is_before);
        *near = u32::try_from(begun).unwrap_or(u32::MAX);
        begun
    }
}

/// Finds the CPU in whose run queue a runnable thread was, and since when that is known.
///
/// After its last migration a thread was in the queue of the CPU that it came to. A thread that
/// came back to the CPU that it had left, and did not migrate, was in that CPU's queue from the
/// beginning. If the switch-out of a thread was not seen, the CPU that it left is that of whoever
/// looked at it, or created it.
fn cpu_queued_on(recording: &Recording, queued: RunnableSince) -> Option<(Cpu, Timestamp)> {
    let (begin, end, left, came, migrated) = match queued {
        RunnableSince::Woken(index) => {
            let wait = recording.waits.rows().get(index.0 as usize)?;
            let migrated = recording.waits.migrated(wait);
            (wait.begin(), wait.end(), wait.off_cpu, wait.on_cpu, migrated)
        }
        RunnableSince::Preempted(index) => {
            let preemption = recording.preemptions.get(index.0 as usize)?;
            let Preemption { begin, end, off_cpu, on_cpu, migrated, .. } = *preemption;
            (begin, end, off_cpu, on_cpu, migrated)
        }
    };
    if end != End::Seen {
        return None;
    }
    let stayed = begin != Begin::Seen || left == came;
    migrated.or(stayed.then_some(Timestamp(0))).map(|since| (came, since))
}

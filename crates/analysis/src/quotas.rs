//! Which CPU quotas kept which threads from running, and for how long.

use std::collections::{BTreeMap, BTreeSet};

use offwake_recording::{
    CpuQuota, Recording,
    units::{CgroupId, Nanos, Tid},
};

use crate::timeline::{State, ThreadIndex, Timeline};

/// Whose quota kept threads from running for this part of the time is named alone.
const MAIN_QUOTA: f64 = 0.8;

/// Throttled time inside the window, by the cgroup whose quota was used up and by thread. A cgroup
/// that is not known is 0.
#[derive(Debug, Default)]
pub(crate) struct ThrottledTimes {
    by_cgroup: BTreeMap<CgroupId, BTreeMap<ThreadIndex, Nanos>>,
}

impl ThrottledTimes {
    /// Adds up the throttled intervals of all threads.
    pub(crate) fn new(recording: &Recording, timeline: &Timeline) -> Self {
        let tids: BTreeSet<Tid> = recording.throttles.iter().map(|throttle| throttle.tid).collect();
        let mut times = Self::default();
        for (thread, n) in timeline.threads.iter().zip(0..) {
            if !tids.contains(&thread.tid) {
                continue;
            }
            for interval in thread.track.iter() {
                let State::Throttled(index) = interval.state else { continue };
                let Some(throttle) = recording.throttles.get(index.0 as usize) else { continue };
                let threads = times.by_cgroup.entry(throttle.cgroup).or_default();
                *threads.entry(ThreadIndex(n)).or_default() += interval.to.since(interval.from);
            }
        }
        times
    }

    /// Returns the cgroups with the threads that their quotas kept from running.
    pub(crate) fn cgroups(
        &self,
    ) -> impl Iterator<Item = (CgroupId, &BTreeMap<ThreadIndex, Nanos>)> {
        self.by_cgroup.iter().map(|(&cgroup, threads)| (cgroup, threads))
    }

    /// Returns the cgroup whose quota kept threads from running for nearly all of the time in which
    /// any did. None if there are several, or if it is not known.
    pub(crate) fn main_cgroup<'t>(
        &self,
        threads: impl Iterator<Item = &'t ThreadIndex> + Clone,
    ) -> Option<CgroupId> {
        let time_of = |times: &BTreeMap<ThreadIndex, Nanos>| -> Nanos {
            threads.clone().filter_map(|thread| times.get(thread).copied()).sum()
        };
        let times: Vec<_> = self.cgroups().map(|(id, times)| (id, time_of(times))).collect();
        let all: Nanos = times.iter().map(|&(_, time)| time).sum();
        let (cgroup, time) = times.into_iter().max_by_key(|&(_, time)| time)?;
        let is_main = time > Nanos(0) && time.0 as f64 >= all.0 as f64 * MAIN_QUOTA;
        (is_main && cgroup != CgroupId(0)).then_some(cgroup)
    }
}

/// Describes a quota: `the CPU quota of /shop: 20 ms in 100 ms`; as far as it is known.
pub(crate) fn describe_quota(quota: Option<&CpuQuota>) -> String {
    let Some(CpuQuota { path, quota, period, .. }) = quota else {
        return "a CPU quota".to_owned();
    };
    let path = crate::text::terminal(path);
    format!("the CPU quota of {path}: {} in {}", milliseconds(*quota), milliseconds(*period))
}

/// Describes a quota in the fewest words: `cgroup /shop.slice, quota 0.2 CPU`; none if it is not known.
pub(crate) fn describe_quota_briefly(quota: Option<&CpuQuota>) -> Option<String> {
    let CpuQuota { path, quota, period, .. } = quota?;
    if *period == Nanos(0) {
        return None;
    }
    let cpus = format!("{:.2}", quota.0 as f64 / period.0 as f64);
    let cpus = cpus.trim_end_matches('0').trim_end_matches('.');
    let unit = if quota <= period { "CPU" } else { "CPUs" };
    Some(format!("cgroup {}, quota {cpus} {unit}", crate::text::terminal(path)))
}

/// Returns whole milliseconds as people write quotas, `20 ms`; other lengths with their digits.
fn milliseconds(time: Nanos) -> String {
    const MILLISECOND: u64 = 1_000_000;
    if time.0.is_multiple_of(MILLISECOND) {
        format!("{} ms", time.0 / MILLISECOND)
    } else {
        time.to_string()
    }
}

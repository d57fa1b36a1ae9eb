//! The CPU quotas that kept threads from running.

use std::cmp::Reverse;

use offwake_recording::{
    CpuQuota, Recording,
    units::{CgroupId, Nanos},
};

use crate::{
    container_labels::ContainerLabels,
    quotas::ThrottledTimes,
    timeline::{ThreadIndex, Timeline},
};

use super::{QuotaCountEntry, QuotaEntry, ThreadName, ThrottledThread};

/// The most threads that are listed of a quota.
const MAX_THREADS: usize = 100;

/// Lists the quotas, that with the most throttled time first.
pub(super) fn quota_entries(recording: &Recording, timeline: &Timeline) -> Vec<QuotaEntry> {
    let labels = ContainerLabels::new(recording);
    let times = ThrottledTimes::new(recording, timeline);
    let mut entries: Vec<QuotaEntry> = (times.cgroups())
        .map(|(cgroup, threads)| {
            let quota = recording.quotas.get(&cgroup);
            let mut by_time: Vec<_> = threads.iter().map(|(&id, &time)| (id, time)).collect();
            by_time.sort_by_key(|&(thread, time)| (Reverse(time), thread));
            QuotaEntry {
                cgroup: (cgroup != CgroupId(0)).then_some(cgroup),
                path: quota.map(|quota| quota.path.clone()),
                quota_ns: quota.map(|quota| quota.quota),
                period_ns: quota.map(|quota| quota.period),
                throttled_ns: by_time.iter().map(|&(_, time)| time).sum(),
                counted: quota.map(count_entry),
                threads: (by_time.into_iter().take(MAX_THREADS))
                    .filter_map(|(id, ns)| throttled_thread(timeline, &labels, id, ns))
                    .collect(),
            }
        })
        .collect();
    entries.sort_by_key(|entry| Reverse(entry.throttled_ns));
    entries
}

fn throttled_thread(
    timeline: &Timeline,
    labels: &ContainerLabels,
    index: ThreadIndex,
    ns: Nanos,
) -> Option<ThrottledThread> {
    let thread = timeline.thread(index)?;
    Some(ThrottledThread {
        thread: ThreadName {
            tid: thread.tid,
            tgid: thread.tgid,
            comm: thread.last_comm().to_owned(),
            container: labels.for_thread(thread).map(str::to_owned),
        },
        ns,
    })
}

fn count_entry(quota: &CpuQuota) -> QuotaCountEntry {
    let CpuQuota { first, last, .. } = quota;
    QuotaCountEntry {
        from_ns: first.at,
        to_ns: last.at,
        periods: last.periods.saturating_sub(first.periods),
        throttled_periods: last.throttled_periods.saturating_sub(first.throttled_periods),
        throttled_ns: last.throttled - first.throttled,
    }
}

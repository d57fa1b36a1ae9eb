//! Builds the report from the timeline and blame.

use std::collections::{BTreeMap, HashSet};

use offwake_recording::{
    Clocks, HalfCounts, ProgramTime, Recording, StackCounts, ThreadEventReason,
    units::{CgroupId, Nanos, Tgid, Tid, Timestamp},
};
use rayon::prelude::*;

use crate::{
    blame::{self, Blame, External, Reason},
    container_labels::ContainerLabels,
    filter::{Filter, IdleWaits, ThreadKinds},
    timeline::{NAMELESS, State, Thread, ThreadIndex, Timeline},
};

use super::{
    CgroupEntry, EntryLimits, FilterNote, HalfCountsEntry, LedgerEntry, LossNote, Meta,
    MistakenThread, ProcessEntry, ProgramsEntry, RecordingIntegrity, Report, RingFull,
    StackCountsEntry, ThreadEntry, UnansweredNote, WindowEntry, containers, markers,
    overhead::overhead_entry,
    overview::{Overview, OverviewSums},
    quotas,
};

impl Report {
    /// Builds the report. The filter selects its waits; the ledgers always cover all of them.
    #[must_use]
    pub fn new(blame: &Blame<'_>, filter: &Filter) -> Self {
        Overview::new(blame, filter).complete(blame, EntryLimits::NONE)
    }

    /// Builds the report without its waits and wakes.
    pub(super) fn without_entries(blame: &Blame<'_>, filter: &Filter, sums: OverviewSums) -> Self {
        let (recording, timeline) = (blame.recording(), blame.timeline());
        let samples = count_samples(recording, timeline);
        Self {
            schema: "offwake.report/1",
            meta: meta(recording, timeline),
            window: window_entry(recording),
            loss: loss(recording, timeline),
            recording: RecordingIntegrity::from_recording(recording),
            filter: FilterNote {
                min_ns: filter.min,
                max_ns: filter.max,
                kinds: match filter.kinds {
                    ThreadKinds::All => "all",
                    ThreadKinds::User => "user",
                    ThreadKinds::Kernel => "kernel",
                },
                states: filter.states.clone(),
                conditions: filter.conditions.iter().map(ToString::to_string).collect(),
                band: filter.requests.as_ref().map(|requests| requests.band().to_owned()),
                left_out_count: sums.left_out_count,
                left_out_ns: sums.left_out,
                limited_count: 0,
                limited_ns: Nanos(0),
                limited_waits: 0,
                limited_waits_ns: Nanos(0),
                limited_wakes: 0,
                limited_wakes_ns: Nanos(0),
                hide_idle: filter.idle == IdleWaits::Hidden,
                hidden: (filter.hidden.iter())
                    .map(|&group| (group.name(), sums.group_time(group)))
                    .collect(),
            },
            processes: processes(recording, timeline, &sums.ledgers),
            cgroups: cgroups(recording, timeline, &sums.ledgers),
            quotas: quotas::quota_entries(recording, timeline),
            containers: containers::container_entries(recording, timeline),
            markers: markers::markers_entry(blame),
            threads: target_threads(timeline)
                .map(|(index, thread)| {
                    let samples = samples.get(&index).copied().unwrap_or(0);
                    thread_entry(thread, &sums.ledgers[index.0 as usize], samples)
                })
                .collect(),
            findings: sums.findings,
            wakes: Vec::new(),
            waits: Vec::new(),
        }
    }
}

/// The time that a recording covers.
pub(crate) fn window_entry(recording: &Recording) -> WindowEntry {
    let window = recording.meta.window;
    WindowEntry {
        start_ns: window.start,
        end_ns: window.end,
        duration_ns: window.length(),
        start_unix_ns: unix_time(recording, window.start),
    }
}

fn meta(recording: &Recording, timeline: &Timeline) -> Meta {
    let meta = &recording.meta;
    Meta {
        offwake: meta.version.clone(),
        target: timeline.selected_target().unwrap_or(&meta.target).to_owned(),
        scope: meta.scope.name(),
        stacks: meta.stacks.name(),
        stack_counts: stack_counts(recording.profiler_cost.stacks),
        mistaken: mismatched_threads(recording),
        programs: program_times(recording.profiler_cost.programs),
        overhead: overhead_entry(recording),
        sample_hz: meta.sample_hz,
        kernel: meta.kernel.clone(),
        host: meta.host.clone(),
        own_cpu_ns: meta.own_cpu,
        closed_by: meta.closed_by.name(),
    }
}

fn stack_counts(counts: StackCounts) -> StackCountsEntry {
    let half = |counts: HalfCounts| HalfCountsEntry {
        recognised: counts.recognised,
        taken: counts.taken,
        checked: counts.checked,
        disagreed: counts.disagreed,
        by_registers: counts.by_registers,
        by_registers_checked: counts.by_registers_checked,
        by_registers_disagreed: counts.by_registers_disagreed,
    };
    let StackCounts { user, kernel, over_budget, distrusted, thinned_out } = counts;
    StackCountsEntry {
        user: half(user),
        kernel: half(kernel),
        over_budget,
        distrusted,
        thinned_out,
    }
}

fn mismatched_threads(recording: &Recording) -> Vec<MistakenThread> {
    let mut seen = HashSet::new();
    (recording.thread_events.iter())
        .filter(|thread_event| {
            thread_event.reason == ThreadEventReason::Mistaken && seen.insert(thread_event.tid)
        })
        .map(|thread_event| MistakenThread {
            pid: thread_event.tgid,
            tid: thread_event.tid,
            comm: thread_event.comm.clone(),
        })
        .collect()
}

fn program_times(time: ProgramTime) -> Option<ProgramsEntry> {
    let ProgramTime { measured, scheduler, interrupts } = time;
    (measured.0 > 0).then_some(ProgramsEntry {
        measured_ns: measured,
        scheduler_ns: scheduler,
        interrupts_ns: interrupts,
    })
}

/// Returns a moment as Unix time, by the nearest reading of the clocks.
pub(crate) fn unix_time(recording: &Recording, at: Timestamp) -> Option<i64> {
    let distance = |clocks: &&Clocks| clocks.monotonic.0.abs_diff(at.0);
    let nearest = recording.clocks.iter().min_by_key(distance)?;
    let since = i128::from(at.0) - i128::from(nearest.monotonic.0);
    i64::try_from(i128::from(nearest.realtime_ns) + since).ok()
}

fn loss(recording: &Recording, timeline: &Timeline) -> LossNote {
    let loss = &recording.loss;
    let (gaps, gap_ns) = (timeline.threads.par_iter())
        .map(|thread| {
            let lost = thread.track.iter().filter(|interval| interval.state == State::Lost);
            lost.fold((0, Nanos(0)), |(gaps, time), interval| {
                (gaps + 1, time + interval.to.since(interval.from))
            })
        })
        .reduce(|| (0, Nanos(0)), |one, other| (one.0 + other.0, one.1 + other.1));
    let inferred = timeline.threads.iter().flat_map(|thread| &thread.inferred);
    LossNote {
        records: loss.records,
        stacks: loss.stacks,
        gaps,
        gap_ns,
        undecodable: loss.undecodable,
        over_memory: loss.over_memory,
        counters: loss.counters.clone(),
        ring_full: (loss.ring_full)
            .map(|(first_ns, last_ns): (Timestamp, _)| RingFull { first_ns, last_ns }),
        overlaps: timeline.anomalies.overlaps,
        backwards: timeline.anomalies.backwards,
        stale_wakes: timeline.anomalies.stale_wakes,
        unanswered: (loss.unanswered.iter())
            .map(|row| UnansweredNote {
                kind: row.kind.name(),
                place: row.place.clone(),
                tgid: row.tgid,
                count: row.count,
            })
            .collect(),
        inferred_ns: inferred.map(|&(from, to)| to.since(from)).sum(),
    }
}

/// The target's threads, by tid and time.
fn target_threads(timeline: &Timeline) -> impl Iterator<Item = (ThreadIndex, &Thread)> {
    (timeline.threads.iter().zip(0..))
        .filter(|(thread, _)| thread.in_target)
        .map(|(thread, n)| (ThreadIndex(n), thread))
}

/// How often the sampling clock found each thread on a CPU inside the window.
fn count_samples(recording: &Recording, timeline: &Timeline) -> BTreeMap<ThreadIndex, u64> {
    let window = recording.meta.window;
    let mut samples = BTreeMap::new();
    for sample in &recording.samples {
        if (window.start..window.end).contains(&sample.at)
            && let Some(thread) = timeline.find_thread(sample.tid, sample.at)
        {
            *samples.entry(thread).or_default() += 1;
        }
    }
    samples
}

fn thread_entry(thread: &Thread, sum: &blame::Ledger, samples: u64) -> ThreadEntry {
    ThreadEntry {
        tid: thread.tid,
        tgid: thread.tgid,
        comm: thread.last_comm().to_owned(),
        created_ns: thread.created,
        samples,
        ledger: ledger_entry(sum),
    }
}

/// The sums of a process's threads.
#[derive(Default)]
struct ProcessSum<'t> {
    ledger: blame::Ledger,
    threads: u64,
    /// The thread that the process is named after.
    first: Option<&'t Thread>,
}

fn processes(
    recording: &Recording,
    timeline: &Timeline,
    ledgers: &[blame::Ledger],
) -> Vec<ProcessEntry> {
    let (labels, inner) = (ContainerLabels::new(recording), containers::inner_pids(recording));
    let mut sums: BTreeMap<Tgid, ProcessSum<'_>> = BTreeMap::new();
    for ((_, thread), ledger) in target_ledgers(timeline, ledgers) {
        let sum = sums.entry(thread.tgid).or_default();
        sum.ledger.add(ledger);
        sum.threads += 1;
        if sum.first.is_none() || thread.tid == Tid(thread.tgid.0) {
            sum.first = Some(thread);
        }
    }
    (sums.into_iter())
        .map(|(tgid, sum)| ProcessEntry {
            tgid,
            comm: sum.first.map_or(NAMELESS, Thread::last_comm).to_owned(),
            container: sum.first.and_then(|thread| labels.for_thread(thread)).map(str::to_owned),
            pid_in_container: inner.get(&tgid).copied(),
            threads: sum.threads,
            ledger: ledger_entry(&sum.ledger),
        })
        .collect()
}

fn target_ledgers<'a>(
    timeline: &'a Timeline,
    ledgers: &'a [blame::Ledger],
) -> impl Iterator<Item = ((ThreadIndex, &'a Thread), &'a blame::Ledger)> {
    target_threads(timeline)
        .filter_map(|(index, thread)| Some(((index, thread), ledgers.get(index.0 as usize)?)))
}

fn cgroups(
    recording: &Recording,
    timeline: &Timeline,
    ledgers: &[blame::Ledger],
) -> Vec<CgroupEntry> {
    let mut sums: BTreeMap<CgroupId, (blame::Ledger, u64)> = BTreeMap::new();
    for ((_, thread), ledger) in target_ledgers(timeline, ledgers) {
        let Some(cgroup) = thread.cgroup else { continue };
        let (sum, threads) = sums.entry(cgroup).or_default();
        sum.add(ledger);
        *threads += 1;
    }
    (sums.into_iter())
        .map(|(id, (sum, threads))| {
            let known = recording.cgroups.get(&id);
            CgroupEntry {
                id,
                path: known.map(|cgroup| cgroup.path.clone()),
                container: known
                    .and_then(|cgroup| cgroup.container.as_ref())
                    .map(|c| c.as_str().to_owned()),
                threads,
                ledger: ledger_entry(&sum),
            }
        })
        .collect()
}

fn ledger_entry(sum: &blame::Ledger) -> LedgerEntry {
    let parts = |named: &mut dyn Iterator<Item = (&'static str, Nanos)>| {
        named.filter(|&(_, time)| time > Nanos(0)).collect()
    };
    LedgerEntry {
        wall_ns: sum.wall,
        on_cpu_ns: sum.on_cpu,
        runnable_ns: sum.runnable,
        throttled_ns: sum.throttled,
        blocked_ns: sum.blocked,
        attributed_ns: sum.attributed(),
        external_ns: sum.external(),
        unattributed_ns: sum.unattributed(),
        attributed: parts(&mut [("work", sum.work), ("cpu_queue", sum.cpu_queue)].into_iter()),
        external: parts(&mut External::ALL.iter().map(|e| e.name()).zip(sum.external)),
        idle_ns: sum.idle,
        unattributed: parts(&mut Reason::ALL.iter().map(|r| r.name()).zip(sum.unattributed)),
    }
}

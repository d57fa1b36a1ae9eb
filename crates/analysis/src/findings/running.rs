//! What the target's threads ran, and who had the CPUs that they waited for.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use indexmap::IndexMap;
use offwake_recording::{
    CpuQuota,
    units::{Cpu, Nanos},
};
use rayon::prelude::*;

use crate::{
    blame::{Blame, BlameClass, BlameEntryKind, StackPairId},
    quotas::{describe_quota, describe_quota_briefly},
    timeline::{ThreadIndex, Timeline},
};

use super::{
    activity::Activity,
    cpu_holders::{self, are_holders_known},
    found::Found,
    hop_tree::{HopBox, TimeByClass},
    model::{Finding, FindingCause, FindingHop, FindingKind, FindingLine},
    programs::{ProgramId, ProgramKind},
    tree::{count_threads, main_threads},
    who::{self, program_name},
    write::{FindingWriter, describe_hop, describe_hop_without_function, function_of_hop},
};

/// Threads that waited for a CPU for at least this part of the active time were starved of it, if others had
/// the CPUs meanwhile.
const STARVED: f64 = 0.25;
/// The most programs named that had the CPUs.
const MAX_HOLDERS: usize = 3;

/// What threads of one program did on CPUs and in their queues.
#[derive(Default)]
struct Ran {
    on_cpu: Nanos,
    queued: Nanos,
    /// The time without a CPU in which it waited for another thread rather than for a CPU.
    awaiting: Nanos,
    throttled: Nanos,
    on_cpu_threads: BTreeMap<ThreadIndex, Nanos>,
    queued_threads: BTreeMap<ThreadIndex, Nanos>,
    throttled_threads: BTreeMap<ThreadIndex, Nanos>,
    // Every sample and every interval in a CPU's queue is looked up here.
    stacks: HashMap<StackPairId, Nanos, foldhash::fast::RandomState>,
    holders: IndexMap<Option<ProgramId>, Nanos, foldhash::fast::RandomState>,
}

impl Ran {
    /// Returns for how long it is known who had the CPUs that its threads waited for.
    fn held(&self) -> Nanos {
        self.holders.iter().filter_map(|(holder, &time)| holder.map(|_| time)).sum()
    }
}

/// What is said in pictures of programs that did either for a while.
const RUNS_OR_WAITS_TO: &str = "runs on a CPU, or waits for one";

/// What the target's programs ran, and for how long they waited to.
pub(super) struct RunningPrograms {
    /// Those that did for much of the time.
    pub(super) found: Vec<Found>,
    /// The time of all others, and of the kernel's threads, for pictures.
    pub(super) others: Vec<HopBox>,
}

/// Finds the programs of the target that ran, or waited to run.
pub(super) fn find(
    blame: &Blame<'_>,
    activity: &Activity<'_>,
    writer: &mut FindingWriter<'_>,
) -> RunningPrograms {
    let timeline = blame.timeline();
    let mut running = Vec::new();
    let mut kernel = HopBox {
        who: "kernel threads".to_owned(),
        what: RUNS_OR_WAITS_TO.to_owned(),
        ..HopBox::default()
    };
    for ((thread, ledger), n) in timeline.threads.iter().zip(activity.ledgers).zip(0..) {
        if !thread.in_target || ledger.on_cpu + ledger.runnable == Nanos(0) {
            continue;
        }
        let index = ThreadIndex(n);
        let program = writer.words.programs.program_of_thread(index);
        let is_kernel = (writer.words.programs.program(program))
            .is_none_or(|known| known.kind == ProgramKind::Kernel);
        if is_kernel {
            kernel.time += TimeByClass::new(BlameClass::Work, ledger.on_cpu);
            kernel.time += TimeByClass::new(BlameClass::CpuQueue, ledger.runnable);
            continue;
        }
        running.push((index, program, ledger));
    }
    let holders: Vec<_> =
        running.par_iter().map(|&(thread, ..)| add_up_holders(blame, thread)).collect();
    let mut programs: IndexMap<ProgramId, Ran> = IndexMap::new();
    for ((index, program, ledger), holders) in running.into_iter().zip(holders) {
        let ran = programs.entry(program).or_default();
        ran.on_cpu += ledger.on_cpu;
        let awaiting = time_awaiting(blame, index, holders.values().copied().sum());
        let queued = ledger.runnable - ledger.throttled - awaiting;
        ran.awaiting += awaiting;
        ran.queued += queued;
        ran.throttled += ledger.throttled;
        ran.on_cpu_threads.insert(index, ledger.on_cpu);
        ran.queued_threads.insert(index, queued);
        ran.throttled_threads.insert(index, ledger.throttled);
        for (stack, time) in blame.sampled_work(index) {
            *ran.stacks.entry(stack).or_default() += time;
        }
        for (holder, time) in holders {
            let holder = holder.map(|thread| writer.words.programs.program_of_thread(thread));
            *ran.holders.entry(holder).or_default() += time;
        }
    }
    let mut found = Vec::new();
    let mut others = vec![kernel];
    for (program, ran) in programs {
        let mut untold = TimeByClass::new(BlameClass::CpuQueue, ran.awaiting);
        if writer.share(ran.throttled) > 0.05 {
            let finding = throttled_finding(program, &ran, writer);
            found.push(Found::new(finding, BlameClass::Throttled));
        } else {
            untold += TimeByClass::new(BlameClass::Throttled, ran.throttled);
        }
        let queued = writer.share(ran.queued);
        if queued > 0.05 {
            let kind = match queued >= STARVED && are_holders_known(ran.held(), ran.queued) {
                true => FindingKind::CpuStarvation,
                false => FindingKind::Wait,
            };
            let finding = cpu_queue_finding(program, &ran, kind, writer);
            found.push(Found::new(finding, BlameClass::CpuQueue));
        } else {
            untold += TimeByClass::new(BlameClass::CpuQueue, ran.queued);
        }
        if writer.share(ran.on_cpu) > 0.05 {
            found.push(Found::new(on_cpu_finding(program, &ran, writer), BlameClass::Work));
        } else {
            untold += TimeByClass::new(BlameClass::Work, ran.on_cpu);
        }
        let name = writer.words.programs.program(program).map(program_name);
        others.push(HopBox {
            who: name.unwrap_or_default(),
            what: RUNS_OR_WAITS_TO.to_owned(),
            time: untold,
            ..HopBox::default()
        });
    }
    others.retain(|program| program.time.sum() > Nanos(0));
    RunningPrograms { found, others }
}

/// Returns how long a thread had no CPU and would have waited for another thread on any CPU, too. Who that is
/// is told where it waits for that one.
fn time_awaiting(blame: &Blame<'_>, thread: ThreadIndex, queued: Nanos) -> Nanos {
    let times = blame.timeline().thread(thread).map(|life| life.track.total_times());
    let runnable = times.map_or(Nanos(0), |times| times.runnable - times.throttled);
    Nanos(runnable.0.saturating_sub(queued.0))
}

/// Returns who had the CPUs that a thread waited for, in the order in which they were met.
fn add_up_holders(
    blame: &Blame<'_>,
    thread: ThreadIndex,
) -> IndexMap<Option<ThreadIndex>, Nanos, foldhash::fast::RandomState> {
    let mut holders = IndexMap::default();
    blame.visit_cpu_holders(thread, |holder, time| {
        *holders.entry(holder).or_default() += time;
    });
    holders
}

fn on_cpu_finding(program: ProgramId, ran: &Ran, writer: &mut FindingWriter<'_>) -> Finding {
    let stacks = ran.stacks.iter().map(|(&stack, &time)| (stack, time));
    let label = writer.meanings.work_label(stacks);
    let function = label.map(|label| label.function.to_string());
    let what = "runs on a CPU".to_owned();
    let hop = writer.words.counted_hop(program, &ran.on_cpu_threads, function, what, ran.on_cpu);
    let share = writer.share(ran.on_cpu);
    let text = describe_hop(&hop);
    Finding {
        disk: None,
        same_cause_as: None,
        with_same_cause: None,
        kind: FindingKind::OnCpu,
        share,
        ns: ran.on_cpu,
        threads: count_threads(&ran.on_cpu_threads),
        count: 0,
        longest_ns: Nanos(0),
        still_waiting: false,
        cause: FindingCause {
            kind: "work",
            reason: None,
            share,
            ns: ran.on_cpu,
            text: text.clone(),
        },
        lines: vec![FindingLine {
            depth: 0,
            text: describe_hop_without_function(&hop),
            function: function_of_hop(&hop),
            addition: None,
            detail: writer.time_of_threads(ran.on_cpu, &ran.on_cpu_threads),
            share,
            is_cause: true,
        }],
        chain: vec![hop],
        text,
    }
}

impl FindingWriter<'_> {
    fn time_of_threads(&self, time: Nanos, times: &BTreeMap<ThreadIndex, Nanos>) -> String {
        let window = self.words.recording.meta.window.length();
        who::time_of_threads(time, count_threads(times), window)
    }

    /// `3.20 of 4.00 s`, `12.8 s over 4 threads`
    fn part_of_window(&self, time: Nanos, times: &BTreeMap<ThreadIndex, Nanos>) -> String {
        let (threads, window) = (count_threads(times), self.words.recording.meta.window.length());
        if threads > 1 {
            return format!("{time} over {threads} threads");
        }
        let (time, window) = (time.to_string(), window.to_string());
        match (time.split_once(' '), window.split_once(' ')) {
            (Some((number, unit)), Some((_, of))) if unit == of => format!("{number} of {window}"),
            _ => format!("{time} of {window}"),
        }
    }
}

fn throttled_finding(program: ProgramId, ran: &Ran, writer: &mut FindingWriter<'_>) -> Finding {
    let threads = main_threads(&ran.throttled_threads);
    let quota = writer.words.main_quota(threads.iter());
    let what = writer.words.throttled_by(threads.iter());
    let hop = writer.words.counted_hop(program, &ran.throttled_threads, None, what, ran.throttled);
    let share = writer.share(ran.throttled);
    let text = describe_hop(&hop);
    let first = FindingHop { what: "is throttled".to_owned(), ..hop.clone() };
    let throttled = describe_hop_without_function(&first);
    let brief = describe_quota_briefly(quota);
    let mut cause = describe_quota(quota);
    if let Some(CpuQuota { first, last, .. }) = quota {
        let periods = last.periods.saturating_sub(first.periods);
        let used_up = last.throttled_periods.saturating_sub(first.throttled_periods);
        if periods > 0 {
            cause.push_str(&format!(", used up in {used_up} of {periods} periods"));
        }
    }
    Finding {
        disk: None,
        same_cause_as: None,
        with_same_cause: None,
        kind: FindingKind::Throttled,
        share,
        ns: ran.throttled,
        threads: count_threads(&ran.throttled_threads),
        count: 0,
        longest_ns: Nanos(0),
        still_waiting: false,
        cause: FindingCause {
            kind: BlameEntryKind::Throttled.name(),
            reason: None,
            share,
            ns: ran.throttled,
            text: text.clone(),
        },
        lines: vec![
            FindingLine {
                depth: 0,
                text: match brief {
                    Some(brief) => format!("{brief}: {throttled}"),
                    None => throttled,
                },
                function: None,
                addition: None,
                detail: writer.part_of_window(ran.throttled, &ran.throttled_threads),
                share,
                is_cause: false,
            },
            FindingLine::without_function(cause, share, true),
        ],
        chain: vec![hop],
        text,
    }
}

/// Returns on how many CPUs the threads ran that waited for one. A program that is bound to one
/// CPU of a large machine can be short of it.
fn count_cpus(ran: &Ran, timeline: &Timeline) -> usize {
    let waited = ran.queued_threads.iter().filter(|&(_, &time)| time > Nanos(0));
    let cpus: BTreeSet<Cpu> = waited
        .filter_map(|(&thread, _)| Some(&timeline.thread(thread)?.track))
        .flat_map(|track| (0..track.len()).filter_map(|place| track.cpu(place)))
        .collect();
    cpus.len()
}

fn cpu_queue_finding(
    program: ProgramId,
    ran: &Ran,
    kind: FindingKind,
    writer: &mut FindingWriter<'_>,
) -> Finding {
    let mut holders: Vec<_> = ran.holders.iter().map(|(&id, &time)| (id, time)).collect();
    holders.sort_by_key(|&(_, time)| std::cmp::Reverse(time));
    let known: Vec<_> = (holders.iter())
        .filter_map(|&(id, time)| Some((id?, time)))
        .filter_map(|(id, time)| Some((writer.words.programs.program(id)?, id, time)))
        .collect();
    let names = known.iter().map(|&(holder, id, time)| {
        let name = program_name(holder);
        (if id == program { format!("other threads of {name}") } else { name }, time)
    });
    let what = cpu_holders::name_holders(names, ran.queued).describe_wait();
    let hop = writer.words.counted_hop(program, &ran.queued_threads, None, what, ran.queued);
    let share = writer.share(ran.queued);
    let text = describe_hop(&hop);
    let shown: Vec<_> = (known.iter().take(MAX_HOLDERS))
        .filter(|&&(_, _, time)| cpu_holders::is_holder(time, ran.queued))
        .collect();
    let time = writer.time_of_threads(ran.queued, &ran.queued_threads);
    let mut lines = vec![FindingLine {
        depth: 0,
        text: describe_hop_without_function(&hop),
        function: function_of_hop(&hop),
        addition: None,
        detail: match count_cpus(ran, writer.words.timeline) {
            0 => time,
            1 => format!("{time} on 1 CPU"),
            cpus => format!("{time} on {cpus} CPUs"),
        },
        share,
        is_cause: shown.is_empty() && are_holders_known(ran.held(), ran.queued),
    }];
    for (n, (holder, _, time)) in shown.into_iter().enumerate() {
        lines.push(FindingLine::without_function(
            format!("{} had the CPU", program_name(holder)),
            writer.share(*time),
            n == 0,
        ));
    }
    Finding {
        disk: None,
        same_cause_as: None,
        with_same_cause: None,
        kind,
        share,
        ns: ran.queued,
        threads: count_threads(&ran.queued_threads),
        count: 0,
        longest_ns: Nanos(0),
        still_waiting: false,
        cause: FindingCause {
            kind: "cpu_queue",
            reason: None,
            share,
            ns: ran.queued,
            text: text.clone(),
        },
        lines,
        chain: vec![hop],
        text,
    }
}

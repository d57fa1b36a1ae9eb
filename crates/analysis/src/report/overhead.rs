//! What recording cost, and what was given up so that it was no more.

use offwake_recording::{
    DetailStep, DetailStretch, Recording,
    units::{Nanos, Timestamp},
};
use schemars::JsonSchema;
use serde::Serialize;
use strum::VariantArray as _;

use super::styled_lines::percent;

/// What recording cost, by the programs' own clock and the CPU time of the profiler's own threads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OverheadEntry {
    /// What the programs in the kernel took of all CPUs.
    pub kernel_ns: Nanos,
    /// What the profiler's own threads took.
    pub own_ns: Nanos,
    /// The time of all CPUs that were online: those that idled count, too.
    pub cpu_time_ns: Nanos,
    /// What it might have taken (`--max-overhead`); null without a limit.
    pub limit_ns: Option<Nanos>,
    /// Which detail was recorded when; one behind the other.
    pub stretches: Vec<DetailStretchEntry>,
}

/// A stretch of time in which the same detail was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DetailStretchEntry {
    /// Its first moment.
    pub from_ns: Timestamp,
    /// The first moment after it.
    pub until_ns: Timestamp,
    /// What was given up ([`offwake_recording::DetailStep::name`]), besides what the steps before give up.
    pub step: &'static str,
    /// Of `fewer_waker_stacks`, how long the waits are whose enders have stacks.
    pub threshold_ns: Option<Nanos>,
    /// As in the sums.
    pub kernel_ns: Nanos,
    /// As in the sums.
    pub own_ns: Nanos,
    /// As in the sums.
    pub cpu_time_ns: Nanos,
    /// As in the sums.
    pub limit_ns: Option<Nanos>,
}

/// Returns what a recording cost; none if it was not measured.
pub(super) fn overhead_entry(recording: &Recording) -> Option<OverheadEntry> {
    let mut stretches: Vec<DetailStretch> = Vec::new();
    for &next in &recording.detail {
        let next = match stretches.last_mut() {
            Some(last) => last.extend(next).err(),
            None => Some(next),
        };
        stretches.extend(next);
    }
    let sum = |of: fn(&DetailStretch) -> Nanos| stretches.iter().map(of).sum();
    (!stretches.is_empty()).then(|| OverheadEntry {
        kernel_ns: sum(|stretch| stretch.kernel_cost),
        own_ns: sum(|stretch| stretch.own_cost),
        cpu_time_ns: sum(|stretch| stretch.cpu_time),
        limit_ns: stretches.iter().map(|stretch| stretch.limit).sum(),
        stretches: stretches.iter().map(stretch_entry).collect(),
    })
}

fn stretch_entry(stretch: &DetailStretch) -> DetailStretchEntry {
    DetailStretchEntry {
        from_ns: stretch.from,
        until_ns: stretch.until,
        step: stretch.step.name(),
        threshold_ns: stretch.threshold,
        kernel_ns: stretch.kernel_cost,
        own_ns: stretch.own_cost,
        cpu_time_ns: stretch.cpu_time,
        limit_ns: stretch.limit,
    }
}

/// Describes in a line what recording cost.
pub(super) fn describe_cost(entry: &OverheadEntry) -> String {
    let OverheadEntry { kernel_ns, own_ns, cpu_time_ns, .. } = *entry;
    format!(
        "recording took {} of all CPUs: {} in the kernel, {} in offwake's own threads{}",
        percent(kernel_ns + own_ns, cpu_time_ns),
        percent(kernel_ns, cpu_time_ns),
        percent(own_ns, cpu_time_ns),
        describe_limit(entry).map(|limit| format!("; the limit was {limit}")).unwrap_or_default(),
    )
}

/// Returns the limit as a share of all CPUs.
fn describe_limit(entry: &OverheadEntry) -> Option<String> {
    entry.limit_ns.map(|limit| percent(limit, entry.cpu_time_ns))
}

/// Describes what was given up, when, and whether that was enough. None if nothing was.
pub(super) fn describe_given_up(entry: &OverheadEntry, start: Timestamp) -> Option<String> {
    let gave_up = |stretch: &&DetailStretchEntry| stretch.step != DetailStep::Full.name();
    let first = entry.stretches.iter().find(gave_up)?;
    let last = entry.stretches.iter().rfind(gave_up)?;
    // What is worst comes first: a screen may have room for little of the line.
    let parts: Vec<String> = (DetailStep::VARIANTS.iter().skip(1).rev())
        .filter_map(|&step| {
            let time = time_from(entry, step);
            (time.0 > 0).then(|| format!("{} for {time}", words(entry, step)))
        })
        .collect();
    Some(format!(
        "detail was given up (--max-overhead {}{}) from {} to {}: {}",
        describe_limit(entry).unwrap_or_default(),
        describe_excess(entry).unwrap_or_default(),
        first.from_ns.since(start),
        last.until_ns.since(start),
        parts.join(", "),
    ))
}

/// For how long a step held, or one that gives up more.
fn time_from(entry: &OverheadEntry, step: DetailStep) -> Nanos {
    let names: Vec<&str> = DetailStep::VARIANTS.iter().map(|step| step.name()).collect();
    let place = |name: &str| names.iter().position(|known| *known == name);
    let held = |stretch: &&DetailStretchEntry| place(stretch.step) >= place(step.name());
    (entry.stretches.iter().filter(held))
        .map(|stretch| stretch.until_ns.since(stretch.from_ns))
        .sum()
}

fn words(entry: &OverheadEntry, step: DetailStep) -> String {
    match step {
        DetailStep::Full => "nothing".to_owned(),
        DetailStep::FewerChecks => "most checks of recognised stacks".to_owned(),
        DetailStep::LongerTrust => "most comparisons of stacks that registers tell".to_owned(),
        DetailStep::ShortWaitsSummed => {
            let most = longest_threshold(entry, &[step, DetailStep::NoStacks]);
            // The steps that give up more have lengths of their own.
            let which = most.map_or("short single waits".to_owned(), |most| {
                format!("single waits shorter than {most} at most")
            });
            format!("{which} (they are summed up)")
        }
        DetailStep::FewerWakerStacks => {
            let most = longest_threshold(entry, &[DetailStep::ShortWaitsSummed, step]);
            let which = most.map_or("short waits".to_owned(), |most| {
                format!("waits shorter than {most} at most")
            });
            format!("stacks of who ended {which}")
        }
        DetailStep::NoStacks => "all stacks".to_owned(),
    }
}

/// Returns the longest threshold of the stretches with one of these steps, if there are any.
fn longest_threshold(entry: &OverheadEntry, steps: &[DetailStep]) -> Option<Nanos> {
    let is_of =
        |stretch: &&DetailStretchEntry| steps.iter().any(|step| step.name() == stretch.step);
    let thresholds = entry.stretches.iter().filter(is_of).filter_map(|s| s.threshold_ns);
    thresholds.max()
}

/// Describes by how much the limit was exceeded although detail was given up; none if it was held.
fn describe_excess(entry: &OverheadEntry) -> Option<String> {
    let last = DetailStep::VARIANTS.last().map(|last| last.name());
    let took = |is_meant: &dyn Fn(&str) -> bool| {
        let (mut cost, mut limit, mut cpu_time) = (Nanos(0), Nanos(0), Nanos(0));
        for stretch in entry.stretches.iter().filter(|stretch| is_meant(stretch.step)) {
            cost += stretch.kernel_ns + stretch.own_ns;
            limit += stretch.limit_ns.unwrap_or_default();
            cpu_time += stretch.cpu_time_ns;
        }
        (cost > limit).then(|| percent(cost, cpu_time))
    };
    let without_stacks = took(&|step| Some(step) == last);
    without_stacks.map(|took| format!(", but it took {took} without stacks")).or_else(|| {
        Some(format!(", but it took {}", took(&|step| step != DetailStep::Full.name())?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stretch of so many tenths of a second on two CPUs, with a limit of a tenth.
    fn stretch(from: u64, until: u64, step: DetailStep, cost: u64) -> DetailStretch {
        let at = |tenths: u64| Timestamp(tenths * 100_000_000);
        let cpu_time = Nanos(2 * (until - from) * 100_000_000);
        DetailStretch {
            from: at(from),
            until: at(until),
            step,
            threshold: (step == DetailStep::FewerWakerStacks).then_some(Nanos(100_000)),
            kernel_cost: Nanos(cost),
            own_cost: Nanos(cost),
            cpu_time,
            limit: Some(Nanos(cpu_time.0 / 10)),
        }
    }

    fn entry(stretches: &[DetailStretch]) -> OverheadEntry {
        let recording = Recording { detail: stretches.to_vec(), ..Recording::default() };
        overhead_entry(&recording).unwrap()
    }

    #[test]
    fn stretches_of_one_step_are_one_and_their_costs_are_summed() {
        let entry = entry(&[
            stretch(0, 10, DetailStep::Full, 1_000),
            stretch(10, 20, DetailStep::Full, 2_000),
            stretch(20, 30, DetailStep::FewerChecks, 4_000),
        ]);
        assert_eq!(entry.stretches.len(), 2);
        assert_eq!((entry.kernel_ns, entry.own_ns), (Nanos(7_000), Nanos(7_000)));
        assert_eq!(entry.limit_ns, Some(Nanos(600_000_000)));
        assert_eq!(entry.stretches[0].until_ns, Timestamp(2_000_000_000));
    }

    #[test]
    fn what_was_given_up_is_said_with_when_and_for_how_long() {
        let start = Timestamp(0);
        let full = entry(&[stretch(0, 10, DetailStep::Full, 0)]);
        assert_eq!(describe_given_up(&full, start), None);
        let less = entry(&[
            stretch(0, 10, DetailStep::Full, 0),
            stretch(10, 15, DetailStep::FewerChecks, 0),
            stretch(15, 20, DetailStep::FewerWakerStacks, 0),
            stretch(20, 30, DetailStep::Full, 0),
        ]);
        assert_eq!(
            describe_given_up(&less, start).unwrap(),
            "detail was given up (--max-overhead 10.0%) from 1.00 s to 2.00 s: stacks of who ended waits shorter than \
             100 us at most for 500 ms, short single waits (they are summed up) for 500 ms, most comparisons of stacks \
             that registers tell for 500 ms, most checks of recognised stacks for 1.00 s"
        );
    }

    #[test]
    fn a_limit_that_could_not_be_held_is_said_to_be_exceeded() {
        let start = Timestamp(0);
        let over = entry(&[stretch(0, 10, DetailStep::NoStacks, 150_000_000)]);
        let words = describe_given_up(&over, start).unwrap();
        assert!(words.contains("10.0%, but it took 15.0% without stacks) from"), "{words}");
        let held = entry(&[stretch(0, 10, DetailStep::NoStacks, 90_000_000)]);
        assert!(!describe_given_up(&held, start).unwrap().contains("but it took"));
        // Not everything was given up.
        let over = entry(&[stretch(0, 10, DetailStep::FewerChecks, 150_000_000)]);
        let words = describe_given_up(&over, start).unwrap();
        assert!(words.contains("10.0%, but it took 15.0%) from"), "{words}");
    }

    #[test]
    fn recordings_of_earlier_builds_have_no_costs() {
        assert_eq!(overhead_entry(&Recording::default()), None);
    }
}

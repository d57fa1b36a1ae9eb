//! What was measured beside what it is to be.

use super::{
    finish::Finish,
    full_speed::FullSpeed,
    per_switch::{PerSwitch, ProgramSet},
    setup::{OverheadSetup, Stacks},
    slowdown::{Beside, Slowdown},
    steady::Steady,
    workloads::WorkloadKind,
};
use crate::{process::megabytes, spread::Spread};
use xtask::markdown_table::MarkdownTable;

/// All that was measured in one run.
#[derive(Default)]
pub struct Results {
    pub per_switch: Option<PerSwitch>,
    pub slowdowns: Option<Vec<Slowdown>>,
    pub full_speeds: Option<Vec<FullSpeed>>,
    pub steady: Option<Steady>,
    pub finishes: Option<Vec<Finish>>,
}

impl Results {
    /// The recording at full speed in one mode.
    pub fn full_speed(&self, stacks: Stacks) -> Option<&FullSpeed> {
        self.full_speeds.iter().flatten().find(|one| one.stacks == stacks)
    }
}

/// How a figure stands to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    /// The median is within the limit, some rounds are not.
    MetByTheMedian,
    MissedByTheMedian,
    Missed,
    /// The figure was not measured, or this build lacks what is to be measured.
    Open,
}

impl Verdict {
    fn judge(figure: Option<Spread>, limit: f64) -> Self {
        match figure {
            None => Self::Open,
            Some(Spread { max, .. }) if max <= limit => Self::Met,
            Some(Spread { min, .. }) if min > limit => Self::Missed,
            Some(Spread { median, .. }) if median <= limit => Self::MetByTheMedian,
            Some(_) => Self::MissedByTheMedian,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::MetByTheMedian => "met by the median, not by every round",
            Self::MissedByTheMedian => "**missed** by the median, not by every round",
            Self::Missed => "**missed**",
            Self::Open => "not measured",
        }
    }
}

/// A row for every target.
///
/// # Errors
///
/// When a measurement lacks what it must have.
pub fn table(setup: &OverheadSetup, results: &Results) -> anyhow::Result<String> {
    let mut table = MarkdownTable::new(["what", "measured", "target", "verdict"]);
    let mut row = |what: String, figure: Option<Spread>, limit: f64, show: fn(f64) -> String| {
        let measured = figure.map_or(String::new(), |Spread { median, min, max }| {
            if min < max {
                format!("{} ({} – {})", show(median), show(min), show(max))
            } else {
                show(median)
            }
        });
        let verdict = Verdict::judge(figure, limit).words().to_owned();
        table.push_row([what, measured, format!("<= {}", show(limit)), verdict]);
    };
    let default = setup.default_mode();
    let per_switch = results.per_switch.as_ref();
    let ns = |stacks| per_switch?.ns(ProgramSet::Offwake(stacks));
    let of_a_walk = |stacks| per_switch?.share_of_walk(ProgramSet::Offwake(stacks));
    row("ns per switch with its wake, `cached`".to_owned(), ns(Stacks::Cached), 400.0, whole_ns);
    row("the same, of a double stack walk".to_owned(), of_a_walk(Stacks::Cached), 0.16, times);
    row("`exact`, of a double stack walk".to_owned(), of_a_walk(Stacks::Exact), 1.15, times);
    row("ns per switch with its wake, `off`".to_owned(), ns(Stacks::Off), 220.0, whole_ns);
    let interrupts = per_switch.and_then(|all| all.interrupts(default));
    let what = format!("interrupt bookkeeping, of all of `{}`", default.name());
    row(what, interrupts, 0.02, percent);
    let slowdown = |kind| {
        let all = results.slowdowns.as_ref()?;
        all.iter().find(|one| one.workload == kind && one.beside == Beside::Offwake(default))
    };
    for (kind, limit) in [(WorkloadKind::Pipe, 1.35), (WorkloadKind::RedisOneClient, 1.05)] {
        let ratio = slowdown(kind).map(|one| one.ratio);
        row(format!("slowdown: {}", kind.title()), ratio, limit, times);
    }
    for (kind, limit) in [
        (WorkloadKind::RedisManyClients, 0.03),
        (WorkloadKind::Messaging, 0.10),
        (WorkloadKind::Postgres, 0.03),
    ] {
        let lost = slowdown(kind).map(Slowdown::lost);
        row(format!("throughput lost: {}", kind.title()), lost, limit, percent);
    }
    let full_speed = results.full_speed(default);
    let lost = full_speed.map(|all| Spread::single(all.reported.lost as f64));
    let seconds = full_speed.map_or(60.0, FullSpeed::seconds);
    let what = format!("records lost at full speed, {seconds:.0} s");
    row(what, lost, 0.0, |count| format!("{count:.0}"));
    let steady = results.steady.as_ref();
    let core = steady.map(Steady::core_at_rate).transpose()?.map(Spread::single);
    row("own CPU at 100,000 switches a second, of one core".to_owned(), core, 0.05, percent);
    let peak = steady.map(|steady| Spread::single(megabytes(steady.peak())));
    let show = |megabytes| format!("{megabytes:.0} MB");
    row("resident memory, peak, over its whole length".to_owned(), peak, 100.0, show);
    for finish in results.finishes.iter().flatten().filter(|finish| finish.has_a_target()) {
        let ended = finish.ended().map(Spread::single);
        row(finish.title(), ended, 5.0, |seconds| format!("{seconds:.1} s"));
    }
    Ok(table.markdown())
}

fn whole_ns(ns: f64) -> String {
    format!("{ns:.0} ns")
}

fn times(ratio: f64) -> String {
    format!("{ratio:.3} ×")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_at_its_limit_meets_it_and_one_that_was_not_taken_does_not() {
        assert_eq!(Verdict::judge(Some(Spread::single(0.0)), 0.0), Verdict::Met);
        assert_eq!(Verdict::judge(Some(Spread::single(1.36)), 1.35), Verdict::Missed);
        assert_eq!(Verdict::judge(None, 1.35), Verdict::Open);
    }

    #[test]
    fn rounds_on_both_sides_of_the_limit_are_said_to_be() {
        let met = Spread { median: 1.0, min: 0.9, max: 1.1 };
        assert_eq!(Verdict::judge(Some(met), 1.05), Verdict::MetByTheMedian);
        assert_eq!(Verdict::judge(Some(met), 0.95), Verdict::MissedByTheMedian);
    }
}

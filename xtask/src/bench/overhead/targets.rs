//! What was measured beside what it is to be.

use super::{
    bench::{Bench, Stacks},
    finish::Finish,
    full_speed::{FullSpeed, megabytes},
    per_switch::{PerSwitch, Who},
    slowdown::{Beside, Slowdown},
    steady::Steady,
    table::Table,
    workloads::Kind,
};

/// All that was measured in one run.
#[derive(Default)]
pub struct Results {
    pub per_switch: Option<PerSwitch>,
    pub slowdowns: Option<Vec<Slowdown>>,
    pub full_speed: Option<FullSpeed>,
    pub steady: Option<Steady>,
    pub finishes: Option<Vec<Finish>>,
}

/// How a figure stands to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    /// It was not measured, or this build lacks what is to be measured.
    Open,
}

impl Verdict {
    fn of(figure: Option<f64>, limit: f64) -> Self {
        match figure {
            Some(figure) if figure <= limit => Self::Met,
            Some(_) => Self::Missed,
            None => Self::Open,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
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
pub fn table(bench: &Bench, results: &Results) -> anyhow::Result<String> {
    let mut table = Table::new(["what", "measured", "target", "verdict"]);
    let mut row = |what: String, figure: Option<f64>, limit: f64, show: fn(f64) -> String| {
        table.row([
            what,
            figure.map_or(String::new(), show),
            format!("<= {}", show(limit)),
            Verdict::of(figure, limit).word().to_owned(),
        ]);
    };
    let default = bench.default_mode();
    let ns = |stacks| {
        let per_switch = results.per_switch.as_ref()?;
        Some(per_switch.ns(Who::Offwake(stacks))?.median)
    };
    let of_a_walk = |stacks| {
        let per_switch = results.per_switch.as_ref()?;
        Some(per_switch.of_a_walk(Who::Offwake(stacks))?.median)
    };
    row("ns per switch with its wake, `cached`".to_owned(), ns(Stacks::Cached), 400.0, whole_ns);
    row("the same, of a double stack walk".to_owned(), of_a_walk(Stacks::Cached), 0.16, times);
    row("`exact`, of a double stack walk".to_owned(), of_a_walk(Stacks::Exact), 1.15, times);
    row("ns per switch with its wake, `off`".to_owned(), ns(Stacks::Off), 220.0, whole_ns);
    let interrupts = results.per_switch.as_ref().and_then(|p| Some(p.interrupts(default)?.median));
    row(
        format!("interrupt bookkeeping, of all of `{}`", default.name()),
        interrupts,
        0.02,
        percent,
    );
    let slowdown = |kind| {
        let all = results.slowdowns.as_ref()?;
        all.iter().find(|one| one.workload == kind && one.beside == Beside::Offwake(default))
    };
    for (kind, limit) in [(Kind::Pipe, 1.35), (Kind::RedisOneClient, 1.05)] {
        let ratio = slowdown(kind).map(|one| one.ratio.median);
        row(format!("slowdown: {}", kind.title()), ratio, limit, times);
    }
    for (kind, limit) in
        [(Kind::RedisManyClients, 0.03), (Kind::Messaging, 0.10), (Kind::Postgres, 0.03)]
    {
        let lost = slowdown(kind).map(|one| one.lost().median);
        row(format!("throughput lost: {}", kind.title()), lost, limit, percent);
    }
    let full_speed = results.full_speed.as_ref();
    let seconds = full_speed.map_or(60.0, FullSpeed::seconds);
    row(
        format!("records lost at full speed, {seconds:.0} s"),
        full_speed.map(|all| all.reported.lost as f64),
        0.0,
        |count| format!("{count:.0}"),
    );
    let steady = results.steady.as_ref();
    row(
        "own CPU at 100,000 switches a second, of one core".to_owned(),
        steady.map(Steady::core_at_rate).transpose()?,
        0.05,
        percent,
    );
    row(
        "resident memory, peak, over its whole length".to_owned(),
        steady.map(|steady| megabytes(steady.peak())),
        100.0,
        |megabytes| format!("{megabytes:.0} MB"),
    );
    for finish in results.finishes.iter().flatten().filter(|finish| finish.has_a_target()) {
        row(finish.title(), Some(finish.split.ended), 5.0, |seconds| format!("{seconds:.1} s"));
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
        assert_eq!(Verdict::of(Some(0.0), 0.0), Verdict::Met);
        assert_eq!(Verdict::of(Some(1.36), 1.35), Verdict::Missed);
        assert_eq!(Verdict::of(None, 1.35), Verdict::Open);
    }
}

//! How much slower programs are beside offwake. Runs with it and without take turns, and each is
//! compared with the mean of the runs just before and after it: the machine's own speed drifts.
//!
//! ```text
//! bare | off | bare | exact | bare | cached | bare | off | …
//! ```

use anyhow::Context as _;

use super::{
    peers::Peer,
    setup::{OverheadSetup, Stacks},
    workloads::{Workload, WorkloadKind},
};
use crate::{running::Running, spread::Spread};
use xtask::markdown_table::MarkdownTable;

/// The profiler that runs beside a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Offwake(Stacks),
    Peer(Peer),
}

impl Beside {
    fn start(self, setup: &OverheadSetup) -> anyhow::Result<Running> {
        match self {
            Self::Offwake(stacks) => setup.record(stacks, &setup.file("slowdown.offwake")),
            Self::Peer(peer) => peer.start(setup),
        }
    }

    fn title(self) -> String {
        match self {
            Self::Offwake(stacks) => stacks.title(),
            Self::Peer(peer) => peer.title().to_owned(),
        }
    }
}

/// How much slower one workload is beside one profiler.
pub struct Slowdown {
    pub workload: WorkloadKind,
    pub beside: Beside,
    /// Seconds of an operation with nothing beside.
    bare: Spread,
    /// Seconds for each operation with the profiler.
    traced: Spread,
    /// How many times as long: each traced run by the bare ones next to it.
    pub ratio: Spread,
    /// Runs.
    runs: usize,
}

/// Runs a workload beside each of `all` in turn.
///
/// # Errors
///
/// When something can't be run.
pub fn measure_workload(
    setup: &OverheadSetup,
    workload: WorkloadKind,
    all: &[Beside],
) -> anyhow::Result<Vec<Slowdown>> {
    eprintln!("bench: slowdown of {}", workload.title());
    let mut program = workload.set_up(setup)?;
    // The first run finds cold caches.
    program.run()?;
    let mut bare = vec![program.run()?];
    let mut traced: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    let mut ratios = traced.clone();
    for _ in 0..workload.repeats(setup) {
        for (number, beside) in all.iter().enumerate() {
            let with = run_beside(setup, *beside, program.as_mut())?;
            let before = bare.last().copied().unwrap_or(with);
            let after = program.run()?;
            bare.push(after);
            traced[number].push(with);
            ratios[number].push(with / f64::midpoint(before, after));
        }
    }
    let nothing = || format!("{} was not run", workload.title());
    let bare = Spread::from_figures(bare).with_context(nothing)?;
    all.iter()
        .zip(traced)
        .zip(ratios)
        .map(|((beside, traced), ratios)| {
            Ok(Slowdown {
                workload,
                beside: *beside,
                bare,
                runs: traced.len(),
                traced: Spread::from_figures(traced).with_context(nothing)?,
                ratio: Spread::from_figures(ratios).with_context(nothing)?,
            })
        })
        .collect()
}

fn run_beside(
    setup: &OverheadSetup,
    beside: Beside,
    program: &mut dyn Workload,
) -> anyhow::Result<f64> {
    let running = beside.start(setup)?;
    let seconds = program.run()?;
    running.stop().with_context(|| format!("{} failed", beside.title()))?;
    Ok(seconds)
}

/// All workloads: the pipe beside every mode, the others beside the default.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(setup: &OverheadSetup) -> anyhow::Result<Vec<Slowdown>> {
    let modes: Vec<Beside> = setup.modes().iter().map(|mode| Beside::Offwake(*mode)).collect();
    let default = [Beside::Offwake(setup.default_mode())];
    let mut all = Vec::new();
    for workload in WorkloadKind::ALL {
        let beside = if workload == WorkloadKind::Pipe { &modes[..] } else { &default[..] };
        all.extend(measure_workload(setup, workload, beside)?);
    }
    Ok(all)
}

impl Slowdown {
    /// Throughput lost, of 1.
    pub fn lost(&self) -> Spread {
        let Spread { median, min, max } = self.ratio;
        let lost = |ratio: f64| 1.0 - 1.0 / ratio;
        Spread { median: lost(median), min: lost(min), max: lost(max) }
    }
}

/// A row for each.
pub fn table(all: &[Slowdown]) -> String {
    let mut table = MarkdownTable::new([
        "workload",
        "beside",
        "an operation, bare",
        "and beside",
        "times as long",
        "runs",
        "spread of the bare runs",
    ]);
    for Slowdown { workload, beside, bare, traced, ratio, runs } in all {
        table.push_row([
            workload.title().to_owned(),
            beside.title(),
            time(bare.median),
            time(traced.median),
            ratio.format(3),
            runs.to_string(),
            format!("{:.0} %", 100.0 * (bare.max - bare.min) / bare.median),
        ]);
    }
    table.markdown()
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

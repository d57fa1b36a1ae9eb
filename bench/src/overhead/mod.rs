//! `cargo xtask bench overhead`: what offwake costs, and what people would use instead, in one
//! sitting. Everything is a ratio to something that was measured just before and just after.
//!
//! A whole run writes the tables of `docs/overhead.md`; a quick or partial one only prints them.

mod big_machine;
mod bpf_times;
mod finish;
mod full_speed;
mod growth;
mod limits;
mod measured_on;
mod peers;
mod per_switch;
mod setup;
mod slowdown;
mod steady;
mod targets;
pub mod workloads;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use growth::Dimension;
use setup::OverheadSetup;
use targets::Results;

use crate::{document, effort::Effort, machine};
use xtask::signal;

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Fewer repeats and shorter runs: three minutes. Prints, but leaves docs/overhead.md as it is
    #[arg(long)]
    quick: bool,
    /// Also run the tools that people would use instead, where they can be had
    #[arg(long)]
    peers: bool,
    /// Only some of it. Prints, but leaves docs/overhead.md as it is
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,…")]
    only: Vec<Part>,
    /// Measure this offwake instead of building one
    #[arg(long, value_name = "FILE")]
    offwake: Option<PathBuf>,
}

/// What can be measured for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Kernel time of each switch, and of each program
    PerSwitch,
    /// How much slower programs are
    Slowdown,
    /// Records lost, CPU time and bytes with every CPU at its full speed
    FullSpeed,
    /// Own CPU time and memory at a constant rate
    Steady,
    /// From Ctrl-C to the output
    Finish,
    /// With more threads and more stacks
    Growth,
    /// Whether `--max-overhead` is held beside floods
    Limits,
}

/// The texts for the document, by their markers. Each is printed as soon as it is there.
#[derive(Default)]
struct Texts(Vec<(&'static str, String)>);

impl Texts {
    fn add(&mut self, name: &'static str, text: String) {
        println!("\n{name}\n\n{text}");
        self.0.push((name, text));
    }
}

/// Measures, prints, and writes the document after a whole run.
///
/// # Errors
///
/// When something that is needed can't be run.
pub fn measure(options: Options) -> anyhow::Result<()> {
    let Options { quick, peers, only, offwake } = options;
    let whole = !quick && only.is_empty();
    let wanted = |part| only.is_empty() || only.contains(&part);
    let effort = Effort::from_quick_flag(quick);
    let load = machine::load_average()?;
    let setup = OverheadSetup::prepare(effort, offwake)?;
    // What runs beside ends by itself then, and what was begun is put in order again.
    signal::leave_interrupt_to_children()?;

    let mut texts = Texts::default();
    let mut results = Results::default();
    texts.add("machine", measured_on::table(&setup, &load));
    if wanted(Part::PerSwitch) {
        let per_switch = per_switch::measure(&setup)?;
        texts.add("per-switch", per_switch.table());
        texts.add("programs", per_switch.programs_table());
        results.per_switch = Some(per_switch);
    }
    if wanted(Part::Slowdown) {
        let slowdowns = slowdown::measure(&setup)?;
        texts.add("slowdown", slowdown::table(&slowdowns));
        results.slowdowns = Some(slowdowns);
    }
    if wanted(Part::FullSpeed) {
        let full_speeds = full_speed::measure(&setup)?;
        texts.add("full-speed", full_speed::table(&full_speeds));
        results.full_speeds = Some(full_speeds);
    }
    if wanted(Part::Steady) {
        let steady = steady::measure(&setup)?;
        texts.add("steady", steady.table()?);
        results.steady = Some(steady);
    }
    if wanted(Part::Finish) {
        let finishes = finish::measure(&setup)?;
        texts.add("finish", finish::table(&finishes));
        results.finishes = Some(finishes);
    }
    if wanted(Part::Growth) {
        texts.add("growth-threads", growth::measure(&setup, Dimension::Threads)?.table());
        let stacks = growth::measure(&setup, Dimension::Stacks)?;
        texts.add("growth-stacks", stacks.table());
        if let (Some(per_switch), Some(full_speed)) =
            (&results.per_switch, results.full_speed(setup.default_mode()))
            && let Some(table) = big_machine::table(&setup, per_switch, full_speed, &stacks)
        {
            texts.add("big-machine", table);
        }
    }
    if wanted(Part::Limits) {
        texts.add("limits", limits::table(&limits::measure(&setup)?));
    }
    if peers {
        let (slowdowns, missing) = peers::measure(&setup)?;
        let mut text = slowdown::table(&slowdowns);
        for why in missing {
            text.push_str(&format!("\nNot run: {why}.\n"));
        }
        texts.add("peers", format!("{}\n{text}", measured_on::table(&setup, &load)));
    }
    texts.add("targets", targets::table(&setup, &results)?);
    if whole { document::write_tables("docs/overhead.md", &texts.0) } else { Ok(()) }
}

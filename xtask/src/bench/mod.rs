//! `cargo xtask bench`: what offwake costs, measured beside what it is compared with.

mod blame;
mod document;
mod overhead;
mod reliability;
mod stacks;
pub mod table;

use clap::Subcommand;

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
pub enum Bench {
    /// What offwake costs the machine, beside what people would use instead: writes docs/overhead.md
    Overhead(overhead::Options),
    /// What becomes of it under far too much of something: writes docs/reliability.md
    Reliability(reliability::Options),
    /// How many stacks are whole, beside those of other tools: writes docs/stacks.md
    Stacks(stacks::Options),
    /// What it costs to find out who is to blame: time and memory for 10^4 to 10^7 waits
    Blame {
        /// The largest size is ten to the power of this
        #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(4..=8))]
        up_to: u32,
    },
}

/// Measures, and prints what came of it.
///
/// # Errors
///
/// When something that is needed can't be run.
pub fn bench(bench: Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Overhead(options) => overhead::measure(options),
        Bench::Reliability(options) => reliability::measure(options),
        Bench::Stacks(options) => stacks::measure(options),
        Bench::Blame { up_to } => blame::measure(up_to),
    }
}

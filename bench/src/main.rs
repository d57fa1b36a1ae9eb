//! `cargo xtask bench`: what offwake costs, measured beside what it is compared with.

mod blame;
mod document;
mod effort;
mod load_count;
mod machine;
mod overhead;
mod process;
mod reliability;
mod report;
mod requests;
mod running;
mod spread;
mod stacks;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use effort::Effort;

/// Measure what offwake costs
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

/// What is measured.
#[derive(Clone, Debug, Subcommand)]
enum Benchmark {
    /// What offwake costs the machine, beside what people would use instead: writes docs/overhead.md
    Overhead(overhead::Options),
    /// What becomes of it under far too much of something: writes docs/reliability.md
    Reliability(reliability::Options),
    /// How many stacks are whole, beside those of other tools: writes docs/stacks.md
    Stacks(stacks::Options),
    /// What a report takes, output by output: time, memory and size
    Report {
        /// A recording; without one, that of a machine which sixty clients of PostgreSQL keep busy
        recording: Option<PathBuf>,
        /// Fewer rounds
        #[arg(long)]
        quick: bool,
    },
    /// What it costs to find out who is to blame: time and memory for 10^4 to 10^7 waits
    Blame {
        /// The largest size is ten to the power of this
        #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(4..=8))]
        up_to: u32,
    },
    /// What it costs to find requests and what each one's time was spent on, for 10^4 to 10^6 of them
    Requests {
        /// The largest size is ten to the power of this
        #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(4..=7))]
        up_to: u32,
    },
}

fn main() -> ExitCode {
    let measured = match Arguments::parse().benchmark {
        Benchmark::Overhead(options) => overhead::measure(options),
        Benchmark::Reliability(options) => reliability::measure(options),
        Benchmark::Stacks(options) => stacks::measure(options),
        Benchmark::Report { recording, quick } => {
            report::measure(Effort::from_quick_flag(quick), recording)
        }
        Benchmark::Blame { up_to } => blame::measure(up_to),
        Benchmark::Requests { up_to } => requests::measure(up_to),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

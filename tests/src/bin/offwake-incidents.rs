//! Runs incidents one after the other, and prints what offwake made of each: `cargo xtask incidents`
//! builds it, and runs it as root.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use anyhow::{Result, ensure};
use clap::Parser;
use offwake_tests::incidents::{
    self, FIRST_CARD, INCIDENTS, Incident, Keep, Options,
    criteria::{Card, FIRST_LINES, INNOCENT_SHARE, Verdict},
};

/// Has offwake look at incidents whose cause is known
#[derive(Parser)]
#[command(name = "cargo xtask incidents", bin_name = "cargo xtask incidents")]
struct Arguments {
    /// Incidents; without any, all of them
    names: Vec<String>,
    /// Keep summary, HTML, JSON, recording and truth of each in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The selector of the page's first card
    #[arg(long, default_value = FIRST_CARD)]
    card: String,
    /// List the incidents, and run none
    #[arg(long)]
    list: bool,
}

/// Set once the user wants it to end. What an incident has set up is undone first.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("offwake-incidents: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let wanted = if arguments.names.is_empty() {
        INCIDENTS.iter().collect()
    } else {
        arguments.names.iter().map(|name| incidents::find(name)).collect::<Result<Vec<_>>>()?
    };
    if arguments.list {
        for incident in wanted {
            println!("{:<20}  {}", incident.name, incident.about);
        }
        return Ok(true);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, interrupt as *const () as libc::sighandler_t) };
    }
    let keep = arguments.keep.clone().map_or(Keep::Nothing, Keep::In);
    let options = Options { keep, card: arguments.card.clone() };
    println!(
        "| incident | lines until the cause | in the first {FIRST_LINES} | first card | innocents | seconds |"
    );
    println!("|---|---|---|---|---|---|");
    let (mut passed, mut broken) = (0, 0);
    for incident in &wanted {
        let begin = Instant::now();
        let verdict = incidents::run(incident, &options);
        ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
        match verdict {
            Ok(verdict) => {
                passed += usize::from(verdict.passes());
                println!("{}", row(incident, &verdict, begin.elapsed().as_secs_f64()));
            }
            Err(error) => {
                broken += 1;
                println!("| {} | the incident itself failed: {error:#} |", incident.name);
            }
        }
    }
    println!();
    println!("{passed} of {} incidents pass, {broken} failed themselves", wanted.len());
    Ok(passed == wanted.len())
}

fn row(incident: &Incident, verdict: &Verdict, seconds: f64) -> String {
    let lines = verdict.lines.map_or_else(|| "never".to_owned(), |lines| lines.to_string());
    let card = match verdict.card {
        Card::Named => "yes",
        Card::NotNamed => "no",
        Card::NoCard => "no card",
    };
    let innocents = verdict.innocents.map_or_else(
        || "no report".to_owned(),
        |share| {
            let limit = if share > INNOCENT_SHARE { " (too much)" } else { "" };
            format!("{:.1}%{limit}", share * 100.0)
        },
    );
    let first = if verdict.is_in_first_lines() { "yes" } else { "no" };
    format!("| {} | {lines} | {first} | {card} | {innocents} | {seconds:.0} |", incident.name)
}

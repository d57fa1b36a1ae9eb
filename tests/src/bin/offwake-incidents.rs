//! Runs incidents one after the other, and prints what offwake made of each: `cargo xtask incidents`
//! builds it, and runs it as root.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use anyhow::{Result, ensure};
use clap::Parser;
use offwake_tests::incidents::{
    self, FIRST_CARD, INCIDENTS, Incident, Keep, Measure, Options,
    criteria::{Card, FIRST_LINES, INNOCENT_SHARE, OutputCost, Verdict},
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
    /// Measure sizes and times of the outputs, too
    #[arg(long)]
    measure: bool,
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
    let measure = if arguments.measure { Measure::Outputs } else { Measure::Nothing };
    let options = Options { keep, measure, card: arguments.card.clone() };
    println!(
        "| incident | lines until the cause | the cause's line | in the first {FIRST_LINES} | first card | innocents | seconds |"
    );
    println!("|---|---|---|---|---|---|---|");
    let (mut broken, mut verdicts) = (0, Vec::new());
    for incident in &wanted {
        let begin = Instant::now();
        let verdict = incidents::run(incident, &options);
        ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
        match verdict {
            Ok(verdict) => {
                println!("{}", row(incident, &verdict, begin.elapsed().as_secs_f64()));
                verdicts.push((incident.name, verdict));
            }
            Err(error) => {
                broken += 1;
                println!("| {} | the incident itself failed: {error:#} |", incident.name);
            }
        }
    }
    println!();
    print_outputs(&verdicts);
    let passed = verdicts.iter().filter(|(_, verdict)| verdict.passes()).count();
    println!("{passed} of {} incidents pass, {broken} failed themselves", wanted.len());
    for (name, verdict) in &verdicts {
        match verdict.known_miss {
            Some(missed) if verdict.passes() => {
                println!("{name} passes, though it is listed as a known miss: {}", missed.reason);
            }
            Some(missed) => println!("known miss: {name}: {}", missed.reason),
            None => {}
        }
    }
    let expected = verdicts.iter().filter(|(_, verdict)| verdict.is_expected()).count();
    Ok(expected == wanted.len())
}

fn row(incident: &Incident, verdict: &Verdict, seconds: f64) -> String {
    let lines = verdict.lines.map_or_else(|| "never".to_owned(), |lines| lines.to_string());
    // Names of files may have what ends a cell.
    let cause = verdict.cause.as_deref().unwrap_or_default().replace('|', "\\|");
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
    let first = match verdict.is_in_first_lines() {
        true => "yes",
        false if verdict.known_miss.is_some() => "no (known miss)",
        false => "no",
    };
    format!(
        "| {} | {lines} | {cause} | {first} | {card} | {innocents} | {seconds:.0} |",
        incident.name
    )
}

/// Prints what each output costs, over all incidents.
fn print_outputs(verdicts: &[(&str, Verdict)]) {
    let outputs = || verdicts.iter().flat_map(|(_, verdict)| &verdict.outputs);
    let extensions: BTreeSet<_> = outputs().map(|output| output.extension).collect();
    if extensions.is_empty() {
        return;
    }
    println!("| output | median size | largest | median time | longest |");
    println!("|---|---|---|---|---|");
    for extension in extensions {
        let of = || outputs().filter(|output| output.extension == extension);
        let (size, largest) = median_and_largest(of().map(|output| output.size as f64));
        let (time, longest) = median_and_largest(of().map(|output: &OutputCost| output.seconds));
        let kilobytes = |bytes: f64| format!("{:.1} KB", bytes / 1e3);
        println!(
            "| .{extension} | {} | {} | {time:.2} s | {longest:.2} s |",
            kilobytes(size),
            kilobytes(largest)
        );
    }
    println!();
}

fn median_and_largest(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or_default();
    (at(values.len() / 2), at(values.len().saturating_sub(1)))
}

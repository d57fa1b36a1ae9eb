//! How long requests took, against what the clients measured; and what the slow ones have that the fast ones do not,
//! against what was done to them.
//!
//! Each test prints what is true, and what offwake says.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    offwake::Offwake,
    paths::{python_interpreter, scratch_directory},
    programs::Program,
};
use serde::Deserialize;

/// How far a number of requests may be from what the clients counted: those that the window cuts are a few.
const COUNT: f64 = 0.02;

/// The part of requests to a loop that may be counted without having been told apart. Where a client still waits for
/// its interpreter's lock as the answer comes, it never waits at its socket: 2 to 4 % here.
const NOT_TOLD_APART: f64 = 0.06;

/// The part of a loop's requests to others that may be missing: client and server were awake both as it was asked and
/// as it was answered. 1.1 to 1.8 % were, beside compilers.
const MISSING_OF_A_LOOP: f64 = 0.03;

/// The part that may be missing where nothing tells who asks and who serves: a request in which the server waited for
/// another thread, such as for its interpreter's lock, is taken for none. 0.4 % to 8 % were.
const MISSING_WHERE_ROLES_ARE_UNKNOWN: f64 = 0.15;

/// How far half of the latencies may be from what the clients measured: they also wait for a CPU to come back to,
/// which is no part of a latency.
const LATENCY: f64 = 0.10;
/// The part of what slow requests wait for more than others that has to be on its cause.
const ON_CAUSE: f64 = 0.90;

#[derive(Deserialize)]
struct Requests {
    window: Window,
    classes: Vec<Class>,
    not_told_apart: u64,
}

#[derive(Deserialize)]
struct Window {
    start_ns: u64,
    end_ns: u64,
}

#[derive(Deserialize)]
struct Class {
    program: String,
    serving_end: String,
    roles_known: bool,
    count: u64,
    latency: Latency,
    bands: Vec<Band>,
    slow: Option<Slow>,
}

#[derive(Deserialize)]
struct Band {
    count: u64,
    culprits: Vec<Culprit>,
}

#[derive(Deserialize)]
struct Latency {
    p50_ns: u64,
    p99_ns: u64,
}

#[derive(Deserialize)]
struct Slow {
    excess: Vec<Excess>,
}

#[derive(Deserialize)]
struct Excess {
    culprit: Culprit,
    fast_mean_ns: u64,
    excess_ns: u64,
    without: Latency,
}

#[derive(Deserialize)]
struct Culprit {
    text: String,
    kind: String,
    queued_behind: Option<String>,
    meanwhile: Vec<Meanwhile>,
    mean_ns: u64,
}

#[derive(Deserialize)]
struct Meanwhile {
    text: String,
}

impl Excess {
    /// Returns whether it is something that was waited for: how long threads wait for a CPU depends on what else the
    /// machine does.
    fn is_waiting(&self) -> bool {
        !matches!(self.culprit.kind.as_str(), "work" | "cpu_queue")
    }
}

impl Class {
    /// The time in which requests lay in their sockets, all together.
    fn queued_ns(&self) -> u64 {
        let queued = |band: &Band| -> u64 {
            let queued = band.culprits.iter().filter(|one| one.queued_behind.is_some());
            queued.map(|one| one.mean_ns).sum::<u64>() * band.count
        };
        self.bands.iter().map(queued).sum()
    }
}

/// Records the server while its clients ask it; returns what offwake says, and the clients' latencies in order.
fn record(transport: &str, cause: &str) -> Result<(Requests, Vec<u64>)> {
    let directory = scratch_directory()?;
    let log = directory.path().join("log");
    let arguments = [log.as_path(), Path::new(transport), Path::new(cause)];
    let requests = record_script("requests.py", &arguments, &["--requests"])?;
    let latencies = read_latencies(&log, &requests.window)?;
    Ok((requests, latencies))
}

/// Records a script for four seconds, with more options, and returns what offwake says. The script has ended then.
fn record_script(script: &str, arguments: &[&Path], options: &[&str]) -> Result<Requests> {
    let program = Program::script(&python_interpreter()?, script, arguments)?;
    let pid = program.pid().to_string();
    let outcome = (Offwake::profile()?)
        .args(["-p", &pid, "-d", "4s", "--budget", "none", "-o", "x.requests.json"])
        .args(options)
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    println!("{}", outcome.stdout);
    Ok(serde_json::from_str(&outcome.text("x.requests.json")?)?)
}

/// Reads from a log of two times in a line how long the requests within a window took, in order.
fn read_latencies(log: &Path, window: &Window) -> Result<Vec<u64>> {
    let mut latencies = Vec::new();
    for line in fs::read_to_string(log)?.lines() {
        let (asked, answered) = line.split_once(' ').context("two times in a line")?;
        let (asked, answered): (u64, u64) = (asked.parse()?, answered.parse()?);
        if asked >= window.start_ns && answered <= window.end_ns {
            latencies.push(answered - asked);
        }
    }
    latencies.sort_unstable();
    Ok(latencies)
}

/// Finds the class of the server's clients: of what the server itself asks there is one more.
fn class_of_clients<'r>(requests: &'r Requests, transport: &str) -> Result<&'r Class> {
    let end = if transport == "pipe" { "pipe" } else { transport };
    let mut classes = requests.classes.iter();
    classes
        .find(|class| class.serving_end.starts_with(end) && class.program.contains("python"))
        .with_context(|| format!("no class of {transport}"))
}

fn is_near(found: u64, truth: u64, part: f64) -> bool {
    (found as f64 - truth as f64).abs() <= truth as f64 * part
}

fn check(transport: &str, cause: &str, function: &str) -> Result<()> {
    let (requests, latencies) = record(transport, cause)?;
    let class = class_of_clients(&requests, transport)?;
    let median = *latencies.get(latencies.len() / 2).context("no request")?;
    println!(
        "| {transport}, {cause} | clients: {}, p50 {} us | offwake: {}, p50 {} us, p99 {} us |",
        latencies.len(),
        median / 1_000,
        class.count,
        class.latency.p50_ns / 1_000,
        class.latency.p99_ns / 1_000
    );
    let (found, all) = (class.count as f64, latencies.len() as f64);
    let missing = if class.roles_known { COUNT } else { MISSING_WHERE_ROLES_ARE_UNKNOWN };
    let are_found = all * (1.0 - missing) <= found && found <= all * (1.0 + COUNT);
    ensure!(are_found, "{found} of {all} requests");
    ensure!(is_near(class.latency.p50_ns, median, LATENCY), "p50 {}", class.latency.p50_ns);
    let slow = class.slow.as_ref().context("no slow ones")?;
    let waiting = || slow.excess.iter().filter(|one| one.is_waiting());
    let more: u64 = waiting().map(|one| one.excess_ns).sum();
    let of_cause = waiting().filter(|one| one.culprit.text.contains(function));
    let on_cause: u64 = of_cause.map(|one| one.excess_ns).sum();
    let first = waiting().next().context("no excess")?;
    println!(
        "| {on_cause} of {more} ns | {} | bound {} us |",
        first.culprit.text,
        first.without.p99_ns / 1_000
    );
    ensure!(first.culprit.text.contains(function), "{}", first.culprit.text);
    ensure!(on_cause as f64 >= more as f64 * ON_CAUSE, "{on_cause} of {more} ns");
    Ok(())
}

#[test]
fn slow_requests_are_those_that_meet_a_lock() -> Result<()> {
    check("tcp", "lock", "flush_index")?;
    check("unix", "lock", "flush_index")
}

#[test]
fn slow_requests_are_those_that_meet_a_service_or_a_timer() -> Result<()> {
    check("tcp", "service", "slow_service")?;
    check("tcp", "timer", "answer")?;
    check("pipe", "timer", "answer")
}

#[test]
fn slow_requests_are_those_that_run_a_slow_function() -> Result<()> {
    let (requests, latencies) = record("tcp", "work")?;
    let class = class_of_clients(&requests, "tcp")?;
    let median = *latencies.get(latencies.len() / 2).context("no request")?;
    let slow = class.slow.as_ref().context("no slow ones")?;
    let work = || slow.excess.iter().filter(|one| one.culprit.kind == "work");
    let more: u64 = work().map(|one| one.excess_ns).sum();
    let in_report = |one: &&Excess| one.culprit.text.contains("make_report");
    let reports: u64 = work().filter(in_report).map(|one| one.excess_ns).sum();
    let first = work().next().context("no work")?;
    let (bound, p50) = (&first.without, class.latency.p50_ns);
    println!(
        "| work | clients: {}, p50 {} us | offwake: {}, p50 {} us, p99 {} us | {reports} of {more} ns of work | {} | bound p50 {} us, p99 {} us |",
        latencies.len(),
        median / 1_000,
        class.count,
        p50 / 1_000,
        class.latency.p99_ns / 1_000,
        first.culprit.text,
        bound.p50_ns / 1_000,
        bound.p99_ns / 1_000,
    );
    ensure!(in_report(&first), "{}", first.culprit.text);
    ensure!(reports as f64 >= more as f64 * ON_CAUSE, "{reports} of {more} ns");
    ensure!(first.fast_mean_ns < p50 / 20, "{} in fast ones", first.fast_mean_ns);
    // What the fast half works is not taken away, and all that makes p99 is.
    ensure!(is_near(bound.p50_ns, p50, LATENCY), "p50 {} of {p50}", bound.p50_ns);
    let far = class.latency.p99_ns.saturating_sub(p50);
    ensure!(bound.p99_ns <= p50 + far / 4, "p99 {} of {}", bound.p99_ns, class.latency.p99_ns);
    Ok(())
}

#[test]
fn a_loop_has_requests_to_a_server_with_a_process_for_each_connection() -> Result<()> {
    let directory = scratch_directory()?;
    let log = directory.path().join("log");
    // The server's processes are its descendants, and not to be in the target.
    let requests = record_script("loop_client.py", &[&log], &["--no-inherit", "--requests"])?;
    let latencies = read_latencies(&log, &requests.window)?;
    let class = class_of_clients(&requests, "tcp")?;
    let percentile = |part: usize| latencies.get(latencies.len() * part / 100).copied();
    let (p50, p99) = percentile(50).zip(percentile(99)).context("no request")?;
    let (found, all) = (class.count, latencies.len() as u64);
    let latency = &class.latency;
    println!(
        "| loop | {found} of {all} | p50 {} of {p50} | p99 {} of {p99} ns |",
        latency.p50_ns, latency.p99_ns
    );
    ensure!(is_near(found, all, MISSING_OF_A_LOOP), "{found} of {all} requests");
    ensure!(is_near(latency.p50_ns, p50, LATENCY), "p50 {} of {p50}", latency.p50_ns);
    ensure!(is_near(latency.p99_ns, p99, LATENCY), "p99 {} of {p99}", latency.p99_ns);
    let slow = class.slow.as_ref().context("no slow ones")?;
    let first = slow.excess.iter().find(|one| one.is_waiting()).context("no excess")?;
    ensure!(first.culprit.text.contains("make_report"), "{}", first.culprit.text);
    Ok(())
}

/// A line of the log of `request_queue.py`.
struct Asked {
    is_usual: bool,
    asked: u64,
    /// When the server had read it.
    begun: u64,
    answered: u64,
}

/// What was recorded of a server with one thread.
struct RecordedQueue {
    class: Class,
    /// How often something came for a loop, and nobody could tell for which request.
    not_told_apart: u64,
    /// What the clients saw.
    seen: Vec<Asked>,
}

/// Records a server with one thread.
fn record_queue(mode: &str) -> Result<RecordedQueue> {
    let directory = scratch_directory()?;
    let log = directory.path().join("log");
    let arguments = [log.as_path(), Path::new(mode)];
    let requests = record_script("request_queue.py", &arguments, &[])?;
    let mut seen = Vec::new();
    for line in fs::read_to_string(&log)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, asked, begun, answered] = words.as_slice() else { continue };
        let one = Asked {
            is_usual: *name == "usual",
            asked: asked.parse()?,
            begun: begun.parse()?,
            answered: answered.parse()?,
        };
        if one.asked >= requests.window.start_ns && one.answered <= requests.window.end_ns {
            seen.push(one);
        }
    }
    let Requests { classes, not_told_apart, .. } = requests;
    let mut classes = classes.into_iter();
    let class = classes.find(|class| class.serving_end.starts_with("tcp")).context("no class")?;
    Ok(RecordedQueue { class, not_told_apart, seen })
}

#[test]
fn slow_requests_lie_in_their_sockets_while_the_server_works_for_another() -> Result<()> {
    let RecordedQueue { class, not_told_apart, seen } = record_queue("queue")?;
    // A request that the server reads at once lies there for as long as the server needs to wake up.
    let lay = |one: &Asked| one.begun - one.asked;
    let truth: u64 = seen.iter().map(lay).filter(|&lay| lay > 500_000).sum();
    let queued = class.queued_ns();
    let (found, all) = (class.count, seen.len() as u64);
    println!(
        "| queue | {found} of {all} requests, {not_told_apart} not told apart | {truth} ns in sockets | offwake: {queued} ns |"
    );
    ensure!(is_near(found, all, NOT_TOLD_APART), "{found} of {all} requests");
    ensure!(found as f64 <= all as f64 * (1.0 + COUNT), "{found} of {all} requests");
    // Nobody is missing that is not counted.
    let counted = found + not_told_apart;
    ensure!(counted as f64 >= all as f64 * (1.0 - COUNT), "{counted} of {all} requests");
    ensure!(queued as f64 >= truth as f64 * 0.75, "{queued} of {truth} ns");
    ensure!(queued as f64 <= truth as f64 * 1.05, "{queued} of {truth} ns");
    let slow = class.slow.as_ref().context("no slow ones")?;
    let first = slow.excess.first().context("no excess")?;
    ensure!(first.culprit.queued_behind.is_some(), "{}", first.culprit.text);
    let meanwhile = first.culprit.meanwhile.first().context("the server did something")?;
    ensure!(meanwhile.text.contains("runs on a CPU in "), "{}", meanwhile.text);
    // The bound, done: the same without the reports.
    let without = record_queue("none")?.seen;
    let mut latencies: Vec<u64> = without.iter().map(|one| one.answered - one.asked).collect();
    latencies.sort_unstable();
    let p99 = *latencies.get(latencies.len() * 99 / 100).context("no request")?;
    let bound = first.without.p99_ns;
    println!(
        "| p99 {} us | bound {} us | done {} us |",
        class.latency.p99_ns / 1_000,
        bound / 1_000,
        p99 / 1_000
    );
    ensure!(bound < class.latency.p99_ns / 2, "{bound} of {}", class.latency.p99_ns);
    Ok(())
}

#[test]
fn who_puts_a_request_aside_has_no_queue_for_it() -> Result<()> {
    let RecordedQueue { class, seen, .. } = record_queue("later")?;
    // While a report is put aside, the usual ones wait for each other at most.
    let lay = |one: &&Asked| one.is_usual && one.begun - one.asked > 500_000;
    let truth: u64 = seen.iter().filter(lay).map(|one| one.begun - one.asked).sum();
    let queued = class.queued_ns();
    println!("| later | {} requests | {truth} ns in sockets | offwake: {queued} ns |", class.count);
    ensure!(queued as f64 <= truth as f64 * 1.05, "{queued} of {truth} ns");
    Ok(())
}

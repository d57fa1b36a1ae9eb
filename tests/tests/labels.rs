//! What programs say of what their threads do: each wait has the trace that its thread had, or none.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, ensure};
use offwake_recording::{Recording, TagSet, Wait, stream, units::Timestamp};
use offwake_tests::{
    offwake::{Offwake, Outcome},
    programs::{Compiled, Program, Source},
};

const MEMORY: usize = 256 << 20;
/// What its name is in `tests/programs`.
const FILE: &str = "labelled.c";
/// Each trace is one byte, sixteen times.
const TRACED: u8 = 0xaa;
const ASKER: u8 = 0x11;
const ANSWERER: u8 = 0x22;
const ABSURD: u8 = 0xcc;
const TORN: u8 = 0xbb;

const NANOSLEEP: [u32; 2] = [35, 230];
const POLL: u32 = 7;
const READ: u32 = 0;

/// The program that has the variable itself.
fn compile_program() -> Result<Program> {
    let flags = &["-O2", "-pthread", "-rdynamic"];
    let source = Source { compiler: "cc", file: FILE, flags };
    Compiled::compile_one(source)?.start("labelled", &[])
}

/// A library that another program loads late.
fn compile_library(flags: &[&str]) -> Result<Program> {
    let compiled = Compiled::empty()?;
    let of_library = [&["-O2", "-pthread", "-shared", "-fPIC", "-DLIBRARY"], flags].concat();
    let source = Source { compiler: "cc", file: FILE, flags: &of_library };
    let library = compiled.compile("liblabelled.so", source)?;
    let source = Source { compiler: "cc", file: FILE, flags: &["-pthread", "-DLOADER"] };
    compiled.compile("loader", source)?;
    compiled.start("loader", &[&library])
}

fn record(program: &Program, options: &[&str]) -> Result<(Outcome, Recording)> {
    let pid = program.pid().to_string();
    let arguments = ["--pid", &pid, "-d", "1", "-o", "x.offwake"];
    let outcome = Offwake::record()?.args(arguments).args(options).run()?;
    let bytes = fs::read(outcome.path("x.offwake"))?;
    Ok((outcome, stream::read(&bytes[..], MEMORY)?))
}

/// The first byte of the trace that a thread had at a moment, of which it is known. This is written
/// anew, as what it is compared with has rules of its own.
fn trace_at(recording: &Recording, tid: u32, at: Timestamp) -> Option<u8> {
    let own = recording.tag_changes.iter().filter(|change| change.tid.0 == tid);
    let before = own.clone().rfind(|change| change.at <= at)?;
    let after = own.clone().find(|change| change.at > at);
    let is_known = after.is_none_or(|after| after.since.is_some_and(|since| since >= at));
    let set: &TagSet = recording.tag_sets.get(&before.set?)?;
    is_known.then_some(set.trace?.0[0])
}

fn syscall(wait: &Wait) -> Option<u32> {
    wait.syscall.as_ref().map(|syscall| syscall.number)
}

/// The waits of the thread of this name: how many there are of each syscall and trace.
fn count_waits(recording: &Recording, comm: &str) -> Result<BTreeMap<(u32, Option<u8>), usize>> {
    let event = recording.thread_events.iter().find(|event| event.comm == comm);
    let tid = event.with_context(|| format!("no thread {comm}"))?.tid;
    let mut counts = BTreeMap::new();
    for wait in recording.waits.iter().filter(|wait| wait.tid == tid) {
        // The first one may have begun before the program was known to have a variable.
        if wait.off < recording.meta.window.start {
            continue;
        }
        let Some(number) = syscall(&wait) else { continue };
        let key = (number, trace_at(recording, tid.0, wait.off));
        *counts.entry(key).or_default() += 1;
    }
    Ok(counts)
}

/// Checks what is true of all threads of the program.
fn check(recording: &Recording, options: &str) -> Result<()> {
    let of = |comm| count_waits(recording, comm);
    let is_sleep = |number: u32| NANOSLEEP.contains(&number);
    let traced = of("traced")?;
    println!("| {options} | {traced:?} |");
    let right: usize = (traced.iter())
        .filter(|((number, trace), _)| match trace {
            Some(TRACED) => is_sleep(*number),
            None => *number == POLL,
            _ => false,
        })
        .map(|(_, count)| count)
        .sum();
    let all: usize = traced.values().sum();
    ensure!(right > 300 && right == all, "{options}: {right} of {all} right: {traced:?}");
    for comm in ["torn", "absurd"] {
        let waits = of(comm)?;
        ensure!(!waits.is_empty(), "{options}: no waits of {comm}");
        ensure!(waits.keys().all(|(_, trace)| trace.is_none()), "{options}: {comm}: {waits:?}");
    }
    let asker = of("asker")?;
    ensure!(asker.keys().all(|key| *key == (READ, Some(ASKER))), "{options}: {asker:?}");
    let asker = recording.thread_events.iter().find(|event| event.comm == "asker");
    let asker = asker.context("no asker")?.tid;
    let mut woken = 0;
    for wait in recording.waits.iter().filter(|wait| wait.tid == asker) {
        let Some(wake) = wait.wake.filter(|wake| wake.at >= recording.meta.window.start) else {
            continue;
        };
        let trace = trace_at(recording, wake.current.tid.0, wake.at);
        ensure!(trace == Some(ANSWERER), "{options}: woken for {trace:?}: {wait:?}");
        woken += 1;
    }
    ensure!(woken > 300, "{options}: {woken} wakes");
    let spans: Vec<&TagSet> = recording.tag_sets.values().collect();
    let known =
        |byte: u8| spans.iter().any(|set| set.trace.is_some_and(|trace| trace.0[0] == byte));
    ensure!(known(TRACED) && !known(ABSURD) && !known(TORN), "{options}: {spans:?}");
    let checkout = spans.iter().filter(|set| set.attributes.contains(&(0, "/checkout".to_owned())));
    ensure!(checkout.count() > 100, "{options}: labels are missing: {spans:?}");
    let counters = &recording.loss.counters;
    for counter in ["tags_being_written", "tags_refused"] {
        ensure!(counters.get(counter).is_some_and(|count| *count > 100), "{counters:?}");
    }
    Ok(())
}

#[test]
fn each_wait_of_a_program_has_the_trace_that_its_thread_had() -> Result<()> {
    let program = compile_program()?;
    let (_outcome, recording) = record(&program, &[])?;
    check(&recording, "program")
}

/// The other ways in which a variable is found: near the thread pointer by a descriptor or an offset,
/// and in blocks of the library's own, by a descriptor or an index.
#[test]
fn each_wait_in_a_library_that_is_loaded_late_has_the_trace_that_its_thread_had() -> Result<()> {
    const FAR: &str = "-DFILLER=100000";
    for flags in [
        &["-mtls-dialect=gnu2"][..],
        &["-mtls-dialect=gnu2", FAR],
        &["-mtls-dialect=gnu"],
        &["-mtls-dialect=gnu", FAR],
        &["-ftls-model=initial-exec"],
    ] {
        let program = compile_library(flags)?;
        let (_outcome, recording) = record(&program, &[])?;
        check(&recording, &flags.join(" "))?;
    }
    Ok(())
}

/// The waits of a trace are those of the threads that worked for it, while they did.
#[test]
fn a_trace_is_found_by_its_id() -> Result<()> {
    let program = compile_program()?;
    let (outcome, _recording) = record(&program, &[])?;
    let trace = "aa".repeat(16);
    let shown = outcome.report_of("x.offwake", &["--trace", &trace, "-o", "trace.json"])?;
    let report = shown.report("trace.json")?;
    ensure!(!report.waits.is_empty(), "{}", shown.terminal());
    for waits in &report.waits {
        ensure!(waits.comm == "traced" && waits.cause != "poll", "{waits:?}");
    }
    let label = ["--where", "label.key_0=/check*", "--where", "trace=aa*", "-o", "label.json"];
    let labelled = outcome.report_of("x.offwake", &label)?.report("label.json")?;
    let count = |waits: &[offwake_tests::report::Waits]| -> u64 {
        waits.iter().map(|waits| waits.count).sum()
    };
    ensure!(count(&labelled.waits) == count(&report.waits), "{:?}", labelled.waits);
    let by = ["--by", "label:key_0", "--full", "-o", "by.folded", "-o", "by.json"];
    let by = outcome.report_of("x.offwake", &by)?;
    let folded = by.text("by.folded")?;
    ensure!(folded.lines().any(|line| line.starts_with("key_0=/checkout;traced")), "{folded}");
    ensure!(folded.lines().any(|line| line.starts_with("[no label];traced")), "{folded}");
    let json: serde_json::Value = serde_json::from_str(&by.text("by.json")?)?;
    let waits = json["waits"].as_array().context("no waits")?;
    let labelled = waits.iter().filter(|wait| wait["labels"]["key_0"] == "/checkout");
    let counted: u64 = labelled.filter_map(|wait| wait["count"].as_u64()).sum();
    ensure!(counted == count(&report.waits), "{counted}: {json}");
    let none = outcome.report_of("x.offwake", &["--where", "label.key_0=/cart"])?;
    ensure!(none.terminal().contains("no wait passes the filters"), "{}", none.terminal());
    Ok(())
}

/// A class of requests: its label, how many there were, and how long the median took.
type ServedClass = (Option<String>, u64, u64);

/// What is said of a server that works for two routes.
struct Served {
    terminal: String,
    spans: String,
    classes: Vec<ServedClass>,
}

/// Records a server that works for two routes.
fn served(arguments: &[&Path]) -> Result<Served> {
    let flags = &["-O2", "-rdynamic"];
    let source = Source { compiler: "cc", file: "labelled_server.c", flags };
    let program = Compiled::compile_one(source)?.start("labelled_server", arguments)?;
    let (outcome, _recording) = record(&program, &[])?;
    let outputs = ["-o", "x.requests.json", "-o", "x.otlp.json", "--requests"];
    let shown = outcome.report_of("x.offwake", &outputs)?;
    let json: serde_json::Value = serde_json::from_str(&shown.text("x.requests.json")?)?;
    let classes = json["classes"].as_array().context("no classes")?.iter();
    let served = classes.filter(|class| class["program"] == "labelled_server");
    let class = |class: &serde_json::Value| {
        let number = |value: &serde_json::Value| value.as_u64().context("no number");
        let label = class["label"].as_str().map(str::to_owned);
        Ok((label, number(&class["count"])?, number(&class["latency"]["p50_ns"])?))
    };
    let mut classes = served.map(class).collect::<Result<Vec<_>>>()?;
    classes.sort();
    println!("| {classes:?} |");
    Ok(Served { terminal: shown.terminal(), spans: shown.text("x.otlp.json")?, classes })
}

/// A cart takes 1 ms, a checkout 4.
#[test]
fn requests_of_different_routes_are_different_classes() -> Result<()> {
    let Served { terminal, spans, mut classes } = served(&[])?;
    // Until offwake had read what the server has mapped, it knew of no labels.
    classes.retain(|(label, count, _)| label.is_some() || *count > 50);
    let [(cart, carts, cart_ns), (checkout, checkouts, checkout_ns)] = classes.as_slice() else {
        anyhow::bail!("two classes are wanted: {classes:?}");
    };
    let labels = (cart.as_deref(), checkout.as_deref());
    ensure!(labels == (Some("http.route=/cart"), Some("http.route=/checkout")), "{classes:?}");
    ensure!(*carts > 50 && carts.abs_diff(*checkouts) <= 2, "{classes:?}");
    ensure!(*cart_ns < 3_000_000 && *checkout_ns > 4_000_000, "{classes:?}");
    ensure!(terminal.contains("/checkout), "), "{terminal}");
    ensure!(spans.contains(", http.route=/checkout)"), "no span has the class");
    Ok(())
}

#[test]
fn requests_of_a_server_that_says_nothing_are_one_class() -> Result<()> {
    let Served { classes, .. } = served(&[Path::new("silent")])?;
    let [(None, count, _)] = classes.as_slice() else {
        anyhow::bail!("one class without a label is wanted: {classes:?}");
    };
    ensure!(*count > 100, "{classes:?}");
    Ok(())
}

/// Spans are linked with the program's own.
#[test]
fn spans_are_linked_with_those_of_the_program() -> Result<()> {
    let program = compile_program()?;
    let (outcome, _recording) = record(&program, &[])?;
    let shown = outcome.report_of("x.offwake", &["--span-min", "0", "-o", "x.spans.json"])?;
    let json = shown.text("x.spans.json")?;
    let asker = "11".repeat(16);
    ensure!(json.contains(&format!("\"trace_id\":\"{asker}\"")), "{}", shown.terminal());
    ensure!(json.contains("\"kind\":\"program\""), "no link says what it is");
    Ok(())
}

/// A set that found no room is sent later, and nothing is claimed meanwhile.
#[test]
fn tags_that_find_no_room_are_counted_and_none_is_claimed_in_their_place() -> Result<()> {
    let program = compile_program()?;
    let options = ["--ring-size", "4096", "--scope", "target"];
    let (_outcome, recording) = record(&program, &options)?;
    let lost = recording.loss.counters.get("ring_full_tags").copied().unwrap_or(0);
    println!("| {lost} tags found no room |");
    ensure!(lost > 0, "nothing was lost, this proves nothing: {:?}", recording.loss);
    for ((number, trace), count) in count_waits(&recording, "traced")? {
        let is_right = match trace {
            Some(TRACED) => NANOSLEEP.contains(&number),
            // Not known, or none.
            None => true,
            _ => false,
        };
        ensure!(is_right, "{count} waits in {number} for {trace:?}");
    }
    Ok(())
}

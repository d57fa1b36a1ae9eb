//! What programs say by custom-labels: each wait has the labels that its thread had, or none.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use offwake_recording::{Recording, Wait};
use offwake_tests::{
    programs::{Compiled, Program, Source},
    tags::{count_by_label, label, record, set_at, waits_of},
};

/// What its name is in `tests/programs`.
const FILE: &str = "custom_labels.c";

const NANOSLEEP: [u32; 2] = [35, 230];
const PPOLL: u32 = 271;
const READ: u32 = 0;

/// The program that has the variables itself.
fn compile_program(flags: &[&str]) -> Result<Program> {
    let flags = [&["-O2", "-pthread", "-rdynamic"], flags].concat();
    let source = Source { compiler: "cc", file: FILE, flags: &flags };
    Compiled::compile_one(source)?.start("custom_labels", &[])
}

/// A library that another program loads late.
fn compile_library(flags: &[&str]) -> Result<Program> {
    let compiled = Compiled::empty()?;
    let of_library = ["-O2", "-pthread", "-shared", "-fPIC", "-DLIBRARY", "-mtls-dialect=gnu2"];
    let of_library = [&of_library, flags].concat();
    let source = Source { compiler: "cc", file: FILE, flags: &of_library };
    let library = compiled.compile("libcustomlabels.so", source)?;
    let source = Source { compiler: "cc", file: "labelled.c", flags: &["-pthread", "-DLOADER"] };
    compiled.compile("loader", source)?;
    compiled.start("loader", &[&library])
}

/// The waits of the thread of this name.
fn waits_of_thread(recording: &Recording, comm: &str) -> Result<Vec<(u32, Wait)>> {
    let event = recording.thread_events.iter().find(|event| event.comm == comm);
    let tid = event.with_context(|| format!("no thread {comm}"))?.tid;
    Ok(waits_of(recording, |wait| wait.tid == tid))
}

/// The route that a thread has that waits in this way.
fn true_route(number: u32) -> Option<&'static str> {
    match number {
        PPOLL => Some("/cart"),
        number if NANOSLEEP.contains(&number) => Some("/checkout"),
        _ => None,
    }
}

/// Checks what is true of all threads of the program.
fn check(recording: &Recording, options: &str) -> Result<()> {
    for (comm, kinds) in [("labelled", 3), ("changing", 2)] {
        let waits = count_by_label(recording, &waits_of_thread(recording, comm)?, "route");
        println!("| {options} | {comm} | {waits:?} |");
        let is_right = |number: u32, route: &Option<String>| route.as_deref() == true_route(number);
        ensure!(waits.keys().all(|(number, route)| is_right(*number, route)), "{waits:?}");
        ensure!(waits.len() == kinds && waits.values().all(|count| *count > 50), "{waits:?}");
    }
    let absurd = waits_of_thread(recording, "absurd")?;
    ensure!(absurd.len() > 50, "{options}: {} waits", absurd.len());
    for (_, wait) in &absurd {
        let set = set_at(recording, wait.tid, wait.off);
        ensure!(set.is_none(), "{options}: {set:?}");
    }
    // Each checkout has another user.
    let checkouts: BTreeSet<&str> = waits_of_thread(recording, "labelled")?
        .iter()
        .filter(|(number, _)| NANOSLEEP.contains(number))
        .filter_map(|(_, wait)| label(set_at(recording, wait.tid, wait.off)?, "user"))
        .collect();
    ensure!(checkouts.len() > 50, "{options}: {checkouts:?}");
    ensure!(checkouts.iter().all(|user| user.starts_with("user ")), "{options}: {checkouts:?}");
    let mut woken = 0;
    for (number, wait) in waits_of_thread(recording, "asker")? {
        ensure!(number == READ && set_at(recording, wait.tid, wait.off).is_none(), "{wait:?}");
        let Some(wake) = wait.wake.filter(|wake| wake.at >= recording.meta.window.start) else {
            continue;
        };
        let route = set_at(recording, wake.current.tid, wake.at).and_then(|it| label(it, "route"));
        ensure!(route == Some("/checkout"), "{options}: woken for {route:?}: {wait:?}");
        woken += 1;
    }
    ensure!(woken > 50, "{options}: {woken} wakes");
    check_excessive(recording)?;
    let refused = recording.loss.counters.get("tags_refused");
    ensure!(refused.is_some_and(|count| *count > 50), "{:?}", recording.loss.counters);
    Ok(())
}

/// Of 21 labels 16 are read. A name is cut at 63 bytes, a value at 255, and both say so.
fn check_excessive(recording: &Recording) -> Result<()> {
    let waits = waits_of_thread(recording, "excessive")?;
    let (_, wait) = waits.last().context("no waits")?;
    let set = set_at(recording, wait.tid, wait.off).context("no labels")?;
    let cut = (format!("{}…", "n".repeat(63)), format!("{}…", "v".repeat(255)));
    let others = (0..15).map(|name| (name.to_string(), "value".to_owned()));
    let expected: Vec<_> = [cut].into_iter().chain(others).collect();
    ensure!(set.labels == expected, "{:?}", set.labels);
    let counters = &recording.loss.counters;
    ensure!(counters.get("labels_cut").is_some_and(|count| *count > 50), "{counters:?}");
    Ok(())
}

#[test]
fn each_wait_of_a_program_has_the_labels_that_its_thread_had() -> Result<()> {
    let program = compile_program(&[])?;
    let (_outcome, recording) = record(&program)?;
    check(&recording, "program")
}

/// Near the thread pointer, and in blocks of the library's own.
#[test]
fn each_wait_in_a_library_that_is_loaded_late_has_the_labels_that_its_thread_had() -> Result<()> {
    for flags in [&[][..], &["-DFILLER=100000"]] {
        let program = compile_library(flags)?;
        let (_outcome, recording) = record(&program)?;
        check(&recording, &flags.join(" "))?;
    }
    Ok(())
}

#[test]
fn labels_of_another_version_are_not_read() -> Result<()> {
    let program = compile_program(&["-DVERSION=2"])?;
    let (_outcome, recording) = record(&program)?;
    ensure!(waits_of_thread(&recording, "labelled")?.len() > 50, "{:?}", recording.loss);
    ensure!(recording.tag_sets.is_empty(), "{:?}", recording.tag_sets);
    ensure!(recording.tag_changes.is_empty(), "{:?}", recording.tag_changes);
    Ok(())
}

/// Labels are something to select waits by, and to tell them apart by.
#[test]
fn waits_are_selected_and_told_apart_by_their_labels() -> Result<()> {
    let program = compile_program(&[])?;
    let (outcome, _recording) = record(&program)?;
    let selected = ["--where", "label.route=/check*", "-o", "x.json"];
    let selected = outcome.report_of("x.offwake", &selected)?.report("x.json")?;
    ensure!(!selected.waits.is_empty(), "no waits");
    for waits in &selected.waits {
        let has_route = ["labelled", "changing", "answerer"].contains(&waits.comm.as_str());
        ensure!(has_route && waits.cause != "poll", "{waits:?}");
    }
    let by = ["--by", "label:route", "-o", "by.folded", "-o", "by.parquet"];
    let folded = outcome.report_of("x.offwake", &by)?.text("by.folded")?;
    for line in ["route=/checkout;labelled", "route=/cart;labelled", "[no label];absurd"] {
        ensure!(folded.lines().any(|it| it.starts_with(line)), "no {line}: {folded}");
    }
    Ok(())
}

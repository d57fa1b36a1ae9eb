//! What Go programs say by labels of goroutines: each wait has the labels of the goroutine that its
//! thread ran, or none.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result, ensure};
use offwake_recording::{Recording, Wait};
use offwake_tests::{
    paths,
    programs::{Compiled, Program, Source},
    tags::{count_by_label, label, record, set_at, waits_of},
};

/// What its name is in `tests/programs`.
const FILE: &str = "labelled_goroutines.go";

const READ: u32 = 0;
const POLL: u32 = 7;
const SELECT: u32 = 23;
const TGKILL: u32 = 234;
const PSELECT6: u32 = 270;
const PPOLL: u32 = 271;

fn compile(flags: &[&str]) -> Result<Compiled> {
    Compiled::compile_one(Source { compiler: "go", file: FILE, flags })
}

fn start(compiled: Compiled) -> Result<Program> {
    compiled.start("labelled_goroutines", &[])
}

/// The same program, with C that has storage of its own in each thread.
fn compile_with_c(flags: &[&str]) -> Result<Compiled> {
    const C: &str = "package main

// static __thread char filler[4096];
// static void fill(void) { filler[0]++; }
import \"C\"
";
    let source = fs::read_to_string(paths::programs_directory().join(FILE))?;
    let source = source.replacen("package main\n", C, 1) + "\nfunc init() { C.fill() }\n";
    let compiled = Compiled::empty()?;
    let file = compiled.path("with_c.go");
    fs::write(&file, source)?;
    let file = file.to_str().context("no UTF-8")?;
    compiled.compile("labelled_goroutines", Source { compiler: "go", file, flags })?;
    Ok(compiled)
}

/// The route of a goroutine that waits in this way.
fn true_route(number: u32) -> Option<&'static str> {
    match number {
        PPOLL => Some("/checkout"),
        PSELECT6 => Some("/cart"),
        _ => None,
    }
}

fn waits_in(recording: &Recording, program: &Program, numbers: &[u32]) -> Vec<(u32, Wait)> {
    let waits = waits_of(recording, |wait| wait.tgid.0 == program.pid());
    waits.into_iter().filter(|(number, _)| numbers.contains(number)).collect()
}

/// Checks what is true of all goroutines of the program.
fn check(recording: &Recording, program: &Program, what: &str) -> Result<()> {
    let waits = waits_in(recording, program, &[POLL, PPOLL, PSELECT6]);
    let routes = count_by_label(recording, &waits, "route");
    println!("| {what} | {routes:?} |");
    let is_right = |number: u32, route: &Option<String>| route.as_deref() == true_route(number);
    ensure!(routes.keys().all(|(number, route)| is_right(*number, route)), "{what}: {routes:?}");
    ensure!(routes.len() == 3 && routes.values().all(|count| *count > 50), "{what}: {routes:?}");
    for (number, wait) in &waits {
        let set = set_at(recording, wait.tid, wait.off);
        let empty = set.and_then(|set| label(set, "empty"));
        ensure!(empty == (*number == PSELECT6).then_some(""), "{what}: {set:?}");
        ensure!(*number != POLL || set.is_none(), "{what}: {set:?}");
    }
    let users: BTreeSet<&str> = (waits.iter())
        .filter_map(|(_, wait)| label(set_at(recording, wait.tid, wait.off)?, "user"))
        .collect();
    ensure!(users.len() > 50 && users.iter().all(|user| user.starts_with("user ")), "{users:?}");
    let long = format!("{}…", "v".repeat(255));
    let excessive = waits_in(recording, program, &[SELECT]);
    ensure!(excessive.len() > 50, "{what}: {} waits", excessive.len());
    for (_, wait) in &excessive {
        let set = set_at(recording, wait.tid, wait.off).context("no labels")?;
        ensure!(set.labels == [("long".to_owned(), long.clone())], "{what}: {set:?}");
    }
    let cut = recording.loss.counters.get("labels_cut");
    ensure!(cut.is_some_and(|count| *count > 50), "{:?}", recording.loss.counters);
    let mut woken = 0;
    for (_, wait) in waits_in(recording, program, &[READ]) {
        ensure!(set_at(recording, wait.tid, wait.off).is_none(), "{what}: {wait:?}");
        // Go's monitor interrupts with a signal what takes long, for no goroutine of the program's.
        let is_interrupt = |number: Option<u32>| number == Some(TGKILL);
        let wake = wait.wake.filter(|wake| {
            wake.at >= recording.meta.window.start
                && !is_interrupt(wake.syscall.map(|call| call.number))
        });
        let Some(wake) = wake else { continue };
        let route = set_at(recording, wake.current.tid, wake.at).and_then(|it| label(it, "route"));
        ensure!(route == Some("/checkout"), "{what}: woken for {route:?}: {wait:?}");
        woken += 1;
    }
    ensure!(woken > 50, "{what}: {woken} wakes");
    ensure!(!recording.loss.counters.contains_key("tags_refused"), "{:?}", recording.loss.counters);
    Ok(())
}

#[test]
fn each_wait_has_the_labels_of_the_goroutine_that_its_thread_ran() -> Result<()> {
    for flags in [&[][..], &["-ldflags=-s -w"], &["-buildmode=pie"]] {
        let program = start(compile(flags)?)?;
        let (_outcome, recording) = record(&program)?;
        check(&recording, &program, &flags.join(" "))?;
    }
    Ok(())
}

#[test]
fn where_c_has_storage_beside_it_the_goroutine_of_a_thread_is_found_by_its_symbol() -> Result<()> {
    let program = start(compile_with_c(&[])?)?;
    let (_outcome, recording) = record(&program)?;
    check(&recording, &program, "with C")
}

/// Nothing tells where the pointer is, so nothing is claimed.
#[test]
fn labels_beside_the_storage_of_c_without_symbols_are_not_read_and_counted() -> Result<()> {
    let program = start(compile_with_c(&["-ldflags=-s -w"])?)?;
    let (_outcome, recording) = record(&program)?;
    let waits = waits_in(&recording, &program, &[PPOLL]);
    ensure!(waits.len() > 50, "{:?}", recording.loss);
    for (_, wait) in &waits {
        ensure!(set_at(&recording, wait.tid, wait.off).is_none(), "{wait:?}");
    }
    let counters = &recording.loss.counters;
    let unknown = counters.get("go_labels_unknown").is_some_and(|count| *count > 0);
    ensure!(unknown, "{counters:?}");
    Ok(())
}

/// A map of several buckets is not read.
#[test]
fn more_labels_than_a_bucket_has_are_refused() -> Result<()> {
    let program = compile(&[])?.start("labelled_goroutines", &[Path::new("many")])?;
    let (_outcome, recording) = record(&program)?;
    let waits = waits_in(&recording, &program, &[POLL]);
    for (_, wait) in &waits {
        ensure!(set_at(&recording, wait.tid, wait.off).is_none(), "{wait:?}");
    }
    let refused = recording.loss.counters.get("tags_refused");
    ensure!(refused.is_some_and(|count| *count > 50), "{:?}", recording.loss.counters);
    Ok(())
}

/// What looks like a Go program, and need not keep to what Go does.
fn compile_like_go(flags: &[&str]) -> Result<Program> {
    let flags = [&["-O2", "-pthread"], flags].concat();
    let source = Source { compiler: "cc", file: "like_go.c", flags: &flags };
    Compiled::compile_one(source)?.start("like_go", &[])
}

fn waits_of_thread(recording: &Recording, comm: &str) -> Result<Vec<(u32, Wait)>> {
    let event = recording.thread_events.iter().find(|event| event.comm == comm);
    let tid = event.with_context(|| format!("no thread {comm}"))?.tid;
    Ok(waits_of(recording, |wait| wait.tid == tid))
}

/// Labels as newer versions of Go keep them, and numbers and addresses that can't be.
#[test]
fn labels_in_a_list_are_read_and_what_can_not_be_is_refused() -> Result<()> {
    const NANOSLEEP: [u32; 2] = [35, 230];
    let program = compile_like_go(&[])?;
    let (_outcome, recording) = record(&program)?;
    let waits = waits_of_thread(&recording, "labelled")?;
    let routes = count_by_label(&recording, &waits, "route");
    println!("| {routes:?} |");
    for (number, route) in routes.keys() {
        let expected = match *number {
            PPOLL => Some("/cart"),
            number if NANOSLEEP.contains(&number) => Some("/checkout"),
            _ => None,
        };
        ensure!(route.as_deref() == expected, "{routes:?}");
    }
    ensure!(routes.len() == 3 && routes.values().all(|count| *count > 50), "{routes:?}");
    let absurd = waits_of_thread(&recording, "absurd")?;
    ensure!(absurd.len() > 50, "{} waits", absurd.len());
    for (_, wait) in &absurd {
        let set = set_at(&recording, wait.tid, wait.off);
        ensure!(set.is_none(), "{set:?}");
    }
    let refused = recording.loss.counters.get("tags_refused");
    ensure!(refused.is_some_and(|count| *count > 50), "{:?}", recording.loss.counters);
    Ok(())
}

#[test]
fn labels_of_a_go_that_nobody_knows_are_not_read_and_counted() -> Result<()> {
    let program = compile_like_go(&["-DVERSION=\"go1.99.1\""])?;
    let (_outcome, recording) = record(&program)?;
    ensure!(waits_of_thread(&recording, "labelled")?.len() > 50, "{:?}", recording.loss);
    ensure!(recording.tag_sets.is_empty(), "{:?}", recording.tag_sets);
    let counters = &recording.loss.counters;
    ensure!(counters.get("go_labels_unknown").is_some_and(|count| *count > 0), "{counters:?}");
    Ok(())
}

//! What is written: several formats from one run that agree with each other, and that stay
//! harmless whatever a thread calls itself.

use anyhow::{Result, ensure};
use offwake_tests::{
    case::{WINDOW, duration_argument},
    folded::{self, Folded},
    offwake::{Offwake, Outcome},
    workload::Workload,
};

/// Profiles a workload into all formats of this file at once.
fn profile(workload: &Workload) -> Result<Outcome> {
    profile_with(workload, &[])
}

fn profile_with(workload: &Workload, arguments: &[&str]) -> Result<Outcome> {
    let outcome = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-p", &workload.pids()])
        .args(["-o", "x.svg", "-o", "x.folded", "-o", "x.json"])
        .args(arguments)
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    Ok(outcome)
}

#[test]
fn folded_stacks_sum_up_to_what_the_report_says() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let outcome = profile(&workload)?;
    let report = outcome.report("x.json")?;
    let lines = folded::parse(&outcome.text("x.folded")?)?;
    let folded: u64 = lines.iter().map(|line| line.ns).sum();
    let blocked: u64 = report.waits.iter().map(|waits| waits.blocked_ns).sum();
    ensure!(folded == blocked, "{folded} ns in the folded stacks, {blocked} in the report");
    for line in &lines {
        let kind =
            line.frames.last().is_some_and(|leaf| leaf.starts_with('[') && leaf.ends_with(']'));
        ensure!(kind, "no kind of blame at the end: {line:?}");
    }
    let (client, server) = (workload.role("client")?, workload.role("server")?);
    let first = |line: &Folded, comm: &str| line.frames[0].starts_with(comm);
    // client;…;--;…;server-N;[work]
    let hop = lines.iter().any(|line| {
        let hop = line.frames.iter().position(|frame| frame == "--");
        first(line, &client.comm)
            && hop.is_some_and(|at| line.frames[at..].iter().any(|f| f.starts_with(&server.comm)))
    });
    ensure!(hop, "no path leads from {client:?} over -- to {server:?}: {lines:?}");
    Ok(())
}

#[test]
fn the_picture_is_xml_and_names_the_frames() -> Result<()> {
    let workload = Workload::start("pipe")?;
    for (detail, frames) in [
        ("hops", &["offwake-workload", "waits for another", "runs on a CPU"][..]),
        ("all", &["ow-client", "ow-server", "--", "[work]"]),
    ] {
        let outcome = profile_with(&workload, &["--frames", detail])?;
        let text = outcome.text("x.svg")?;
        let svg = parse_svg(&text)?;
        let titles: Vec<&str> = svg
            .descendants()
            .filter(|node| node.has_tag_name("title"))
            .filter_map(|t| t.text())
            .collect();
        for frame in frames {
            ensure!(titles.iter().any(|title| title.contains(frame)), "no {frame}: {titles:?}");
        }
    }
    Ok(())
}

/// One thread is called `<script>alert(1`, the other has an escape sequence, separators of folded
/// stacks, a line's end and a byte that is no UTF-8 in its name.
#[test]
fn hostile_names_stay_harmless() -> Result<()> {
    let workload = Workload::start("hostile-names")?;
    let outcome = profile(&workload)?;
    let (waiter, worker) = (workload.role("waiter")?.tid, workload.role("worker")?.tid);

    let report = outcome.report("x.json")?;
    ensure!(report.thread(waiter)?.comm == "<script>alert(1", "{:?}", report.thread(waiter)?);
    ensure!(report.blocked_ns(waiter, "futex") > 0 && report.blocked_ns(worker, "futex") > 0);

    let svg = outcome.text("x.svg")?;
    let picture = parse_svg(&svg)?;
    let scripts = picture
        .descendants()
        .filter(|node| node.has_tag_name("script") || node.tag_name().name() == "script")
        .filter(|script| script.text().is_some_and(|text| text.trim_start().starts_with("alert")))
        .count();
    ensure!(scripts == 0 && !svg.contains("<script>alert"), "the name is a script in the picture");
    no_controls("x.svg", &svg)?;

    let folded = outcome.text("x.folded")?;
    no_controls("x.folded", &folded)?;
    let lines = folded::parse(&folded)?;
    let total: u64 = lines.iter().map(|line| line.ns).sum();
    let blocked: u64 = report.waits.iter().map(|waits| waits.blocked_ns).sum();
    ensure!(total == blocked, "a name broke the folded stacks: {total} of {blocked} ns");
    // The name's own semicolons and dashes make no frames: only a thread's first frame and a
    // waker's last can hold it.
    let split = lines.iter().flat_map(|line| &line.frames).find(|frame| {
        let frame = frame.as_str();
        frame == "a b" || frame == "a" || frame == "\"" || frame.starts_with("a b\n")
    });
    ensure!(split.is_none(), "a name was split into frames: {split:?}");

    no_controls("x.json", &outcome.text("x.json")?)?;
    no_controls("the summary", &outcome.terminal())
}

/// Demands that a text holds no control character but the line's end and the tab: nothing that a
/// terminal obeys.
fn no_controls(what: &str, text: &str) -> Result<()> {
    let control = text.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\t'));
    ensure!(control.is_none(), "{what} has a control character at {control:?}");
    Ok(())
}

fn parse_svg(text: &str) -> Result<roxmltree::Document<'_>> {
    Ok(roxmltree::Document::parse(text)?)
}

/// The summary's details are for everybody, the log for those who look for a fault in offwake.
#[test]
fn the_log_is_printed_when_verbosity_is_asked_for_twice() -> Result<()> {
    let workload = Workload::start("pipe")?;
    for (argument, is_logging) in [("-v", false), ("-vv", true)] {
        let outcome =
            Offwake::profile()?.args([argument, "-d", "200ms", "-p", &workload.pids()]).run()?;
        let printed = outcome.terminal();
        ensure!(printed.contains("worst waits"), "{argument}: {printed}");
        ensure!(printed.contains("[DEBUG") == is_logging, "{argument}: {printed}");
    }
    Ok(())
}

//! Processes with children: those that were forked before a recording are in it, as those are that are
//! forked meanwhile, and nobody else is.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::{WINDOW, at_least, duration_argument},
    offwake::{Offwake, Outcome},
    process::{Process, descendants},
    report::{Report, Thread, Waits},
    wait_until::wait_until,
};

/// A shell with a child, and with another that has a child of its own; it goes on forking. What
/// reads ends when the shell is dropped, which closes the input of all.
const FAMILY: &str = "
    exec 3<&0
    cat <&3 &
    sh -c 'cat <&3 & wait' &
    while :; do sleep 0.05; done";

struct Family {
    shell: Process,
    /// The shell, and all who descend from it and stay.
    elders: BTreeSet<u32>,
    /// The child that has a child, and that one.
    branch: BTreeSet<u32>,
}

impl Family {
    fn start() -> Result<Self> {
        let shell = Process::start("sh", &["-c", FAMILY])?;
        wait_until("the family to be there", || {
            let found = descendants(shell.pid())?;
            let cats = found.values().filter(|name| *name == "cat").count();
            Ok((cats == 2).then_some(()))
        })?;
        let mut elders = BTreeSet::from([shell.pid()]);
        let mut branch = BTreeSet::new();
        for (pid, name) in descendants(shell.pid())? {
            // A shell that has just forked, and is not yet `sleep`, is none of them.
            let children = descendants(pid)?;
            if name == "sh" && children.len() == 1 {
                branch = children.into_keys().chain([pid]).collect();
            }
            if name == "cat" {
                elders.insert(pid);
            }
        }
        ensure!(branch.len() == 2, "no child with a child: {branch:?}");
        elders.extend(&branch);
        ensure!(elders.len() == 4, "{elders:?}");
        Ok(Self { shell, elders, branch })
    }

    /// Demands that the report has the whole family, each elder from the window's beginning to its
    /// end, and nobody else.
    fn check_whole(&self, report: &Report) -> Result<()> {
        let (mut elders, mut young) = (BTreeSet::new(), 0);
        for thread in &report.threads {
            if self.elders.contains(&thread.tgid) {
                elders.insert(thread.tgid);
                ensure!(thread.wall_ns == report.window.duration_ns, "{thread:?}");
            } else {
                // Forked by the shell, and not yet or already another program.
                ensure!(["sh", "sleep"].contains(&&*thread.comm), "a stranger: {thread:?}");
                young += 1;
            }
        }
        ensure!(elders == self.elders, "wanted {:?}, got {:?}", self.elders, report.threads);
        ensure!(young > 1, "nobody was forked in the window: {:?}", report.threads);
        let target = &report.meta.target;
        let words = format!("pid {} and ", self.shell.pid());
        let children = target.strip_prefix(&words).and_then(|rest| rest.split(' ').next());
        let children: usize = children.with_context(|| target.clone())?.parse()?;
        ensure!(children >= 3, "{target}");
        Ok(())
    }
}

fn profile(arguments: &[&str]) -> Result<Outcome> {
    Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-o", "report.json"])
        .args(arguments)
        .run()
}

#[test]
fn children_that_were_forked_before_belong_to_a_process() -> Result<()> {
    let stranger = Process::start("cat", &[])?;
    let family = Family::start()?;
    let pid = family.shell.pid().to_string();
    for scope in ["machine", "target"] {
        let report = profile(&["-p", &pid, "--scope", scope])?.report("report.json")?;
        family.check_whole(&report).with_context(|| format!("--scope {scope}"))?;
    }
    drop(stranger);
    Ok(())
}

#[test]
fn a_childs_parent_and_siblings_do_not_belong_to_it() -> Result<()> {
    let family = Family::start()?;
    let child = family.branch.first().context("no child")?;
    let report = profile(&["-p", &child.to_string()])?.report("report.json")?;
    ensure!(report.tgids() == family.branch, "{:?}", report.threads);
    ensure!(report.meta.target == format!("pid {child} and 1 child"), "{:?}", report.meta);
    Ok(())
}

#[test]
fn a_process_can_be_recorded_without_its_children() -> Result<()> {
    let family = Family::start()?;
    let pid = family.shell.pid();
    let report = profile(&["-p", &pid.to_string(), "--no-inherit"])?.report("report.json")?;
    ensure!(report.tgids() == BTreeSet::from([pid]), "{:?}", report.threads);
    ensure!(report.meta.target == format!("pid {pid} without children"), "{:?}", report.meta);
    let outcome = Offwake::profile()?
        .args(["--no-inherit", "-o", "report.json", "--", "sh", "-c", "sleep 0.1; true"])
        .run()?;
    let report = outcome.report("report.json")?;
    ensure!(report.tgids().len() == 1, "{:?}", report.threads);
    Ok(())
}

#[test]
fn children_that_there_is_no_room_for_are_said_to_be_left_out() -> Result<()> {
    let family = Family::start()?;
    let pid = family.branch.first().context("no child")?.to_string();
    let report = profile(&["-p", &pid, "--max-targets", "1"])?.report("report.json")?;
    let words = format!("pid {pid} (at least 1 more left out by --max-targets)");
    ensure!(report.meta.target == words, "{:?}", report.meta);
    Ok(())
}

/// The shell ends its child as it is ended itself. That is after the window, and no answer to what
/// the child waited for.
#[test]
fn what_ends_with_the_command_is_still_waiting() -> Result<()> {
    const PARENT: &str = "sleep 60 & child=$!; trap 'kill $child' TERM; wait";
    let outcome = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-o", "report.json", "--", "sh", "-c", PARENT])
        .run()?;
    let report = outcome.report("report.json")?;
    let long = |waits: &&Waits| waits.blocked_ns > report.window.duration_ns / 2;
    let long: Vec<&Waits> = report.waits.iter().filter(long).collect();
    let names: BTreeSet<&str> = long.iter().map(|waits| waits.comm.as_str()).collect();
    ensure!(names == BTreeSet::from(["sh", "sleep"]), "{long:?}");
    for part in long.iter().flat_map(|waits| &waits.blame) {
        ensure!(part.reason.as_deref() == Some("still_blocked"), "{long:?}");
    }
    Ok(())
}

/// By then who was forked has long started.
const LONG_NS: u64 = 800_000_000;

/// A grandchild forks all the while, and whom it forks stays: at any moment of the start there is
/// somebody who has just come.
#[test]
fn nobody_is_missed_who_is_forked_as_recording_starts() -> Result<()> {
    const CROWD: &str = "
        exec 3<&0
        sh -c 'n=0; while [ $n -lt 2000 ]; do cat <&3 & n=$((n + 1)); sleep 0.01; done; wait' &
        wait";
    let shell = Process::start("sh", &["-c", CROWD])?;
    let cats = || -> Result<BTreeSet<u32>> {
        let found = descendants(shell.pid())?.into_iter();
        Ok(found.filter(|(_, name)| name == "cat").map(|(pid, _)| pid).collect())
    };
    wait_until("somebody to be forked", || Ok((!cats()?.is_empty()).then_some(())))?;
    let before = cats()?;
    let running =
        Offwake::record()?.args(["-p", &shell.pid().to_string(), "-o", "x.offwake"]).start()?;
    running.wait_for_slices("x.offwake", 1)?;
    let meanwhile = cats()?;
    running.wait_for_slices("x.offwake", 2)?;
    let (_, report) = running.interrupt()?.report_on("x.offwake")?;
    ensure!(before.len() < meanwhile.len(), "nobody was forked: this proves nothing");
    let missed: Vec<_> = meanwhile.difference(&report.tgids()).copied().collect();
    ensure!(missed.is_empty(), "{} of {} are missed", missed.len(), meanwhile.len());
    // Each starts, and then waits for what nobody writes.
    let is_long = |thread: &&Thread| thread.comm == "cat" && thread.wall_ns > LONG_NS;
    for cat in report.threads.iter().filter(is_long) {
        let waited = cat.blocked_ns - cat.lost_ns();
        ensure!(at_least(waited, 0.75, cat.wall_ns), "it only slept: {cat:?}");
    }
    Ok(())
}

/// A recording of the whole machine, narrowed afterwards.
#[test]
fn children_that_were_forked_before_are_known_afterwards_too() -> Result<()> {
    let family = Family::start()?;
    let pid = family.shell.pid().to_string();
    let recorded = Offwake::record()?
        .args(["-a", "-d", &duration_argument(WINDOW), "-o", "x.offwake"])
        .run()?;
    ensure!(recorded.status.success(), "{recorded}");
    let narrowed = |arguments: &[&str]| {
        let arguments = [&["-o", "x.json"], arguments].concat();
        recorded.report_of("x.offwake", &arguments)?.report("x.json")
    };
    family.check_whole(&narrowed(&["-p", &pid])?)?;
    let alone = narrowed(&["-p", &pid, "--no-inherit"])?;
    ensure!(alone.tgids() == BTreeSet::from([family.shell.pid()]), "{:?}", alone.threads);
    let cats = narrowed(&["-p", &pid, "--comm", "cat"])?;
    ensure!(cats.threads.len() == 2 && cats.tgids().is_subset(&family.elders), "{cats:?}");
    Ok(())
}

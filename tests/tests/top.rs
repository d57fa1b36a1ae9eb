//! `offwake top` in a terminal: what it shows is true, keys do what they say, and the terminal is
//! as it was afterwards, however it ends.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    ledger,
    offwake::{Offwake, Outcome, count_attached_links},
    paths,
    report::Report,
    tmux::Tmux,
    wait_until::wait_until,
    workload::Workload,
};
use tempfile::TempDir;

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (180, 50);

/// offwake in a terminal of its own, in a directory of its own.
struct Top {
    tmux: Tmux,
    directory: TempDir,
}

impl Top {
    fn start(size: (u16, u16), before: &str, arguments: &str) -> Result<Self> {
        // SAFETY: takes nothing, cannot fail.
        ensure!(unsafe { libc::geteuid() } == 0, "these tests run the real thing: they want root");
        let directory = paths::scratch_directory()?;
        let tmux = Tmux::start(size.0, size.1, directory.path())?;
        let offwake = paths::offwake_binary()?;
        tmux.type_line("stty -g > before")?;
        tmux.type_line(&format!(
            "clear; {before} {} top {arguments}; echo status=$?; stty -g > after",
            offwake.display()
        ))?;
        Ok(Self { tmux, directory })
    }

    /// Starts top on a workload, and waits until its waits are on screen.
    fn for_workload(workload: &Workload, size: (u16, u16), arguments: &str) -> Result<Self> {
        let arguments = format!("-p {} --window 4s {arguments}", workload.pids());
        let top = Self::start(size, "", &arguments)?;
        top.wait_for_rows("ow-")?;
        Ok(top)
    }

    fn wait_for_rows(&self, text: &str) -> Result<String> {
        let has_rows = |screen: &str| waits(screen).iter().any(|row| row.contains(text));
        self.tmux.wait_until("rows of waits", has_rows)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// offwake's process: the shell's child.
    fn pid(&self) -> Result<u32> {
        let shell = self.tmux.shell()?;
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"))?;
        children.trim().parse().with_context(|| format!("no child of the shell: {children:?}"))
    }

    /// Waits for top to end, and demands that the terminal is as it was.
    fn wait_for_end(&self) -> Result<String> {
        let screen = self.tmux.wait_for("status=")?;
        let after = wait_until("the terminal's state", || {
            Ok(fs::read_to_string(self.path("after")).ok().filter(|text| text.ends_with('\n')))
        })?;
        let before = fs::read_to_string(self.path("before"))?;
        ensure!(before == after, "the terminal was {before}, and is {after}");
        ensure!(
            !self.tmux.is_alternate_screen()?,
            "the alternate screen is still there, or the cursor is not"
        );
        ensure!(!screen.contains("panicked"), "{screen}");
        Ok(screen)
    }

    fn report(&self, recording: &str) -> Result<(Outcome, Report)> {
        let outcome = Offwake::in_directory(self.directory.path())?
            .args(["report", recording, "-o", "saved.json"])
            .run()?;
        let report = outcome.report("saved.json")?;
        ledger::check_unfiltered(&report)?;
        Ok((outcome, report))
    }
}

/// The rows of the worst waits that are on screen.
fn waits(screen: &str) -> Vec<&str> {
    rows(screen, "worst waits")
}

/// The rows below a title, each of which begins with a time.
fn rows<'s>(screen: &'s str, title: &str) -> Vec<&'s str> {
    let lines = screen.lines().skip_while(|line| !line.contains(title)).skip(2);
    let begins_with_time = |line: &&str| {
        line.split_whitespace().next().is_some_and(|word| word.parse::<f64>().is_ok())
    };
    lines.take_while(begins_with_time).collect()
}

#[test]
fn the_waiter_is_shown_with_its_true_culprit() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let (waiter, worker) = (workload.role("waiter")?.tid, workload.role("worker")?.tid);
    let top = Top::for_workload(&workload, LARGE, "")?;
    let row = format!("ow-waiter {waiter}");
    let culprit = format!("ow-worker {worker}");
    let is_shown = |screen: &str| {
        waits(screen).iter().any(|line| {
            let parts = line.split_once(&row);
            // It works, or waits for a CPU itself.
            parts.is_some_and(|(_, blame)| blame.contains(&culprit))
        })
    };
    let screen = top.tmux.wait_until("the culprit", is_shown)?;
    let edge = screen
        .lines()
        .any(|line| line.find(&row).is_some_and(|at| line[at + row.len()..].contains(&culprit)));
    ensure!(edge, "nobody blocks the waiter:\n{screen}");
    ensure!(screen.contains("offwake itself: "), "{screen}");
    // Some kernels hide a process of their own, and with it switches: that is said as well.
    let words = ["lost: nothing", "no relevant loss (", "INCOMPLETE: "];
    ensure!(words.iter().any(|word| screen.contains(word)), "{screen}");
    top.tmux.press("q")?;
    top.wait_for_end().map(drop)
}

#[test]
fn keys_sort_filter_pause_and_descend() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let top = Top::for_workload(&workload, SMALL, "")?;
    // The next picture has them, of the last stretch.
    top.tmux.press("R")?;
    let screen = top.tmux.wait_for("(futex), ")?;
    ensure!(screen.contains("\nrequests of ") && screen.contains("p99"), "{screen}");
    top.tmux.press("R")?;
    top.tmux.wait_for("worst waits")?;
    top.tmux.press("o")?;
    top.tmux.wait_for("by time ")?;
    top.tmux.press("r")?;
    top.tmux.wait_for("by time, reversed")?;
    top.tmux.press("r")?;
    // A filter keeps what it says.
    top.tmux.type_line("/OW-WAITER futex")?;
    let only = |screen: &str| {
        let rows = waits(screen);
        screen.contains("filter: OW-WAITER futex")
            && !rows.is_empty()
            && rows.iter().all(|row| row.contains("ow-waiter"))
    };
    top.tmux.wait_until("the waiter's rows alone", only)?;
    // Down to the functions of both ends.
    top.tmux.press("Enter")?;
    let chain = |screen: &str| screen.contains(" waited ") && screen.contains("waits_for_baton");
    top.tmux.wait_until("the wait's own stack", chain)?;
    for _ in 0..100 {
        if top.tmux.screen()?.contains("  <- ow-w") {
            break;
        }
        top.tmux.press("Down")?;
    }
    top.tmux.wait_for("  <- ow-w")?;
    top.tmux.press("Escape")?;
    top.tmux.wait_for("worst waits")?;
    // Whatever comes while it is paused, the picture stays.
    top.tmux.press("p")?;
    let paused = top.tmux.wait_for("PAUSED")?;
    top.tmux.press("w")?;
    top.tmux.wait_for("since the start")?;
    top.tmux.press("w")?;
    top.tmux.wait_until("the same picture", |screen| screen == paused)?;
    top.tmux.press("?")?;
    top.tmux.wait_for("any key goes back")?;
    top.tmux.press("Escape")?;
    top.tmux.wait_for("worst waits")?;
    // Away with the filter, then away.
    top.tmux.press("Escape")?;
    top.tmux.wait_until("all rows", |screen| !screen.contains("filter:"))?;
    top.tmux.press("Escape")?;
    top.wait_for_end().map(drop)
}

#[test]
fn what_is_saved_reports_what_was_on_screen() -> Result<()> {
    let workload = Workload::start("pipe")?;
    let top = Top::for_workload(&workload, LARGE, "-o x.offwake")?;
    fs::write(top.path("x.1.offwake"), "somebody else's")?;
    let (client, server) = (workload.role("client")?, workload.role("server")?);
    let has_both = |screen: &str| {
        [client, server].iter().all(|player| {
            let name = format!("{} {}", player.comm, player.tid);
            let waits = waits(screen).into_iter().filter_map(|row| row.split_once("pipe:["));
            waits.into_iter().any(|(waiter, _)| waiter.contains(&name))
        })
    };
    top.tmux.wait_until("both ends' waits", has_both)?;
    top.tmux.press("p")?;
    top.tmux.wait_for("PAUSED")?;
    top.tmux.press("s")?;
    let screen = top.tmux.wait_for("wrote x.2.offwake")?;
    ensure!(fs::read(top.path("x.1.offwake"))? == b"somebody else's", "it was overwritten");
    let (_, report) = top.report("x.2.offwake")?;
    ensure!(report.meta.closed_by == "snapshot", "{:?}", report.meta);
    let rows = waits(&screen);
    ensure!(!rows.is_empty(), "{screen}");
    for player in [client, server] {
        // All that it waited for in its pipe, as one row has it.
        let blocked = report.blocked_ns(player.tid, "pipe");
        let time = offwake_recording::units::Nanos(blocked).to_string();
        let name = format!("{} {}", player.comm, player.tid);
        let shown =
            rows.iter().any(|row| row.contains(&name) && row.trim_start().starts_with(&time));
        ensure!(shown, "{name} waited {time}, and the screen says:\n{screen}");
    }
    let length = offwake_recording::units::Nanos(report.window.duration_ns);
    ensure!(screen.contains(&format!("the last {length}")), "{length}:\n{screen}");
    top.tmux.press("q")?;
    let screen = top.wait_for_end()?;
    ensure!(screen.contains("wrote x.2.offwake") && screen.contains("status=0"), "{screen}");
    Ok(())
}

#[test]
fn another_size_is_used_at_once() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let top = Top::for_workload(&workload, SMALL, "")?;
    ensure!(!top.tmux.screen()?.contains("longest"), "columns for which there is no room");
    top.tmux.resize(LARGE.0, LARGE.1)?;
    let screen = top.tmux.wait_for("longest")?;
    ensure!(screen.lines().count() >= usize::from(LARGE.1) - 1, "{screen}");
    top.tmux.resize(30, 8)?;
    top.tmux.wait_until("the small one", |screen| !screen.contains("longest"))?;
    top.tmux.press("q")?;
    top.wait_for_end().map(drop)
}

#[test]
fn however_it_ends_the_terminal_is_as_before_and_nothing_is_attached() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    for end in ["C-c", "TERM", "HUP", "INT"] {
        let top = Top::for_workload(&workload, SMALL, "")?;
        let pid = top.pid()?;
        ensure!(count_attached_links(pid)? > 0, "nothing is attached while it runs");
        if end == "C-c" {
            top.tmux.press(end)?;
        } else {
            let kill =
                Command::new("kill").args([&format!("-{end}"), &pid.to_string()]).status()?;
            ensure!(kill.success(), "{kill}");
        }
        let screen = top.wait_for_end().with_context(|| format!("by {end}"))?;
        ensure!(screen.contains("status=0"), "by {end}: {screen}");
        ensure!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} is still there");
    }
    Ok(())
}

#[test]
fn a_terminal_that_is_gone_ends_it() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let top = Top::for_workload(&workload, SMALL, "")?;
    let pid = top.pid()?;
    top.tmux.close()?;
    wait_until(
        "offwake to end",
        || Ok((!Path::new(&format!("/proc/{pid}")).exists()).then_some(())),
    )
}

#[test]
fn a_targets_end_is_said_and_the_picture_stays() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let top = Top::for_workload(&workload, SMALL, "")?;
    let pid = top.pid()?;
    workload.stop()?;
    let screen = top.tmux.wait_for("the target has ended")?;
    ensure!(screen.contains("ow-sleeper"), "{screen}");
    wait_until("offwake to detach", || Ok((count_attached_links(pid)? == 0).then_some(())))?;
    top.tmux.press("s")?;
    top.tmux.wait_for("wrote offwake-top.1.offwake")?;
    top.tmux.press("q")?;
    top.wait_for_end()?;
    top.report("offwake-top.1.offwake").map(drop)
}

#[test]
fn with_a_duration_it_ends_by_itself() -> Result<()> {
    let workload = Workload::start("sleeper")?;
    let top = Top::start(SMALL, "", &format!("-p {} -d 1s", workload.pids()))?;
    let screen = top.wait_for_end()?;
    ensure!(screen.contains("status=0"), "{screen}");
    Ok(())
}

#[test]
fn a_commands_output_stays_off_the_screen_and_its_end_is_said() -> Result<()> {
    let top = Top::start(SMALL, "", "-- sh -c 'echo LOUD; sleep 2; echo LOUD >&2; sleep 1'")?;
    let screen = top.tmux.wait_for("the command has ended")?;
    ensure!(!screen.contains("LOUD"), "{screen}");
    top.tmux.press("q")?;
    let screen = top.wait_for_end()?;
    ensure!(!screen.lines().any(|line| line == "LOUD"), "{screen}");
    Ok(())
}

#[test]
fn without_colours_none_are_written() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    for (before, is_painted) in [("NO_COLOR=1", false), ("", true)] {
        let arguments = format!("-p {}", workload.pids());
        let top = Top::start(SMALL, before, &arguments)?;
        top.wait_for_rows("ow-")?;
        let painted = top.tmux.painted_screen()?;
        // Any of the terminal's own colours in front.
        let has_colour = (30..38).any(|n| painted.contains(&format!("\x1b[{n}m")))
            || painted.contains("\x1b[38;5;");
        ensure!(has_colour == is_painted, "{before}: {painted:?}");
        top.tmux.press("q")?;
        top.wait_for_end()?;
    }
    Ok(())
}

#[test]
fn where_nothing_can_be_drawn_it_says_so_in_one_line() -> Result<()> {
    let outcome = Offwake::in_directory(Path::new("/"))?.args(["top", "-d", "1s"]).run()?;
    outcome.check_failure(1, &["offwake profile"])?;
    let top = Top::start(SMALL, "TERM=dumb", "-d 1s")?;
    let screen = top.wait_for_end()?;
    ensure!(screen.contains("dumb") && screen.contains("offwake profile"), "{screen}");
    ensure!(screen.contains("status=1"), "{screen}");
    Ok(())
}

#[test]
fn hostile_names_stay_harmless_on_the_terminal() -> Result<()> {
    let workload = Workload::start("hostile-names")?;
    let top = Top::start(LARGE, "", &format!("-p {}", workload.pids()))?;
    let screen = top.wait_for_rows("<script>")?;
    ensure!(screen.contains("\\x1b[31m;a b\\x0a"), "{screen}");
    top.tmux.press("q")?;
    top.wait_for_end().map(drop)
}

#[test]
fn what_makes_no_sense_is_a_usage_error() -> Result<()> {
    for (arguments, word) in [
        (&["--refresh", "1ms"][..], "--refresh"),
        (&["--refresh", "2s", "--window", "3s"], "--window"),
        (&["-o", "-"], "file"),
        (&["-o", "x.json"], ".offwake"),
    ] {
        let outcome = Offwake::in_directory(Path::new("/"))?.arg("top").args(arguments).run()?;
        ensure!(outcome.status.code() == Some(2), "{arguments:?}: {outcome}");
        ensure!(outcome.stderr.contains(word), "{arguments:?}: {outcome}");
    }
    Ok(())
}

//! The death of a thread or helper process of `offwake top` ends the view at once, or costs a part of it, and is
//! named where the terminal is as it was before: by a panic that offwake injects where `OFFWAKE_TEST_PANIC` says
//! so.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use offwake::own_threads::{DeathCost, OwnThread};
use offwake_tests::{paths, tmux::Tmux, wait_until::wait_until, workload::Workload};

/// Starts `offwake top` in a terminal of its own, in which a thread or a helper process panics.
fn top(panics: &str, directory: &Path, workload: &Workload) -> Result<Tmux> {
    let tmux = Tmux::start(120, 40, directory)?;
    let offwake = paths::offwake_binary()?;
    tmux.type_line("stty -g > before")?;
    // What is typed is on screen, too, and must not be taken for what is printed. A backtrace would leave no room
    // for the rest.
    tmux.type_line(&format!(
        "clear; RUST_BACKTRACE=0 OFFWAKE_TEST_PANIC={panics} {} top -p {} --window 4s --stacks exact -o x.offwake; echo ended''=$?; stty -g > after",
        offwake.display(),
        workload.pids(),
    ))?;
    Ok(tmux)
}

/// Waits for top's end, and returns what is on the terminal, which is as it was.
fn end_of_top(tmux: &Tmux, directory: &Path) -> Result<String> {
    tmux.wait_for("ended=")?;
    let after = wait_until("the terminal's state", || {
        Ok(fs::read_to_string(directory.join("after")).ok().filter(|text| text.ends_with('\n')))
    })?;
    let before = fs::read_to_string(directory.join("before"))?;
    ensure!(before == after, "the terminal was {before}, and is {after}");
    ensure!(!tmux.is_alternate_screen()?, "the alternate screen is still there");
    tmux.unwrapped_screen()
}

fn wait_for_waits(tmux: &Tmux) -> Result<String> {
    let is_shown = |screen: &str| screen.contains("worst waits") && screen.contains("ow-waiter");
    tmux.wait_until("the waits", is_shown)
}

#[test]
fn the_death_of_a_thread_of_top_ends_the_view_at_once_and_is_named() -> Result<()> {
    for (thread, passes) in [
        (OwnThread::Main, 40),
        (OwnThread::Load, 0),
        (OwnThread::Drain, 500),
        (OwnThread::LookUp, 1000),
        (OwnThread::Store, 10),
        (OwnThread::Session, 0),
        (OwnThread::Session, 150),
        (OwnThread::View, 0),
        (OwnThread::View, 10),
    ] {
        let workload = Workload::start("futex-handoff")?;
        let directory = paths::scratch_directory()?;
        let panics = match passes {
            0 => thread.name().to_owned(),
            passes => format!("{}:{passes}", thread.name()),
        };
        let tmux = top(&panics, directory.path(), &workload)?;
        let screen = end_of_top(&tmux, directory.path()).context(panics.clone())?;
        ensure!(screen.contains("OFFWAKE_TEST_PANIC wants it"), "{panics}: {screen}");
        let (status, words) = match thread {
            OwnThread::Main => ("ended=101", "thread 'main'".to_owned()),
            _ => ("ended=1\n", format!("offwake's own thread {} failed", thread.name())),
        };
        ensure!(screen.contains(status), "{panics}: {screen}");
        ensure!(screen.contains(&words), "{panics}: {screen}");
    }
    Ok(())
}

#[test]
fn the_death_of_a_thread_that_top_can_do_without_costs_its_part_and_is_named() -> Result<()> {
    for thread in [OwnThread::ViewNames, OwnThread::BuildIds, OwnThread::TagSymbols] {
        let DeathCost::Part(cost) = thread.death_cost() else { continue };
        let workload = Workload::start("futex-handoff")?;
        let directory = paths::scratch_directory()?;
        let tmux = top(thread.name(), directory.path(), &workload)?;
        let words = format!("offwake's own thread {} failed: {cost}", thread.name());
        tmux.wait_for(&words)?;
        // It goes on.
        wait_for_waits(&tmux)?;
        tmux.press("q")?;
        let screen = end_of_top(&tmux, directory.path())?;
        ensure!(screen.contains("ended=0\n"), "{thread:?}: {screen}");
        ensure!(screen.contains("OFFWAKE_TEST_PANIC wants it"), "{thread:?}: {screen}");
        ensure!(screen.contains(&words), "{thread:?}: {screen}");
    }
    Ok(())
}

/// The process dies with its third message: the file is lost, which has no name yet.
#[test]
fn the_death_of_the_process_that_saves_costs_that_file_and_the_view_goes_on() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let directory = paths::scratch_directory()?;
    let tmux = top("offwake-writer:3", directory.path(), &workload)?;
    wait_for_waits(&tmux)?;
    for _ in 0..2 {
        tmux.press("s")?;
        tmux.wait_for("cannot write beside x.offwake: the process that writes died")?;
        // A key takes the message away, and shows that the view is alive.
        tmux.press("?")?;
        tmux.wait_for("any key goes back")?;
        tmux.press("Escape")?;
        wait_for_waits(&tmux)?;
    }
    tmux.press("q")?;
    let screen = end_of_top(&tmux, directory.path())?;
    ensure!(screen.contains("ended=0\n"), "{screen}");
    for entry in fs::read_dir(directory.path())? {
        let name = entry?.file_name();
        ensure!(name == "before" || name == "after", "{} is left", name.display());
    }
    Ok(())
}

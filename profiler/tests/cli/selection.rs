//! `offwake report` of a part of what was recorded.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo.offwake")
}

fn report(arguments: &[&str]) -> Output {
    let mut offwake = Command::new(env!("CARGO_BIN_EXE_offwake"));
    offwake.arg("report").arg(demo()).args(arguments).output().unwrap()
}

/// The summary.
fn reported(arguments: &[&str]) -> String {
    let output = report(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The one line that says why there is nothing.
fn refused(arguments: &[&str]) -> String {
    let output = report(arguments);
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

#[test]
fn each_option_narrows_the_report() {
    let whole = reported(&["-v"]);
    assert!(whole.contains("gateway 17587") && whole.contains("store 17589"), "{whole}");
    for arguments in [
        &["-p", "17589"][..],
        &["--pid", "17589", "--no-inherit"],
        &["-t", "17605,17607"],
        &["--comm", "store-2,store-4"],
        &["--comm", "store-2", "--comm", "store-4"],
        &["-p", "17589", "--comm", "store-2"],
    ] {
        let narrowed = reported(&[arguments, &["-v"]].concat());
        let first = narrowed.lines().next().unwrap();
        assert!(first.contains("(of pid 17587,17591,17589)"), "{first}");
        assert!(narrowed.contains("store-2 17605"), "{narrowed}");
        assert!(!narrowed.contains("gateway 17587 ("), "{narrowed}");
    }
}

#[test]
fn what_selects_nothing_says_what_there_is() {
    let line = refused(&["-p", "17588"]);
    assert!(
        line.contains("demo.offwake: the recording has no process with the PID 17588"),
        "{line}"
    );
    assert!(line.contains("17587 gateway") && line.contains("17589 store"), "{line}");
    let line = refused(&["--comm", "stor-2"]);
    assert!(line.contains("names are: store-2, store, "), "{line}");
    let line = refused(&["--container", "web"]);
    assert!(line.contains("it has no containers at all"), "{line}");
    assert!(refused(&["--cgroup", "/nowhere"]).contains("no cgroup /nowhere"));
    let line = refused(&["-p", "17589", "--comm", "gateway"]);
    assert!(line.contains("no thread of the recording is all of this"), "{line}");
}

#[test]
fn both_recordings_of_a_comparison_are_narrowed() {
    let path = demo().display().to_string();
    let diff = reported(&["--diff", &path, "--comm", "store-2"]);
    assert!(diff.contains("comm store-2"), "{diff}");
    let line = refused(&["--diff", &path, "--comm", "stor-2"]);
    assert!(line.contains("demo.offwake: the recording has no thread"), "{line}");
}

#[test]
fn children_can_be_left_out_of_processes_alone() {
    let output = report(&["--no-inherit"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for empty in [["--comm", ""], ["--cgroup", ""], ["--container", ""]] {
        assert_eq!(report(&empty).status.code(), Some(2), "{empty:?}");
    }
}

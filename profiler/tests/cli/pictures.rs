//! Flame graphs and folded stacks on the command line.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use offwake_recording::stream;

const OFFWAKE: &str = env!("CARGO_BIN_EXE_offwake");

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.offwake"))
}

fn report(recording: &Path, arguments: &[&str]) -> Output {
    Command::new(OFFWAKE).arg("report").arg(recording).args(arguments).output().expect("offwake")
}

fn folded(arguments: &[&str]) -> String {
    let output = report(&data("demo"), &[&["-o", "-", "--format", "folded"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn sum(folded: &str) -> u64 {
    folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn every_view_can_be_asked_for_and_none_loses_time() {
    let usual = folded(&[]);
    for arguments in [
        &["--flame", "off-wake"][..],
        &["--flame", "off-cpu"],
        &["--by", "process"],
        &["--by", "cgroup"],
        &["--by", "cause"],
        &["--reverse"],
    ] {
        let view = folded(arguments);
        assert_ne!(view, usual, "{arguments:?}");
        assert_eq!(sum(&view), sum(&usual), "{arguments:?}");
    }
    assert_eq!(folded(&["--flame", "chain", "--by", "thread"]), usual);
}

#[test]
fn what_is_hidden_is_gone_from_folded_stacks() {
    let both = folded(&["--hide", "external,unattributed"]);
    assert!(sum(&both) > 0 && sum(&both) < sum(&folded(&[])));
    for word in ["[timer]", "[disk]", "[network]", "[device]", "[unattributed"] {
        assert!(!both.contains(word), "{word}");
    }
    assert_eq!(both, folded(&["--hide", "external", "--hide", "unattributed"]));
}

#[test]
fn a_comparison_has_a_value_before_and_one_after() {
    let later = data("redis");
    let later = later.to_str().unwrap();
    let compared = folded(&["--diff", later]);
    // Of threads that only one of the two has.
    let has = |thread: &str, is_so: fn(u64, u64) -> bool| {
        let mut lines = compared.lines().filter(|line| line.starts_with(thread)).peekable();
        let is_there = lines.peek().is_some();
        is_there
            && lines.all(|line| {
                let values: Vec<u64> =
                    line.rsplit(' ').take(2).map(|v| v.parse().unwrap()).collect();
                is_so(values[1], values[0])
            })
    };
    assert!(has("gateway", |before, after| before > 0 && after == 0), "{compared}");
    assert!(has("redis-server", |before, after| before == 0 && after > 0), "{compared}");
    let output = report(&data("demo"), &["--diff", later]);
    let summary = String::from_utf8(output.stdout).unwrap();
    assert!(summary.contains("  longer\n") && summary.contains("  shorter\n"), "{summary}");
}

#[test]
fn lines_of_files_are_shown_where_they_are_asked_for_and_those_of_scripts_always() {
    let mut recording = stream::read(&std::fs::read(data("demo")).unwrap()[..], 64 << 20).unwrap();
    let table = &mut recording.stacks;
    for (id, frame) in &mut table.frames {
        let Some(module) = frame.module.and_then(|id| table.modules.get_mut(&id)) else { continue };
        let is_script = id.0 % 2 == 0;
        module.path = if module.path == "[kernel]" { "[kernel]" } else { "/bin/demo" }.to_owned();
        if module.path == "/bin/demo" && is_script {
            frame.module = None;
        }
        for function in &mut frame.functions {
            function.file = (module.path == "/bin/demo")
                .then(|| if is_script { "/srv/script.py" } else { "/src/code.c" }.into());
            function.line = Some(7);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines.offwake");
    stream::write(&recording, &mut std::fs::File::create(&path).unwrap()).unwrap();
    let folded = |options: &[&str]| {
        let output = report(&path, &[&["-o", "-", "--format", "folded"], options].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let (without, with) = (folded(&[]), folded(&["--lines"]));
    assert!(!without.contains("code.c") && without.contains(" (script.py:7);"), "{without}");
    assert!(with.contains(" (code.c:7);") && with.contains(" (script.py:7);"), "{with}");
    assert_eq!(with.replace(" (code.c:7)", ""), without);
}

#[test]
fn what_is_wrong_is_said_and_is_wrong_usage() {
    let later = data("redis");
    let later = later.to_str().unwrap();
    for (arguments, said) in [
        (&["--flame", "hot"][..], "possible values: chain, off-wake, off-cpu"),
        (&["--by", "user"], "one of thread, process, cgroup, cause, label:NAME is wanted"),
        (&["--hide", "idle,all"], "possible values: idle, external, unattributed"),
        (&["--diff", later, "-o", "x.json"], "--diff writes .svg and .folded alone"),
        (&["--diff", later, "--resymbolize"], "cannot be used with"),
        (&["--resymbolize", "--lines", "--no-inline"], "cannot be used with"),
        (&["--no-inline"], "--resymbolize"),
        (&["--debug-dir", "."], "--resymbolize"),
    ] {
        let output = report(&data("demo"), arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
    let output = report(Path::new("-"), &["--diff", "-"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_later_recording_that_is_not_there_fails_in_one_line() {
    let output = report(&data("demo"), &["--diff", "nowhere.offwake"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("offwake: cannot read nowhere.offwake"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

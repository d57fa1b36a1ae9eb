//! What `offwake report` ends with when there is little to report.

use std::{
    fs::File,
    path::PathBuf,
    process::{Command, Output},
};

use offwake_analysis::formats::FORMATS;
use offwake_recording::{Recording, stream};
use tempfile::TempDir;

use crate::draw::{live, recording};

/// Reports a recording, with these arguments, in a directory of its own.
fn report(recording: &Recording, arguments: &[String]) -> (TempDir, Output) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("x.offwake");
    stream::write(recording, &mut File::create(&path).unwrap()).unwrap();
    let mut offwake = Command::new(env!("CARGO_BIN_EXE_offwake"));
    let output = offwake.current_dir(&folder).arg("report").arg(path).args(arguments).output();
    (folder, output.unwrap())
}

/// A target of one thread that lived as it is drawn, beside a thread that is none of it.
fn target_that_lived(life: &str) -> Recording {
    let mut recording = recording(life.len());
    live(&mut recording, 7, life, 60);
    live(&mut recording, 60, &"#".repeat(life.len()), 60);
    recording.sort();
    recording
}

#[test]
fn a_target_that_never_waited_is_reported_in_every_format() {
    for life in ["##########", "##rrrr##rr", "rrrrrrrrrr"] {
        let paths = FORMATS.map(|format| format!("out.{}", format.extension()));
        let arguments: Vec<String> =
            paths.iter().flat_map(|path| ["-o".to_owned(), path.clone()]).collect();
        let (folder, output) = report(&target_that_lived(life), &arguments);
        assert_eq!(output.status.code(), Some(0), "{life}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{life}");
        let summary = String::from_utf8_lossy(&output.stdout);
        assert!(summary.contains("on-CPU") && summary.contains("thread7"), "{life}: {summary}");
        for path in paths {
            let written = folder.path().join(&path).metadata().unwrap();
            // Folded stacks are lines of waiting time, and there is none.
            assert_eq!(written.len() > 0, !path.ends_with(".folded"), "{life}: {path}");
        }
    }
}

#[test]
fn only_a_target_of_which_nothing_is_known_is_nothing() {
    let nobody = recording(10);
    let (_folder, output) = report(&nobody, &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no thread of the target"), "{stderr}");

    let filtered = target_that_lived("##..##..##");
    let (_folder, output) = report(&filtered, &["-m".to_owned(), "10s".to_owned()]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no wait passes the filters"), "{stderr}");
}

#[test]
fn what_a_recording_says_its_target_was_does_nothing_to_a_terminal() {
    let mut nobody = recording(10);
    nobody.meta.target = "\u{1b}]0;x\u{7}\u{9b}2J\r".to_owned();
    for more in [&[][..], &["--diff".to_owned(), "x.offwake".to_owned()]] {
        let (_folder, output) = report(&nobody, more);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(r"the target (\x1b]0;x\x07\x9b2J\x0d)"), "{stderr}");
        assert!(!stderr.split('\n').any(|line| line.contains(char::is_control)), "{stderr:?}");
    }
}

//! Where `offwake report` writes to.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use offwake_analysis::formats::FORMATS;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Reports a recording into these outputs, in `folder`.
fn report(folder: &Path, outputs: &[&str]) -> Output {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pipe.offwake");
    // An output whose reader has left would be waited for, for ever.
    let mut offwake = Command::new("timeout");
    offwake.args(["60", env!("CARGO_BIN_EXE_offwake"), "report"]).arg(recording);
    for output in outputs {
        offwake.args(["-o", output]);
    }
    offwake.current_dir(folder).output().expect("timeout")
}

fn make_fifo(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

#[test]
fn the_reader_of_a_fifo_gets_what_a_file_would_have() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = make_fifo(folder.path(), "fifo.folded");
    // The reader opens it once, as `cat` does.
    let reader = thread::spawn(move || fs::read_to_string(fifo));
    let output = report(folder.path(), &["fifo.folded", "file.folded"]);
    assert!(output.status.success(), "{output:?}");
    let file = fs::read_to_string(folder.path().join("file.folded")).unwrap();
    assert!(!file.is_empty());
    assert_eq!(reader.join().unwrap().unwrap(), file);
}

/// Runs offwake with these arguments behind a umask. Returns the permissions of every file that it
/// makes, by name.
fn permissions(umask: &str, arguments: &[&str]) -> Vec<(String, u32)> {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", "umask $0; exec \"$@\"", umask, env!("CARGO_BIN_EXE_offwake")])
        .args(arguments)
        .current_dir(&folder)
        .output()
        .expect("sh");
    assert!(output.status.success(), "{output:?}");
    let mut files = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
                files.push((path.display().to_string(), mode));
            }
        }
    }
    assert!(!files.is_empty());
    files
}

#[test]
fn outputs_respect_the_umask_and_command_lines_are_their_owners() {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pipe.offwake");
    let recording = recording.to_str().unwrap();
    let outputs = FORMATS.map(|format| format!("out.{}", format.extension()));
    let mut report = vec!["report", recording];
    report.extend(outputs.iter().flat_map(|output| ["-o", output]));
    let export = ["export", recording, "exported"];
    for (umask, of_others) in [("022", 0o644), ("077", 0o600), ("027", 0o640), ("002", 0o664)] {
        for arguments in [&report[..], &export] {
            let files = permissions(umask, arguments);
            let is_owners = |name: &str| {
                [".offwake", ".pftrace"].iter().any(|end| name.ends_with(end))
                    || name.contains("/exported/processes/")
            };
            assert!(files.iter().any(|(name, _)| is_owners(name)), "{files:?}");
            for (name, mode) in &files {
                let expected = if is_owners(name) { 0o600 } else { of_others };
                assert_eq!(format!("{mode:o}"), format!("{expected:o}"), "{name}, umask {umask}");
            }
        }
    }
}

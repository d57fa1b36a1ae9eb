//! Where `offwake report` writes to.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

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

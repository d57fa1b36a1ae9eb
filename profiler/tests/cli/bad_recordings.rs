//! `offwake report` on everything that is not a recording, or not a whole one: one clear line, the
//! right status, bounded memory, and never a panic.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Write as _,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::RecordBatch;
use arrow_ipc::{reader::StreamReader, writer::StreamWriter};
use arrow_schema::Schema;
use offwake_recording::{
    ProcessInfo,
    stream::{END, Encoder, Slice},
    units::{Tgid, Timestamp},
};
use tempfile::TempDir;

/// Address space of the program, in KiB: what it maps of itself included.
const ADDRESS_SPACE: u64 = 2 << 20;
/// However slow the machine is.
const SOON: Duration = Duration::from_secs(60);
const OFFWAKE: &str = env!("CARGO_BIN_EXE_offwake");

fn data(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    fs::read(folder.join(format!("{name}.offwake"))).expect("a recording")
}

/// A directory with a file of these bytes.
fn file_of(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.offwake");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// Reports within limits; whatever comes of it, it is no panic, and soon.
fn report(path: &Path, arguments: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v $1; shift; exec \"$@\"", "sh", &ADDRESS_SPACE.to_string()]);
    run(shell.arg(OFFWAKE).arg("report").arg(path).args(arguments))
}

fn run(command: &mut Command) -> Output {
    let start = Instant::now();
    let output = command.output().expect("sh");
    assert!(start.elapsed() < SOON, "{command:?} took {:?}", start.elapsed());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{command:?}: {stderr}");
    match output.status.code() {
        Some(0) => assert_eq!(stderr, "", "{command:?}"),
        Some(1) => {
            assert!(stderr.starts_with("offwake: ") && stderr.lines().count() == 1, "{stderr}")
        }
        // It could be read, and there is nothing to report in what is left.
        Some(3) => {
            assert!(stderr.lines().all(|line| line.starts_with("offwake: ")), "{stderr}");
            assert!(stderr.contains("DAMAGED") || stderr.contains("CUT OFF"), "{stderr}");
        }
        _ => panic!("{command:?}: {}: {stderr}", output.status),
    }
    output
}

/// Reports what must fail; the one line that says why.
fn refused(path: &Path, arguments: &[&str]) -> String {
    let output = report(path, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(output.stdout.is_empty());
    let name = path.display().to_string();
    assert!(stderr.contains(&format!("cannot read {name}: ")), "{stderr}");
    stderr
}

fn refused_bytes(bytes: &[u8]) -> String {
    let (_folder, path) = file_of(bytes);
    refused(&path, &[])
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_whole_one_is_reported() {
    let (_folder, path) = file_of(&data("pipe"));
    let text = stdout(&report(&path, &[]));
    assert!(!text.contains("DAMAGED") && !text.contains("CUT OFF"), "{text}");
}

#[test]
fn truncated_anywhere() {
    let bytes = data("demo");
    let mut reported = 0;
    for length in (1..40).map(|n| bytes.len() * n / 40).chain([1, 7, 8, bytes.len() - 1]) {
        let (_folder, path) = file_of(&bytes[..length]);
        let output = report(&path, &[]);
        if output.status.code() == Some(0) {
            let text = stdout(&output);
            assert!(text.contains("CUT OFF"), "cut at {length}: {text}");
            reported += 1;
        }
    }
    assert!(reported > 0);
}

#[test]
fn a_flipped_bit_anywhere() {
    let bytes = data("demo");
    let whole = {
        let (_folder, path) = file_of(&bytes);
        stdout(&report(&path, &[]))
    };
    // Any numbers will do, as long as they are the same each time.
    let mut place = 12_345_usize;
    let mut damaged = 0;
    for n in 0..40 {
        place = (place * 1_103_515_245 + 12_345) % (1 << 31);
        let mut broken = bytes.clone();
        broken[place % bytes.len()] ^= 1 << (n % 8);
        let (_folder, path) = file_of(&broken);
        let output = report(&path, &[]);
        if output.status.code() == Some(0) {
            let text = stdout(&output);
            // Some bits say nothing: those between two parts of a message.
            let is_said = text.contains("DAMAGED") || text.contains("CUT OFF");
            assert!(
                is_said || text == whole,
                "bit {} of byte {}: {text}",
                n % 8,
                place % bytes.len()
            );
            damaged += u32::from(is_said);
        } else {
            damaged += 1;
        }
    }
    assert!(damaged > 20, "{damaged}");
}

#[test]
fn something_else() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";
    for bytes in [&png[..], b"{\"schema\": \"offwake.report/1\"}\n", b"x", &[0xff; 4096], &END] {
        let said = refused_bytes(bytes);
        assert!(said.contains("it is no offwake recording"), "{said}");
    }
    let said = refused(Path::new(OFFWAKE), &[]);
    assert!(said.contains("it is no offwake recording"), "{said}");
    let said = refused_bytes(b"");
    assert!(said.contains("it is empty"), "{said}");
}

#[test]
fn what_is_no_plain_file() {
    let folder = tempfile::tempdir().unwrap();
    let said = refused(folder.path(), &[]);
    assert!(said.contains("it is a directory"), "{said}");
    let fifo = folder.path().join("fifo.offwake");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let said = refused(&fifo, &[]);
    assert!(said.contains("it is no plain file"), "{said}");
    let said = refused(&folder.path().join("nowhere.offwake"), &[]);
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn a_file_that_is_not_for_the_user() {
    const NOBODY: u32 = 65_534;
    let (folder, path) = file_of(&data("pipe"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let output = if rustix::process::geteuid().is_root() {
        // Root may read everything; somebody else needs a program of their own.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("offwake");
        // Not by this process: another test's child could inherit the open file, and a program that
        // is open for writing can't be run.
        assert!(Command::new("cp").arg(OFFWAKE).arg(&program).status().unwrap().success());
        run(Command::new(&program).arg("report").arg(&path).uid(NOBODY).gid(NOBODY))
    } else {
        report(&path, &[])
    };
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
}

/// A recording with another schema: its version and its columns.
fn rewritten(version: &str, keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let bytes = data("pipe");
    let mut reader = StreamReader::try_new(&bytes[..], None).unwrap();
    let columns: Vec<usize> = (reader.schema().fields().iter().enumerate())
        .filter(|(_, field)| keep(field.name()))
        .map(|(index, _)| index)
        .collect();
    let fields = reader.schema().project(&columns).unwrap().fields;
    let about = HashMap::from([("offwake.recording".to_owned(), version.to_owned())]);
    let schema = Arc::new(Schema::new_with_metadata(fields, about));
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    for batch in reader.by_ref() {
        let columns = batch.unwrap().project(&columns).unwrap().columns().to_vec();
        writer.write(&RecordBatch::try_new(schema.clone(), columns).unwrap()).unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn a_newer_version() {
    let said = refused_bytes(&rewritten("2", |_| true));
    assert!(said.contains("version 2") && said.contains("use a newer one"), "{said}");
    let (_folder, path) = file_of(&rewritten("1", |_| true));
    assert!(!stdout(&report(&path, &[])).contains("DAMAGED"));
}

#[test]
fn a_table_that_is_missing() {
    // Without waits there still is the time that the threads were on a CPU or kept waiting for one.
    let tables = ["waits", "samples", "names", "stacks", "files", "processes", "cgroups", "loss"];
    for table in tables {
        let (_folder, path) = file_of(&rewritten("1", |name| name != table));
        let text = stdout(&report(&path, &[]));
        assert!(text.contains(&format!("DAMAGED: the recording has no {table}")), "{text}");
    }
    let said = refused_bytes(&rewritten("1", |name| name != "checksums"));
    assert!(said.contains("no records in it are whole"), "{said}");
}

#[test]
fn a_hole_of_a_hundred_gigabytes() {
    const HOLE: u64 = 100 << 30;
    let (_folder, path) = file_of(b"");
    File::options().write(true).open(&path).unwrap().set_len(HOLE).unwrap();
    let said = refused(&path, &[]);
    assert!(said.contains("it is no offwake recording"), "{said}");

    let bytes = data("pipe");
    let (_folder, path) = file_of(&bytes);
    File::options().write(true).open(&path).unwrap().set_len(HOLE).unwrap();
    let text = stdout(&report(&path, &[]));
    assert!(text.contains("DAMAGED"), "{text}");
    assert!(text.contains(&format!("{} bytes", HOLE - bytes.len() as u64)), "{text}");
}

/// What the records take, and a few KiB that claim to take much more than that.
#[test]
fn more_than_may_be_held() {
    let (_folder, path) = file_of(&data("demo"));
    let said = refused(&path, &["--max-memory", "64K"]);
    assert!(said.contains("raise --max-memory"), "{said}");

    let process = ProcessInfo {
        tgid: Tgid(1),
        at: Timestamp(0),
        parent: None,
        executable: None,
        arguments: vec![String::new(); 2_000_000],
        cgroup: None,
        pid_in_container: None,
        uid: None,
    };
    let slice = Slice { processes: vec![process], ..Slice::default() };
    let mut encoder = Encoder::new().unwrap();
    let (_folder, path) = file_of(encoder.header());
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(&encoder.encode(&slice).unwrap().repeat(40)).unwrap();
    assert!(file.metadata().unwrap().len() < 2_000_000);
    let said = refused(&path, &["--max-memory", "512M"]);
    assert!(said.contains("raise --max-memory"), "{said}");
}

/// Files that a fuzzer has found.
#[test]
fn what_once_made_it_panic() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/read_recording");
    let mut seen = 0;
    for seed in fs::read_dir(seeds).expect("the fuzzer's seeds") {
        report(&seed.unwrap().path(), &[]);
        seen += 1;
    }
    assert!(seen > 0);
}

//! Whoever is looked at may be made to break who looks: names without end, mappings without number, bytes that
//! terminals obey. Memory stays within its bounds, the run ends in time, what is missing is counted, and what is
//! written is clean.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    offwake::{Offwake, Outcome},
    paths,
    process::descendants,
    programs::{Compiled, Program, Source},
    report::Report,
    wait_until::wait_at_most,
};

/// How long a recording of some seconds may take until it has ended, on a machine that has other work.
const IN_TIME: Duration = Duration::from_secs(120);

/// A hundred thousand libraries take 20 s where nothing else runs, and more than 120 s beside compilers.
const FOR_ALL: Duration = Duration::from_secs(600);

/// What offwake's own process and each of its helpers may take at most, whatever they look at. Without
/// anything hostile the first takes 90 MB.
const MOST_KB: u64 = 700 << 10;

/// The largest resident memory of offwake and of each process of its own, while they live.
fn watch_memory(pid: u32) -> thread::JoinHandle<Vec<(String, u64)>> {
    let peak = |pid: u32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    thread::spawn(move || {
        let mut peaks: Vec<(String, u64)> = Vec::new();
        while let Some(own) = peak(pid) {
            let helpers = descendants(pid).unwrap_or_default();
            let all = helpers.iter().filter_map(|(pid, name)| Some((name.clone(), peak(*pid)?)));
            for (name, peak) in all.chain([("offwake".to_owned(), own)]) {
                match peaks.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, most)) => *most = peak.max(*most),
                    None => peaks.push((name, peak)),
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        peaks
    })
}

/// Records a process for a while, demands that memory and time are bounded and that the outputs are clean, and
/// returns the report.
fn record(pid: u32, seconds: u32) -> Result<(Outcome, Report)> {
    let recorder = Offwake::record()?
        .args(["-p", &pid.to_string(), "-d", &format!("{seconds}s"), "-o", "x.offwake"])
        .start()?;
    let memory = watch_memory(recorder.pid());
    let outcome = recorder.outcome_within(IN_TIME)?;
    let peaks = memory.join().ok().context("nobody watched")?;
    eprintln!("{:?}, {peaks:?} kB: {}", outcome.ran_for, outcome.stderr);
    ensure!(outcome.status.success(), "{outcome}");
    ensure!(peaks.iter().all(|(_, peak)| *peak < MOST_KB), "{peaks:?}");
    check_clean("standard error", outcome.stderr.as_bytes())?;
    let reported = outcome.report_of(
        "x.offwake",
        &["-o", "x.json", "-o", "x.folded", "-o", "x.svg", "-o", "x.html"],
    )?;
    let report = reported.report("x.json")?;
    ensure!(report.recording.is_whole(), "{:?}", report.recording);
    check_clean("the summary", reported.stdout.as_bytes())?;
    for name in ["x.folded", "x.svg"] {
        check_clean(name, &fs::read(reported.path(name))?)?;
    }
    // JSON says DEL and above as they are, and the page's own script has others, but nothing in them begins a
    // command for a terminal in UTF-8.
    for name in ["x.json", "x.html"] {
        ensure!(!fs::read(reported.path(name))?.contains(&0x1b), "{name} has an escape character");
    }
    eprintln!("{:?}", report.loss.counters);
    Ok((outcome, report))
}

/// Nothing that a terminal obeys, and nothing that is no text.
fn check_clean(what: &str, bytes: &[u8]) -> Result<()> {
    let text = std::str::from_utf8(bytes).with_context(|| format!("{what} is no text"))?;
    let hostile = text.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\t'));
    if let Some((at, c)) = hostile {
        let around: String =
            text.chars().skip(text[..at].chars().count().saturating_sub(60)).take(120).collect();
        anyhow::bail!("{what} has {c:?}: {around:?}");
    }
    Ok(())
}

#[test]
fn names_of_4_kib_without_end_take_no_more_than_their_bound() -> Result<()> {
    let program = Program::script(&paths::python_interpreter()?, "long_names.py", &[])?;
    let (_, report) = record(program.pid(), 8)?;
    let is_named = |waits: &offwake_tests::report::Waits| waits.has_frame("xxxxxxxx");
    ensure!(report.waits.iter().any(is_named), "no function of the script has a name");
    Ok(())
}

/// How many mappings a process may have, for as long as this is there.
struct MappingLimit(String);

const MAPPING_LIMIT: &str = "/proc/sys/vm/max_map_count";

impl MappingLimit {
    fn raise(to: u32) -> Result<Self> {
        let before = fs::read_to_string(MAPPING_LIMIT)?;
        fs::write(MAPPING_LIMIT, to.to_string())?;
        Ok(Self(before))
    }
}

impl Drop for MappingLimit {
    fn drop(&mut self) {
        drop(fs::write(MAPPING_LIMIT, self.0.trim()));
    }
}

#[test]
fn a_million_mappings_are_counted_and_cost_names_alone() -> Result<()> {
    let _limit = MappingLimit::raise(1_100_000)?;
    let source = Source { compiler: "cc", file: "many_maps.c", flags: &["-O1"] };
    let compiled = Compiled::compile_one(source)?;
    let directory = paths::scratch_directory()?;
    let mut command = Command::new(compiled.path("many_maps"));
    command.arg(directory.path().join("file")).arg("1000000");
    let program = Program::start_and_wait(&mut command, directory)?;
    let maps = fs::read_to_string(format!("/proc/{}/maps", program.pid()))?.lines().count();
    ensure!(maps > 1_000_000, "it has {maps} mappings");
    let (_, report) = record(program.pid(), 3)?;
    ensure!(report.loss_count("symbols_mappings_over_limit") > 0, "{:?}", report.loss);
    let blocked: u64 = report.threads.iter().map(|thread| thread.blocked_ns).sum();
    ensure!(blocked > 1_000_000_000, "{:?}", report.threads);
    Ok(())
}

#[test]
fn a_hundred_thousand_libraries_that_come_and_go_take_no_more_than_their_bound() -> Result<()> {
    let compiled = Compiled::empty()?;
    let file = "many_libraries.c";
    compiled.compile("many_libraries", Source { compiler: "cc", file, flags: &["-O1"] })?;
    let flags = &["-O1", "-shared", "-fPIC", "-DLIBRARY"];
    let library = compiled.compile("library.so", Source { compiler: "cc", file, flags })?;
    let mut command = Command::new(compiled.path("many_libraries"));
    command.arg(library).arg("100000");
    let mut program = Program::start_and_wait(&mut command, paths::scratch_directory()?)?;
    let recorder = Offwake::record()?
        .args(["-p", &program.pid().to_string(), "-o", "x.offwake"])
        .start_recording()?;
    let memory = watch_memory(recorder.pid());
    wait_at_most(FOR_ALL, "the last library", || program.check_ended())?;
    let outcome = recorder.interrupt()?;
    let peaks = memory.join().ok().context("nobody watched")?;
    eprintln!("{:?}, {peaks:?} kB: {}", outcome.ran_for, outcome.stderr);
    ensure!(peaks.iter().all(|(_, peak)| *peak < MOST_KB), "{peaks:?}");
    let (_, report) = outcome.report_on("x.offwake")?;
    eprintln!("{:?}", report.loss.counters);
    let is_named = report.waits.iter().any(|waits| waits.has_frame("waits_in_here"));
    ensure!(is_named, "no library's function has a name");
    Ok(())
}

/// All bytes that a name may have.
fn every_byte() -> OsString {
    let bytes: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    OsStr::from_bytes(&bytes).to_owned()
}

#[test]
fn names_of_every_byte_reach_no_terminal_and_break_no_output() -> Result<()> {
    let source = Source { compiler: "cc", file: "every_byte.c", flags: &["-O1", "-pthread"] };
    let compiled = Compiled::compile_one(source)?;
    let directory = paths::scratch_directory()?;
    let path = directory.path().join(every_byte());
    fs::copy(compiled.path("every_byte"), &path)?;
    let mut command = Command::new(&path);
    command.arg(every_byte());
    let program = Program::start_and_wait(&mut command, directory)?;
    let (outcome, report) = record(program.pid(), 2)?;
    ensure!(report.threads.len() > 16, "{:?}", report.threads);
    ensure!(report.waits.iter().any(|waits| waits.has_frame("evil")), "its function has no name");
    // Everything that is made of a recording for other programs.
    for format in ["x.pb.gz", "x.pftrace", "x.speedscope.json", "x.firefox.json"] {
        let written = outcome.report_of("x.offwake", &["-o", format])?;
        ensure!(written.status.success(), "{written}");
    }
    Ok(())
}

#[test]
fn functions_that_are_inlined_into_1500_others_are_bounded_and_the_place_is_named() -> Result<()> {
    let flags = &["-O2", "-g", "-ftemplate-depth=2000"];
    let source = Source { compiler: "c++", file: "inlined.cc", flags };
    let compiled = Compiled::compile_one(source)?;
    let mut command = Command::new(compiled.path("inlined"));
    let program = Program::start_and_wait(&mut command, paths::scratch_directory()?)?;
    let (outcome, report) = record(program.pid(), 2)?;
    ensure!(report.waits.iter().any(|waits| waits.has_frame("next<")), "{:?}", report.waits);
    ensure!(report.waits.iter().any(|waits| waits.has_frame("main")), "{:?}", report.waits);
    let size = size(&outcome.path("x.offwake"))?;
    ensure!(size < 20 << 20, "two seconds take {size} bytes");
    Ok(())
}

fn size(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path)?.len())
}

/// Some 250 programs a second, with 4 KiB of arguments each, in a hundred processes: a MB a second.
fn start_long_arguments() -> Result<Program> {
    let source = Source { compiler: "cc", file: "long_arguments.c", flags: &["-O1"] };
    let compiled = Compiled::compile_one(source)?;
    let mut command = Command::new(compiled.path("long_arguments"));
    Program::start_and_wait(command.arg("100"), paths::scratch_directory()?)
}

/// Waits for the end, and demands that memory was bounded. Returns the report of this recording.
fn end_within_memory(
    recorder: offwake_tests::offwake::Running,
    recording: Option<&str>,
) -> Result<Report> {
    let memory = watch_memory(recorder.pid());
    let outcome = recorder.outcome_within(IN_TIME)?;
    let peaks = memory.join().ok().context("nobody watched")?;
    eprintln!("{:?}, {peaks:?} kB: {}", outcome.ran_for, outcome.stderr);
    ensure!(outcome.status.success(), "{outcome}");
    ensure!(peaks.iter().all(|(_, peak)| *peak < MOST_KB), "{peaks:?}");
    let report = match recording {
        Some(name) => outcome.report_of(name, &["-o", "x.json", "--full"])?.report("x.json")?,
        None => outcome.report("x.json")?,
    };
    eprintln!("{:?}", report.loss.counters);
    Ok(report)
}

#[test]
fn a_flight_recorder_keeps_no_more_arguments_than_it_has_memory_for() -> Result<()> {
    let program = start_long_arguments()?;
    let recorder = Offwake::record()?
        .args(["-p", &program.pid().to_string(), "--scope", "target", "-d", "12s"])
        .args(["--keep", "1m", "--max-memory", "8M", "-o", "x.offwake"])
        .start()?;
    let report = end_within_memory(recorder, Some("x.offwake"))?;
    ensure!(report.loss_count("kept_shortened") > 0, "all was kept: {:?}", report.loss);
    Ok(())
}

#[test]
fn a_profile_ends_when_arguments_have_filled_its_memory() -> Result<()> {
    let program = start_long_arguments()?;
    let recorder = Offwake::profile()?
        .args(["-p", &program.pid().to_string(), "--scope", "target", "-d", "12s"])
        .args(["--max-memory", "8M", "-o", "x.json", "--full"])
        .start()?;
    let report = end_within_memory(recorder, None)?;
    ensure!(report.meta.closed_by == "memory", "{:?}", report.meta);
    Ok(())
}

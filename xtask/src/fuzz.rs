//! `cargo xtask fuzz`: hostile recordings and programs, made up as long as time allows.
//!
//! cargo-fuzz wants flags that stable compilers hide; `RUSTC_BOOTSTRAP` shows them, so that no other
//! toolchain is needed than the one at hand.

use std::{
    fs,
    process::Command,
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context as _, anyhow, ensure};

use crate::cargo_tool::CargoTool;
use xtask::{apt, command, workspace};

const CARGO_FUZZ: CargoTool = CargoTool::new("cargo-fuzz", "0.13.2");

/// What is fuzzed, and how large an input may be: answers of the processes that parse, a real recording, what one
/// is made up from, a stack and a small program, and what other programs and users make: programs with
/// names, perf maps, the memory of a CPython, files of `/proc`, lists of containers.
const TARGETS: [(&str, u32); 11] = [
    ("read_parser_messages", 4096),
    ("read_unwinder_messages", 4096),
    ("read_recording", 65_536),
    ("report_recording", 16_384),
    ("unwind_stack", 16_384),
    ("name_functions", 8192),
    ("read_headers", 8192),
    ("read_perf_map", 4096),
    ("read_python", 4096),
    ("parse_proc_files", 4096),
    ("parse_containers", 4096),
];

/// Targets that run at a time: on two CPUs each has half of one, so that all have had their minute after three. Two at
/// a time took twice as long of the 90 minutes that all tests may take.
const AT_ONCE: usize = 4;

/// After this many seconds an input counts as one without an end. The slowest of those kept takes one,
/// and a busy machine ten times that.
const TIMEOUT: &str = "-timeout=60";

/// Seconds in all within `cargo xtask test`: 60 for each target.
const IN_TESTS: u32 = 60 * TARGETS.len() as u32 / AT_ONCE as u32;

/// How the targets are compiled. `cargo fuzz build` and `run` must agree on it, or the latter compiles
/// everything anew.
#[derive(Clone, Copy)]
enum Profile {
    /// With optimizations. On two CPUs that takes more than ten minutes: arrow's `select` alone, with the
    /// address sanitizer, takes 97 s, and 24 s without optimizations.
    Release,
    /// Without, in six minutes. A target gets half as far in the same time.
    Dev,
}

impl Profile {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            // The default, one codegen unit, leaves a CPU of two idle.
            Self::Release => &["--sanitizer", "address", "--codegen-units", "16"],
            Self::Dev => &["--sanitizer", "address", "--dev"],
        }
    }
}

/// Fuzzes for as long as a step of `cargo xtask test` may take.
///
/// # Errors
///
/// As those of [`fuzz`].
pub fn fuzz_in_tests() -> anyhow::Result<()> {
    fuzz_all(IN_TESTS, Profile::Dev)
}

/// Fuzzes every target, for so many seconds in all.
///
/// # Errors
///
/// When the fuzzer can't be made, or finds something: what it found lies in `fuzz/artifacts`.
pub fn fuzz(seconds: u32) -> anyhow::Result<()> {
    fuzz_all(seconds, Profile::Release)
}

fn fuzz_all(seconds: u32, profile: Profile) -> anyhow::Result<()> {
    if apt::cxx_library_is_missing() {
        apt::install(&["g++".to_owned()])?;
    }
    command::run(cargo_fuzz()?.arg("build").args(profile.arguments()))?;
    let seconds_each = (seconds * AT_ONCE as u32).div_ceil(TARGETS.len() as u32);
    let next = Mutex::new(TARGETS.into_iter());
    let fuzz_some = || -> anyhow::Result<()> {
        loop {
            let taken = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((target, largest)) = taken else { return Ok(()) };
            fuzz_target(target, largest, seconds_each, profile)?;
        }
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(fuzz_some)).collect();
        running.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_panic| anyhow!("a thread of the fuzzing died"))?
        })
    })
}

fn cargo_fuzz() -> anyhow::Result<Command> {
    let mut command = CARGO_FUZZ.cargo()?;
    command.env("RUSTC_BOOTSTRAP", "1");
    command.env("ASAN_OPTIONS", "malloc_context_size=0:quarantine_size_mb=8");
    command.arg("fuzz");
    Ok(command)
}

/// Fuzzes one target, and prints what came of it when it has ended: others run meanwhile.
fn fuzz_target(target: &str, largest: u32, seconds: u32, profile: Profile) -> anyhow::Result<()> {
    let fuzz = workspace::root().join("fuzz");
    let corpus = fuzz.join("corpus").join(target);
    fs::create_dir_all(&corpus)?;
    // Its own finds come first, because it writes to the first; then what is kept in the source.
    let mut folders = vec![corpus, fuzz.join("seeds").join(target)];
    if target == "read_recording" {
        folders.push(workspace::root().join("profiler/tests/data"));
    }
    let mut command = cargo_fuzz()?;
    command.arg("run").args(profile.arguments()).arg(target).args(folders);
    command.args(["--", "-rss_limit_mb=2048", "-malloc_limit_mb=1024", TIMEOUT]);
    command.args(["-len_control=0", "-print_final_stats=1"]);
    command.args([format!("-max_len={largest}"), format!("-max_total_time={seconds}")]);
    let ended = command.output().with_context(|| format!("cannot fuzz {target}"))?;
    eprintln!("xtask: {target}, for {seconds} s:\n{}", String::from_utf8_lossy(&ended.stderr));
    ensure!(
        ended.status.success(),
        "fuzzing {target} found something: see fuzz/artifacts/{target}"
    );
    Ok(())
}

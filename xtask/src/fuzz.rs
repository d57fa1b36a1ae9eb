//! `cargo xtask fuzz`: hostile recordings and programs, made up as long as time allows.
//!
//! cargo-fuzz wants flags that stable compilers hide; `RUSTC_BOOTSTRAP` shows them, so that no other
//! toolchain is needed than the one at hand.

use std::fs;

use crate::cargo_tool::CargoTool;
use xtask::{apt, command, workspace};

const CARGO_FUZZ: CargoTool = CargoTool { package: "cargo-fuzz", version: "0.13.2" };

/// What is fuzzed, and how large an input may be: answers of the processes that parse, a real recording, what one
/// is made up from, or a stack and a small program.
const TARGETS: [(&str, u32); 5] = [
    ("read_parser_messages", 4096),
    ("read_unwinder_messages", 4096),
    ("read_recording", 65_536),
    ("report_recording", 16_384),
    ("unwind_stack", 16_384),
];

/// After this many seconds an input counts as one without an end. The slowest of those kept takes one,
/// and a busy machine ten times that.
const TIMEOUT: &str = "-timeout=60";

/// Seconds in all within `cargo xtask test`.
const IN_TESTS: u32 = 60;

/// Fuzzes for as long as a step of `cargo xtask test` may take.
///
/// # Errors
///
/// As those of [`fuzz`].
pub fn fuzz_for_a_minute() -> anyhow::Result<()> {
    fuzz(IN_TESTS)
}

/// Fuzzes every target, for so many seconds in all.
///
/// # Errors
///
/// When the fuzzer can't be made, or finds something: what it found lies in `fuzz/artifacts`.
pub fn fuzz(seconds: u32) -> anyhow::Result<()> {
    if apt::cxx_library_is_missing() {
        apt::install(&["g++".to_owned()])?;
    }
    let run = |arguments: &[&str]| {
        let mut command = CARGO_FUZZ.cargo()?;
        command.env("RUSTC_BOOTSTRAP", "1");
        command.env("ASAN_OPTIONS", "malloc_context_size=0:quarantine_size_mb=8");
        command.arg("fuzz").args(arguments);
        command::run(&mut command)
    };
    run(&["build", "--sanitizer", "address"])?;
    let seconds_each = seconds.div_ceil(TARGETS.len() as u32);
    for (target, largest) in TARGETS {
        let fuzz = workspace::root().join("fuzz");
        let corpus = fuzz.join("corpus").join(target);
        fs::create_dir_all(&corpus)?;
        // Its own finds come first, because it writes to the first; then what is kept in the source.
        let mut folders = vec![corpus, fuzz.join("seeds").join(target)];
        if target == "read_recording" {
            folders.push(workspace::root().join("profiler/tests/data"));
        }
        let folders: Vec<String> =
            folders.into_iter().map(|folder| folder.to_string_lossy().into_owned()).collect();
        let (largest, time) =
            (format!("-max_len={largest}"), format!("-max_total_time={seconds_each}"));
        let mut arguments = vec!["run", "--sanitizer", "address", target];
        arguments.extend(folders.iter().map(String::as_str));
        arguments.extend(["--", "-rss_limit_mb=2048", "-malloc_limit_mb=1024", TIMEOUT]);
        arguments.extend(["-len_control=0", "-print_final_stats=1", &largest, &time]);
        run(&arguments)?;
    }
    Ok(())
}

//! `cargo xtask test`: everything that must hold before a change lands. This is what CI runs.

use std::{thread, time::Instant};

use anyhow::{Context as _, anyhow};

use crate::{
    dependencies::{self, Advisories},
    disk_space, fuzz, glossary, instructions, links, msrv, package, privileged_tests, release,
    seeds, vm,
};
use xtask::{
    apt, build, command,
    kernel_half::{self, Rebuild},
    packages, python,
    root::RootAccess,
    workloads, workspace,
};

/// The packages of this workspace that are compiled for the machine itself. Those of the kernel half and
/// the tests have steps of their own.
const PACKAGES_OF_USER_SPACE: [&str; 6] = [
    "offwake",
    "offwake-analysis",
    "offwake-bench",
    "offwake-recording",
    "offwake-unwind",
    "xtask",
];

type Step = (&'static str, fn() -> anyhow::Result<()>);

/// What is quick comes first, and what needs root last.
const STEPS: [Step; 15] = [
    ("room on the disk", disk_space::check),
    ("formatting", check_formatting),
    ("links of the documents", links::check),
    ("names in the glossary", glossary::check),
    ("build", build_both_halves),
    ("a second build rebuilds nothing", build::check_second_build),
    ("lints of the user half", lint_user_half),
    ("lints of the record layouts", lint_record_layouts),
    ("unit tests", run_unit_tests),
    // Before the fuzzing: no two can install at a time.
    ("packages for the tests", install_packages),
    ("fuzzing, a minute each, and what goes beside it", fuzz_beside_others),
    ("what this kernel allows", run_doctor),
    ("instructions of the programs", instructions::compare),
    ("other kernels", vm::test_default_releases),
    ("privileged tests", privileged_tests::run),
];

/// Steps that wait for downloads, or for one rustc at a time. The fuzzing ends when its time is over, whatever
/// runs beside it.
const BESIDE_FUZZING: [Step; 7] = [
    ("licences and sources of the dependencies", dependencies::check),
    ("python for the tests", python::install),
    ("what is only built: aarch64", vm::check_aarch64),
    ("documentation", build_documentation),
    ("the version of Rust that is stated", msrv::check),
    ("lints of the fuzz targets", lint_fuzz_targets),
    ("packages, on bare systems", test_packages),
];

/// Runs all steps, up to the first that fails.
///
/// # Errors
///
/// With the name of that step; also at once when root is out of reach, for no step is skipped.
pub fn test() -> anyhow::Result<()> {
    RootAccess::obtain_for("the privileged tests")?;
    let start = Instant::now();
    for (number, (name, step)) in STEPS.iter().enumerate() {
        let after = start.elapsed().as_secs();
        eprintln!("xtask: step {} of {}, after {after} s: {name}", number + 1, STEPS.len());
        step().with_context(|| format!("step failed: {name}"))?;
    }
    // They change while the source does not, so that whatever else is wrong is said before.
    let advisories = dependencies::advisories().context("advisories about the dependencies")?;
    eprintln!("xtask: all {} steps passed in {} s", STEPS.len(), start.elapsed().as_secs());
    if let Advisories::OutOfReach(reason) = advisories {
        eprintln!("xtask: NOT CHECKED: advisories about the dependencies ({reason})");
    }
    Ok(())
}

fn check_formatting() -> anyhow::Result<()> {
    ensure_component("rustfmt", "fmt")?;
    command::run(command::cargo().args(["fmt", "--all", "--check"]))
}

fn build_both_halves() -> anyhow::Result<()> {
    // Even if it is up to date, so that the compiler's warnings are seen each time.
    kernel_half::build(Rebuild::Always)?;
    build::build()
}

fn lint_user_half() -> anyhow::Result<()> {
    ensure_component("clippy", "clippy")?;
    let mut clippy = command::cargo();
    clippy.arg("clippy");
    for package in PACKAGES_OF_USER_SPACE.iter().chain(&["offwake-tests", "tokio-program"]) {
        clippy.args(["--package", package]);
    }
    command::run(clippy.args(["--all-targets", "--", "-D", "warnings"]))
}

/// Apart, because features are united over all packages of one command, and the kernel half must
/// not get any from the user half. The programs themselves are compiled for BPF alone.
fn lint_record_layouts() -> anyhow::Result<()> {
    command::run(
        command::cargo()
            .args(["clippy", "--package", "profiler-ebpf", "--all-targets"])
            .args(["--", "-D", "warnings"]),
    )
}

/// A workspace of its own: its compilation has flags of its own.
fn lint_fuzz_targets() -> anyhow::Result<()> {
    let fuzz = workspace::root().join("fuzz");
    command::run(command::cargo().current_dir(&fuzz).args(["fmt", "--check"]))?;
    // Most of what they are made of has been checked already, for the rest of the workspace.
    let mut clippy = command::cargo();
    clippy.current_dir(&fuzz).arg("clippy").arg("--target-dir").arg(workspace::target());
    command::run(clippy.args(["--", "-D", "warnings"]))
}

fn build_documentation() -> anyhow::Result<()> {
    let mut doc = command::cargo();
    doc.env("RUSTDOCFLAGS", "-D warnings").args(["doc", "--no-deps", "--document-private-items"]);
    for package in PACKAGES_OF_USER_SPACE.iter().chain(&["offwake-tests", "profiler-ebpf"]) {
        doc.args(["--package", package]);
    }
    command::run(&mut doc)
}

fn run_unit_tests() -> anyhow::Result<()> {
    python::install_debians()?;
    // With the flags of the privileged tests, so that their dependencies are compiled once for both.
    let mut test = workloads::cargo_with_frame_pointers("test");
    for package in PACKAGES_OF_USER_SPACE.iter().chain(&["profiler-ebpf"]) {
        test.args(["--package", package]);
    }
    seeds::fix(&mut test);
    command::run(&mut test)
}

fn fuzz_beside_others() -> anyhow::Result<()> {
    thread::scope(|scope| {
        let fuzzing = scope.spawn(fuzz::fuzz_in_tests);
        let others = BESIDE_FUZZING.iter().try_for_each(|(name, step)| {
            eprintln!("xtask: beside the fuzzing: {name}");
            step().with_context(|| (*name).to_owned())
        });
        let fuzzed = fuzzing.join().map_err(|_panic| anyhow!("a thread of the fuzzing died"))?;
        others.and(fuzzed.context("fuzzing"))
    })
}

/// A rehearsal of a release comes after them: it wants packages and their sums.
fn test_packages() -> anyhow::Result<()> {
    release::finish(&package::test_packages()?)
}

fn install_packages() -> anyhow::Result<()> {
    apt::install(&packages::for_tests())
}

/// Loads and attaches every program, and prints what each has of instructions.
fn run_doctor() -> anyhow::Result<()> {
    let root = RootAccess::obtain_for("offwake doctor")?;
    command::run(root.command(workspace::offwake_binary()?).arg("doctor"))
}

/// Makes sure that a component of the toolchain in use is there: minimal ones lack it.
fn ensure_component(name: &str, task: &str) -> anyhow::Result<()> {
    if command::output(command::cargo().args([task, "--version"])).is_some() {
        return Ok(());
    }
    if command::find_program("rustup").is_none() {
        anyhow::bail!("`cargo {task}` is missing: install {name} for the cargo in use");
    }
    command::run(std::process::Command::new("rustup").args(["component", "add", name]))
}

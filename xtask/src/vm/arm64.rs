//! offwake on an emulated arm64 machine: `cargo xtask vm --arm64`, when asked.
//!
//! Both halves and the tests are compiled for it here. User stacks are unwound on x86-64 alone, so that the
//! tests go by frame pointers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};

use super::{
    aarch64,
    archive::{self, Architecture, Archive},
    cpus::Cpus,
    disk,
    emulator::EmulatorProgram,
    image::{self, GuestRoot},
    kernel, live_tests, prepare_guest, run_guest,
    task::Task,
    transcript::Transcript,
};
use xtask::{apt, command, kernel_half, source_digest, workloads, workspace};

/// What the guest's shell is made of.
const BUSYBOX: &str = "busybox-static";
/// Of all that is compiled for it, little runs for long: the emulator takes most of the time.
const PROFILE: &str = "emulated";
const DOCTOR: &str = "doctor";
/// Loading every program, which takes the emulated verifier a while.
const DOCTOR_LIMIT: Duration = Duration::from_secs(300);

/// What a test may take: to load every program and to name functions takes the emulated machine minutes, beside
/// compilers.
const TEST_LIMIT: Duration = Duration::from_secs(600);

/// Boots Debian's arm64 kernel, has `offwake doctor` look at it, and runs tests of known truth.
///
/// # Errors
///
/// When something can't be had or built, the guest dies, or anything in it fails: all of it, and why.
pub fn test() -> anyhow::Result<()> {
    let folder = workspace::target().join("vm");
    let guest_folder = folder.join("arm64");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let packages = aarch64::PACKAGES.into_iter().chain(image::PACKAGES);
    let packages = packages.chain([archive::PACKAGE, disk::PACKAGE]);
    apt::install(&packages.map(str::to_owned).collect::<Vec<_>>())?;
    let emulator = EmulatorProgram::find_or_install(Architecture::Arm64, &folder)?;
    let kernel = kernel::find_or_download(Architecture::Arm64, aarch64::RELEASE, &folder)?;
    let busybox = find_or_download_busybox(&folder)?;
    let programs = build()?;

    let root = GuestRoot::begin(Architecture::Arm64, &busybox, &folder.join("root-arm64"))?;
    for (name, path) in &programs {
        let is_offwake = name == "offwake";
        root.add_program(path, &format!("{}/{name}", if is_offwake { "bin" } else { "tests" }))?;
    }
    let tasks = tasks();
    prepare_guest(&root, &kernel, &tasks, &guest_folder)?;
    let transcript = run_guest(&emulator, &kernel, Cpus::USUAL, &tasks, &guest_folder)?;
    report(&transcript, &tasks)
}

/// The guest's shell, unpacked from Debian's package for that machine.
fn find_or_download_busybox(folder: &Path) -> anyhow::Result<PathBuf> {
    let unpacked = folder.join("busybox-arm64");
    // Debian has it below `/bin`, and `/usr/bin` since 13.
    let find = || ["bin/busybox", "usr/bin/busybox"].map(|name| unpacked.join(name)).into_iter();
    if let Some(busybox) = find().find(|path| path.exists()) {
        return Ok(busybox);
    }
    let archive = Archive::read(Architecture::Arm64, &folder.join("apt"))?;
    apt::extract(&archive.download(BUSYBOX)?, &unpacked)?;
    find().find(|path| path.exists()).with_context(|| format!("there is no busybox in {BUSYBOX}"))
}

/// Compiles everything that runs in the guest, and says where it is, by name.
fn build() -> anyhow::Result<BTreeMap<String, PathBuf>> {
    kernel_half::compile_for_aarch64()?;
    // Where the build script of the user half looks for it. A build for this machine removes it again.
    let object = source_digest::object_path(&workspace::root(), "aarch64")?;
    let compiled =
        workspace::target().join("bpf-build-other/bpfel-unknown-none/release/offwake-bpf");
    fs::copy(&compiled, &object)
        .with_context(|| format!("cannot copy {} to {}", compiled.display(), object.display()))?;
    let mut rustup = Command::new("rustup");
    // As cargo runs it: for the toolchain that is in use in the workspace.
    rustup.current_dir(workspace::root()).args(["target", "add", aarch64::TARGET]);
    command::run(&mut rustup)?;

    let names: BTreeSet<&str> = live_tests::tests_on_arm64().map(|test| test.program()).collect();
    let mut programs = compile(cargo("build").args(["--package", "offwake", "--bin", "offwake"]))?;
    let mut tests = cargo("test");
    tests.args(["--package", "offwake-tests", "--no-run"]);
    for name in &names {
        tests.args(["--test", name]);
    }
    programs.extend(compile(&mut tests)?);
    programs.retain(|name, _| {
        names.contains(name.as_str()) || ["offwake", "offwake-workload"].contains(&name.as_str())
    });
    ensure!(programs.len() == names.len() + 2, "only these were built: {programs:?}");
    Ok(programs)
}

/// A cargo that compiles for arm64, with frame pointers.
fn cargo(task: &str) -> Command {
    let target = aarch64::TARGET;
    let variable = target.replace('-', "_");
    let mut cargo = command::cargo();
    cargo
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "-Cforce-frame-pointers=yes")
        .env(format!("CC_{variable}"), aarch64::C_COMPILER)
        .env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), aarch64::C_COMPILER)
        .args([task, "--target", target, "--profile", PROFILE, "--target-dir"])
        .arg(workspace::target().join("arm64"))
        .args(["--message-format=json-render-diagnostics"]);
    // Here and not in Cargo.toml, which counts as a source of the kernel half.
    for setting in ["inherits=\"release\"", "debug=false", "opt-level=1", "codegen-units=256"] {
        cargo.args(["--config", &format!("profile.{PROFILE}.{setting}")]);
    }
    cargo
}

fn compile(cargo: &mut Command) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    command::print(cargo);
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "it does not compile for {}", aarch64::TARGET);
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages.lines().filter_map(workloads::parse_executable).collect())
}

/// What is done in the guest.
fn tasks() -> Vec<Task> {
    let doctor =
        Task { name: DOCTOR.to_owned(), limit: DOCTOR_LIMIT, command: "offwake doctor".to_owned() };
    let tests = live_tests::tests_on_arm64().map(|test| {
        let task = test.task(Cpus::USUAL);
        let command = format!("export OFFWAKE_TEST_UNWIND=fp; {}", task.command);
        Task { command, limit: TEST_LIMIT, ..task }
    });
    [doctor].into_iter().chain(tests).collect()
}

/// Says what came of everything.
fn report(transcript: &Transcript, tasks: &[Task]) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for task in tasks {
        match transcript.ended.get(&task.name) {
            Some(ended) if task.name == DOCTOR => {
                println!("{}", ended.output);
                if ended.status != 0 {
                    failed.push(task.name.clone());
                }
            }
            Some(ended) if live_tests::has_passed(ended.status, &ended.output) => {
                println!("{}: passed in {} s", task.name, ended.seconds);
            }
            Some(ended) => {
                println!("{}: failed: {}", task.name, ended.output);
                failed.push(task.name.clone());
            }
            None => failed.push(task.name.clone()),
        }
    }
    if !failed.is_empty() {
        bail!("on arm64 these failed: {}", failed.join(", "));
    }
    Ok(())
}

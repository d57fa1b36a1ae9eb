//! `cargo xtask vm`: offwake on other kernels than the one that runs here.
//!
//! ```text
//! Debian's archive --> kernel --+
//! offwake, live tests --> image +--> emulator --> transcript --> judgement --> tables
//! ```

mod aarch64;
mod archive;
mod disk;
mod doctor;
mod emulator;
mod features;
mod image;
mod judgement;
mod kernel;
mod live_tests;
mod release;
mod summary;
mod task;
mod transcript;

use std::{
    cmp::Reverse,
    env, fs,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use anyhow::{Context as _, anyhow, bail};

pub use aarch64::check as check_aarch64;
use archive::Architecture;
use doctor::Findings;
use emulator::{EmulatorProgram, Guest};
use image::GuestRoot;
use judgement::Judgement;
use kernel::Kernel;
pub use release::Release;
use summary::ThisMachine;
use transcript::Transcript;

use crate::instructions;
use xtask::{apt, build, command, root::RootAccess, workloads, workspace};

/// Boots each of the releases, or those that are tested by default, and compares them with the kernel
/// that runs here.
///
/// # Errors
///
/// When one can't be had or booted, or anything on it is not as it should be: all of it, and why.
pub fn test_releases(releases: &[Release]) -> anyhow::Result<()> {
    if env::consts::ARCH != "x86_64" {
        bail!("other kernels are booted on x86_64 alone, this is {}", env::consts::ARCH);
    }
    let begin = Instant::now();
    let folder = workspace::target().join("vm");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let packages = [archive::PACKAGE, disk::PACKAGE];
    let packages = packages.into_iter().chain(image::PACKAGES);
    apt::install(&packages.map(str::to_owned).collect::<Vec<_>>())?;
    let emulator = EmulatorProgram::find_or_install(&folder)?;
    build::build()?;

    let mut releases = releases.to_vec();
    if releases.is_empty() {
        releases.extend(kernel::pinned());
    }
    // The newest first: those that are refused are done at once, and need nobody beside them.
    releases.sort_by_key(|release| Reverse(*release));
    releases.dedup();
    let kernels: Vec<Kernel> = (releases.iter())
        .map(|release| kernel::find_or_download(Architecture::Amd64, *release, &folder))
        .collect::<anyhow::Result<_>>()?;
    let root = guest_root(&folder)?;
    let here = inspect_this_machine()?;

    let judgements = run_all(&emulator, &kernels, &root, &folder);
    println!("{}", summary::tables(&here, &judgements));
    let mut faults = Vec::new();
    faults.extend(features::surprises(here.release, &here.findings));
    for judgement in &judgements {
        println!("{}", summary::line(judgement));
        let on = |fault: &String| format!("Linux {}: {fault}", judgement.release);
        faults.extend(judgement.faults.iter().map(on));
    }
    println!("in {} s", begin.elapsed().as_secs());
    if !faults.is_empty() {
        bail!("not as it should be:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// Tests the default releases, as a step of `cargo xtask test`.
///
/// # Errors
///
/// As those of [`vm`].
pub fn test_default_releases() -> anyhow::Result<()> {
    test_releases(&[])
}

/// What all guests run.
fn guest_root(folder: &Path) -> anyhow::Result<GuestRoot> {
    let root = GuestRoot::begin(&folder.join("root"))?;
    root.add_program(&workspace::offwake_binary()?, "bin/offwake")?;
    let programs = workloads::build_live_tests(&live_tests::programs())?;
    for (name, path) in &programs {
        root.add_program(path, &format!("tests/{name}"))?;
    }
    Ok(root)
}

/// The kernel of this machine, which the others are compared with.
fn inspect_this_machine() -> anyhow::Result<ThisMachine> {
    let root = RootAccess::obtain_for("offwake doctor")?;
    let text = command::output(root.command(workspace::offwake_binary()?).arg("doctor"))
        .context("`offwake doctor` failed on this very kernel")?;
    Ok(ThisMachine {
        release: Release::running()?,
        findings: Findings::read(&text),
        committed: instructions::read_committed()?,
    })
}

/// Boots all kernels, as many at a time as there are CPUs: a guest keeps one CPU busy.
fn run_all(
    emulator: &EmulatorProgram,
    kernels: &[Kernel],
    root: &GuestRoot,
    folder: &Path,
) -> Vec<Judgement> {
    let at_a_time = thread::available_parallelism().map_or(1, usize::from);
    let mut judgements = Vec::new();
    for kernels in kernels.chunks(at_a_time) {
        // One after the other: what differs between them is written to the one root.
        let guests: Vec<_> = kernels.iter().map(|kernel| prepare(kernel, root, folder)).collect();
        thread::scope(|scope| {
            let running: Vec<_> = (kernels.iter().zip(guests))
                .map(|(kernel, folder)| scope.spawn(move || run(emulator, kernel, &folder?)))
                .collect();
            for (kernel, guest) in kernels.iter().zip(running) {
                let transcript = guest.join().unwrap_or_else(|_| Err(anyhow!("it panicked")));
                judgements.push(Judgement::from_transcript(kernel, transcript));
            }
        });
    }
    judgements
}

const IMAGE: &str = "image";
const DISK: &str = "disk";

/// Makes the image of a guest and its disk, and says in which folder.
fn prepare(kernel: &Kernel, root: &GuestRoot, folder: &Path) -> anyhow::Result<PathBuf> {
    let folder = folder.join(kernel.release.to_string());
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    root.pack(&kernel.modules, &judgement::tasks(kernel.release), &folder.join(IMAGE))?;
    disk::make(&folder.join(DISK))?;
    Ok(folder)
}

/// Boots a kernel, and waits until everything is done.
fn run(emulator: &EmulatorProgram, kernel: &Kernel, folder: &Path) -> anyhow::Result<Transcript> {
    let tasks = judgement::tasks(kernel.release);
    let longest_task = tasks.iter().map(|task| task.limit).max().unwrap_or_default();
    let [image, disk] = [IMAGE, DISK].map(|name| folder.join(name));
    let transcript =
        Guest { emulator, kernel, image: &image, disk: DISK, longest_task, folder }.run();
    // They are large, and made anew each time.
    for file in [image, disk] {
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    transcript
}

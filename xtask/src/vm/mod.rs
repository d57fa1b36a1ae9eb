//! `cargo xtask vm`: offwake on other kernels than the one that runs here.
//!
//! ```text
//! Debian's archive --> kernel --+
//! offwake, live tests --> image +--> emulator --> transcript --> judgement --> tables
//! ```

mod aarch64;
mod archive;
mod arm64;
mod cpus;
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
    collections::BTreeMap,
    env, fs,
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context as _, bail};

pub use aarch64::check as check_aarch64;
use archive::Architecture;
pub use arm64::test as test_arm64;
pub use cpus::Cpus;
use doctor::Findings;
use emulator::{EmulatorProgram, EndedBeforeBoot, Guest};
use image::GuestRoot;
use judgement::Judgement;
use kernel::Kernel;
use live_tests::Selection;
pub use release::Release;
use summary::ThisMachine;
use task::Task;
use transcript::Transcript;

use crate::{instructions, privileged_tests::MOST_RUN_AGAIN};
use xtask::{apt, build, command, root::RootAccess, workloads, workspace};

/// Boots each of the releases, or those that are tested by default, with so many CPUs, or those that are
/// tested by default, and compares them with the kernel that runs here.
///
/// # Errors
///
/// When one can't be had or booted, or anything on it is not as it should be: all of it, and why.
pub fn test_releases(releases: &[Release], cpus: &[Cpus]) -> anyhow::Result<()> {
    test_selected(releases, cpus, Selection::All)
}

/// Tests the default releases with what a step of `cargo xtask test` has time for.
///
/// # Errors
///
/// As those of [`test_releases`].
pub fn test_default_releases() -> anyhow::Result<()> {
    test_selected(&[], &[], Selection::WithinTests)
}

fn test_selected(releases: &[Release], cpus: &[Cpus], selection: Selection) -> anyhow::Result<()> {
    if env::consts::ARCH != "x86_64" {
        bail!("other kernels are booted on x86_64 alone, this is {}", env::consts::ARCH);
    }
    let begin = Instant::now();
    let folder = workspace::target().join("vm");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let packages = [archive::PACKAGE, disk::PACKAGE];
    let packages = packages.into_iter().chain(image::PACKAGES);
    apt::install(&packages.map(str::to_owned).collect::<Vec<_>>())?;
    let emulator = EmulatorProgram::find_or_install(Architecture::Amd64, &folder)?;
    build::build()?;

    let mut releases = releases.to_vec();
    let is_default = releases.is_empty() && cpus.is_empty();
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

    let mut guests: Vec<GuestPlan> = Vec::new();
    for kernel in &kernels {
        let usual = if cpus.is_empty() { &[Cpus::USUAL] } else { cpus };
        guests.extend(usual.iter().map(|cpus| GuestPlan { kernel, cpus: *cpus, selection }));
    }
    let with_other_cpus = kernels.iter().find(|k| k.release == kernel::WITH_OTHER_CPUS);
    if let Some(kernel) = with_other_cpus.filter(|_| is_default) {
        guests.extend(Cpus::OTHERS.map(|cpus| GuestPlan { kernel, cpus, selection }));
    }
    let judgements = run_all(&emulator, &guests, root, &folder);
    println!("{}", summary::tables(&here, &judgements));
    let mut faults = Vec::new();
    faults.extend(features::surprises(here.release, &here.findings));
    for judgement in &judgements {
        println!("{}", summary::line(judgement));
        let on = |fault: &String| format!("Linux {}: {fault}", judgement.title());
        faults.extend(judgement.faults.iter().map(on));
    }
    println!("in {} s", begin.elapsed().as_secs());
    if !faults.is_empty() {
        bail!("not as it should be:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// What all guests run.
fn guest_root(folder: &Path) -> anyhow::Result<GuestRoot> {
    let root =
        GuestRoot::begin(Architecture::Amd64, Path::new(image::BUSYBOX), &folder.join("root"))?;
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

/// A guest that is to be booted.
#[derive(Clone, Copy)]
struct GuestPlan<'a> {
    kernel: &'a Kernel,
    cpus: Cpus,
    selection: Selection,
}

/// Boots all guests, as many at a time as there are CPUs: a guest keeps one CPU busy.
fn run_all(
    emulator: &EmulatorProgram,
    guests: &[GuestPlan<'_>],
    root: GuestRoot,
    folder: &Path,
) -> Vec<Judgement> {
    let at_a_time = thread::available_parallelism().map_or(1, usize::from);
    // What differs between guests is written to the one root, for one after the other.
    let (waiting, root) = (Mutex::new(guests.iter().enumerate()), Mutex::new(root));
    let ended = Mutex::new(BTreeMap::new());
    let run_some = || {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, guest)) = next else { return };
            let transcript = guest.boot(emulator, &root, folder, &guest.tasks());
            ended.lock().unwrap_or_else(PoisonError::into_inner).insert(number, transcript);
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(run_some);
        }
    });
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    let judge = |(guest, transcript): (&GuestPlan<'_>, _)| {
        guest.judge(&guest.repeat_what_failed(transcript, emulator, &root, folder))
    };
    guests.iter().zip(ended.into_values()).map(judge).collect()
}

const IMAGE: &str = "image";
const DISK: &str = "disk";

impl GuestPlan<'_> {
    /// Makes everything that the guest needs for some tasks, boots it, and waits until they are done.
    fn boot(
        &self,
        emulator: &EmulatorProgram,
        root: &Mutex<GuestRoot>,
        folder: &Path,
        tasks: &[Task],
    ) -> anyhow::Result<Transcript> {
        let folder = folder.join(format!("{}{}", self.kernel.release, self.cpus.suffix()));
        {
            let root = root.lock().unwrap_or_else(PoisonError::into_inner);
            prepare_guest(&root, self.kernel, tasks, &folder)?;
        }
        run_guest(emulator, self.kernel, self.cpus, tasks, &folder)
    }

    /// Boots the guest a second time, with no other beside it, if it ended before it was up or if a
    /// few of its tests failed. The tests judge how a scheduler treats real threads, here on CPUs that
    /// stop while the emulator waits for its own. What is wrong each time fails twice.
    fn repeat_what_failed(
        &self,
        first: anyhow::Result<Transcript>,
        emulator: &EmulatorProgram,
        root: &Mutex<GuestRoot>,
        folder: &Path,
    ) -> anyhow::Result<Transcript> {
        let title = judgement::title(self.kernel.release, self.cpus);
        let mut transcript = match first {
            Ok(transcript) => transcript,
            // There may have been no memory for several.
            Err(error) if error.is::<EndedBeforeBoot>() => {
                eprintln!("xtask: Linux {title}: {error}; trying once more");
                return self.boot(emulator, root, folder, &self.tasks());
            }
            Err(error) => return Err(error),
        };
        let failed = transcript.find_failed_tests();
        if failed.is_empty() || failed.len() > MOST_RUN_AGAIN {
            return Ok(transcript);
        }
        let names = failed.join(", ");
        eprintln!("xtask: Linux {title}: run again, since they failed: {names}");
        // The second guest writes over what the first one said.
        for ended in failed.iter().filter_map(|name| transcript.ended.get(name)) {
            eprintln!("{}", ended.output);
        }
        let mut tasks = self.tasks();
        tasks.retain(|task| failed.contains(&task.name));
        let second = self.boot(emulator, root, folder, &tasks)?;
        if second.is_over && second.find_failed_tests().is_empty() {
            eprintln!(
                "xtask: Linux {title}: FLAKY: these failed once, and passed when run again: {names}"
            );
        }
        transcript.ended.extend(second.ended);
        Ok(transcript)
    }

    fn tasks(&self) -> Vec<Task> {
        judgement::tasks(self.kernel.release, self.cpus, self.selection)
    }

    fn judge(&self, transcript: &anyhow::Result<Transcript>) -> Judgement {
        Judgement::from_transcript(self.kernel, self.cpus, self.selection, transcript)
    }
}

/// Makes a guest's image and its disk in a folder.
fn prepare_guest(
    root: &GuestRoot,
    kernel: &Kernel,
    tasks: &[Task],
    folder: &Path,
) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    root.pack(&kernel.modules, tasks, &folder.join(IMAGE))?;
    disk::make(&folder.join(DISK))
}

/// Boots a kernel with what is in a folder, and waits until everything is done.
fn run_guest(
    emulator: &EmulatorProgram,
    kernel: &Kernel,
    cpus: Cpus,
    tasks: &[Task],
    folder: &Path,
) -> anyhow::Result<Transcript> {
    let longest_task = tasks.iter().map(|task| task.limit).max().unwrap_or_default();
    let [image, disk] = [IMAGE, DISK].map(|name| folder.join(name));
    let guest = Guest { emulator, kernel, cpus, image: &image, disk: DISK, longest_task, folder };
    let transcript = guest.run();
    // They are large, and made anew each time.
    for file in [image, disk] {
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    transcript
}

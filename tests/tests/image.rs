//! The container image, in a real engine. `cargo xtask package` makes it.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{docker::Engine, paths, runc::Bundle, workload::Workload};

/// What the documents say to give it.
const CAPABILITIES: [&str; 3] = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"];

fn image() -> Result<PathBuf> {
    let folder = paths::target_directory().join("package");
    let missing = || format!("no image in {}: `cargo xtask package` makes it", folder.display());
    let entries = fs::read_dir(&folder).with_context(missing)?;
    let is_image = |path: &PathBuf| path.to_string_lossy().ends_with("-image.tar.gz");
    entries.flatten().map(|entry| entry.path()).find(is_image).with_context(missing)
}

/// Docker loads it and runs it. The Docker of Debian 12 has no name for `CAP_BPF`, so recording is up to
/// the program that it starts containers with.
#[test]
fn docker_runs_the_image_and_three_capabilities_are_enough_to_record_with_it() -> Result<()> {
    let engine = Engine::start()?;
    let loaded = engine.docker(&["load", "-i", &image()?.to_string_lossy()])?;
    let name = loaded.strip_prefix("Loaded image: ").with_context(|| loaded.clone())?;
    let mut docker = Command::new("docker");
    docker.args(["-H", &engine.host(), "run", "--pull=never", "--rm", "--network=none"]);
    docker.args(["--pid=host", "--cap-drop=ALL", "--cap-add=SYS_PTRACE", name, "doctor"]);
    let outcome = docker.output().context("no docker")?;
    let said = String::from_utf8_lossy(&outcome.stdout);
    let is_missing =
        |name: &str| said.lines().any(|line| line.contains("MISSING") && line.contains(name));
    ensure!(outcome.status.code() == Some(1) && is_missing("CAP_BPF"), "{said}");
    ensure!(!is_missing("CAP_SYS_PTRACE"), "{said}");

    let directory = paths::scratch_directory()?;
    let root = directory.path().join("root");
    for folder in ["dev", "proc", "sys"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let archive = directory.path().join("root.tar").to_string_lossy().into_owned();
    engine.docker(&["create", "--network=none", "--name", "offwake-image", name])?;
    engine.docker(&["export", "-o", &archive, "offwake-image"])?;
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&root).args(["-xf", &archive]);
    ensure!(tar.status().context("no tar")?.success(), "tar failed");
    let workload = Workload::start("pipe")?;
    let pids = workload.pids();
    let words = ["/usr/bin/offwake", "profile", "-p", &pids, "-d", "1s"];
    let words = [&words[..], &["-o", "-", "--format", "folded"]].concat();
    let run = |capabilities: &[&str]| -> Result<_> {
        let bundle = Bundle::from_image(&root, capabilities, &words)?;
        let outcome = Command::new("runc").args(bundle.arguments()).output().context("no runc")?;
        let texts = [&outcome.stdout, &outcome.stderr]
            .map(|text| String::from_utf8_lossy(text).into_owned());
        Ok((outcome.status, texts))
    };
    let (status, [stacks, errors]) = run(&CAPABILITIES)?;
    ensure!(status.success(), "{errors}");
    // A program of the host, whose files are not in the image, and which waits for another.
    ensure!(stacks.lines().any(|line| line.contains(";main") && line.contains(";--;")), "{stacks}");
    for missing in CAPABILITIES {
        let others: Vec<&str> = CAPABILITIES.into_iter().filter(|one| *one != missing).collect();
        let (status, [_, errors]) = run(&others)?;
        ensure!(status.code() == Some(1) && errors.contains(missing), "{missing}: {errors}");
    }
    drop(workload);
    engine.end()
}

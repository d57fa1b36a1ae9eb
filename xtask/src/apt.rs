//! Debian's packages.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail};

use crate::{command, root::RootAccess};

/// Installs those of `packages` that are missing. Never removes a package to do so.
///
/// # Errors
///
/// When apt can't, or has no such package, or root is out of reach.
pub fn install(packages: &[String]) -> anyhow::Result<()> {
    let missing: Vec<_> =
        packages.iter().filter(|package| !is_installed(package)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !missing.iter().all(|package| has_candidate(package)) {
        return install_newest(&missing);
    }
    // Lists that are old name versions that the archive has no longer: then only new ones help.
    install_now(&missing).or_else(|_| install_newest(&missing))
}

/// Installs or upgrades `packages` to what the archive has now.
///
/// # Errors
///
/// As for [`install`].
pub fn install_newest(packages: &[String]) -> anyhow::Result<()> {
    update()?;
    if let Some(package) = packages.iter().find(|package| !has_candidate(package)) {
        bail!("apt has no package {package}");
    }
    install_now(packages)
}

/// Unpacks a package, and what it depends on and this machine lacks, into a folder of its own. Nothing is
/// installed, so that it can be had where it is at odds with what is.
///
/// # Errors
///
/// As for [`install`], and when it can't be unpacked.
pub fn unpack(package: &str, into: &Path) -> anyhow::Result<()> {
    let beside = |extension| into.with_extension(extension);
    let (archives, part) = (beside("archives"), beside("part"));
    for folder in [&archives, &part] {
        let is_left = folder.try_exists()?;
        is_left.then(|| fs::remove_dir_all(folder)).transpose()?;
    }
    let partial = archives.join("partial");
    fs::create_dir_all(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    // Lists that are old name versions that the archive has no longer.
    download(package, &archives).or_else(|_| {
        update()?;
        download(package, &archives)
    })?;
    for archive in fs::read_dir(&archives)? {
        let path = archive?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            extract(&path, &part)?;
        }
    }
    fs::rename(&part, into).with_context(|| format!("nothing came of {package}"))?;
    Ok(fs::remove_dir_all(&archives)?)
}

/// Puts a package's files into a folder, beside what is there already.
///
/// # Errors
///
/// When it can't be unpacked.
pub fn extract(package: &Path, into: &Path) -> anyhow::Result<()> {
    command::run_quietly(Command::new("dpkg-deb").arg("-x").arg(package).arg(into))
        .with_context(|| format!("cannot unpack {}", package.display()))
}

fn download(package: &str, into: &Path) -> anyhow::Result<()> {
    let archives = format!("Dir::Cache::archives={}", into.display());
    let mut download = apt_get_install()?;
    command::run(download.args(["--download-only", "-o", &archives, package]))
        .with_context(|| format!("cannot download {package}"))
}

fn update() -> anyhow::Result<()> {
    let mut update = env_as_root()?;
    // A list that can't be had need not matter; whether a package is there is asked afterwards.
    if let Err(error) = command::run(update.args(["apt-get", "update"])) {
        eprintln!("xtask: {error:#}; going on with the package lists that are there");
    }
    Ok(())
}

fn install_now(packages: &[String]) -> anyhow::Result<()> {
    let mut install = apt_get_install()?;
    command::run(install.arg("--no-remove").args(packages))
        .with_context(|| format!("cannot install {}", packages.join(" ")))
}

fn apt_get_install() -> anyhow::Result<Command> {
    let mut install = env_as_root()?;
    install.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y"]);
    install.arg("--no-install-recommends");
    Ok(install)
}

/// `env`, as root: sudo keeps apt's variables from it otherwise.
fn env_as_root() -> anyhow::Result<Command> {
    if command::find_program("apt-get").is_none() {
        bail!("there is no apt-get");
    }
    Ok(RootAccess::obtain_for("installing Debian packages")?.command("env"))
}

fn has_candidate(package: &str) -> bool {
    let mut policy = Command::new("apt-cache");
    policy.env("LC_ALL", "C").args(["policy", package]);
    command::output(&mut policy)
        .is_some_and(|text| text.contains("Candidate:") && !text.contains("Candidate: (none)"))
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}", package]);
    command::output(&mut query).is_some_and(|status| status == "installed")
}

/// Whether a C++ program can be linked, which the BPF linker needs and a bare gcc can't.
pub fn cxx_library_is_missing() -> bool {
    let mut question = Command::new("cc");
    question.arg("-print-file-name=libstdc++.so");
    // A compiler that does not find it answers with the bare name.
    command::output(&mut question).is_none_or(|answer| !Path::new(&answer).is_absolute())
}

//! Debian's cloud kernels: small, complete, and with BTF.

use std::{
    fs, iter,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use super::{
    archive::{
        Architecture::{self, Amd64, Arm64},
        Archive,
    },
    release::Release,
};
use Booted::{Always, WhenAsked};
use xtask::apt;

/// Who has a kernel booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Booted {
    /// `cargo xtask test`, each time.
    Always,
    /// Whoever asks for it.
    WhenAsked,
}

/// The kernels that are known to be good. Where the archive has one no longer, the newest of the same
/// release stands in, and that is said.
const PINNED: [(Architecture, Release, Booted, &str); 6] = [
    (Amd64, Release::new(5, 10), Always, "linux-image-5.10.0-43-cloud-amd64-unsigned"),
    (Amd64, Release::new(6, 1), Always, "linux-image-6.1.0-56-cloud-amd64-unsigned"),
    (Amd64, Release::new(6, 12), Always, "linux-image-6.12.117+deb13-cloud-amd64-unsigned"),
    (Amd64, Release::new(6, 18), WhenAsked, "linux-image-6.18.15+deb13-cloud-amd64"),
    (Amd64, Release::new(7, 3), WhenAsked, "linux-image-7.3.4+deb13-cloud-amd64"),
    (Arm64, Release::new(6, 12), WhenAsked, "linux-image-6.12.117+deb13-cloud-arm64-unsigned"),
];

/// The release whose guests have other numbers of CPUs as well. 6.12 does not count those of the emulator
/// that may come.
pub const WITH_OTHER_CPUS: Release = Release::new(6, 1);

/// The oldest of those that are booted each time and that offwake is made for.
pub const OLDEST_THAT_RECORDS: Release = Release::new(6, 1);

/// The releases that are booted when nobody asks for others.
pub fn pinned() -> impl Iterator<Item = Release> {
    let booted = PINNED.iter().filter(|(_, _, booted, _)| *booted == Always);
    booted.map(|(_, release, ..)| *release)
}

/// A kernel that can be booted.
pub struct Kernel {
    pub release: Release,
    /// Debian's name for it.
    pub package: String,
    /// What is booted.
    pub image: PathBuf,
    /// Modules that nobody loads in the guest on demand, in the order in which they are loaded.
    pub modules: Vec<PathBuf>,
}

/// Modules that offwake has the kernel load: they know what the ends of sockets are.
const MODULES: [&str; 4] = ["unix_diag.ko", "inet_diag.ko", "tcp_diag.ko", "udp_diag.ko"];

/// Client and server of NFS, each after those that it depends on, for the release on which a test stops such
/// a server. Debian's later kernels take no modules of their unsigned packages.
const NFS_MODULES: [&str; 11] = [
    "sunrpc.ko",
    "auth_rpcgss.ko",
    "netfs.ko",
    "fscache.ko",
    "dns_resolver.ko",
    "grace.ko",
    "lockd.ko",
    "nfs_acl.ko",
    "nfs.ko",
    "nfsv4.ko",
    "nfsd.ko",
];

/// The modules for a guest with a kernel of this release.
fn module_names(
    architecture: Architecture,
    release: Release,
) -> impl Iterator<Item = &'static str> {
    let has_nfs = architecture == Amd64 && release == OLDEST_THAT_RECORDS;
    MODULES.into_iter().chain(NFS_MODULES.into_iter().filter(move |_| has_nfs))
}

/// A kernel of that release, downloaded if it is not in `folder` yet.
///
/// # Errors
///
/// When none can be had.
pub fn find_or_download(
    architecture: Architecture,
    release: Release,
    folder: &Path,
) -> anyhow::Result<Kernel> {
    let pinned = (PINNED.iter())
        .find(|(on, of, ..)| (*on, *of) == (architecture, release))
        .map(|(.., package)| *package);
    if let Some(kernel) =
        pinned.and_then(|package| unpacked(architecture, release, folder, package))
    {
        return Ok(kernel);
    }
    let archive = Archive::read(architecture, &folder.join("apt"))?;
    let mut candidates: Vec<String> = pinned.iter().map(|name| (*name).to_owned()).collect();
    candidates.extend(archive.kernels(release)?);
    for package in &candidates {
        if pinned.is_some_and(|pinned| pinned != package) {
            eprintln!("xtask: the archive has no {}, trying {package}", pinned.unwrap_or_default());
        }
        if let Some(kernel) = unpacked(architecture, release, folder, package) {
            return Ok(kernel);
        }
        // A list may name what the archive has no longer.
        let Ok(file) = archive.download(package) else { continue };
        let parts = archive.parts(package)?;
        let parts = parts.iter().map(|part| archive.download(part));
        let files = iter::once(Ok(file)).chain(parts).collect::<anyhow::Result<Vec<PathBuf>>>()?;
        unpack(&files, &folder.join(package), module_names(architecture, release))?;
        return unpacked(architecture, release, folder, package)
            .with_context(|| format!("there is no kernel in {package}"));
    }
    bail!(
        "Debian's archive has no cloud kernel of Linux {release} (tried: {})",
        candidates.join(" ")
    )
}

fn unpacked(
    architecture: Architecture,
    release: Release,
    folder: &Path,
    package: &str,
) -> Option<Kernel> {
    let boot = fs::read_dir(folder.join(package).join("boot")).ok()?;
    let image = boot.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
    })?;
    let modules = module_names(architecture, release).map(|name| folder.join(package).join(name));
    let modules: Vec<PathBuf> = modules.collect();
    // What was unpacked when fewer were wanted is unpacked again.
    modules.iter().all(|module| module.exists()).then_some(())?;
    Some(Kernel { release, package: package.to_owned(), image, modules })
}

/// Unpacks whole or not at all, and of the packages no more than is needed: the modules are many.
fn unpack(
    packages: &[PathBuf],
    folder: &Path,
    modules: impl Iterator<Item = &'static str>,
) -> anyhow::Result<()> {
    let [all, some] = ["unpacked", "half-made"].map(|name| folder.with_file_name(name));
    for left_over in [&all, &some, &folder.to_owned()] {
        if left_over.exists() {
            fs::remove_dir_all(left_over)?;
        }
    }
    for package in packages {
        apt::extract(package, &all)?;
    }
    let boot = some.join("boot");
    fs::create_dir_all(&boot).with_context(|| format!("cannot create {}", boot.display()))?;
    let found = |name: &str| {
        find(&all, name)?.with_context(|| format!("there is no {name} in {packages:?}"))
    };
    // Below `boot`, or among the modules since 6.19.
    fs::rename(found("vmlinuz")?, boot.join("vmlinuz-unpacked"))?;
    for module in modules {
        fs::write(some.join(module), uncompressed(&found(module)?)?)?;
    }
    fs::rename(&some, folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::remove_dir_all(&all)?;
    for package in packages {
        fs::remove_file(package).with_context(|| format!("cannot remove {}", package.display()))?;
    }
    Ok(())
}

/// The file of that name in a folder or below, compressed or not.
fn find(folder: &Path, name: &str) -> anyhow::Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|own| own.to_string_lossy().starts_with(name)) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Not every kernel unpacks its modules itself.
fn uncompressed(module: &Path) -> anyhow::Result<Vec<u8>> {
    if module.extension().is_none_or(|extension| extension != "xz") {
        return Ok(fs::read(module)?);
    }
    let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(module).output();
    let output = output.context("cannot run `xz`")?;
    ensure!(output.status.success(), "`xz` failed ({})", output.status);
    Ok(output.stdout)
}

//! `cargo xtask package`: what people install, made of the release build.
//!
//! ```text
//! target/package/
//!   offwake-0.1.0-x86_64-linux.tar.gz         a static program and its files, for any distribution
//!   offwake_0.1.0-1_amd64.deb                 for Debian and Ubuntu (cargo-deb)
//!   offwake-0.1.0-1.x86_64.rpm                for Fedora, RHEL, SUSE (cargo-generate-rpm)
//!   offwake-0.1.0-x86_64-image.tar.gz         for container engines: the static program
//!   offwake-0.1.0-x86_64-source.tar.gz        for cargo: the source, with the BPF programs compiled
//!   offwake-0.1.0-x86_64-linux-debug.tar.gz   the debug information of both programs
//!   SHA256SUMS
//!   THIRD-PARTY-NOTICES                       what the program contains of others: in each but the debug one
//!   files/  static/  image/  source/          what they are made of
//! ```

mod binstall;
mod contents;
mod image;
mod notices;
mod source;
mod trial;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};
use xtask::{build, command, workspace};

use self::notices::Notices;
use crate::cargo_tool::CargoTool;

const CARGO_DEB: CargoTool = CargoTool::new("cargo-deb", "3.8.0");
const CARGO_GENERATE_RPM: CargoTool = CargoTool::new("cargo-generate-rpm", "0.21.1");

/// The version of all packages of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What was made.
pub struct Packages {
    archive: PathBuf,
    deb: PathBuf,
    rpm: PathBuf,
    image: PathBuf,
    source: PathBuf,
    debug: PathBuf,
}

impl Packages {
    /// All files of a release, without their sums.
    pub fn all(&self) -> [&Path; 6] {
        let Self { archive, deb, rpm, image, source, debug } = self;
        [archive, deb, rpm, image, source, debug].map(PathBuf::as_path)
    }
}

/// Builds offwake, and makes the packages.
///
/// # Errors
///
/// When something can't be built or made.
pub fn build_packages() -> anyhow::Result<Packages> {
    build::build()?;
    let folder = folder();
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot replace {}", folder.display()))?;
    }
    let notices = Notices::collect()?;
    fs::write(folder.join(notices::NAME), notices.text()).context("cannot write the notices")?;
    let files = folder.join("files");
    let program = workspace::offwake_binary()?;
    contents::write_files(&files, &program, contents::DEBUG_FILE, &notices)?;
    let static_files = folder.join("static");
    let program = build::link_statically()?;
    contents::write_files(&static_files, &program, contents::STATIC_DEBUG_FILE, &notices)?;
    for files in [&files, &static_files] {
        notices.check_program(&files.join("usr/bin/offwake"))?;
    }
    let archive = pack(&archive_name(), &static_files, &["usr"])?;
    binstall::check(&archive)?;
    let debug_files = [contents::DEBUG_FILE, contents::STATIC_DEBUG_FILE];
    let debug = pack(&format!("{}-debug", archive_name()), &folder, &debug_files)?;
    let machine = format!("offwake-{VERSION}-{}", std::env::consts::ARCH);
    let image = image::write(&format!("{machine}-image"), &static_files)?;
    let source = source::write(&notices)?;
    // Both tools take the files from `files`, as profiler/Cargo.toml lists them.
    let mut deb = CARGO_DEB.cargo()?;
    deb.args(["deb", "--package", "offwake", "--no-build", "--no-strip", "--output"]).arg(&folder);
    command::run(deb.current_dir(workspace::root()))?;
    let mut rpm = CARGO_GENERATE_RPM.cargo()?;
    rpm.args(["generate-rpm", "--package", "profiler", "--auto-req", "builtin", "--output"]);
    command::run(rpm.arg(&folder).current_dir(workspace::root()))?;
    let packages = Packages {
        archive,
        deb: find_package(&folder, "deb")?,
        rpm: find_package(&folder, "rpm")?,
        image,
        source,
        debug,
    };
    write_sums(&folder, &packages.all())?;
    for path in packages.all() {
        let megabytes = fs::metadata(path)?.len() / 1_000_000;
        println!("{} ({megabytes} MB)", path.display());
    }
    Ok(packages)
}

/// Makes the packages, then installs and uses each on bare systems. The image is tried by
/// `tests/tests/image.rs`.
///
/// # Errors
///
/// When one can't be made, installed or used.
pub fn test_packages() -> anyhow::Result<Packages> {
    let packages = build_packages()?;
    source::check_programs()?;
    notices::check_packages(&packages)?;
    trial::try_all(&packages)?;
    Ok(packages)
}

/// Where the packages are.
pub fn folder() -> PathBuf {
    workspace::target().join("package")
}

/// The name of the static program's archive, without its extension.
fn archive_name() -> String {
    format!("offwake-{VERSION}-{}-linux", std::env::consts::ARCH)
}

/// Packs files and folders of `parent` into an archive of this name. The same files give the same
/// archive.
fn pack(name: &str, parent: &Path, members: &[&str]) -> anyhow::Result<PathBuf> {
    let path = folder().join(format!("{name}.tar.gz"));
    let mut tar = tar(parent);
    command::run(tar.args(["-I", "gzip -n", "-cf"]).arg(&path).args(members))?;
    Ok(path)
}

/// Returns a tar that packs files of `parent`, whoever has them and whenever they were made.
fn tar(parent: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]);
    // Whatever the umask is here.
    tar.args(["--mode=a+rX,u+w,go-w", "-C"]).arg(parent);
    tar
}

/// Returns the one file of a folder with this extension.
fn find_package(folder: &Path, extension: &str) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|its| its == extension) {
            found.push(path);
        }
    }
    ensure!(found.len() == 1, "made {} packages with .{extension}", found.len());
    found.pop().context("made no package")
}

/// Writes what `sha256sum --check` reads.
fn write_sums(folder: &Path, paths: &[&Path]) -> anyhow::Result<()> {
    let mut sums = String::new();
    for path in paths {
        let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let sum = hex(&Sha256::digest(content));
        writeln!(sums, "{sum}  {}", path.file_name().context("no file")?.to_string_lossy())?;
    }
    fs::write(folder.join("SHA256SUMS"), sums).context("cannot write SHA256SUMS")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

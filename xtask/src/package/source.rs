//! The source with the BPF programs compiled: cargo installs offwake from it with nothing else than Rust and
//! a C compiler.
//!
//! ```text
//! offwake-0.1.0/
//!   …                     the files of the repository, as they are here
//!   prebuilt/DIGEST.o     the programs, named by the digest of the files that they were compiled from
//!   THIRD-PARTY-NOTICES   what they, and what cargo makes of the source, contain of others
//! ```
//!
//! The build script of `offwake` computes the digest of the files that it sees, and refuses the programs if
//! theirs is another.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use xtask::{command, kernel_half, source_digest, workspace};

use super::{
    VERSION, folder,
    notices::{self, Notices},
    pack,
};

/// Packs the source.
///
/// # Errors
///
/// When a file can't be made, or a file that git ignores is among those that programs are compiled from.
pub fn write(notices: &Notices) -> anyhow::Result<PathBuf> {
    let name = format!("offwake-{VERSION}");
    let parent = folder().join("source");
    let copy = parent.join(&name);
    fs::create_dir_all(&copy).with_context(|| format!("cannot create {}", copy.display()))?;
    let script = r#"git ls-files -z --cached --others --exclude-standard |
        tar --null -T - -c | tar -x -C "$1""#;
    let mut sh = Command::new("sh");
    sh.args(["-eu", "-c", script, "sh"]).arg(&copy).current_dir(workspace::root());
    command::run_quietly(&mut sh)?;
    let arch = std::env::consts::ARCH;
    let object = source_digest::object_path(&workspace::root(), arch)?;
    let prebuilt = source_digest::prebuilt_path(&copy, arch)?;
    ensure!(
        prebuilt.file_name() == object.file_name(),
        "the BPF programs are compiled from files that git ignores: remove them"
    );
    fs::create_dir_all(copy.join(source_digest::PREBUILT))
        .and_then(|()| fs::copy(&object, &prebuilt))
        .with_context(|| format!("cannot copy {} to {}", object.display(), prebuilt.display()))?;
    fs::write(copy.join(notices::NAME), notices.text()).context("cannot write the notices")?;
    pack(&format!("{name}-{arch}-source"), &parent, &[&name])
}

/// Compiles the programs once more, in the copy of the source that was packed, and compares them byte by
/// byte with those that were packed.
///
/// # Errors
///
/// When they can't be compiled, or are not the same.
pub fn check_programs() -> anyhow::Result<()> {
    let copy = folder().join("source").join(format!("offwake-{VERSION}"));
    let again = kernel_half::compile_in(&copy, &copy.join("target/bpf-build"))?;
    let packed = source_digest::prebuilt_path(&copy, std::env::consts::ARCH)?;
    ensure!(
        read(&again)? == read(&packed)?,
        "the BPF programs differ when they are compiled again: {} and {}",
        again.display(),
        packed.display()
    );
    eprintln!("xtask: the BPF programs are the same, compiled again in another folder");
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

//! bpf-linker: turns the bitcode that rustc writes into a BPF object.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;

use super::Compiler;
use crate::{apt, command, workspace};

const VERSION: &str = "0.13.0";

/// The LLVM versions that this bpf-linker can be made with.
const LLVMS: [u32; 3] = [21, 22, 23];

/// A bpf-linker that reads the bitcode of `compiler`, made if it isn't there.
///
/// Bitcode is readable by the LLVM that wrote it and later ones, but what a later one does with it
/// is anybody's guess: so the versions must be the same, and each has its own folder.
///
/// # Errors
///
/// When there is no such LLVM, or the linker can't be made with it.
pub fn find_or_install(compiler: &Compiler) -> anyhow::Result<PathBuf> {
    let llvm = compiler.llvm;
    let folder =
        workspace::target().join("bpf-toolchain").join(format!("bpf-linker-{VERSION}-llvm-{llvm}"));
    let linker = folder.join("bin/bpf-linker");
    if runs(&linker) {
        return Ok(linker);
    }
    if !LLVMS.contains(&llvm) {
        bail!("{} writes bitcode of LLVM {llvm}, and bpf-linker {VERSION} can't", compiler.name);
    }
    let prefix = PathBuf::from(format!("/usr/lib/llvm-{llvm}"));
    if !prefix.join("bin/llvm-config").exists() {
        apt::install(&[format!("llvm-{llvm}-dev")])?;
    }
    if apt::cxx_library_is_missing() {
        apt::install(&["g++".to_owned()])?;
    }
    let mut install = command::foreign_cargo(&compiler.cargo, &compiler.rustc);
    install
        .env("LLVM_PREFIX", &prefix)
        // It spends its time in LLVM, which is there in machine code already: none is worth
        // spending on debug information and optimisation of the rest.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .args(["install", "bpf-linker", "--version", VERSION, "--locked", "--force"])
        .args(["--no-default-features", "--features", &format!("llvm-{llvm}"), "--root"])
        .arg(&folder);
    command::run(&mut install)?;
    if !runs(&linker) {
        bail!("{} was made but does not run", linker.display());
    }
    Ok(linker)
}

fn runs(linker: &Path) -> bool {
    command::output(Command::new(linker).arg("--version")).is_some()
}

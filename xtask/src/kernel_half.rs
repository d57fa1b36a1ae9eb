//! Compiles the kernel half for BPF. The flags are here alone: this file counts as a source of the
//! object (see `source_digest`), so a changed flag makes a new one.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::{command, source_digest, toolchain, workspace};

/// When the object is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// Only if the object does not match the source.
    IfStale,
    /// Even if the object matches the source, so that cargo shows its warnings again.
    Always,
}

/// What a build of the kernel half did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object matched the source.
    Fresh,
    /// The object was compiled.
    Compiled,
}

/// Puts the object that matches the source where the build script of `offwake` looks for it.
///
/// # Errors
///
/// When no toolchain can be had, or the source does not compile, or changes meanwhile.
pub fn build(want: Rebuild) -> anyhow::Result<Outcome> {
    let root = workspace::root();
    let arch = env::consts::ARCH;
    let object = source_digest::object_path(&root, arch)?;
    if want == Rebuild::IfStale && object.exists() {
        return Ok(Outcome::Fresh);
    }
    let compiled = compile(arch, "offwake-bpf")?;
    if source_digest::object_path(&root, arch)? != object {
        bail!("the kernel half's source changed while it was compiled: run this again");
    }
    replace_object(&compiled, &object)?;
    Ok(Outcome::Compiled)
}

/// Compiles what offwake's programs are measured against, and says where it is.
///
/// # Errors
///
/// When no toolchain can be had, or the source does not compile.
pub fn build_yardsticks() -> anyhow::Result<PathBuf> {
    compile(env::consts::ARCH, "yardsticks")
}

/// Compiles the programs for a machine that this is not, to see that they compile: the layouts of the
/// records are asserted as they do.
///
/// # Errors
///
/// When no toolchain can be had, or the source does not compile.
pub fn compile_for_aarch64() -> anyhow::Result<()> {
    compile("aarch64", "offwake-bpf").map(|_object| ())
}

/// Every machine that aya-ebpf and this project know is little endian.
const TARGET: &str = "bpfel-unknown-none";

fn compile(arch: &str, binary: &str) -> anyhow::Result<PathBuf> {
    let toolchain = toolchain::find_or_install()?;
    // Other flags would make cargo build everything anew: each machine has a folder of its own.
    let folder = if arch == env::consts::ARCH { "bpf-build" } else { "bpf-build-other" };
    let target_dir = workspace::target().join(folder);

    let flags = [
        // aya-ebpf reads registers and calling conventions of the machine that it will run on.
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        "--check-cfg=cfg(bpf_target_arch,values(\"x86_64\",\"aarch64\"))".to_owned(),
        // The kernel wants BTF of maps and programs; bpf-linker makes it from debug information.
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        // There is nothing to unwind to, and an overflow check is a branch to a panic, which the
        // verifier must then prove unreachable.
        "-Cpanic=abort".to_owned(),
        "-Coverflow-checks=off".to_owned(),
        format!("-Clinker={}", toolchain.linker.display()),
    ];
    let mut cargo = command::foreign_cargo(&toolchain.cargo, &toolchain.rustc);
    cargo
        // -Z build-std asks for a nightly; the same code is in every release.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .args(["build", "--locked", "--release", "--package", "profiler-ebpf"])
        .args(["--bin", binary, "--target", TARGET, "-Z", "build-std=core", "--target-dir"])
        .arg(&target_dir);
    command::run(&mut cargo)
        .with_context(|| format!("cannot compile the kernel half with {}", toolchain.name))?;
    Ok(target_dir.join(TARGET).join("release").join(binary))
}

/// Copies whole or not at all, then removes the objects of other sources.
fn replace_object(compiled: &Path, object: &Path) -> anyhow::Result<()> {
    let folder = object.parent().context("the object has no folder")?;
    let half_written = folder.join(".half-written");
    fs::create_dir_all(folder)
        .and_then(|()| fs::copy(compiled, &half_written))
        .and_then(|_| fs::rename(&half_written, object))
        .with_context(|| format!("cannot copy {} to {}", compiled.display(), object.display()))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path != object {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

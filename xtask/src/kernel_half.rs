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
    let compiled = compile(&root, arch, "offwake-bpf", &target_dir(arch))?;
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
    let arch = env::consts::ARCH;
    compile(&workspace::root(), arch, "yardsticks", &target_dir(arch))
}

/// Compiles the programs for a machine that this is not, to see that they compile: the layouts of the
/// records are asserted as they do.
///
/// # Errors
///
/// When no toolchain can be had, or the source does not compile.
pub fn compile_for_aarch64() -> anyhow::Result<()> {
    compile(&workspace::root(), "aarch64", "offwake-bpf", &target_dir("aarch64")).map(|_object| ())
}

/// Compiles the programs from a copy of the source, and says where they are.
///
/// # Errors
///
/// When no toolchain can be had, or the source does not compile.
pub fn compile_in(copy: &Path, target_dir: &Path) -> anyhow::Result<PathBuf> {
    compile(copy, env::consts::ARCH, "offwake-bpf", target_dir)
}

/// Other flags would make cargo build everything anew: each machine has a folder of its own.
fn target_dir(arch: &str) -> PathBuf {
    let folder = if arch == env::consts::ARCH { "bpf-build" } else { "bpf-build-other" };
    workspace::target().join(folder)
}

/// Every machine that aya-ebpf and this project know is little endian.
const TARGET: &str = "bpfel-unknown-none";

fn compile(root: &Path, arch: &str, binary: &str, target_dir: &Path) -> anyhow::Result<PathBuf> {
    let toolchain = toolchain::find_or_install()?;

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
        // The names of files are in the object: the same source gives the same one in any folder.
        remap(root, "offwake"),
        remap(&cargo_home()?, "cargo"),
        remap(&toolchain.sysroot, "rust"),
    ];
    let mut cargo = command::foreign_cargo(&toolchain.cargo, &toolchain.rustc);
    cargo
        // -Z build-std asks for a nightly; the same code is in every release.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .args(["build", "--locked", "--release", "--package", "profiler-ebpf"])
        .args(["--bin", binary, "--target", TARGET, "-Z", "build-std=core", "--target-dir"])
        .arg(target_dir);
    command::run(&mut cargo)
        .with_context(|| format!("cannot compile the kernel half with {}", toolchain.name))?;
    Ok(target_dir.join(TARGET).join("release").join(binary))
}

fn remap(folder: &Path, name: &str) -> String {
    format!("--remap-path-prefix={}=/{name}", folder.display())
}

/// Where cargo keeps the source of other crates.
///
/// # Errors
///
/// When nothing tells.
pub fn cargo_home() -> anyhow::Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    env::home_dir().map(|home| home.join(".cargo")).context("there is no home directory")
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

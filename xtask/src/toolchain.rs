//! A toolchain that compiles Rust for BPF: a rustc with the source of `core`, and a linker made
//! with the LLVM of that rustc. What the machine has comes first, then what can be fetched: a
//! nightly by rustup, else Debian's packages. `docs/decisions/0001-building-the-kernel-half.md`
//! has the reasons.

mod debian;
mod linker;
mod rustup;

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, bail};

use crate::command;

/// A toolchain that is ready for use.
pub struct Toolchain {
    /// What rustc calls itself, for people.
    pub name: String,
    /// The cargo that belongs to `rustc`.
    pub cargo: PathBuf,
    /// The compiler; the source of its library is installed.
    pub rustc: PathBuf,
    /// The folder that the compiler and its library are in.
    pub sysroot: PathBuf,
    /// bpf-linker, made with the LLVM that `rustc` writes bitcode with.
    pub linker: PathBuf,
}

/// Finds a toolchain, or fetches one; says every command that changes the machine.
///
/// # Errors
///
/// When neither can be done; the reasons are in the one line.
pub fn find_or_install() -> anyhow::Result<Toolchain> {
    let mut reasons = Vec::new();
    for compiler in rustup::installed().into_iter().chain(debian::installed()) {
        match linker::find_or_install(&compiler) {
            Ok(linker) => return Ok(compiler.with_linker(linker)),
            Err(error) => reasons.push(report_unusable(&compiler.name, &error)),
        }
    }
    type Fetch = fn() -> anyhow::Result<Compiler>;
    for (name, fetch) in [
        ("a nightly by rustup", rustup::install as Fetch),
        ("Debian's packages", debian::install as Fetch),
    ] {
        let fetched = fetch().and_then(|compiler| {
            let linker = linker::find_or_install(&compiler)?;
            Ok(compiler.with_linker(linker))
        });
        match fetched {
            Ok(toolchain) => return Ok(toolchain),
            Err(error) => reasons.push(report_unusable(name, &error)),
        }
    }
    bail!("no toolchain for BPF can be had: {}", reasons.join("; "))
}

fn report_unusable(name: &str, error: &anyhow::Error) -> String {
    let reason = format!("{name} cannot serve: {error:#}");
    eprintln!("xtask: {reason}");
    reason
}

/// A toolchain that still wants a linker.
struct Compiler {
    name: String,
    cargo: PathBuf,
    rustc: PathBuf,
    sysroot: PathBuf,
    /// The major version of its LLVM.
    llvm: u32,
}

impl Compiler {
    /// Asks the pair of programs what they are.
    ///
    /// # Errors
    ///
    /// When they are not there or too old, or the library's source is missing.
    fn inspect(cargo: PathBuf, rustc: PathBuf) -> anyhow::Result<Self> {
        let ask = |argument: &[&str]| {
            let mut question = Command::new(&rustc);
            question.env_remove("LD_LIBRARY_PATH").env_remove("RUSTUP_TOOLCHAIN").args(argument);
            command::output(&mut question)
                .with_context(|| format!("{} does not answer", rustc.display()))
        };
        let version = RustcVersion::read(&ask(&["-vV"])?)?;
        if version.release < OLDEST {
            let (major, minor) = OLDEST;
            bail!("{} is older than {major}.{minor}", version.name);
        }
        let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?);
        let library = sysroot.join("lib/rustlib/src/rust/library/core/Cargo.toml");
        if !library.exists() {
            bail!("{} lacks the source of its library", version.name);
        }
        if !cargo.exists() {
            bail!("there is no {}", cargo.display());
        }
        Ok(Self { name: version.name, cargo, rustc, sysroot, llvm: version.llvm })
    }

    fn with_linker(self, linker: PathBuf) -> Toolchain {
        let Self { name, cargo, rustc, sysroot, llvm: _ } = self;
        Toolchain { name, cargo, rustc, sysroot, linker }
    }
}

/// The workspace's `rust-version`.
const OLDEST: (u32, u32) = (1, 88);

/// What `rustc -vV` says.
#[derive(Debug, PartialEq, Eq)]
struct RustcVersion {
    name: String,
    release: (u32, u32),
    llvm: u32,
}

impl RustcVersion {
    fn read(text: &str) -> anyhow::Result<Self> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let numbers = |text: &str| -> Option<(u32, u32)> {
            let mut parts = text.trim().split('.').map(str::parse);
            Some((parts.next()?.ok()?, parts.next()?.ok()?))
        };
        let name = text.lines().next().unwrap_or_default().to_owned();
        let release = value("release:").and_then(numbers);
        let llvm = value("LLVM version:").and_then(numbers);
        match (release, llvm) {
            (Some(release), Some((llvm, _))) => Ok(Self { name, release, llvm }),
            _ => bail!("cannot read release and LLVM version from `rustc -vV`: {name:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_rustc_says_of_itself() -> anyhow::Result<()> {
        let text = "rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)\n\
                    binary: rustc\nrelease: 1.96.0\nLLVM version: 22.1.8";
        let version = RustcVersion::read(text)?;
        assert_eq!(version.release, (1, 96));
        assert_eq!(version.llvm, 22);
        assert!(version.name.starts_with("rustc 1.96.0 ("));
        Ok(())
    }

    #[test]
    fn reads_a_nightly() -> anyhow::Result<()> {
        let text = "rustc 1.97.0-nightly\nrelease: 1.97.0-nightly\nLLVM version: 22.1.4";
        assert_eq!(RustcVersion::read(text)?.release, (1, 97));
        Ok(())
    }

    #[test]
    fn refuses_a_rustc_that_names_no_llvm() {
        assert!(RustcVersion::read("rustc 1.97.0\nrelease: 1.97.0").is_err());
    }
}

//! What can be known of a machine that nobody has here: whether both halves compile for it, and whether
//! a kernel for it has everything that they read.

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;

use super::{
    archive::{self, Architecture},
    kernel::{self, Kernel},
    release::Release,
};
use xtask::{apt, command, kernel_half, workspace};

/// What rustc calls it.
pub(super) const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Compiles what is C among the dependencies.
pub(super) const C_COMPILER: &str = "aarch64-linux-gnu-gcc";
pub(super) const PACKAGES: [&str; 3] =
    [archive::PACKAGE, "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];

/// The kernel whose types are looked at.
pub(super) const RELEASE: Release = Release::new(6, 12);

/// Checks, as a step of `cargo xtask test`, that offwake compiles for aarch64.
///
/// # Errors
///
/// When a half does not compile, or the kernel lacks something.
pub fn check() -> anyhow::Result<()> {
    apt::install(&PACKAGES.map(str::to_owned))?;
    kernel_half::compile_for_aarch64()?;
    check_user_half()?;
    let folder = workspace::target().join("vm");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let kernel = kernel::find_or_download(Architecture::Arm64, RELEASE, &folder)?;
    check_types(&kernel, &folder.join("aarch64.btf"))
}

/// As far as the toolchain allows: only rustup has the standard library of other machines.
fn check_user_half() -> anyhow::Result<()> {
    let mut rustup = Command::new("rustup");
    // As cargo runs it: for the toolchain that is in use in the workspace.
    rustup.current_dir(workspace::root()).args(["target", "add", TARGET]);
    if let Err(error) = command::run(&mut rustup) {
        eprintln!("xtask: the user half is NOT checked for {TARGET}: {error:#}");
        return Ok(());
    }
    let compiler = format!("CC_{}", TARGET.replace('-', "_"));
    let mut cargo = command::cargo();
    cargo.env(compiler, C_COMPILER).args(["check", "--package", "offwake", "--target", TARGET]);
    command::run(&mut cargo)
}

/// Looks up every field and tracepoint that offwake can't do without.
fn check_types(kernel: &Kernel, types: &Path) -> anyhow::Result<()> {
    let path = kernel.image.display();
    let image = fs::read(&kernel.image).with_context(|| format!("cannot read {path}"))?;
    let found = types_in(&image).with_context(|| format!("there are no types in {path}"))?;
    fs::write(types, found).with_context(|| format!("cannot write {}", types.display()))?;
    let mut cargo = command::cargo();
    cargo.args(["run", "--quiet", "--package", "offwake", "--example", "check-kernel-types"]);
    command::run(cargo.args(["--", "aarch64"]).arg(types))
}

/// The types in a kernel that is not compressed, as those of arm64 are not: the longest run of bytes
/// with [their header](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/btf.h#L11).
fn types_in(image: &[u8]) -> Option<&[u8]> {
    /// Magic number, version 1, no flags, 24 bytes of header.
    const BEGIN: [u8; 8] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
    let begins = image.windows(BEGIN.len()).enumerate().filter(|(_, bytes)| *bytes == BEGIN);
    let of = |begin: usize| {
        let from = image.get(begin..)?;
        let field = |at: usize| {
            let bytes = from.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_le_bytes(bytes)).ok()
        };
        // Names come last.
        let end = field(16)?.checked_add(field(20)?)?.checked_add(24)?;
        from.get(..end)
    };
    begins.filter_map(|(begin, _)| of(begin)).max_by_key(|types| types.len())
}

#[cfg(test)]
mod tests {
    use super::types_in;

    #[test]
    fn the_longest_run_with_a_header_is_the_kernels_types() {
        let header = |types: u32, names: u32| {
            let mut bytes = vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
            for field in [0, types, types, names] {
                bytes.extend(field.to_le_bytes());
            }
            bytes.extend(vec![7; (types + names) as usize]);
            bytes
        };
        let (short, long) = (header(4, 4), header(8, 16));
        let cut_off = &header(100, 100)[..30];
        let image = [&[1, 2, 3], &short[..], &long[..], cut_off].concat();
        assert_eq!(types_in(&image), Some(&long[..]));
        assert_eq!(types_in(&[0x9f, 0xeb]), None);
    }
}

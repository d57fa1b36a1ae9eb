//! Embeds the kernel half, if `cargo xtask build` has built it from the source as it is now, or if it was
//! packed with this source.
//!
//! Nothing is compiled here, so `cargo check`, `clippy`, `doc` and `test` need no BPF toolchain.
//! Writes `OUT_DIR/kernel_object.rs`, which defines `KERNEL_OBJECT: Option<&[u8]>`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

#[path = "../xtask/src/source_digest.rs"]
mod source_digest;

/// Maps and programs are read in place as an ELF file, whose structs want eight bytes.
const FOUND: &str = r#"
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

const ALIGNED: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/kernel_object.o")));

/// The kernel half as an ELF object, aligned to 8 bytes, built from this very source.
pub const KERNEL_OBJECT: Option<&[u8]> = Some(&ALIGNED.0);
"#;

const ABSENT: &str = "
/// The kernel half was not built from this source: `cargo xtask build` does that.
pub const KERNEL_OBJECT: Option<&[u8]> = None;
";

fn main() -> anyhow::Result<()> {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let root = package.parent().context("the package has no folder above it")?;

    // Cargo runs this script again and again while a path that it watches does not exist.
    let objects = root.join(source_digest::OBJECTS);
    fs::create_dir_all(&objects)
        .with_context(|| format!("cannot create the folder {}", objects.display()))?;
    for source in source_digest::SOURCES.iter().chain([&source_digest::OBJECTS]) {
        if root.join(source).exists() {
            println!("cargo::rerun-if-changed={}", Path::new("..").join(source).display());
        }
    }

    let arch = variable("CARGO_CFG_TARGET_ARCH")?;
    let object = source_digest::object_path(root, &arch)?;
    let prebuilt = find_prebuilt(root, &arch)?;
    let object = if object.exists() { object } else { prebuilt.unwrap_or(object) };
    let code = if object.exists() {
        let copy = out.join("kernel_object.o");
        fs::copy(&object, &copy)
            .with_context(|| format!("cannot copy {} to {}", object.display(), copy.display()))?;
        FOUND
    } else {
        ABSENT
    };
    let generated = out.join("kernel_object.rs");
    fs::write(&generated, code).with_context(|| format!("cannot write {}", generated.display()))
}

/// Returns the kernel half that was packed with this source, if one was.
///
/// # Errors
///
/// If what was packed was built from other source: whoever has changed that builds it again.
fn find_prebuilt(root: &Path, arch: &str) -> anyhow::Result<Option<PathBuf>> {
    let folder = root.join(source_digest::PREBUILT);
    if !folder.exists() {
        return Ok(None);
    }
    println!("cargo::rerun-if-changed={}", Path::new("..").join(source_digest::PREBUILT).display());
    let prebuilt = source_digest::prebuilt_path(root, arch)?;
    anyhow::ensure!(
        prebuilt.exists(),
        "the BPF programs in {} were not compiled from this source for {arch}: to use what `cargo xtask build` \
         compiles, remove that folder",
        folder.display()
    );
    Ok(Some(prebuilt))
}

fn variable(name: &str) -> anyhow::Result<String> {
    env::var(name).with_context(|| format!("{name} is not set: only cargo runs this script"))
}

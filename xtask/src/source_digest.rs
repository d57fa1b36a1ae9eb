//! What the kernel half's object is made from, as one digest, and where the object of that digest
//! lies. `cargo xtask build` and the build script of `offwake` compile this one file, so they
//! cannot disagree: an object is found under the digest of the source that it was built from, or
//! not at all. An edited source has another digest, and no object until it is built.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

/// Files and folders below the workspace's root that decide what the object holds.
///
/// `Cargo.lock` stands for the crates that the kernel half uses, `.cargo` for the settings that
/// its compilation inherits, `xtask/src/kernel_half.rs` for the flags it is compiled with.
pub const SOURCES: [&str; 5] =
    [".cargo", "Cargo.lock", "Cargo.toml", "profiler-ebpf", "xtask/src/kernel_half.rs"];

/// Where objects lie, below the workspace's root.
///
/// Always there, wherever `CARGO_TARGET_DIR` points: a build script isn't told what the target
/// directory is, and two checkouts that share one would delete each other's objects.
pub const OBJECTS: &str = "target/bpf";

/// Where the object lies in packed source, below its root. Nowhere else is such a folder.
pub const PREBUILT: &str = "prebuilt";

/// The place of the object for `arch` in packed source with this root, if it matches that.
///
/// # Errors
///
/// Those of [`object_path`].
pub fn prebuilt_path(root: &Path, arch: &str) -> io::Result<PathBuf> {
    Ok(root.join(PREBUILT).join(object_name(root, arch)?))
}

/// The place of the object for `arch` (as in `target_arch`) that matches the source as it is now.
///
/// # Errors
///
/// When a source can't be read. One that isn't there is no error, but has its own digest.
pub fn object_path(root: &Path, arch: &str) -> io::Result<PathBuf> {
    Ok(root.join(OBJECTS).join(object_name(root, arch)?))
}

fn object_name(root: &Path, arch: &str) -> io::Result<String> {
    let mut hash = Sha256::new();
    field(&mut hash, arch.as_bytes());
    for source in SOURCES {
        add(&mut hash, root, Path::new(source))?;
    }
    let mut name = String::new();
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    Ok(name + ".o")
}

fn add(hash: &mut Sha256, root: &Path, path: &Path) -> io::Result<()> {
    let full = root.join(path);
    field(hash, path.as_os_str().as_encoded_bytes());
    let kind = match fs::metadata(&full) {
        Ok(kind) => kind,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            field(hash, b"absent");
            return Ok(());
        }
        Err(error) => return Err(naming(&full, &error)),
    };
    if kind.is_dir() {
        let mut names = fs::read_dir(&full)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect())
            .map_err(|error| naming(&full, &error))
            .map(|names: Vec<_>| names)?;
        // The order of a directory is the file system's own affair.
        names.sort();
        field(hash, b"folder");
        field(hash, &names.len().to_le_bytes());
        for name in names {
            add(hash, root, &path.join(name))?;
        }
    } else {
        let bytes = fs::read(&full).map_err(|error| naming(&full, &error))?;
        field(hash, b"file");
        field(hash, &bytes);
    }
    Ok(())
}

/// Every field goes in with its length before it, so that bytes can't move from one to the next.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
}

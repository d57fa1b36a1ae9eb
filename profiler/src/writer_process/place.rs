//! What is where an output shall go.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Component, Path},
};

use serde::{Deserialize, Serialize};

use super::output_file::new_file_beside;

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A file, or nothing: a file can be made that takes its place.
    File,
    /// A device, a pipe: it is written to as it is.
    Special,
}

/// Finds out what is at a path, and fails now if no output could be written there.
pub(super) fn check(path: &Path) -> io::Result<Place> {
    match metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(metadata) if is_special(&metadata) => Ok(Place::Special),
        found => {
            if found.is_ok_and(|metadata| metadata.is_file()) {
                OpenOptions::new().append(true).open(path)?;
            }
            // The file itself is replaced, so it is the directory that must be writable.
            drop(new_file_beside(path, 0o600)?);
            Ok(Place::File)
        }
    }
}

/// Looks up what is at a path. A symbolic link stands for itself, and is replaced: where it leads
/// is somebody else's choice. The kernel's own are followed, `/dev/stdout` for one.
fn metadata(path: &Path) -> io::Result<fs::Metadata> {
    match is_kernel_path(path) {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    }
}

/// Whether a path is below `/dev` or `/proc`, where links are the kernel's.
#[must_use]
pub fn is_kernel_path(path: &Path) -> bool {
    let has_steps_back = path.components().any(|part| part == Component::ParentDir);
    !has_steps_back && (path.starts_with("/dev") || path.starts_with("/proc"))
}

fn is_special(metadata: &fs::Metadata) -> bool {
    !metadata.is_file() && !metadata.is_dir() && !metadata.is_symlink()
}

//! Room on the disk for what the tests build: without it, a compiler fails after twenty minutes.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use anyhow::{Context as _, ensure};

use xtask::workspace;

/// What `target` holds after `cargo xtask test` has run from nothing (12 GB), and what the tests
/// write elsewhere meanwhile.
const NEEDED_BYTES: u64 = 14_000_000_000;

/// Fails unless all that the tests build has room.
///
/// # Errors
///
/// With what is needed, what is built already, and what is free.
pub fn check() -> anyhow::Result<()> {
    let target = workspace::target();
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    let context = || format!("cannot measure {}", target.display());
    let built = sum_sizes(&target).with_context(context)?;
    let filesystem = rustix::fs::statvfs(&target).with_context(context)?;
    let free = filesystem.f_bavail.saturating_mul(filesystem.f_frsize);
    ensure!(
        is_enough(built, free),
        "the tests need {} GB of disk in {}: {} GB are built already, {} GB are free",
        NEEDED_BYTES / 1_000_000_000,
        target.display(),
        built / 1_000_000_000,
        free / 1_000_000_000
    );
    Ok(())
}

/// What an earlier run has built needs no new room.
fn is_enough(built: u64, free: u64) -> bool {
    built.saturating_add(free) >= NEEDED_BYTES
}

/// The bytes of disk that all files below a folder take.
fn sum_sizes(folder: &Path) -> io::Result<u64> {
    const BYTES_OF_BLOCK: u64 = 512;
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        sum += if entry.file_type()?.is_dir() {
            sum_sizes(&entry.path())?
        } else {
            entry.metadata()?.blocks() * BYTES_OF_BLOCK
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_already_counts_as_room() {
        assert!(is_enough(NEEDED_BYTES, 0));
        assert!(is_enough(1_000, NEEDED_BYTES - 1_000));
        assert!(!is_enough(1_000, NEEDED_BYTES - 1_001));
    }

    #[test]
    fn files_in_folders_below_are_in_the_sum() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("below"))?;
        fs::write(folder.path().join("below/file"), vec![1; 100_000])?;
        assert!(sum_sizes(folder.path())? >= 100_000);
        Ok(())
    }
}

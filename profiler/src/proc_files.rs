//! What the kernel says of other programs' processes.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use offwake_recording::units::Tgid;

/// Lists the processes that there are, each with its folder.
pub(crate) fn list_processes() -> impl Iterator<Item = (Tgid, PathBuf)> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let tgid = entry.file_name().to_str()?.parse().ok()?;
        Some((Tgid(tgid), entry.path()))
    })
}

/// Reads the first `limit` bytes of a file; nothing if it is gone.
pub(crate) fn read_beginning(path: &Path, limit: u64) -> String {
    try_read_beginning(path, limit).unwrap_or_default()
}

/// Reads the first `limit` bytes of a file.
///
/// # Errors
///
/// If it is gone or may not be read.
pub(crate) fn try_read_beginning(path: &Path, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

//! What the kernel says of other programs' processes.

use std::{
    fs::{self, File},
    io::Read as _,
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
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_or_else(|_gone| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

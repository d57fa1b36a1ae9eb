//! A disk for a guest: an NVMe one, as the interrupts of those end waits by themselves, where others
//! leave that to a softirq.

use std::{fs::File, path::Path, process::Command};

use anyhow::Context as _;

use xtask::command;

/// Debian's name for what makes a filesystem.
pub const PACKAGE: &str = "e2fsprogs";

const BYTES: u64 = 256 << 20;

/// Makes one, empty but for a filesystem with a journal.
///
/// # Errors
///
/// When it can't be written.
pub fn make(path: &Path) -> anyhow::Result<()> {
    File::create(path)
        .and_then(|file| file.set_len(BYTES))
        .with_context(|| format!("cannot write {}", path.display()))?;
    // What it leaves for later, a thread of the kernel would do while tests run.
    command::run(
        Command::new("/sbin/mkfs.ext4")
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(path),
    )
}

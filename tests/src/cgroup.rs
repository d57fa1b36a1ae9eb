//! A cgroup of one's own in the v2 hierarchy, wherever that is mounted.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::wait_until::wait_until;

/// A cgroup that is removed when this is dropped; whoever is left in it by then must be ending.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes a cgroup below the root of the v2 hierarchy.
    ///
    /// # Errors
    ///
    /// When there is no v2 hierarchy, or it can't be written to.
    pub fn new(name: &str) -> Result<Self> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
        let root = v2_root(&mounts).context("no cgroup v2 hierarchy is mounted")?;
        Self::make(root.join(format!("offwake-test-{}-{name}", std::process::id())))
    }

    /// Makes a cgroup inside this one.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn child(&self, name: &str) -> Result<Self> {
        Self::make(self.0.join(name))
    }

    /// Moves a process into it, all threads.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn adopt(&self, pid: u32) -> Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("cannot move process {pid} into {}", self.0.display()))
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn make(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has just ended may still be there for a moment.
        let removed = wait_until("the cgroup to be empty", || Ok(fs::remove_dir(&self.0).ok()));
        if let Err(error) = removed {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}

/// The mount point of the v2 hierarchy. In a line of `mountinfo` it is the fifth field; the
/// filesystem's type follows a lone hyphen (`proc_pid_mountinfo(5)`).
fn v2_root(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let kind = filesystem.split(' ').next()?;
        (kind == "cgroup2").then(|| mount.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_found_on_a_hybrid_and_on_a_unified_system() {
        let hybrid = "25 1 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 1 0:29 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 none rw\n";
        assert_eq!(v2_root(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let unified = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(v2_root(unified), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(v2_root("25 1 0:22 / /proc rw - proc proc rw\n"), None);
    }
}

//! A cgroup of one's own: in the v2 hierarchy, wherever that is mounted, or in that of the memory
//! controller, which may be one of v1.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::wait_until::wait_until;

/// A cgroup that is removed when this is dropped; whoever is left in it by then must be ending.
pub struct Cgroup {
    path: PathBuf,
    /// The cgroup of the same name in the v2 hierarchy, if this one is of v1.
    twin: Option<Box<Self>>,
}

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

    /// Makes a cgroup of v1 that can be frozen; none if no hierarchy of v1 has the freezer.
    ///
    /// # Errors
    ///
    /// When it can't be written to.
    pub fn with_freezer_of_v1(name: &str) -> Result<Option<Self>> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
        let name = format!("offwake-test-{}-{name}", std::process::id());
        v1_root(&mounts, "freezer").map(|root| Self::make(root.join(name))).transpose()
    }

    /// Makes a cgroup whose processes, and what the kernel keeps for them, may have so much memory.
    ///
    /// # Errors
    ///
    /// When there is no memory controller, or it can't be written to.
    pub fn with_memory(name: &str, bytes: u64) -> Result<Self> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
        let root = match v1_root(&mounts, "memory") {
            Some(root) => root,
            None => {
                let root = v2_root(&mounts).context("no cgroup hierarchy has memory")?;
                fs::write(root.join("cgroup.subtree_control"), "+memory")
                    .context("the v2 hierarchy has no memory controller")?;
                root
            }
        };
        let cgroup = Self::make(root.join(format!("offwake-test-{}-{name}", std::process::id())))?;
        cgroup.limit_memory(bytes)?;
        Ok(cgroup)
    }

    /// Makes a cgroup whose processes may use so many CPUs, `0.2` say. With a CPU controller of v1 it
    /// has a cgroup of the same name in the v2 hierarchy, as systemd makes them.
    ///
    /// # Errors
    ///
    /// When there is no CPU controller, or it can't be written to.
    pub fn with_cpu(name: &str, cpus: f64) -> Result<Self> {
        // The kernel takes no quota below a millisecond.
        let period_us: f64 = if cpus < 0.01 { 1_000_000.0 } else { 100_000.0 };
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
        let name = format!("offwake-test-{}-{name}", std::process::id());
        let v2 = v2_root(&mounts);
        let write = |cgroup: &Self, file: &str, value: &str| {
            let path = cgroup.path.join(file);
            fs::write(&path, value).with_context(|| format!("cannot write {}", path.display()))
        };
        let quota = format!("{:.0}", cpus * period_us);
        let Some(v1) = v1_root(&mounts, "cpu") else {
            let root = v2.context("no cgroup hierarchy has the CPU")?;
            fs::write(root.join("cgroup.subtree_control"), "+cpu")
                .context("the v2 hierarchy has no CPU controller")?;
            let cgroup = Self::make(root.join(name))?;
            write(&cgroup, "cpu.max", &format!("{quota} {period_us}"))?;
            return Ok(cgroup);
        };
        let mut cgroup = Self::make(v1.join(&name))?;
        write(&cgroup, "cpu.cfs_period_us", &period_us.to_string())?;
        write(&cgroup, "cpu.cfs_quota_us", &quota)?;
        let twin = v2.map(|root| Self::make(root.join(&name))).transpose()?;
        cgroup.twin = twin.map(Box::new);
        Ok(cgroup)
    }

    /// Makes a cgroup whose processes may read so often a second from a disk, which is told by its numbers: `7:0`.
    ///
    /// # Errors
    ///
    /// When there is no controller of block devices, or it can't be written to.
    pub fn with_slow_disk(name: &str, disk: &str, reads_per_second: u32) -> Result<Self> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
        let (root, file, limit) = match v1_root(&mounts, "blkio") {
            Some(root) => {
                (root, "blkio.throttle.read_iops_device", format!("{disk} {reads_per_second}"))
            }
            None => {
                let root = v2_root(&mounts).context("no cgroup hierarchy has block devices")?;
                fs::write(root.join("cgroup.subtree_control"), "+io")
                    .context("the v2 hierarchy has no controller of block devices")?;
                (root, "io.max", format!("{disk} riops={reads_per_second}"))
            }
        };
        let cgroup = Self::make(root.join(format!("offwake-test-{}-{name}", std::process::id())))?;
        let path = cgroup.path.join(file);
        fs::write(&path, &limit)
            .with_context(|| format!("cannot write {limit} to {}", path.display()))?;
        Ok(cgroup)
    }

    /// What the kernel has counted of the quota of a cgroup with a CPU quota.
    ///
    /// # Errors
    ///
    /// When the kernel does not tell.
    pub fn cpu_count(&self) -> Result<CpuCount> {
        let path = self.path.join("cpu.stat");
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        let number = |name: &str| -> Result<Option<u64>> {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            Ok(value.map(str::parse).transpose()?)
        };
        let throttled_ns = match number("throttled_usec")? {
            Some(microseconds) => Some(microseconds * 1000),
            None => number("throttled_time")?,
        };
        Ok(CpuCount {
            throttled_periods: number("nr_throttled")?.context("no nr_throttled")?,
            throttled_ns: throttled_ns.context("no time")?,
        })
    }

    /// Gives a cgroup with memory another limit.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, as it does if more is in use.
    pub fn limit_memory(&self, bytes: u64) -> Result<()> {
        self.set_memory("limit_in_bytes", "max", bytes)
    }

    /// How much memory a cgroup with memory has in use.
    ///
    /// # Errors
    ///
    /// When the kernel does not tell.
    pub fn memory_used(&self) -> Result<u64> {
        let path = self.memory_file("usage_in_bytes", "current");
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        Ok(text.trim().parse()?)
    }

    fn set_memory(&self, v1: &str, v2: &str, value: u64) -> Result<()> {
        let path = self.memory_file(v1, v2);
        fs::write(&path, value.to_string())
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }

    fn memory_file(&self, v1: &str, v2: &str) -> PathBuf {
        let old = self.path.join(format!("memory.{v1}"));
        if old.exists() { old } else { self.path.join(format!("memory.{v2}")) }
    }

    /// Freezes a cgroup, or lets it go on, and waits until it is so.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or takes too long.
    pub fn set(&self, motion: Motion) -> Result<()> {
        let v1 = self.path.join("freezer.state");
        if v1.exists() {
            let state = match motion {
                Motion::Frozen => "FROZEN",
                Motion::Free => "THAWED",
            };
            fs::write(&v1, state).context("cannot freeze")?;
            return wait_until("the freezer", || {
                Ok((fs::read_to_string(&v1)?.trim() == state).then_some(()))
            });
        }
        let (wanted, event) = match motion {
            Motion::Frozen => ("1", "frozen 1"),
            Motion::Free => ("0", "frozen 0"),
        };
        fs::write(self.path.join("cgroup.freeze"), wanted).context("cannot freeze")?;
        wait_until("the freezer", || {
            let events = fs::read_to_string(self.path.join("cgroup.events"))?;
            Ok(events.lines().any(|line| line == event).then_some(()))
        })
    }

    /// Makes a cgroup inside this one.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn child(&self, name: &str) -> Result<Self> {
        Self::make(self.path.join(name))
    }

    /// Moves a process into it, all threads.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn adopt(&self, pid: u32) -> Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("cannot move process {pid} into {}", self.path.display()))?;
        self.twin.as_ref().map_or(Ok(()), |twin| twin.adopt(pid))
    }

    /// The cgroup's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn make(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path, twin: None })
    }
}

/// What the kernel counts of a CPU quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuCount {
    /// Periods in which the quota was used up.
    pub throttled_periods: u64,
    /// How long the cgroup was throttled on its CPUs, in ns; a throttle counts as it ends.
    pub throttled_ns: u64,
}

impl CpuCount {
    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            throttled_periods: self.throttled_periods - earlier.throttled_periods,
            throttled_ns: self.throttled_ns - earlier.throttled_ns,
        }
    }
}

/// Whether the processes of a cgroup run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// The processes of the cgroup do not run.
    Frozen,
    /// The processes of the cgroup run.
    Free,
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has just ended may still be there for a moment.
        let removed = wait_until("the cgroup to be empty", || Ok(fs::remove_dir(&self.path).ok()));
        if let Err(error) = removed {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}

/// The mount point of the v2 hierarchy. In a line of `mountinfo` it is the fifth field; the
/// filesystem's type follows a lone hyphen (`proc_pid_mountinfo(5)`).
fn v2_root(mountinfo: &str) -> Option<PathBuf> {
    mount_point(mountinfo, |kind, _options| kind == "cgroup2")
}

/// The mount point of a controller of v1; its options have the last word of a line.
fn v1_root(mountinfo: &str, controller: &str) -> Option<PathBuf> {
    mount_point(mountinfo, |kind, options| {
        kind == "cgroup" && options.split(',').any(|option| option == controller)
    })
}

fn mount_point(mountinfo: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = filesystem.split(' ');
        let (kind, options) = (fields.next()?, fields.next_back()?);
        is_it(kind, options).then(|| mount.split(' ').nth(4).map(PathBuf::from)).flatten()
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

    #[test]
    fn the_memory_controller_is_found_where_it_is_one_of_v1() {
        let hybrid = "25 1 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      26 1 0:23 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        assert_eq!(v1_root(hybrid, "memory"), Some(PathBuf::from("/sys/fs/cgroup/memory")));
        let unified = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,memory\n";
        assert_eq!(v1_root(unified, "memory"), None);
    }
}

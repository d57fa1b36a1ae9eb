//! What a process uses, from outside.

use std::fs;

use anyhow::Context as _;

/// CPU time of all its threads so far, in seconds. The kernel tells hundredths.
///
/// # Errors
///
/// When there is no such process.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = cpu_ticks(&stat).with_context(|| format!("cannot make out {path}"))?;
    // USER_HZ, which is part of the kernel's interface and 100 on every machine.
    Ok(ticks as f64 / 100.0)
}

/// CPU time of a process and of its children so far: offwake reads, writes, unwinds and parses in processes of their own.
///
/// # Errors
///
/// When there is no such process.
pub fn cpu_seconds_of_all(pid: u32) -> anyhow::Result<f64> {
    let mut seconds = cpu_seconds(pid)?;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            // What has ended meanwhile took nothing to speak of.
            seconds += cpu_seconds(child).unwrap_or(0.0);
        }
    }
    Ok(seconds)
}

/// `utime` and `stime`, the 14th and 15th field. The name, in parentheses, may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident: u64,
    /// What of it is nobody's file: heap and threads' stacks.
    pub anonymous: u64,
    /// The most that was resident at any time.
    pub peak: u64,
}

/// Memory that a process has now.
///
/// # Errors
///
/// When there is no such process.
pub fn memory(pid: u32) -> anyhow::Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    let memory = || {
        let (resident, anonymous) = (bytes("VmRSS:")?, bytes("RssAnon:")?);
        Some(Memory { resident, anonymous, peak: bytes("VmHWM:")? })
    };
    memory().with_context(|| format!("{path} names no memory: the process has ended"))
}

/// Bytes as megabytes.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 7 5 0 0 20 0 3 0 900 0";
        assert_eq!(cpu_ticks(stat), Some(12));
        assert_eq!(cpu_ticks("42 (cut off"), None);
    }
}

//! How often each BPF program of a process ran and how long, as the kernel counts it.

use std::{
    collections::BTreeSet,
    fs,
    io::Error,
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use xtask::command;

/// `BPF_ENABLE_STATS` and `BPF_STATS_RUN_TIME`, since 5.8:
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h#L951>
const BPF_ENABLE_STATS: libc::c_long = 32;
const BPF_STATS_RUN_TIME: u32 = 0;

/// The kernel takes the time of every program run, of all processes, for as long as this lives. It
/// is bound to a file descriptor and so ends with this process, in whatever way that ends: unlike
/// the setting `kernel.bpf_stats_enabled`, nothing needs to be put back.
pub struct Counting {
    _enabled: OwnedFd,
}

impl Counting {
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn start() -> anyhow::Result<Self> {
        let kind = BPF_STATS_RUN_TIME;
        // SAFETY: for this command the kernel reads the one field that is given.
        let fd = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_ENABLE_STATS, &raw const kind, size_of_val(&kind))
        };
        ensure!(fd >= 0, "cannot have program runs timed: {}", Error::last_os_error());
        // SAFETY: the kernel has just given it to us, and nobody else knows it.
        Ok(Self { _enabled: unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd)?) } })
    }
}

/// One program, as `bpftool -j prog show` tells of it. The counts are left out while they are 0.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProgramTime {
    id: u32,
    pub name: String,
    #[serde(default, rename = "run_cnt")]
    pub runs: u64,
    #[serde(default, rename = "run_time_ns")]
    pub ns: u64,
}

/// The programs that a process holds.
///
/// # Errors
///
/// When the process or bpftool can't be asked, or it holds none.
pub fn programs_held_by(pid: u32) -> anyhow::Result<Vec<ProgramTime>> {
    let ids: BTreeSet<u32> = fd_infos(pid)?.iter().filter_map(|info| program_id(info)).collect();
    ensure!(!ids.is_empty(), "process {pid} holds no BPF programs");
    let shown = command::output(Command::new("bpftool").args(["-j", "prog", "show"]))
        .context("bpftool does not answer")?;
    let mut programs: Vec<ProgramTime> =
        serde_json::from_str(&shown).context("cannot read what bpftool says")?;
    programs.retain(|program| ids.contains(&program.id));
    Ok(programs)
}

/// Whether a process holds any program.
pub fn holds_programs(pid: u32) -> bool {
    fd_infos(pid).is_ok_and(|infos| infos.iter().any(|info| program_id(info).is_some()))
}

/// Kernel memory of maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapBytes {
    pub rings: u64,
    /// Maps that hold each value once for every CPU.
    pub per_cpu: u64,
    pub others: u64,
    /// What the kernel keeps in each thread of the machine. It is in none of the others.
    pub each_thread: u64,
}

/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h#L1003>
const BPF_MAP_TYPE_PERCPU_HASH: u64 = 5;
const BPF_MAP_TYPE_PERCPU_ARRAY: u64 = 6;
const BPF_MAP_TYPE_LRU_PERCPU_HASH: u64 = 10;
const BPF_MAP_TYPE_RINGBUF: u64 = 27;
const BPF_MAP_TYPE_TASK_STORAGE: u64 = 29;

/// Bytes of the maps that a process holds, as the kernel counts them.
///
/// # Errors
///
/// When the process can't be asked.
pub fn map_bytes_held_by(pid: u32) -> anyhow::Result<MapBytes> {
    let mut seen = BTreeSet::new();
    let mut bytes = MapBytes::default();
    for info in fd_infos(pid)? {
        let of = |key| number(&info, key);
        let (Some(id), Some(kind), Some(all), Some(value)) =
            (of("map_id:"), of("map_type:"), of("memlock:"), of("value_size:"))
        else {
            continue;
        };
        if !seen.insert(id) {
            continue;
        }
        match kind {
            BPF_MAP_TYPE_RINGBUF => bytes.rings += all,
            BPF_MAP_TYPE_PERCPU_HASH | BPF_MAP_TYPE_PERCPU_ARRAY | BPF_MAP_TYPE_LRU_PERCPU_HASH => {
                bytes.per_cpu += all;
            }
            BPF_MAP_TYPE_TASK_STORAGE => bytes.each_thread += value,
            _ => bytes.others += all,
        }
    }
    Ok(bytes)
}

/// What happened between two looks at the same programs.
pub fn between(before: &[ProgramTime], after: &[ProgramTime]) -> Vec<ProgramTime> {
    let earlier = |id| before.iter().find(|program| program.id == id);
    after
        .iter()
        .map(|program| {
            let (runs, ns) = earlier(program.id).map_or((0, 0), |then| (then.runs, then.ns));
            ProgramTime {
                runs: program.runs.saturating_sub(runs),
                ns: program.ns.saturating_sub(ns),
                ..program.clone()
            }
        })
        .collect()
}

fn fd_infos(pid: u32) -> anyhow::Result<Vec<String>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))?;
    // A descriptor that was closed meanwhile has no file any more.
    Ok(entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect())
}

/// The program that a descriptor stands for. One of a link to a program names it too.
fn program_id(info: &str) -> Option<u32> {
    number(info, "prog_id:").and_then(|id| id.try_into().ok())
}

fn number(info: &str, key: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_names_its_program_and_others_name_none() {
        let program =
            "pos:\t0\nflags:\t02000002\nprog_type:\t26\nmemlock:\t4096\nprog_id:\t49274\n";
        assert_eq!(program_id(program), Some(49274));
        assert_eq!(program_id("pos:\t0\nmap_type:\t1\nmap_id:\t35548\n"), None);
    }

    #[test]
    fn between_two_looks_only_the_growth_counts() {
        let at = |runs, ns| vec![ProgramTime { id: 7, name: "a".to_owned(), runs, ns }];
        assert_eq!(between(&at(2, 100), &at(5, 400)), at(3, 300));
        assert_eq!(between(&[], &at(5, 400)), at(5, 400));
    }

    #[test]
    fn counts_that_bpftool_leaves_out_are_zero() -> anyhow::Result<()> {
        let program: ProgramTime =
            serde_json::from_str(r#"{"id":3,"type":"tracing","name":"irq_work_entry"}"#)?;
        assert_eq!((program.runs, program.ns), (0, 0));
        Ok(())
    }
}

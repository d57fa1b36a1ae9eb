//! Waits for memory: a process whose cgroup may have less memory than the file has that it works on.

use std::{
    fs::File,
    io::{self, Write as _},
    os::{fd::AsRawFd, unix::fs::symlink},
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{Case, at_least},
    cgroup::Cgroup,
    workload::Workload,
    workloads::mapped_file::SIZE,
};

const FAULT: &str = "page of a mapped file";
const FAULT_AT_THE_DISK: &str = "page fault in a mapped file";

/// Writes the file that is mapped, to the disk too, and has the kernel forget its pages: whoever has
/// written them would pay for them.
fn write_file(path: &Path) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("no {}", path.display()))?;
    file.write_all(&vec![0x5a; SIZE])?;
    file.sync_all()?;
    // SAFETY: a plain call on a descriptor that is open.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    ensure!(error == 0, "{}", io::Error::from_raw_os_error(error));
    Ok(())
}

/// Profiles a process that reads its mapped file all the time, while its cgroup may have so much memory.
fn profile_with_limit(cgroup: &Cgroup) -> Result<Case> {
    let workload = Workload::start_with("mapped-file-in-a-cgroup", |directory| {
        symlink(cgroup.path(), directory.join("cgroup")).context("cannot link to the cgroup")?;
        write_file(&directory.join("data"))
    })?;
    let pids = workload.pids();
    Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &pids]))
}

fn tells_fault(case: &Case) -> bool {
    let lines = case.report.findings.iter().flat_map(|finding| &finding.lines);
    lines.into_iter().any(|line| line.text.contains(FAULT) || line.text.contains(FAULT_AT_THE_DISK))
}

#[test]
fn a_limit_below_the_mapped_file_shows_as_page_faults() -> Result<()> {
    let cgroup = Cgroup::with_memory("below-the-file", SIZE as u64 / 2)?;
    let case = profile_with_limit(&cgroup)?;
    let reader = case.tid("reader");
    let blocked = case.report.blocked_ns(reader, "page_fault");
    ensure!(at_least(blocked, 0.1, case.window().length_ns()), "{}", case.describe("reader"));
    ensure!(tells_fault(&case), "{:?}", case.report.findings);
    Ok(())
}

#[test]
fn a_limit_above_the_mapped_file_makes_no_page_faults() -> Result<()> {
    let cgroup = Cgroup::with_memory("above-the-file", SIZE as u64 * 4)?;
    let case = profile_with_limit(&cgroup)?;
    let blocked = case.report.blocked_ns(case.tid("reader"), "page_fault");
    ensure!(blocked * 50 <= case.window().length_ns(), "{}", case.describe("reader"));
    ensure!(!tells_fault(&case), "{:?}", case.report.findings);
    Ok(())
}

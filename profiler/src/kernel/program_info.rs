//! What the kernel tells of a loaded program beside what the syscall says: its fdinfo.

use std::{
    os::fd::{AsFd as _, AsRawFd as _},
    path::PathBuf,
};

use aya::programs::Program;

/// Where it is; good for as long as the program is loaded.
pub(super) struct ProgramInfo(PathBuf);

impl ProgramInfo {
    /// None of a program that is not loaded.
    pub fn of(program: &Program) -> Option<Self> {
        let fd = program.fd().ok()?.as_fd().as_raw_fd();
        Some(Self(PathBuf::from(format!("/proc/self/fdinfo/{fd}"))))
    }

    /// The number behind a key; None if the kernel has no such key.
    pub fn number(&self, key: &str) -> Option<u64> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().parse().ok()
    }
}

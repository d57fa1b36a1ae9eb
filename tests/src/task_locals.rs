//! What a running offwake keeps for a thread in the kernel, changed from outside: the only way to
//! have it miss events that the kernel never fails to report.

use std::{
    fs, io,
    mem::offset_of,
    os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd},
};

use anyhow::{Context, Result, ensure};
use aya::maps::MapData;
use profiler_ebpf::record::{WaitRecord, phase};

use crate::kernel_objects::KernelObjects;

/// `enum bpf_cmd`: <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h>
const LOOK_UP: libc::c_int = 1;
const UPDATE: libc::c_int = 2;

/// The task-local storage of one offwake.
pub struct TaskLocals {
    map: MapData,
    bytes: usize,
}

/// What is kept for one process's first thread, as it was when it was read.
pub struct TaskLocal(Vec<u8>);

/// `union bpf_attr`, for what concerns an element of a map.
#[repr(C)]
struct Element {
    map: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl TaskLocals {
    /// Opens the map of an offwake that records.
    ///
    /// # Errors
    ///
    /// When it has none.
    pub fn open(offwake: u32) -> Result<Self> {
        let map = KernelObjects::held_by(offwake)?.open_map("THREADS")?;
        let descriptor = map.fd().as_fd().as_raw_fd();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"))?;
        let line = info.lines().find_map(|line| line.strip_prefix("value_size:"));
        let bytes = line.context("a map without a size")?.trim().parse()?;
        Ok(Self { map, bytes })
    }

    /// Reads what is kept for a process with one thread.
    ///
    /// # Errors
    ///
    /// When it has none, or it does not look like one.
    pub fn read(&self, pid: u32) -> Result<TaskLocal> {
        let mut value = vec![0; self.bytes];
        self.call(LOOK_UP, pid, value.as_mut_ptr())?;
        let local = TaskLocal(value);
        // It begins with a wait's record, and the phase is right behind that
        // (`profiler-ebpf/src/programs/task_local.rs`). The tid is set when the thread leaves a
        // CPU.
        let tid = local.word(offset_of!(WaitRecord, tid))?;
        let is_one = (tid == pid || tid == 0) && local.phase()? <= phase::BLOCKED;
        ensure!(is_one, "this is not kept for {pid}");
        Ok(local)
    }

    /// Replaces what is kept for a process with one thread.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn write(&self, pid: u32, local: &mut TaskLocal) -> Result<()> {
        self.call(UPDATE, pid, local.0.as_mut_ptr())
    }

    fn call(&self, command: libc::c_int, pid: u32, value: *mut u8) -> Result<()> {
        // SAFETY: takes plain integers.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        ensure!(opened >= 0, "no process {pid}: {}", io::Error::last_os_error());
        // SAFETY: it was just opened, and is nobody else's.
        let process = unsafe { OwnedFd::from_raw_fd(libc::c_int::try_from(opened)?) };
        let key = process.as_raw_fd();
        let mut element = Element {
            map: self.map.fd().as_fd().as_raw_fd().cast_unsigned(),
            reserved: 0,
            key: &raw const key as u64,
            value: value as u64,
            flags: 0,
        };
        // SAFETY: key and value live longer than the call, and have the sizes of the map.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, command, &raw mut element, size_of::<Element>())
        };
        ensure!(result == 0, "what is kept for {pid}: {}", io::Error::last_os_error());
        Ok(())
    }
}

impl TaskLocal {
    const PHASE: usize = size_of::<WaitRecord>();

    /// What the thread does: one of [`phase`].
    ///
    /// # Errors
    ///
    /// When there are fewer bytes than that.
    pub fn phase(&self) -> Result<u32> {
        self.word(Self::PHASE)
    }

    /// Has the thread do something else.
    pub fn set_phase(&mut self, phase: u32) {
        self.set(Self::PHASE, &phase.to_ne_bytes());
    }

    /// Has the thread have left its CPU at another time.
    pub fn set_switch_out(&mut self, ns: u64) {
        self.set(offset_of!(WaitRecord, off_ns), &ns.to_ne_bytes());
    }

    fn word(&self, at: usize) -> Result<u32> {
        let bytes = self.0.get(at..at + 4).context("task-local storage that is too short")?;
        Ok(u32::from_ne_bytes(bytes.try_into()?))
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

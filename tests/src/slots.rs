//! What a running offwake keeps of a thread in the kernel, changed from outside: the only way to have it miss what
//! the kernel never fails to say.

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

/// The slots of one offwake.
pub struct Slots {
    map: MapData,
    bytes: usize,
}

/// The slot of one process's first thread, as it was when it was read.
pub struct Slot(Vec<u8>);

/// `union bpf_attr`, for what concerns an element of a map.
#[repr(C)]
struct Element {
    map: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Slots {
    /// Those of an offwake that records.
    ///
    /// # Errors
    ///
    /// When it has none.
    pub fn of(offwake: u32) -> Result<Self> {
        let map = KernelObjects::held_by(offwake)?.open_map("THREADS")?;
        let descriptor = map.fd().as_fd().as_raw_fd();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"))?;
        let line = info.lines().find_map(|line| line.strip_prefix("value_size:"));
        let bytes = line.context("a map without a size")?.trim().parse()?;
        Ok(Self { map, bytes })
    }

    /// Reads the slot of a process with one thread.
    ///
    /// # Errors
    ///
    /// When it has none, or it does not look like one.
    pub fn read(&self, pid: u32) -> Result<Slot> {
        let mut value = vec![0; self.bytes];
        self.call(LOOK_UP, pid, value.as_mut_ptr())?;
        let slot = Slot(value);
        // A slot is a wait's record, and what the thread does is right behind it
        // (`profiler-ebpf/src/programs/slot.rs`). Who it is, is noted when it leaves a CPU.
        let tid = slot.word(offset_of!(WaitRecord, tid))?;
        let is_one = (tid == pid || tid == 0) && slot.phase()? <= phase::BLOCKED;
        ensure!(is_one, "this is no slot of {pid}");
        Ok(slot)
    }

    /// Puts a slot in the place of the one that is there.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn write(&self, pid: u32, slot: &mut Slot) -> Result<()> {
        self.call(UPDATE, pid, slot.0.as_mut_ptr())
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
        ensure!(result == 0, "the slot of {pid}: {}", io::Error::last_os_error());
        Ok(())
    }
}

impl Slot {
    const PHASE: usize = size_of::<WaitRecord>();

    /// What the thread does: one of [`phase`].
    ///
    /// # Errors
    ///
    /// When the slot is shorter than that.
    pub fn phase(&self) -> Result<u32> {
        self.word(Self::PHASE)
    }

    /// Has the thread do something else.
    pub fn set_phase(&mut self, phase: u32) {
        self.set(Self::PHASE, &phase.to_ne_bytes());
    }

    /// Has the thread leave its CPU at another time.
    pub fn set_left_at(&mut self, ns: u64) {
        self.set(offset_of!(WaitRecord, off_ns), &ns.to_ne_bytes());
    }

    fn word(&self, at: usize) -> Result<u32> {
        let bytes = self.0.get(at..at + 4).context("a slot that is too short")?;
        Ok(u32::from_ne_bytes(bytes.try_into()?))
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

//! A disk that takes little unwritten data: who writes to it is soon made to wait.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::wait_until::wait_until;

/// How large the disk is.
pub const SIZE: u64 = 16 << 20;

/// How much may be on its way to it.
const MAX_DIRTY: &str = "1048576";

// https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/loop.h#L92
const LOOP_SET_FD: libc::Ioctl = 0x4c00;
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_CTL_ADD: libc::Ioctl = 0x4c80;
const LOOP_CTL_REMOVE: libc::Ioctl = 0x4c81;

/// A loop device of its own over memory, with a limit of its own on dirty pages: nobody else's
/// writes are held up. It is gone when this is dropped.
pub struct ThrottledDisk {
    control: File,
    number: libc::c_int,
    device: Option<File>,
}

impl ThrottledDisk {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// When the kernel has no loop devices, or none whose dirty pages can be limited (before 6.2).
    pub fn make() -> Result<Self> {
        let control = File::options().read(true).write(true).open("/dev/loop-control");
        let control = control.context("there are no loop devices")?;
        /// Any number that is free.
        const ANY: libc::c_int = -1;
        let number = request(control.as_raw_fd(), LOOP_CTL_ADD, ANY, "make a loop device")?;
        // From here on the guard removes it.
        let mut disk = Self { control, number, device: None };
        let path = disk.path();
        // The node in /dev is made by the kernel, or by a daemon a moment later.
        let device = wait_until("the loop device", || {
            Ok(File::options().read(true).write(true).open(&path).ok())
        })?;
        let memory = memory()?;
        request(device.as_raw_fd(), LOOP_SET_FD, memory.as_raw_fd(), "set a loop device up")?;
        disk.device = Some(device);
        let settings = PathBuf::from(format!("/sys/block/loop{number}/bdi"));
        set(&settings.join("strict_limit"), "1")?;
        set(&settings.join("max_bytes"), MAX_DIRTY)?;
        Ok(disk)
    }

    /// The device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }
}

impl Drop for ThrottledDisk {
    fn drop(&mut self) {
        // Whoever still writes holds it; it goes with the last of them, and without a backing it
        // takes nothing any more.
        if let Some(device) = self.device.take() {
            drop(request(device.as_raw_fd(), LOOP_CLR_FD, 0, "clear a loop device"));
        }
        let removed = wait_until("the loop device's end", || {
            let fd = self.control.as_raw_fd();
            Ok(request(fd, LOOP_CTL_REMOVE, self.number, "remove a loop device").ok())
        });
        if let Err(error) = removed {
            eprintln!("{} is left: {error:#}", self.path().display());
        }
    }
}

fn memory() -> Result<OwnedFd> {
    // SAFETY: the name ends in a NUL.
    let fd = unsafe { libc::memfd_create(c"offwake-test-disk".as_ptr(), libc::MFD_CLOEXEC) };
    ensure!(fd >= 0, "cannot make a file in memory: {}", io::Error::last_os_error());
    // SAFETY: the descriptor was just made, nobody else owns it.
    let memory = unsafe { OwnedFd::from_raw_fd(fd) };
    let file = File::from(memory);
    file.set_len(SIZE).context("cannot make a file in memory larger")?;
    Ok(file.into())
}

fn request(
    fd: RawFd,
    request: libc::Ioctl,
    argument: libc::c_int,
    what: &str,
) -> Result<libc::c_int> {
    // SAFETY: these requests take a plain integer.
    let result = unsafe { libc::ioctl(fd, request, libc::c_long::from(argument)) };
    ensure!(result >= 0, "cannot {what}: {}", io::Error::last_os_error());
    Ok(result)
}

fn set(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("cannot write {}", path.display()))
}

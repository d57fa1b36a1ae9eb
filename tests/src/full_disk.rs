//! Places where little can be written, or nothing.

use std::{
    ffi::CString,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::FileTypeExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// Makes a device like `/dev/full` at `path`: every write fails with `ENOSPC`. The real one is not
/// used, as a program that replaces its output by renaming would replace the device.
///
/// # Errors
///
/// When the kernel refuses.
pub fn make_full_device(path: &Path) -> Result<()> {
    let name = c_path(path)?;
    // SAFETY: the path ends in a NUL. 1:7 is /dev/full (Documentation/admin-guide/devices.txt).
    let made = unsafe { libc::mknod(name.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 7)) };
    ensure!(made == 0, "cannot make a device: {}", io::Error::last_os_error());
    Ok(())
}

/// Whether `path` is a character device.
///
/// # Errors
///
/// When there is nothing.
pub fn is_device(path: &Path) -> Result<bool> {
    let kind = fs::symlink_metadata(path).context("the device is gone")?.file_type();
    Ok(kind.is_char_device())
}

/// A file system in memory; unmounted when this is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of this size, as mount(8) wants it, on `path`, an empty directory.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn mount(path: &Path, size: &str) -> Result<Self> {
        let place = c_path(path)?;
        let options = CString::new(format!("size={size}"))?;
        // SAFETY: all strings end in a NUL.
        let mounted = unsafe {
            libc::mount(
                c"offwake-test".as_ptr(),
                place.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        ensure!(mounted == 0, "cannot mount a tmpfs: {}", io::Error::last_os_error());
        Ok(Self(path.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Ok(place) = c_path(&self.0) {
            // Should it be busy, it goes when whoever holds it lets go.
            // SAFETY: the path ends in a NUL.
            unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

/// A small file system with almost no room left.
pub struct FullDisk(SmallDisk);

impl FullDisk {
    /// Mounts it on `path`, an empty directory.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn mount(path: &Path) -> Result<Self> {
        /// The size of all, and of the file that fills it: what is left is less than any report.
        const SIZE: &str = "64k";
        const FILL: usize = 60 * 1024;
        let disk = SmallDisk::mount(path, SIZE)?;
        fs::write(path.join("fill"), vec![0; FILL]).context("cannot fill the disk")?;
        Ok(Self(disk))
    }

    /// The names of the files on it, but for the one that fills it.
    ///
    /// # Errors
    ///
    /// When it can't be read.
    pub fn files(&self) -> Result<Vec<String>> {
        let names = fs::read_dir(&self.0.0)?.map(|entry| Ok(entry?.file_name()));
        let names: Vec<_> = names.collect::<io::Result<_>>()?;
        let names = names.iter().map(|name| name.to_string_lossy().into_owned());
        Ok(names.filter(|name| name != "fill").collect())
    }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).context("a path with a NUL in it")
}

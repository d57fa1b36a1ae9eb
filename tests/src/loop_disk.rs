//! A disk that is a file: a loop device with a filesystem on it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// How large the disk is: ext4 makes a journal from 8 MiB or so on.
const SIZE: u64 = 64 << 20;

/// A mounted ext4 on a loop device over a file in some directory. All of it is gone when this is
/// dropped.
pub struct LoopDisk {
    image: PathBuf,
    device: Option<PathBuf>,
    mount_point: PathBuf,
    is_mounted: bool,
}

impl LoopDisk {
    /// Makes one over a file in `backing`, and mounts it as `mount_point`, which is made.
    ///
    /// # Errors
    ///
    /// When the machine has no loop devices, or no ext4.
    pub fn make(backing: &Path, mount_point: &Path) -> Result<Self> {
        let name = mount_point.file_name().context("a mount point without a name")?;
        let image = format!("offwake-test-{}-{}", std::process::id(), name.display());
        let image = backing.join(image);
        let file = File::create_new(&image);
        let file = file.with_context(|| format!("cannot make {}", image.display()))?;
        // From here on the guard removes it.
        let mut disk =
            Self { image, device: None, mount_point: mount_point.to_owned(), is_mounted: false };
        file.set_len(SIZE).context("cannot make an image larger")?;
        run(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0"]).arg(&disk.image))?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&disk.image))?;
        let device = PathBuf::from(device.trim());
        disk.device = Some(device.clone());
        fs::create_dir_all(mount_point).context("cannot make a mount point")?;
        run(Command::new("mount").arg(device).arg(mount_point))?;
        disk.is_mounted = true;
        Ok(disk)
    }

    /// The kernel's name of the device: `loop3`.
    ///
    /// # Errors
    ///
    /// Never, once it is made.
    pub fn name(&self) -> Result<String> {
        let device = self.device.as_deref().and_then(Path::file_name).context("no device")?;
        Ok(device.to_string_lossy().into_owned())
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let unmounted = match self.is_mounted {
            // Whoever still writes holds it until the end.
            true => run(Command::new("umount").arg("--lazy").arg(&self.mount_point)).map(drop),
            false => Ok(()),
        };
        let detached = match &self.device {
            Some(device) => run(Command::new("losetup").arg("--detach").arg(device)).map(drop),
            None => Ok(()),
        };
        if let Err(error) = unmounted.and(detached) {
            eprintln!("{} is left: {error:#}", self.image.display());
        }
        drop(fs::remove_file(&self.image));
    }
}

fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

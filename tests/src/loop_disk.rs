//! A disk that is a file: a loop device with a filesystem on it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result, ensure};

use crate::wait_until::wait_until;

/// How large the disk is: ext4 makes a journal from 8 MiB or so on.
const SIZE: u64 = 64 << 20;

/// How many disks this process has made: tests that run at a time have some of the same name.
static DISKS_MADE: AtomicU32 = AtomicU32::new(0);

/// What was written to a disk.
#[derive(Debug, PartialEq, Eq)]
struct Writes {
    done: u64,
    sectors: u64,
    under_way: u64,
}

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
        let number = DISKS_MADE.fetch_add(1, Ordering::Relaxed);
        let image = format!("offwake-test-{}-{number}-{}", std::process::id(), name.display());
        let image = backing.join(image);
        let file = File::create_new(&image);
        let file = file.with_context(|| format!("cannot make {}", image.display()))?;
        // From here on the guard removes it.
        let disk =
            Self { image, device: None, mount_point: mount_point.to_owned(), is_mounted: false };
        file.set_len(SIZE).context("cannot make an image larger")?;
        run(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0"]).arg(&disk.image))?;
        disk.mount()
    }

    /// Copies what is on the disk at one moment, as a power failure leaves it, and mounts the copy: the
    /// journal is replayed.
    ///
    /// # Errors
    ///
    /// When the disk is never at rest, or the copy has no filesystem that can be mounted.
    pub fn mount_snapshot(&self, mount_point: &Path) -> Result<Self> {
        let name = mount_point.file_name().context("a mount point without a name")?;
        let mut image = self.image.clone().into_os_string();
        image.push("-");
        image.push(name);
        let copy = Self {
            image: image.into(),
            device: None,
            mount_point: mount_point.to_owned(),
            is_mounted: false,
        };
        wait_until("the disk to be at rest while it is copied", || {
            let before = self.writes()?;
            fs::copy(&self.image, &copy.image).context("cannot copy an image")?;
            Ok((before.under_way == 0 && before == self.writes()?).then_some(()))
        })?;
        copy.mount()
    }

    /// What was written so far
    /// ([stat.rst](https://github.com/torvalds/linux/blob/v6.12/Documentation/block/stat.rst)).
    fn writes(&self) -> Result<Writes> {
        let path = format!("/sys/block/{}/stat", self.name()?);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        let mut next =
            |skipped| numbers.nth(skipped).context("too few numbers")?.context(path.clone());
        Ok(Writes { done: next(4)?, sectors: next(1)?, under_way: next(1)? })
    }

    fn mount(mut self) -> Result<Self> {
        let mount_point = self.mount_point.clone();
        let disk = &mut self;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&disk.image))?;
        let device = PathBuf::from(device.trim());
        disk.device = Some(device.clone());
        fs::create_dir_all(&mount_point).context("cannot make a mount point")?;
        run(Command::new("mount").arg(device).arg(&mount_point))?;
        disk.is_mounted = true;
        Ok(self)
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

//! What the kernel says of other programs' processes, and of the files that they have open.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use offwake_recording::units::Tgid;

/// Lists the processes that there are, each with its folder.
pub(crate) fn list_processes() -> impl Iterator<Item = (Tgid, PathBuf)> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let tgid = entry.file_name().to_str()?.parse().ok()?;
        Some((Tgid(tgid), entry.path()))
    })
}

/// Reads the first `limit` bytes of a file; nothing if it is gone.
pub(crate) fn read_beginning(path: &Path, limit: u64) -> String {
    try_read_beginning(path, limit).unwrap_or_default()
}

/// Reads the first `limit` bytes of a file.
///
/// # Errors
///
/// If it is gone or may not be read.
pub(crate) fn try_read_beginning(path: &Path, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns whether the link of a descriptor (`/proc/PID/fd/N`) leads to a file that has a path. Only of
/// those, pipes and processes may `/proc/PID/fdinfo/N` be read. The kernel makes that text without asking
/// anybody, but for an epoll: it takes the epoll's mutex, and nothing ends the wait for that. Whoever adds
/// a file to the epoll has the mutex while the file is polled, and a FUSE server may never answer
/// ([`ep_show_fdinfo`](https://github.com/torvalds/linux/blob/v6.12/fs/eventpoll.c#L1034)).
///
/// ```text
/// /proc/815/fd/3 -> /run/backup.lock        has a path
/// /proc/815/fd/4 -> anon_inode:[eventpoll]  has none
/// ```
pub(crate) fn has_path(leads_to: &Path) -> bool {
    leads_to.is_absolute()
}

/// An open file, by what the kernel says of its descriptor (`/proc/PID/fdinfo/N`). Nothing is asked of the
/// file itself, whose file system may never answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenDescriptor {
    /// The flags that it was opened with, as in `open`.
    pub(crate) flags: u32,
    /// The number of the mount that it is on.
    pub(crate) mount: u64,
    /// Its inode number; none before Linux 5.14.
    pub(crate) inode: Option<u64>,
}

impl OpenDescriptor {
    /// Parses the description of a descriptor; none if it lacks something that every kernel says.
    pub(crate) fn parse(fdinfo: &str) -> Option<Self> {
        let field = |key: &str| fdinfo.lines().find_map(|line| line.strip_prefix(key));
        Some(Self {
            flags: u32::from_str_radix(field("flags:")?.trim(), 8).ok()?,
            mount: field("mnt_id:")?.trim().parse().ok()?,
            inode: field("ino:").and_then(|inode| inode.trim().parse().ok()),
        })
    }
}

/// `MINORBITS`: how the kernel itself puts a device's number together
/// ([`kdev_t.h`](https://github.com/torvalds/linux/blob/v6.12/include/linux/kdev_t.h#L7)).
pub(crate) const MINOR_BITS: u32 = 20;

/// The device of a mount, by `mountinfo`: `36 35 98:0 /mnt1 …`.
pub(crate) fn device_of_mount(mountinfo: &str, mount: u64) -> Option<u32> {
    let line = mountinfo
        .lines()
        .find(|line| line.split(' ').next().and_then(|id| id.parse::<u64>().ok()) == Some(mount))?;
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some(major.parse::<u32>().ok()? << MINOR_BITS | minor.parse::<u32>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_paths_and_what_the_kernel_made_has_none() {
        for (link, expected) in [
            ("/run/backup.lock", true),
            ("/run/backup.lock (deleted)", true),
            ("/memfd:x (deleted)", true),
            ("anon_inode:[eventpoll]", false),
            ("anon_inode:inotify", false),
            ("pipe:[771]", false),
            ("socket:[771]", false),
            ("", false),
        ] {
            assert_eq!(has_path(Path::new(link)), expected, "{link}");
        }
    }

    #[test]
    fn mounts_have_devices_and_descriptors_are_on_mounts() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n36 22 0:31 / /tmp rw - tmpfs tmp rw\n";
        assert_eq!(device_of_mount(mounts, 22), Some(254 << 20));
        assert_eq!(device_of_mount(mounts, 36), Some(31));
        assert_eq!(device_of_mount(mounts, 3), None);
        let descriptor = |text: &str| {
            OpenDescriptor::parse(text).map(|open| (open.flags, open.mount, open.inode))
        };
        let fdinfo = "pos:\t0\nflags:\t0100002\nmnt_id:\t22\nino:\t77\n";
        assert_eq!(descriptor(fdinfo), Some((0o100_002, 22, Some(77))));
        assert_eq!(descriptor("pos:\t0\nflags:\t02\nmnt_id:\t22\n"), Some((2, 22, None)));
        assert_eq!(descriptor("pos:\t0\nmnt_id:\t22\n"), None);
    }
}

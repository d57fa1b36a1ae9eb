//! Finds the path of a cgroup by its id.

use std::{
    ffi::OsStr,
    fs::File,
    io::Read as _,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::PathBuf,
};

use offwake_recording::units::{CgroupId, Tgid};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::proc_files;
use crate::cgroup2;

/// The suffix that the kernel adds to the path of a removed file.
const DELETED: &[u8] = b" (deleted)";

/// The v2 hierarchy, whose root is held open.
pub(super) struct CgroupHierarchy {
    mount: PathBuf,
    root: OwnedFd,
}

/// A `struct file_handle` with a kernfs node's id, which is the inode number too.
///
/// `FILEID_KERNFS` of `include/linux/exportfs.h`; `__kernfs_fh_to_dentry()` of
/// [`fs/kernfs/mount.c`](https://github.com/torvalds/linux/blob/v6.12/fs/kernfs/mount.c).
#[repr(C)]
struct KernfsHandle {
    bytes: u32,
    kind: i32,
    id: u64,
}

const FILEID_KERNFS: i32 = 0xfe;

impl CgroupHierarchy {
    /// None if no such hierarchy is mounted.
    pub(super) fn open() -> Option<Self> {
        let mount = cgroup2::mount_point()?;
        let root = OwnedFd::from(File::open(&mount).ok()?);
        // Another file system may hide it.
        cgroup2::is_inside(&root).then_some(Self { mount, root })
    }

    /// The hierarchy at this mount point of v1; none if it can't be opened.
    pub(super) fn at(mount: PathBuf) -> Option<Self> {
        let root = OwnedFd::from(File::open(&mount).ok()?);
        Some(Self { mount, root })
    }

    /// Finds the path of a cgroup in which a thread of `tgid` was, if it is still there.
    pub(super) fn find_path(&self, id: CgroupId, tgid: Tgid) -> Option<String> {
        // The process may be elsewhere by now, and its threads need not all be in one.
        let path = proc_files::read_cgroup_path(tgid)
            .filter(|path| self.path_has_id(path, id))
            .or_else(|| self.find_path_by_handle(id))?;
        Some(String::from_utf8_lossy(&path).into_owned())
    }

    /// Whether `path`, from the hierarchy's root, is this cgroup.
    fn path_has_id(&self, path: &[u8], id: CgroupId) -> bool {
        self.open_path(path).is_some_and(|cgroup| cgroup.id() == Some(id))
    }

    /// Opens the cgroup at `path`, from the hierarchy's root.
    pub(super) fn open_path(&self, path: &[u8]) -> Option<CgroupDirectory> {
        let below = match path.strip_prefix(b"/")? {
            [] => b".",
            below => below,
        };
        // Inode numbers count within one file system only. From inside a cgroup namespace, the
        // paths of what lies outside begin with `/..`.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let below = OsStr::from_bytes(below);
        rustix::fs::openat2(&self.root, below, flags, Mode::empty(), resolve)
            .ok()
            .map(CgroupDirectory)
    }

    /// Finds the path of a cgroup by its id alone.
    pub(super) fn find_path_by_handle(&self, id: CgroupId) -> Option<Vec<u8>> {
        let cgroup = self.open_by_handle(id)?;
        let link = format!("/proc/self/fd/{}", cgroup.as_raw_fd());
        let link = std::fs::read_link(link).ok()?;
        let below = link.strip_prefix(&self.mount).ok()?;
        let path = [b"/", below.as_os_str().as_bytes()].concat();
        // The cgroup may have been removed since; or the suffix is a part of its name.
        match path.strip_suffix(DELETED) {
            Some(alive) if !self.path_has_id(&path, id) => Some(alive.to_vec()),
            _ => Some(path),
        }
    }

    /// Opens a cgroup by its id alone, which needs `CAP_DAC_READ_SEARCH`.
    fn open_by_handle(&self, id: CgroupId) -> Option<OwnedFd> {
        let mut handle = KernfsHandle { bytes: 8, kind: FILEID_KERNFS, id: id.0 };
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the kernel reads a `file_handle` and the 8 bytes behind it, which are `handle`.
        let number = unsafe {
            libc::open_by_handle_at(self.root.as_raw_fd(), (&raw mut handle).cast(), flags)
        };
        // SAFETY: a number that is not negative is that of a new descriptor, and nobody else's.
        let cgroup = (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) })?;
        has_id(&cgroup, id).then_some(cgroup)
    }
}

/// The directory of a cgroup.
pub(super) struct CgroupDirectory(OwnedFd);

impl CgroupDirectory {
    /// The cgroup's id.
    pub(super) fn id(&self) -> Option<CgroupId> {
        rustix::fs::fstat(&self.0).ok().map(|stat| CgroupId(stat.st_ino))
    }

    /// Reads the first `limit` bytes of one of the cgroup's own files; none if it can't be read.
    /// Nothing that is mounted there is followed, as reading it could take as long as it liked.
    pub(super) fn read(&self, name: &str, limit: usize) -> Option<Vec<u8>> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(&self.0, name, flags, Mode::empty(), resolve).ok()?;
        let mut bytes = Vec::new();
        File::from(file).take(limit as u64).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

fn has_id(cgroup: impl AsFd, id: CgroupId) -> bool {
    rustix::fs::fstat(cgroup).is_ok_and(|stat| stat.st_ino == id.0)
}

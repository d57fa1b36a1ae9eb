//! Files of a process by the paths that it knows them by, looked up inside of its own root.

use std::{os::fd::OwnedFd, path::Path};

use offwake_recording::units::Tgid;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags},
    io,
};
use serde::{Deserialize, Serialize};

/// The root directory of a process: of a container's, the container's.
pub(crate) struct ProcessRoot(OwnedFd);

/// What happens to a path that ends in a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LastLink {
    /// The link is followed, inside of the root.
    Followed,
    /// The link itself is opened.
    Kept,
}

impl ProcessRoot {
    /// Opens the root directory of a process.
    pub(crate) fn open_of(tgid: Tgid) -> io::Result<Self> {
        Self::open_at(Path::new(&format!("/proc/{tgid}/root")))
    }

    fn open_at(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty()).map(Self)
    }

    /// Opens what is at `path`, as a name alone (`O_PATH`): no FIFO is waited for, and no device's
    /// node makes it do anything.
    ///
    /// Neither `..` nor a link leads out of the root: `RESOLVE_IN_ROOT` takes it for `/`, and magic
    /// links, as in a `/proc` that is mounted inside, are refused
    /// ([openat2(2)](https://man7.org/linux/man-pages/man2/openat2.2.html)).
    pub(crate) fn open(&self, path: &str, last: LastLink) -> io::Result<OwnedFd> {
        let last = match last {
            LastLink::Followed => OFlags::empty(),
            LastLink::Kept => OFlags::NOFOLLOW,
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC | last;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, symlink},
    };

    use rustix::fs::{FileType, fstat};

    use super::{LastLink, ProcessRoot};

    /// A root, and beside it what is none of its business.
    ///
    /// ```text
    /// outside/secret        shadow
    /// inside/etc/shadow     its own
    /// inside/lib/…          links of all kinds
    /// ```
    #[test]
    fn no_path_of_a_hostile_root_leads_out_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["outside", "inside/etc", "inside/lib"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("outside/secret"), "").unwrap();
        fs::write(path("inside/etc/shadow"), "").unwrap();
        let absolute = path("outside/secret");
        for (name, to) in [
            ("absolute", "/etc/shadow"),
            ("upwards", "../../../../etc/shadow"),
            ("far", "../../../../../../../../../../../../../../../../etc/shadow"),
            ("outside", "../../outside/secret"),
            ("by_its_path", absolute.to_str().unwrap()),
            ("up", ".."),
            ("loop", "loop"),
        ] {
            symlink(to, path("inside/lib").join(name)).unwrap();
        }
        let root = ProcessRoot::open_at(&path("inside")).unwrap();
        let inode = |name: &str| {
            root.open(name, LastLink::Followed).ok().map(|file| fstat(&file).unwrap().st_ino)
        };
        let its_own = fs::metadata(path("inside/etc/shadow")).unwrap().ino();
        for name in [
            "/lib/absolute",
            "/lib/upwards",
            "/lib/far",
            "/../../etc/shadow",
            "/lib/up/lib/up/../../etc/shadow",
        ] {
            assert_eq!(inode(name), Some(its_own), "{name}");
        }
        for name in ["/lib/outside", "/lib/by_its_path", "/lib/loop", "/../outside/secret", ""] {
            assert_eq!(inode(name), None, "{name}");
        }
        assert!(root.open("/lib/far", LastLink::Kept).is_ok_and(|link| {
            FileType::from_raw_mode(fstat(link).unwrap().st_mode) == FileType::Symlink
        }));
    }

    #[test]
    fn magic_links_are_refused_where_a_proc_is_mounted_inside() {
        let root = ProcessRoot::open_at(std::path::Path::new("/")).unwrap();
        for name in
            ["/proc/self/exe", "/proc/self/root/etc/passwd", "/proc/self/fd/0", "/proc/self/cwd/x"]
        {
            let refused = root.open(name, LastLink::Followed).err();
            assert_eq!(refused, Some(rustix::io::Errno::LOOP), "{name}");
        }
    }

    #[test]
    fn a_fifo_in_a_librarys_place_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("libc.so.6");
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let root = ProcessRoot::open_at(directory.path()).unwrap();
        let file = root.open("/libc.so.6", LastLink::Followed).unwrap();
        assert_eq!(FileType::from_raw_mode(fstat(file).unwrap().st_mode), FileType::Fifo);
    }
}

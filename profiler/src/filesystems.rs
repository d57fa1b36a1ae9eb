//! The filesystems on block devices, and the disks below them; and those of file servers.
//!
//! ```text
//! /proc/self/mountinfo         8:3 /srv ext4            a superblock's device, its kind, its place
//! /sys/dev/block/8:3           -> …/block/sda/sda3      a partition, in the folder of its disk
//! /sys/class/block/dm-0/slaves sda3 sdb1                what a mapped device is made of
//! /sys/block/loop0/loop/backing_file  /srv/image        what a loop device is made of
//! /proc/self/mountinfo         0:52 /mnt nfs4 files.example:/export
//! ```
//!
//! What can't be followed to its end is left out: no disk is claimed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use offwake_recording::{DiskUse, Filesystem, IoLimit};

use crate::{
    cgroup2::{self, Mount},
    files,
};

/// The most filesystems that are kept.
const MAX_FILESYSTEMS: usize = 4096;
/// How many devices and filesystems may lie on each other.
const MAX_DEPTH: u8 = 8;
/// Where a filesystem in memory has a file, there is no disk.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// A file that others are made of.
#[derive(Clone, Copy, Debug)]
struct BackingFile {
    device: u32,
    size: u64,
}

/// The kinds of filesystems whose files a server has, which the mount's source names.
const REMOTE: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "lustre"];

/// Finds the filesystems on block devices and of file servers that are mounted here.
pub(crate) fn find_filesystems() -> Vec<Filesystem> {
    with_finder(|finder| finder.find_all())
}

/// Finds the names of the devices that processes used, and the disks below them.
pub(crate) fn name_devices(uses: &mut [DiskUse]) {
    with_finder(|finder| {
        let mut known = HashMap::new();
        for used in uses {
            let (name, disks) =
                known.entry(used.device).or_insert_with(|| finder.device(used.device));
            used.block_device.clone_from(name);
            used.disks.clone_from(disks);
        }
    });
}

/// Finds the names of the devices that have limits.
pub(crate) fn name_limited_devices(limits: &mut [IoLimit]) {
    with_finder(|finder| {
        let mut known = HashMap::new();
        for limit in limits {
            let name = known.entry(limit.device).or_insert_with(|| finder.device(limit.device).0);
            limit.block_device.clone_from(name);
        }
    });
}

fn with_finder<T>(find: impl FnOnce(&Finder<'_>) -> T) -> T {
    let mounts = cgroup2::parse_all_mounts(&cgroup2::read_mountinfo());
    let identify = |path: &Path| {
        let (device, size) = files::identify_path(path)?;
        Some(BackingFile { device, size })
    };
    find(&Finder { sysfs: Path::new("/sys"), mounts: by_device(mounts), identify: &identify })
}

/// Returns the mount of each superblock that says most: of its root, with the shortest path.
fn by_device(mounts: Vec<Mount>) -> BTreeMap<u32, Mount> {
    let mut found: BTreeMap<u32, Mount> = BTreeMap::new();
    for mount in mounts {
        let rank = |mount: &Mount| (mount.root != "/", mount.mount_point.len());
        match found.get(&mount.device) {
            Some(known) if rank(known) <= rank(&mount) => {}
            _ => _ = found.insert(mount.device, mount),
        }
    }
    found
}

struct Finder<'a> {
    sysfs: &'a Path,
    mounts: BTreeMap<u32, Mount>,
    /// Identifies a file by its path, without opening it.
    identify: &'a dyn Fn(&Path) -> Option<BackingFile>,
}

impl Finder<'_> {
    fn find_all(&self) -> Vec<Filesystem> {
        let found = self.mounts.keys().filter_map(|&device| self.filesystem(device, MAX_DEPTH));
        found.take(MAX_FILESYSTEMS).collect()
    }

    /// Returns the filesystem of a superblock, if it is on a block device.
    fn filesystem(&self, device: u32, depth: u8) -> Option<Filesystem> {
        let depth = depth.checked_sub(1)?;
        let mount = self.mounts.get(&device)?;
        if REMOTE.contains(&mount.kind.as_str()) {
            return Some(Filesystem {
                device,
                kind: mount.kind.clone(),
                mount_point: mount.mount_point.clone(),
                server: mount.source.clone(),
                ..Filesystem::default()
            });
        }
        let (block_device, disks) = match mount.kind.as_str() {
            "overlay" => self.below_overlay(mount, depth)?,
            "btrfs" => self.below_btrfs(mount, depth)?,
            _ => {
                let block_device = self.block_device(device)?;
                let disks = self.disks(&block_device, depth);
                (block_device, disks)
            }
        };
        Some(Filesystem {
            device,
            kind: mount.kind.clone(),
            mount_point: mount.mount_point.clone(),
            block_device,
            disks: join(disks),
            server: String::new(),
        })
    }

    /// Returns the name of a block device, and the disks below it. Of a filesystem on several devices, the
    /// disks alone.
    fn device(&self, device: u32) -> (String, String) {
        match self.block_device(device) {
            Some(name) => {
                let disks = join(self.disks(&name, MAX_DEPTH));
                (name, disks)
            }
            None => self
                .filesystem(device, MAX_DEPTH)
                .map_or_else(Default::default, |known| (known.block_device, known.disks)),
        }
    }

    /// Returns the kernel's name of a block device: `sda3`.
    fn block_device(&self, device: u32) -> Option<String> {
        let (major, minor) = (device >> 20, device & 0xf_ffff);
        let link = fs::read_link(self.sysfs.join(format!("dev/block/{major}:{minor}"))).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    /// Returns the whole disks below a block device; none if one of them can't be told.
    fn disks(&self, block_device: &str, depth: u8) -> Option<BTreeSet<String>> {
        let depth = depth.checked_sub(1)?;
        let mut folder =
            fs::canonicalize(self.sysfs.join("class/block").join(block_device)).ok()?;
        if folder.join("partition").exists() {
            folder.pop();
        }
        let slaves = names_in(&folder.join("slaves"));
        if !slaves.is_empty() {
            let disks: Option<Vec<_>> = slaves.iter().map(|it| self.disks(it, depth)).collect();
            return Some(disks?.into_iter().flatten().collect());
        }
        let whole = BTreeSet::from([folder.file_name()?.to_str()?.to_owned()]);
        if !folder.join("loop").exists() {
            return Some(whole);
        }
        let file = self.backing_file(&folder)?;
        if self.mounts.get(&file.device).is_some_and(|it| IN_MEMORY.contains(&it.kind.as_str())) {
            return Some(whole);
        }
        let disks = self.filesystem(file.device, depth)?.disks;
        let disks: BTreeSet<_> = disks.split(',').map(str::to_owned).collect();
        (!disks.contains("")).then_some(disks)
    }

    /// Returns the file that a loop device is made of. Its path may be one of another mount namespace,
    /// and be another file here: it has to have the device's size.
    fn backing_file(&self, folder: &Path) -> Option<BackingFile> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let path = read("loop/backing_file")?;
        let file = (self.identify)(Path::new(path.strip_suffix('\n')?))?;
        let rest = file.size.checked_sub(number("loop/offset")?)? >> 9;
        let sectors = match number("loop/sizelimit")? {
            0 => rest,
            limit => rest.min(limit >> 9),
        };
        (sectors == number("size")?).then_some(file)
    }

    /// Returns what all directories of an overlay lie on, if that is the same.
    fn below_overlay(
        &self,
        mount: &Mount,
        depth: u8,
    ) -> Option<(String, Option<BTreeSet<String>>)> {
        let mut below = BTreeSet::new();
        for directory in overlay_directories(&mount.options)? {
            let device = (self.identify)(&directory)?.device;
            let below_it = self.filesystem(device, depth).filter(|it| !it.is_remote())?;
            let Filesystem { block_device, disks, .. } = below_it;
            below.insert((block_device, disks));
        }
        let (block_device, disks) = below.pop_first().filter(|_| below.is_empty())?;
        let disks: BTreeSet<_> = disks.split(',').map(str::to_owned).collect();
        Some((block_device, (!disks.contains("")).then_some(disks)))
    }

    /// Returns what a btrfs lies on. Its superblock has no block device's number, and it may have
    /// several devices.
    fn below_btrfs(&self, mount: &Mount, depth: u8) -> Option<(String, Option<BTreeSet<String>>)> {
        // The source of another kind of mount may be any text; this one was opened by the kernel.
        let source = Path::new(&mount.source);
        let target = fs::read_link(source).unwrap_or_else(|_| source.to_owned());
        let name = target.file_name()?.to_str()?;
        let folder = self.sysfs.join("fs/btrfs");
        let devices = (names_in(&folder).into_iter())
            .map(|id| names_in(&folder.join(id).join("devices")))
            .find(|devices| devices.iter().any(|device| device == name))?;
        let disks: Option<Vec<_>> = devices.iter().map(|it| self.disks(it, depth)).collect();
        let only = if devices.len() == 1 { name.to_owned() } else { String::new() };
        Some((only, disks.map(|disks| disks.into_iter().flatten().collect())))
    }
}

/// Returns the directories that an overlay is made of; none if one of them is not a whole path.
fn overlay_directories(options: &str) -> Option<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for option in split_unescaped(options, ',') {
        let Some((name, value)) = option.split_once('=') else { continue };
        match name {
            "upperdir" => directories.push(value.to_owned()),
            "lowerdir" | "lowerdir+" | "datadir+" => {
                directories.extend(split_unescaped(value, ':').filter(|path| !path.is_empty()));
            }
            _ => {}
        }
    }
    let paths: Vec<_> = directories.iter().map(|path| PathBuf::from(unescape(path))).collect();
    (!paths.is_empty() && paths.iter().all(|path| path.is_absolute())).then_some(paths)
}

/// Splits a text where this separator stands without a backslash before it.
fn split_unescaped(text: &str, separator: char) -> impl Iterator<Item = String> + use<> {
    let (mut parts, mut is_escaped) = (vec![String::new()], false);
    for c in text.chars() {
        if c == separator && !is_escaped {
            parts.push(String::new());
            continue;
        }
        is_escaped = c == '\\' && !is_escaped;
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.into_iter()
}

/// Removes the backslashes that stand before other characters.
fn unescape(text: &str) -> String {
    let (mut plain, mut is_escaped) = (String::new(), false);
    for c in text.chars() {
        is_escaped = c == '\\' && !is_escaped;
        if !is_escaped {
            plain.push(c);
        }
    }
    plain
}

/// Returns the names in a folder of sysfs; none if there is no such folder.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn join(disks: Option<BTreeSet<String>>) -> String {
    disks.map(|disks| disks.into_iter().collect::<Vec<_>>().join(",")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fs, os::unix::fs::symlink, path::Path};

    use offwake_recording::Filesystem;

    use super::{BackingFile, Finder, by_device, overlay_directories};
    use crate::cgroup2;

    /// sda with two partitions, sdb, a mapped device over sda2 and sdb, three loop devices, and a btrfs
    /// on two disks.
    fn sysfs() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (number, path) in [
            ("8:0", "sda"),
            ("8:1", "sda/sda1"),
            ("8:2", "sda/sda2"),
            ("8:16", "sdb"),
            ("253:0", "dm-0"),
            ("7:0", "loop0"),
            ("7:1", "loop1"),
            ("7:2", "loop2"),
        ] {
            let device = root.join("devices").join(path);
            fs::create_dir_all(&device).unwrap();
            for class in [root.join("dev/block"), root.join("class/block")] {
                fs::create_dir_all(class).unwrap();
            }
            symlink(&device, root.join("dev/block").join(number)).unwrap();
            symlink(&device, root.join("class/block").join(device.file_name().unwrap())).unwrap();
            if path.contains('/') {
                fs::write(device.join("partition"), "1\n").unwrap();
            }
        }
        for slave in ["sda2", "sdb"] {
            fs::create_dir_all(root.join("devices/dm-0/slaves").join(slave)).unwrap();
            fs::create_dir_all(root.join("fs/btrfs/1f/devices").join(slave)).unwrap();
        }
        for (name, path) in [("loop0", "/srv/image"), ("loop1", "/tmp/image"), ("loop2", "/gone")] {
            let device = root.join("devices").join(name);
            fs::create_dir_all(device.join("loop")).unwrap();
            fs::write(device.join("size"), "8\n").unwrap();
            fs::write(device.join("loop/backing_file"), format!("{path}\n")).unwrap();
            fs::write(device.join("loop/offset"), "512\n").unwrap();
            fs::write(device.join("loop/sizelimit"), "0\n").unwrap();
        }
        folder
    }

    const MOUNTS: &str = "\
        20 1 0:20 / /tmp rw - tmpfs tmpfs rw\n\
        21 1 8:1 /var /var rw - ext4 /dev/sda1 rw\n\
        22 1 8:1 / /old rw - ext4 /dev/sda1 rw\n\
        23 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw\n\
        24 1 253:0 / /srv rw - xfs /dev/mapper/srv rw\n\
        25 1 7:0 / /image rw - ext4 /dev/loop0 rw\n\
        26 1 7:1 / /memory rw - ext4 /dev/loop1 rw\n\
        27 1 7:2 / /un\\040known rw - ext4 /dev/loop2 rw\n\
        28 1 0:28 / /merged rw - overlay overlay rw,lowerdir=/low:/low2,upperdir=/up,workdir=/w\n\
        29 1 0:29 / /mixed rw - overlay overlay rw,lowerdir=/low,upperdir=/srv/up\n\
        30 1 0:30 / /pool rw - btrfs /dev/sdb rw\n\
        31 1 0:31 / /nfs rw - nfs4 server:/x rw\n";

    fn find(sizes: &[(&str, u64)]) -> HashMap<String, Filesystem> {
        let sysfs = sysfs();
        let identify = |path: &Path| {
            let size = sizes.iter().find(|(known, _)| Path::new(known) == path);
            let device = match path.to_str()?.split('/').nth(1)? {
                "srv" => 253 << 20,
                "tmp" => 20,
                "low" | "low2" | "up" => 8 << 20 | 1,
                _ => return None,
            };
            Some(BackingFile { device, size: size.map_or(0, |&(_, size)| size) })
        };
        let mounts = by_device(cgroup2::parse_all_mounts(MOUNTS.as_bytes()));
        let finder = Finder { sysfs: sysfs.path(), mounts, identify: &identify };
        finder.find_all().into_iter().map(|found| (found.mount_point.clone(), found)).collect()
    }

    #[test]
    fn a_filesystem_is_followed_to_its_whole_disks() {
        let found = find(&[("/srv/image", 512 + 8 * 512), ("/tmp/image", 512 + 8 * 512)]);
        let on = |path: &str| {
            let Filesystem { kind, block_device, disks, .. } = &found[path];
            format!("{kind} {block_device} {disks}")
        };
        assert_eq!(on("/"), "ext4 sda1 sda");
        assert_eq!(on("/srv"), "xfs dm-0 sda,sdb");
        assert_eq!(on("/image"), "ext4 loop0 sda,sdb");
        assert_eq!(on("/memory"), "ext4 loop1 loop1");
        // The file is gone, or is in another mount namespace.
        assert_eq!(on("/un known"), "ext4 loop2 ");
        assert_eq!(on("/merged"), "overlay sda1 sda");
        assert_eq!(on("/pool"), "btrfs  sda,sdb");
        assert_eq!((on("/nfs").as_str(), found["/nfs"].server.as_str()), ("nfs4  ", "server:/x"));
        assert!(found.iter().all(|(path, it)| it.is_remote() == (path == "/nfs")), "{found:#?}");
        // On no block device, or on several in a way that does not tell which file is on which.
        assert_eq!(found.len(), 8, "{found:#?}");
        assert!(found["/"].shares_disk_with(&found["/image"]));
        assert!(!found["/"].shares_disk_with(&found["/memory"]));
        assert!(!found["/un known"].shares_disk_with(&found["/un known"]));
    }

    #[test]
    fn a_file_of_another_size_is_not_what_a_loop_device_is_made_of() {
        let found = find(&[("/srv/image", 512 + 9 * 512), ("/tmp/image", 512)]);
        assert_eq!(found["/image"].disks, "");
        assert_eq!(found["/memory"].disks, "");
    }

    #[test]
    fn an_overlay_has_whole_paths() {
        let paths = |options| {
            let paths = overlay_directories(options)?;
            Some(paths.into_iter().map(|it| it.to_string_lossy().into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            paths(r"rw,lowerdir=/a\:b:/c\,d,upperdir=/up,index=off").unwrap(),
            ["/a:b", "/c,d", "/up"]
        );
        assert_eq!(paths("rw,lowerdir+=/a,lowerdir+=/b").unwrap(), ["/a", "/b"]);
        for none in ["rw,lowerdir=l/A:/b,upperdir=/up", "rw", ""] {
            assert_eq!(paths(none), None, "{none}");
        }
    }
}

//! Where the hierarchies of cgroups are mounted.

use std::{
    ffi::OsString,
    fs::File,
    io::Read as _,
    os::{fd::AsFd, unix::ffi::OsStringExt as _},
    path::PathBuf,
};

/// `CGROUP2_SUPER_MAGIC` of `include/uapi/linux/magic.h`.
const MAGIC: i64 = 0x6367_7270;
/// Bytes of `mountinfo` that are read. 100,000 mounts, the kernel's default limit
/// (`fs.mount-max`), are some 16 MB.
const MAX_BYTES: u64 = 32 << 20;

/// Where the v2 hierarchy is mounted, whole: a mount of a part of it (a bind mount, a container's)
/// does not show how deep its cgroups are.
pub(crate) fn mount_point() -> Option<PathBuf> {
    parse_mounts(b"cgroup2", &read_mountinfo()).next()
}

/// Where the hierarchies of v1 are mounted.
pub(crate) fn v1_mount_points() -> Vec<PathBuf> {
    parse_mounts(b"cgroup", &read_mountinfo()).collect()
}

/// Where the hierarchy of v1 is mounted that has this controller: `cpu`, `freezer`.
pub(crate) fn v1_mount_point_with(controller: &str) -> Option<PathBuf> {
    parse_mount_with(controller, &read_mountinfo())
}

/// The options of a hierarchy of v1, the last word of its line, are its controllers.
fn parse_mount_with(controller: &str, mountinfo: &[u8]) -> Option<PathBuf> {
    mountinfo.split(|&byte| byte == b'\n').find_map(|line| {
        let options = line.rsplit(|&byte| byte == b' ').next()?;
        let mut options = options.split(|&byte| byte == b',');
        let has_it = options.any(|option| option == controller.as_bytes());
        parse_mounts(b"cgroup", line).next().filter(|_| has_it)
    })
}

/// Reads the mounts of this process; empty if that fails.
pub(crate) fn read_mountinfo() -> Vec<u8> {
    let mut mountinfo = Vec::new();
    let file = File::open("/proc/self/mountinfo");
    let read = file.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut mountinfo));
    if read.is_err() { Vec::new() } else { mountinfo }
}

/// Whether an open file is a part of the v2 hierarchy.
pub(crate) fn is_inside(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|filesystem| filesystem.f_type == MAGIC)
}

/// Where the whole hierarchies of one kind are mounted.
fn parse_mounts<'m>(
    wanted: &'m [u8],
    mountinfo: &'m [u8],
) -> impl Iterator<Item = PathBuf> + use<'m> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(move |line| {
        // id parent major:minor root mount-point options… - type source super-options
        let mut fields = line.split(|&byte| byte == b' ');
        let (root, mount) = (fields.nth(3)?, fields.next()?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        (root == b"/" && kind == wanted).then(|| PathBuf::from(OsString::from_vec(unescape(mount))))
    })
}

/// A mount, as a line of mountinfo has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Device of the superblock, as the kernel keeps it.
    pub device: u32,
    /// Which directory of the filesystem is mounted.
    pub root: String,
    pub mount_point: String,
    pub kind: String,
    pub source: String,
    /// The options of the superblock.
    pub options: String,
}

/// Returns all mounts; lines that are none are left out.
pub(crate) fn parse_all_mounts(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(parse_mount).collect()
}

fn parse_mount(line: &[u8]) -> Option<Mount> {
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let mut fields = line.split(|&byte| byte == b' ').skip(2);
    let device = parse_device_number(std::str::from_utf8(fields.next()?).ok()?)?;
    let (root, mount_point) = (text(fields.next()?), text(fields.next()?));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source, options) = (rest.next()?, rest.next()?, rest.next()?);
    let (kind, source, options) = (text(kind), text(source), text(options));
    Some(Mount { device, root, mount_point, kind, source, options })
}

/// Parses `8:0`, as mountinfo and the files of cgroups name a device, into the kernel's number of it.
pub(crate) fn parse_device_number(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    major.checked_mul(1 << 20)?.checked_add(minor)
}

/// mountinfo writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| first == b'\\') {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

/// Parses any bytes as mounts, for the fuzzer.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    let _v1 = parse_mount_with("cpu", bytes);
    let _v2 = parse_mounts(b"cgroup2", bytes).count();
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::PathBuf};

    use super::{is_inside, mount_point, parse_mount_with, parse_mounts};

    #[test]
    fn the_unified_mount_of_a_hybrid_host_is_found() {
        let mountinfo = b"\
            29 1 0:25 / /mnt/caf\xe9 rw - ext4 /dev/vda rw\n\
            30 24 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            32 30 0:28 /part /mnt/part rw shared:9 - cgroup2 cgroup2 rw\n\
            33 30 0:28 / /sys/fs/cgroup/uni\\040fied\\1 rw shared:9 - cgroup2 cgroup2 rw\n";
        let found = |kind: &[u8], mounts: &[u8]| parse_mounts(kind, mounts).collect::<Vec<_>>();
        let (unified, cpu) = ("/sys/fs/cgroup/uni fied\\1", "/sys/fs/cgroup/cpu");
        assert_eq!(found(b"cgroup2", mountinfo), [PathBuf::from(unified)]);
        assert_eq!(found(b"cgroup", mountinfo), [PathBuf::from(cpu)]);
        assert_eq!(parse_mount_with("cpu", mountinfo), Some(PathBuf::from(cpu)));
        assert_eq!(parse_mount_with("freezer", mountinfo), None);
        for none in ["", "\n", "1 2 3", "- cgroup2", "1 2 0:3 / /a rw - cgroup cgroup2 rw"] {
            assert!(found(b"cgroup2", none.as_bytes()).is_empty(), "{none}");
            assert_eq!(parse_mount_with("cpu", none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn this_machines_mount_is_one() {
        let Some(mount) = mount_point() else {
            return eprintln!("NOT RUN, no cgroup2 is mounted: this_machines_mount_is_one");
        };
        assert!(is_inside(File::open(mount).unwrap()));
        assert!(!is_inside(File::open("/proc").unwrap()));
    }
}

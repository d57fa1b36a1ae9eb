//! A cgroup by its path: as a file system path, or as `/proc/PID/cgroup` has it.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
};

use super::TargetError;
use crate::{kernel::TargetFilter, units::CgroupId};

/// `CGROUP2_SUPER_MAGIC`
const CGROUP2_MAGIC: i64 = 0x6367_7270;

/// Finds a cgroup of the v2 hierarchy, the `unified` one of a hybrid host included.
pub(super) fn find(path: &Path) -> Result<(TargetFilter, String), TargetError> {
    let mount = mount_point(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
        .ok_or(TargetError::NoCgroups)?;
    find_under(path, &mount)
}

fn find_under(path: &Path, mount: &Path) -> Result<(TargetFilter, String), TargetError> {
    let not_a_cgroup = |why: &str| TargetError::NotACgroup {
        path: path.to_path_buf(),
        mount: mount.to_path_buf(),
        why: why.to_owned(),
    };
    // `/a/b` may be meant from the hierarchy's root, and that is how /proc and docker print it.
    let inside = mount.join(path.strip_prefix("/").unwrap_or(path));
    let found = [path, &inside]
        .into_iter()
        .find_map(|candidate| {
            let candidate = fs::canonicalize(candidate).ok()?;
            candidate.starts_with(mount).then_some(candidate)
        })
        .ok_or_else(|| match fs::metadata(path) {
            Ok(_) => not_a_cgroup("it lies elsewhere"),
            Err(error) => not_a_cgroup(&error.to_string()),
        })?;
    let metadata = fs::metadata(&found).map_err(|error| not_a_cgroup(&error.to_string()))?;
    if !metadata.is_dir() {
        return Err(not_a_cgroup("it is a file; name the directory"));
    }
    if !is_cgroup2(&found) {
        return Err(not_a_cgroup("it is on another file system"));
    }
    let below = found.strip_prefix(mount).unwrap_or(Path::new(""));
    let level = below.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let level = u32::try_from(level).map_err(|_absurd| not_a_cgroup("it is too deep"))?;
    let filter = TargetFilter::Cgroup { id: CgroupId(metadata.ino()), level };
    Ok((filter, format!("cgroup /{}", below.display())))
}

/// Where the v2 hierarchy is mounted, whole: a mount of a part of it (a bind mount, a container's)
/// does not show how deep its cgroups are.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        // id parent major:minor root mount-point options… - type source super-options
        let (before, after) = line.split_once(" - ")?;
        if !after.starts_with("cgroup2 ") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, mount) = (fields.next()?, fields.next()?);
        (root == "/").then(|| PathBuf::from(unescape(mount)))
    })
}

/// mountinfo writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        match after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                plain.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                plain.push('\\');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

fn is_cgroup2(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt as _;

    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` ends in NUL, and the call fills `found` if it succeeds.
    unsafe {
        libc::statfs(path.as_ptr(), found.as_mut_ptr()) == 0
            && found.assume_init().f_type == CGROUP2_MAGIC
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_mount_of_a_hybrid_host_is_found() {
        let mountinfo = "\
            30 24 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            32 30 0:28 /part /mnt/part rw shared:9 - cgroup2 cgroup2 rw\n\
            33 30 0:28 / /sys/fs/cgroup/uni\\040fied rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mountinfo), Some(PathBuf::from("/sys/fs/cgroup/uni fied")));
        assert_eq!(mount_point(""), None);
    }

    #[test]
    fn what_is_no_cgroup_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path(), Path::new("/no/such/cgroup")] {
            let error = find_under(path, Path::new("/sys/fs/cgroup/unified")).unwrap_err();
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }
}

//! A cgroup by its path: as a file system path, or as `/proc/PID/cgroup` has it.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path},
};

use offwake_recording::units::CgroupId;

use super::TargetError;
use crate::cgroup2;

/// A cgroup of the v2 hierarchy.
pub(super) struct Cgroup {
    pub id: CgroupId,
    /// The cgroup's depth below the root.
    pub level: u32,
    /// The cgroup's path from the root, with a leading slash.
    pub path: String,
}

/// Finds a cgroup of the v2 hierarchy, the `unified` one of a hybrid host included.
pub(super) fn find(path: &Path) -> Result<Cgroup, TargetError> {
    find_under(path, &cgroup2::mount_point().ok_or(TargetError::NoCgroups)?)
}

fn find_under(path: &Path, mount: &Path) -> Result<Cgroup, TargetError> {
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
    if !fs::File::open(&found).is_ok_and(cgroup2::is_inside) {
        return Err(not_a_cgroup("it is on another file system"));
    }
    let below = found.strip_prefix(mount).unwrap_or(Path::new(""));
    let level = below.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let level = u32::try_from(level).map_err(|_absurd| not_a_cgroup("it is too deep"))?;
    Ok(Cgroup { id: CgroupId(metadata.ino()), level, path: format!("/{}", below.display()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cgroup_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path(), Path::new("/no/such/cgroup")] {
            let error = find_under(path, Path::new("/sys/fs/cgroup/unified")).err().unwrap();
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }
}

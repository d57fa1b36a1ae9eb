//! A cgroup by its path: as a file system path, or as `/proc/PID/cgroup` has it.

use std::{
    fs, io,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Component, Path, PathBuf},
};

use offwake_recording::units::CgroupId;
use rustix::{fs::FileType, io::Errno};

use super::TargetError;
use crate::{cgroup2, reader_process};

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
    // It is whatever the caller says, and may lie where nobody answers.
    reader_process::use_processes();
    find_under(path, &cgroup2::mount_point().ok_or(TargetError::NoCgroups)?)
}

/// What a path leads to.
struct Located {
    held: OwnedFd,
    mode: u32,
    /// Its path without links.
    path: PathBuf,
}

/// Follows a path; [`Errno::TIMEDOUT`] if there is no answer.
fn locate(path: &Path) -> rustix::io::Result<Located> {
    let failed = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT);
    let (held, stat) = reader_process::open_path(&std::path::absolute(path).map_err(failed)?)?;
    // The kernel knows it without the file system.
    let path = fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).map_err(failed)?;
    Ok(Located { held, mode: stat.mode, path })
}

fn find_under(path: &Path, mount: &Path) -> Result<Cgroup, TargetError> {
    let not_a_cgroup = |why: &str| TargetError::NotACgroup {
        path: path.to_path_buf(),
        mount: mount.to_path_buf(),
        why: why.to_owned(),
    };
    // `/a/b` may be meant from the hierarchy's root, and that is how /proc and docker print it.
    let inside = mount.join(path.strip_prefix("/").unwrap_or(path));
    let is_inside = |located: &Located| located.path.starts_with(mount);
    let found = match locate(path) {
        Ok(located) if is_inside(&located) => located,
        elsewhere => match locate(&inside) {
            Ok(located) if is_inside(&located) => located,
            _ => {
                return Err(match elsewhere {
                    Ok(_) => not_a_cgroup("it lies elsewhere"),
                    Err(Errno::TIMEDOUT) => TargetError::Silent(path.to_path_buf()),
                    Err(error) => not_a_cgroup(&io::Error::from(error).to_string()),
                });
            }
        },
    };
    if FileType::from_raw_mode(found.mode) != FileType::Directory {
        return Err(not_a_cgroup("it is a file; name the directory"));
    }
    if !cgroup2::is_inside(&found.held) {
        return Err(not_a_cgroup("it is on another file system"));
    }
    let stat = rustix::fs::fstat(&found.held)
        .map_err(|error| not_a_cgroup(&io::Error::from(error).to_string()))?;
    let found = found.path;
    let below = found.strip_prefix(mount).unwrap_or(Path::new(""));
    let level = below.components().filter(|part| matches!(part, Component::Normal(_))).count();
    let level = u32::try_from(level).map_err(|_absurd| not_a_cgroup("it is too deep"))?;
    Ok(Cgroup { id: CgroupId(stat.st_ino), level, path: format!("/{}", below.display()) })
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

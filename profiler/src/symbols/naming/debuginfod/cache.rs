//! Where files from servers are kept: `DIRECTORY/<build id>/debuginfo`, as elfutils has it.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use offwake_recording::BuildId;

/// The directory that the environment names, as elfutils' client looks for it.
///
/// <https://sourceware.org/git/?p=elfutils.git;a=blob;f=doc/debuginfod_find_debuginfo.3;hb=elfutils-0.192>
pub(super) fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    path("DEBUGINFOD_CACHE_PATH").or_else(|| {
        let base = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")))?;
        Some(base.join("debuginfod_client"))
    })
}

/// A directory of our own.
#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Makes it if it is not there.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let metadata = fs::metadata(directory)?;
        // With sudo the environment can be the caller's, who would choose what we write where.
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(io::Error::other("others can write to it"));
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// What is kept of a build.
    pub(super) fn file(&self, build_id: &BuildId) -> Option<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let path = self.path(build_id);
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file)
    }

    /// A file without its name.
    pub(super) fn new_file(&self) -> io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new().prefix(".offwake-").tempfile_in(&self.directory)
    }

    /// Gives a file its name, in one step.
    pub(super) fn keep(
        &self,
        file: tempfile::NamedTempFile,
        build_id: &BuildId,
    ) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.folder(build_id))?;
        // A power failure may cost the name. A name whose file had no content would be found for ever.
        file.as_file().sync_data()?;
        file.persist(self.path(build_id)).map_err(|error| error.error)
    }

    fn folder(&self, build_id: &BuildId) -> PathBuf {
        self.directory.join(build_id.to_string())
    }

    fn path(&self, build_id: &BuildId) -> PathBuf {
        self.folder(build_id).join("debuginfo")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_directory_is_the_one_that_elfutils_uses() {
        let of = |set: &[(&str, &str)]| {
            let set = set.to_vec();
            directory(move |name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            })
        };
        let path = |text: &str| Some(PathBuf::from(text));
        let all = [("DEBUGINFOD_CACHE_PATH", "/d"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(of(&all), path("/d"));
        assert_eq!(of(&all[1..]), path("/x/debuginfod_client"));
        assert_eq!(of(&all[2..]), path("/h/.cache/debuginfod_client"));
        // Relative to wherever offwake was started, it would be another one each time.
        assert_eq!(of(&[("DEBUGINFOD_CACHE_PATH", "d"), ("HOME", "/h")]), of(&all[2..]));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Cache::open(&directory.path().join("new/cache")).is_ok());
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Cache::open(directory.path()).is_err());
    }
}

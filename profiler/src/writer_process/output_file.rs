//! The file, where it is written.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use super::{
    FileIdentity, Naming,
    client::numbered,
    disk_sync::{DiskSync, sync_directory_of},
};

/// The largest number that is tried.
const MAX_NUMBER: u64 = 100_000;

/// A file that takes its name once it has a beginning.
#[derive(Debug)]
pub(super) struct OutputFile {
    path: PathBuf,
    stage: Stage,
    sync: Option<DiskSync>,
}

#[derive(Debug)]
enum Stage {
    /// Beside its path, under another name.
    Unnamed(Option<tempfile::NamedTempFile>),
    /// At its path.
    Named(File),
}

impl OutputFile {
    /// Makes the file, not under its name yet.
    pub(super) fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let stage = Stage::Unnamed(Some(new_file_beside(path, mode)?));
        Ok(Self { path: path.to_path_buf(), stage, sync: None })
    }

    /// Goes on with a file that has its name. What is behind so many bytes nobody has been told of.
    pub(super) fn resume(path: &Path, file: FileIdentity, length: u64) -> io::Result<Self> {
        let mut found = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        if FileIdentity::read_from(&found)? != file {
            return Err(io::Error::other("another file is in its place"));
        }
        if found.metadata()?.len() < length {
            return Err(io::Error::other("somebody has cut it off"));
        }
        found.set_len(length)?;
        found.seek(SeekFrom::Start(length))?;
        let sync = Some(DiskSync::start(&found, path));
        Ok(Self { path: path.to_path_buf(), stage: Stage::Named(found), sync })
    }

    fn file(&mut self) -> io::Result<&mut File> {
        let gone = || io::Error::other("the file is gone");
        match &mut self.stage {
            Stage::Named(file) => Ok(file),
            Stage::Unnamed(file) => {
                file.as_mut().map(tempfile::NamedTempFile::as_file_mut).ok_or_else(gone)
            }
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file()?.write_all(bytes)
    }

    pub(super) fn truncate(&mut self, length: u64) -> io::Result<()> {
        let file = self.file()?;
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length)).map(drop)
    }

    fn take_unnamed(&mut self) -> io::Result<tempfile::NamedTempFile> {
        let Stage::Unnamed(unnamed) = &mut self.stage else {
            return Err(io::Error::other("the recording has begun already"));
        };
        unnamed.take().ok_or_else(|| io::Error::other("the file is gone"))
    }

    pub(super) fn name(&mut self) -> io::Result<FileIdentity> {
        let file = self.take_unnamed()?;
        let file = file.persist(&self.path).map_err(|error| error.error)?;
        let identity = FileIdentity::read_from(&file)?;
        self.sync = Some(DiskSync::start(&file, &self.path));
        self.stage = Stage::Named(file);
        Ok(identity)
    }

    /// Names a file that is whole, and on its disk. Returns the number that it has got, if it was to get one.
    pub(super) fn finish(&mut self, naming: Naming) -> io::Result<u64> {
        let file = self.take_unnamed()?;
        file.as_file().sync_all()?;
        let number = match naming {
            Naming::AsAsked => {
                file.persist(&self.path).map_err(|error| error.error)?;
                0
            }
            Naming::Numbered(first) => persist_numbered(file, &self.path, first)?,
        };
        sync_directory_of(&self.path);
        Ok(number)
    }

    pub(super) fn wrote_slice(&mut self) {
        if let Some(sync) = &mut self.sync {
            sync.wrote();
        }
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file()?.sync_all()?;
        self.sync.take().map_or(Ok(()), DiskSync::end)
    }
}

/// A file in the same directory, so that it can take the other's name in one step.
pub(super) fn new_file_beside(path: &Path, mode: u32) -> io::Result<tempfile::NamedTempFile> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".offwake-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)
}

/// Gives a file the name `beside` with the first number from `first` on that no other file has. Returns that.
fn persist_numbered(
    mut file: tempfile::NamedTempFile,
    beside: &Path,
    first: u64,
) -> io::Result<u64> {
    for number in first..=MAX_NUMBER {
        match file.persist_noclobber(numbered(beside, number)) {
            Ok(_file) => return Ok(number),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
                file = failed.file;
            }
            Err(failed) => return Err(failed.error),
        }
    }
    Err(io::Error::other("all numbers are taken"))
}

impl FileIdentity {
    fn read_from(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

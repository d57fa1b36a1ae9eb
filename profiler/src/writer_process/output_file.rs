//! The file, where it is written.

use std::{
    fs::{File, Permissions},
    io::{self, Seek as _, SeekFrom, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::disk_sync::DiskSync;

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
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let stage = Stage::Unnamed(Some(new_file_beside(path)?));
        Ok(Self { path: path.to_path_buf(), stage, sync: None })
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

    pub(super) fn name(&mut self) -> io::Result<()> {
        let Stage::Unnamed(unnamed) = &mut self.stage else {
            return Err(io::Error::other("the recording has begun already"));
        };
        let file = unnamed.take().ok_or_else(|| io::Error::other("the file is gone"))?;
        let file = file.persist(&self.path).map_err(|error| error.error)?;
        self.sync = Some(DiskSync::start(&file, &self.path));
        self.stage = Stage::Named(file);
        Ok(())
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
pub(crate) fn new_file_beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let file = tempfile::Builder::new().prefix(".offwake-").tempfile_in(directory)?;
    // Addresses of the kernel and of every program are in it.
    file.as_file().set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

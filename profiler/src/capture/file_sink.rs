//! A recording in a file.

use std::{
    fs::{File, Permissions},
    io::{self, Seek as _, SeekFrom, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{
    disk_sync::DiskSync,
    sink::{NewSlice, RemovedSlice, Sink, SliceOffsets},
};

/// A file that takes its name when the window opens, and is a recording from then on, whatever
/// happens.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
    stage: Stage,
    /// Bytes up to the end of the last whole message.
    length: u64,
    offsets: SliceOffsets,
    sync: Option<DiskSync>,
}

#[derive(Debug)]
enum Stage {
    /// Beside its path, under another name.
    Unnamed(Option<tempfile::NamedTempFile>),
    /// At its path.
    Named(File),
}

impl FileSink {
    /// Makes the file, not under its name yet.
    ///
    /// # Errors
    ///
    /// If its directory can't be written to.
    pub fn create(path: &Path) -> io::Result<Self> {
        let stage = Stage::Unnamed(Some(new_file_beside(path)?));
        Ok(Self {
            path: path.to_path_buf(),
            stage,
            length: 0,
            offsets: SliceOffsets::default(),
            sync: None,
        })
    }

    /// The path that the file has from the window's opening on.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a recording at the path.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        matches!(self.stage, Stage::Named(_))
    }

    /// Bytes up to the end of the last whole message.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    fn file(&mut self) -> io::Result<&mut File> {
        match &mut self.stage {
            Stage::Named(file) => Ok(file),
            Stage::Unnamed(_) => Err(io::Error::other("the recording has not begun")),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = self.length;
        let file = self.file()?;
        if let Err(error) = file.write_all(bytes) {
            // Readers can do without a message, but not with a part of one.
            truncate(file, length)?;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}

/// A file in the same directory, so that it can take the other's name in one step.
pub(super) fn new_file_beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let file = tempfile::Builder::new().prefix(".offwake-").tempfile_in(directory)?;
    // Addresses of the kernel and of every program are in it.
    file.as_file().set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn truncate(file: &mut File, length: u64) -> io::Result<()> {
    file.set_len(length)?;
    file.seek(SeekFrom::Start(length)).map(drop)
}

impl Sink for FileSink {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        let Stage::Unnamed(unnamed) = &mut self.stage else {
            return Err(io::Error::other("the recording has begun already"));
        };
        let mut file = unnamed.take().ok_or_else(|| io::Error::other("the file is gone"))?;
        file.write_all(header)?;
        let file = file.persist(&self.path).map_err(|error| error.error)?;
        self.sync = Some(DiskSync::start(&file, &self.path));
        self.stage = Stage::Named(file);
        self.length = header.len() as u64;
        Ok(())
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        let slice = slice.encode()?;
        let offset = self.length;
        self.write(&slice.bytes)?;
        self.offsets.push(offset, slice.summary);
        if let Some(sync) = &mut self.sync {
            sync.wrote();
        }
        Ok(())
    }

    fn remove_last(&mut self) -> io::Result<Option<RemovedSlice>> {
        let Some((offset, removed)) = self.offsets.pop() else { return Ok(None) };
        truncate(self.file()?, offset)?;
        self.length = offset;
        Ok(Some(removed))
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.write(mark)?;
        self.file()?.sync_all()?;
        self.sync.take().map_or(Ok(()), DiskSync::end)
    }
}

/// A recording on a pipe: what is written is gone.
#[derive(Debug)]
pub struct PipeSink<W>(pub W);

impl<W: Write + Send + 'static> Sink for PipeSink<W> {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        self.0.write_all(header)
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        self.0.write_all(&slice.encode()?.bytes)?;
        self.0.flush()
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.0.write_all(mark)?;
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_recording_that_gets_no_name_has_not_begun_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.offwake");
        let mut sink = FileSink::create(&path).unwrap();
        fs::create_dir(&path).unwrap();
        sink.begin(b"header").unwrap_err();
        assert!(!sink.has_begun());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        fs::remove_dir(&path).unwrap();
        let mut sink = FileSink::create(&path).unwrap();
        sink.begin(b"header").unwrap();
        assert!(sink.has_begun());
    }
}

//! A recording in a file.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::sink::{NewSlice, RemovedSlice, Sink, SliceOffsets};
use crate::{
    parser::{Parser, ParserRole},
    writer_process::WriterProcess,
};

/// A file that takes its name when the window opens, and is a recording from then on, whatever
/// happens. A [process](crate::writer_process) writes it.
pub struct FileSink {
    path: PathBuf,
    writer: WriterProcess,
    has_begun: bool,
    /// Bytes up to the end of the last whole message.
    length: u64,
    offsets: SliceOffsets,
}

impl FileSink {
    /// Makes the file, not under its name yet.
    ///
    /// # Errors
    ///
    /// If its directory can't be written to.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_by(path, Parser::new(ParserRole::Writer))
    }

    fn create_by(path: &Path, process: Parser) -> io::Result<Self> {
        Ok(Self {
            path: path.to_path_buf(),
            writer: WriterProcess::create(path, process)?,
            has_begun: false,
            length: 0,
            offsets: SliceOffsets::default(),
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
        self.has_begun
    }

    /// Bytes up to the end of the last whole message.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.has_begun {
            return Err(io::Error::other("the recording has not begun"));
        }
        if let Err(error) = self.writer.write(bytes) {
            // Readers can do without a message, but not with a part of one.
            self.writer.truncate(self.length)?;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if !self.has_begun {
            // It does so itself when we are gone, if it answers no more now.
            let _gone = self.writer.discard();
        }
    }
}

impl Sink for FileSink {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        if self.has_begun {
            return Err(io::Error::other("the recording has begun already"));
        }
        self.writer.write(header)?;
        self.writer.name()?;
        self.has_begun = true;
        self.length = header.len() as u64;
        Ok(())
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        let slice = slice.encode()?;
        let offset = self.length;
        self.write(&slice.bytes)?;
        self.offsets.push(offset, slice.summary);
        self.writer.wrote_slice()
    }

    fn remove_last(&mut self) -> io::Result<Option<RemovedSlice>> {
        let Some((offset, removed)) = self.offsets.pop() else { return Ok(None) };
        self.writer.truncate(offset)?;
        self.length = offset;
        Ok(Some(removed))
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.write(mark)?;
        self.writer.sync()
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
    use std::{fs, os::unix::net::UnixStream};

    use super::*;
    use crate::{parser::Channel, writer_process};

    fn create(path: &Path) -> FileSink {
        let serve = |channel: &mut Channel<UnixStream>| writer_process::serve(channel);
        FileSink::create_by(path, Parser::in_thread(serve)).unwrap()
    }

    #[test]
    fn a_recording_that_gets_no_name_has_not_begun_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.offwake");
        let mut sink = create(&path);
        fs::create_dir(&path).unwrap();
        sink.begin(b"header").unwrap_err();
        assert!(!sink.has_begun());
        drop(sink);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        fs::remove_dir(&path).unwrap();
        drop(create(&path));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut sink = create(&path);
        sink.begin(b"header").unwrap();
        assert!(sink.has_begun());
    }

    #[test]
    fn what_is_longer_than_a_message_is_written_as_a_whole_and_the_kernel_says_why_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.offwake");
        let mut sink = create(&path);
        sink.begin(b"header").unwrap();
        let long = vec![7; 5_000_000];
        sink.write(&long).unwrap();
        sink.end(b"end").unwrap();
        assert_eq!(fs::read(&path).unwrap(), [b"header".as_slice(), &long, b"end"].concat());
        let nowhere = directory.path().join("none/x.offwake");
        let serve = |channel: &mut Channel<UnixStream>| writer_process::serve(channel);
        let refused = FileSink::create_by(&nowhere, Parser::in_thread(serve)).map(drop);
        assert!(refused.unwrap_err().to_string().contains("No such file"));
    }
}

//! A recording in a file.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use offwake_analysis::formats::Readers;

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
        let mut writer = WriterProcess::start(process);
        // Addresses of the kernel and of every program are in it.
        writer.create(path, Readers::Owner)?;
        Ok(Self {
            path: path.to_path_buf(),
            writer,
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

/// A recording on a pipe, a device, or in what standard output goes to: what is written is gone. A
/// [process](crate::writer_process) writes it, as whoever reads may never read on.
pub struct PipeSink(WriterProcess);

impl PipeSink {
    /// Hands the open file over to the process that writes.
    ///
    /// # Errors
    ///
    /// If that can't be started.
    pub fn adopt(file: OwnedFd) -> io::Result<Self> {
        Self::adopt_by(file, Parser::new(ParserRole::Writer))
    }

    fn adopt_by(file: OwnedFd, process: Parser) -> io::Result<Self> {
        let mut writer = WriterProcess::start(process);
        writer.adopt(file)?;
        Ok(Self(writer))
    }
}

impl Sink for PipeSink {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        self.0.write(header)
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        self.0.write(&slice.encode()?.bytes)
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.0.write(mark)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read as _};

    use super::*;
    use crate::writer_process::tests::in_thread;

    fn create(path: &Path) -> FileSink {
        FileSink::create_by(path, in_thread()).unwrap()
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
        let refused = FileSink::create_by(&nowhere, in_thread()).map(drop);
        assert!(refused.unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn what_goes_to_a_pipe_comes_out_of_it_and_a_reader_that_left_is_an_error() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut sink = PipeSink::adopt_by(writer.into(), in_thread()).unwrap();
        sink.begin(b"header").unwrap();
        let mut read = [0; 6];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"header");
        drop(reader);
        let error = sink.end(b"end").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    }
}

//! The writer, as whoever has something to write sees it.

use std::{
    borrow::Cow,
    ffi::OsString,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{self, Path, PathBuf},
};

use offwake_analysis::formats::Readers;
use offwake_recording::loss::Diagnostics;

use super::{Answer, FileIdentity, MAX_BYTES, Naming, Place, Request, Said, path_bytes};
use crate::{
    own_threads,
    parser::{ChannelError, Parser, ParserRole},
};

/// A process that writes one file after another.
pub struct WriterProcess {
    process: Parser,
    file: Option<WrittenFile>,
    /// Whether it writes to what was open.
    has_adopted: bool,
    /// How often another process had to go on.
    restarts: u32,
    /// Why it is asked no more, once it has not answered.
    lost: Option<String>,
}

/// What is written to now.
struct WrittenFile {
    path: PathBuf,
    readers: Readers,
    /// Which file it is, once it has its name. Another process can go on with it then.
    identity: Option<FileIdentity>,
    /// Bytes that the process has said to have written.
    length: u64,
}

impl WrittenFile {
    /// What another process is asked first. None if it can't go on: the file goes with the process before it
    /// has a name.
    fn resume_request(&self) -> Option<Request<'static>> {
        match (self.identity, self.length) {
            (Some(identity), length) => Some(Request::resume(&self.path, identity, length)),
            (None, 0) => Some(Request::create(&self.path, self.readers)),
            (None, _) => None,
        }
    }
}

impl WriterProcess {
    /// Starts the process.
    #[must_use]
    pub fn start(process: Parser) -> Self {
        Self {
            process: process.start_early(),
            file: None,
            has_adopted: false,
            restarts: 0,
            lost: None,
        }
    }

    /// Finds out what is at a path.
    ///
    /// # Errors
    ///
    /// If no output could be written there.
    pub fn check(&mut self, path: &Path) -> io::Result<Place> {
        match self.ask(&Request::Check { path: path_bytes(&path::absolute(path)?) })? {
            Said::Place(place) => Ok(place),
            _ => Err(invalid_answer()),
        }
    }

    /// Has a file made, not under its name yet.
    ///
    /// # Errors
    ///
    /// If its directory can't be written to.
    pub fn create(&mut self, path: &Path, readers: Readers) -> io::Result<()> {
        // The process is not in our directory.
        let path = path::absolute(path)?;
        self.file = None;
        self.ask(&Request::create(&path, readers))?;
        self.file = Some(WrittenFile { path, readers, identity: None, length: 0 });
        Ok(())
    }

    /// Has it write to a file that is open: a pipe, a device, standard output. To close such a file can take
    /// for ever, so that nobody else should have it open.
    ///
    /// # Errors
    ///
    /// If it does not get it.
    pub fn adopt(&mut self, file: OwnedFd) -> io::Result<()> {
        self.file = None;
        self.ask_with(&Request::Adopt, &[file.as_fd()])?;
        self.has_adopted = true;
        Ok(())
    }

    /// Writes behind what was written.
    ///
    /// # Errors
    ///
    /// If not all of it could be written.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(MAX_BYTES) {
            self.ask(&Request::Write(Cow::Borrowed(part)))?;
            if let Some(file) = &mut self.file {
                file.length += part.len() as u64;
            }
        }
        Ok(())
    }

    /// Lets the file take its name before it is whole.
    pub(crate) fn name(&mut self) -> io::Result<()> {
        let Said::File(identity) = self.ask(&Request::Name)? else { return Err(invalid_answer()) };
        if let Some(file) = &mut self.file {
            file.identity = Some(identity);
        }
        Ok(())
    }

    pub(crate) fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.ask(&Request::Truncate { length })?;
        if let Some(file) = &mut self.file {
            file.length = length;
        }
        Ok(())
    }

    pub(crate) fn wrote_slice(&mut self) -> io::Result<()> {
        self.ask(&Request::WroteSlice).map(drop)
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.ask(&Request::Sync).map(drop).map_err(|error| match self.lost {
            Some(_) => io::Error::other(format!("it may not be on its disk: {error}")),
            None => error,
        })
    }

    /// Has a file that is whole written to its disk, and lets it take its name. Returns that.
    ///
    /// # Errors
    ///
    /// If it has got none.
    pub fn finish(&mut self) -> io::Result<PathBuf> {
        self.finish_as(Naming::AsAsked).map(|(path, _number)| path)
    }

    /// Does the same with the first number from `first` on that no other file has. Returns the name, and the
    /// number behind that.
    ///
    /// # Errors
    ///
    /// If it has got none.
    pub fn finish_numbered(&mut self, first: u64) -> io::Result<(PathBuf, u64)> {
        let (path, number) = self.finish_as(Naming::Numbered(first))?;
        Ok((numbered(&path, number), number + 1))
    }

    fn finish_as(&mut self, naming: Naming) -> io::Result<(PathBuf, u64)> {
        let Said::Number(number) = self.ask(&Request::Finish(naming))? else {
            return Err(invalid_answer());
        };
        let gone = || io::Error::other("there is no file");
        let file = self.file.take().ok_or_else(gone)?;
        Ok((file.path, number))
    }

    pub(crate) fn discard(&mut self) -> io::Result<()> {
        self.file = None;
        self.ask(&Request::Discard).map(drop)
    }

    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.ask(&Request::Remove { path: path_bytes(&path::absolute(path)?) }).map(drop)
    }

    /// Whether it has not answered, and is asked no more.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// How often another process had to go on with the file.
    #[cfg(test)]
    pub(crate) fn restarts(&self) -> u32 {
        self.restarts
    }

    fn ask(&mut self, request: &Request<'_>) -> io::Result<Said> {
        self.ask_with(request, &[])
    }

    fn ask_with(&mut self, request: &Request<'_>, files: &[BorrowedFd<'_>]) -> io::Result<Said> {
        // Each turn but the last one takes a start of the process, of which there are some.
        loop {
            if let Some(lost) = &self.lost {
                return Err(io::Error::other(lost.clone()));
            }
            match self.exchange(request, files) {
                Ok(Answer::Done { dead, said }) => {
                    own_threads::note_dead(dead);
                    return Ok(said);
                }
                Ok(Answer::Failed { number: Some(number), .. }) => {
                    return Err(io::Error::from_raw_os_error(number));
                }
                Ok(Answer::Failed { number: None, words }) => return Err(io::Error::other(words)),
                Ok(Answer::NoFile) => self.resume(ChannelError::Died),
                Err(error) => self.resume(error),
            }
        }
    }

    /// Has another process go on after one that has died; the request is made again then. One that does not
    /// answer may still write.
    fn resume(&mut self, why: ChannelError) {
        let request = match (why, &self.file) {
            (ChannelError::Died | ChannelError::InvalidMessage, Some(file)) => {
                file.resume_request()
            }
            _ => None,
        };
        let resumed = match request {
            Some(request) => {
                self.restarts += 1;
                log::warn!("the process that writes died: number {} goes on", self.restarts + 1);
                self.exchange(&request, &[])
            }
            None => Err(why),
        };
        match resumed {
            Ok(Answer::Done { .. }) => {}
            Ok(Answer::Failed { words, .. }) => {
                self.lost =
                    Some(format!("the process that writes died, and no other goes on: {words}"));
            }
            // It is tried again with the next turn.
            Err(ChannelError::Died | ChannelError::InvalidMessage) if self.can_resume() => {}
            Ok(Answer::NoFile) => self.lost = Some(self.describe(ChannelError::Died)),
            Err(error) => self.lost = Some(self.describe(error)),
        }
    }

    fn can_resume(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.resume_request().is_some())
    }

    fn describe(&self, error: ChannelError) -> String {
        let has_begun = self.file.is_some() || self.has_adopted;
        match error {
            ChannelError::TimedOut => {
                let seconds = ParserRole::Writer.idle_patience().as_secs();
                match self.has_adopted {
                    true => format!("it has not been read for {seconds} s"),
                    false => format!("its file system has not answered for {seconds} s"),
                }
            }
            ChannelError::NotStarted if !has_begun => {
                "the process that writes can't be started".to_owned()
            }
            // Writing has no such limit of time.
            ChannelError::NotStarted
            | ChannelError::Died
            | ChannelError::InvalidMessage
            | ChannelError::OutOfTime => "the process that writes died".to_owned(),
        }
    }

    fn exchange(
        &mut self,
        request: &Request<'_>,
        files: &[BorrowedFd<'_>],
    ) -> Result<Answer, ChannelError> {
        let mut counted_below = Diagnostics::new();
        self.process.exchange(&mut counted_below, |channel| {
            channel.send(request, files)?;
            channel.receive()
        })
    }
}

/// Removes a file that has got no name: a process that is not needed any more is ended at once.
impl Drop for WriterProcess {
    fn drop(&mut self) {
        if self.file.as_ref().is_some_and(|file| file.identity.is_none()) {
            // It does so itself when we are gone, if it answers no more now.
            let _gone = self.discard();
        }
    }
}

/// Hands what is written to the process, in parts that are worth a message.
impl io::Write for WriterProcess {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::write(self, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `wait.offwake` → `wait.3.offwake`.
#[must_use]
pub fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

fn invalid_answer() -> io::Error {
    io::Error::other("the process that writes said what can't be")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_numbered_before_the_extension() {
        for (path, expected) in [
            ("wait.offwake", "wait.3.offwake"),
            ("/a/b.c/wait.x.offwake", "/a/b.c/wait.x.3.offwake"),
            ("wait", "wait.3"),
        ] {
            assert_eq!(numbered(Path::new(path), 3), PathBuf::from(expected));
        }
    }
}

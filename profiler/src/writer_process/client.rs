//! The writer, as whoever has something to write sees it.

use std::{
    borrow::Cow,
    io,
    path::{self, Path},
};

use offwake_recording::loss::Diagnostics;

use super::{Answer, MAX_BYTES, Request};
use crate::{
    own_threads,
    parser::{ChannelError, Parser, ParserRole},
};

/// A process that writes one file.
pub(crate) struct WriterProcess {
    process: Parser,
    /// Whether it has made the file: it is not started again then.
    has_file: bool,
    /// Why it is asked no more, once it has not answered.
    lost: Option<String>,
}

impl WriterProcess {
    /// Starts it, and has it make the file, not under its name yet.
    pub(crate) fn create(path: &Path, process: Parser) -> io::Result<Self> {
        let mut writer = Self { process: process.start_early(), has_file: false, lost: None };
        // The process is not in our directory.
        writer.ask(&Request::create(&path::absolute(path)?))?;
        writer.has_file = true;
        Ok(writer)
    }

    /// Writes behind what was written.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(MAX_BYTES) {
            self.ask(&Request::Write(Cow::Borrowed(part)))?;
        }
        Ok(())
    }

    pub(crate) fn name(&mut self) -> io::Result<()> {
        self.ask(&Request::Name)
    }

    pub(crate) fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.ask(&Request::Truncate { length })
    }

    pub(crate) fn wrote_slice(&mut self) -> io::Result<()> {
        self.ask(&Request::WroteSlice)
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.ask(&Request::Sync).map_err(|error| match self.lost {
            Some(_) => io::Error::other(format!("it may not be on its disk: {error}")),
            None => error,
        })
    }

    pub(crate) fn discard(&mut self) -> io::Result<()> {
        self.ask(&Request::Discard)
    }

    fn ask(&mut self, request: &Request<'_>) -> io::Result<()> {
        if let Some(lost) = &self.lost {
            return Err(io::Error::other(lost.clone()));
        }
        let mut counted_below = Diagnostics::new();
        let answer = self.process.exchange(&mut counted_below, |channel| {
            channel.send(request, &[])?;
            channel.receive()
        });
        match answer {
            Ok(Answer::Done { dead }) => {
                own_threads::note_dead(dead);
                Ok(())
            }
            Ok(Answer::Failed { number: Some(number), .. }) => {
                Err(io::Error::from_raw_os_error(number))
            }
            Ok(Answer::Failed { number: None, words }) => Err(io::Error::other(words)),
            Err(error) => {
                let words = describe(error, self.has_file);
                self.lost = Some(words.clone());
                Err(io::Error::other(words))
            }
        }
    }
}

fn describe(error: ChannelError, has_file: bool) -> String {
    match error {
        ChannelError::TimedOut => {
            let seconds = ParserRole::Writer.idle_patience().as_secs();
            format!("its file system has not answered for {seconds} s")
        }
        ChannelError::NotStarted if !has_file => {
            "the process that writes can't be started".to_owned()
        }
        ChannelError::NotStarted | ChannelError::Died | ChannelError::InvalidMessage => {
            "the process that writes died".to_owned()
        }
    }
}

//! Saving what is on screen.

use std::{
    io,
    path::{Path, PathBuf},
};

use offwake::{
    top::Period,
    writer_process::{WriterProcess, numbered},
};
use offwake_analysis::{
    formats::{OutputFormat as _, RecordingFile},
    top::TopData,
};

use crate::output::{on_one_line, start_writer};

/// The recordings that were saved, and where the next one goes.
pub struct SavedRecordings {
    beside: PathBuf,
    next: u64,
    paths: Vec<PathBuf>,
}

impl SavedRecordings {
    /// None yet; each will be called `path` with a number.
    pub fn beside(path: PathBuf) -> Self {
        Self { beside: path, next: 1, paths: Vec::new() }
    }

    /// The files that were saved.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Saves the recording that is on screen, under the first number that is free. Returns what came
    /// of it, in words.
    pub fn save(&mut self, data: Option<&TopData>, period: Period) -> String {
        let Some(data) = data else { return "there is nothing to save yet".to_owned() };
        match self.write(&data.bytes, start_writer()) {
            Ok(path) => {
                let length = data.window.length;
                let only = match period {
                    Period::Window => "",
                    Period::Totals => "; sums since the start are no recording",
                };
                on_one_line(&format!("wrote {}: the last {length}{only}", path.display()))
            }
            Err(error) => {
                on_one_line(&format!("cannot write beside {}: {error}", self.beside.display()))
            }
        }
    }

    fn write(&mut self, bytes: &[u8], mut writer: WriterProcess) -> io::Result<&Path> {
        writer.create(&self.beside, RecordingFile.readers())?;
        writer.write(bytes)?;
        let (_absolute, next) = writer.finish_numbered(self.next)?;
        self.next = next;
        self.paths.push(numbered(&self.beside, next - 1));
        Ok(self.paths.last().unwrap_or(&self.beside))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixStream};

    use offwake::{
        parser::{Channel, Parser},
        writer_process::{self, WriterProcess},
    };

    use super::SavedRecordings;

    fn writer() -> WriterProcess {
        let serve = |channel: &mut Channel<UnixStream>| writer_process::serve(channel);
        WriterProcess::start(Parser::in_thread(serve))
    }

    #[test]
    fn nothing_is_ever_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("x.2.offwake"), "somebody else's").unwrap();
        let mut saved = SavedRecordings::beside(path("x.offwake"));
        assert_eq!(saved.write(b"one", writer()).unwrap(), path("x.1.offwake"));
        assert_eq!(saved.write(b"two", writer()).unwrap(), path("x.3.offwake"));
        assert_eq!(fs::read(path("x.2.offwake")).unwrap(), b"somebody else's");
        assert_eq!(fs::read(path("x.3.offwake")).unwrap(), b"two");
        // Nothing half written is left.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
        assert_eq!(saved.paths().len(), 2);
    }
}

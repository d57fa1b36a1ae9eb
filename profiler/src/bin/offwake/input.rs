//! Recordings to read: from a file, or from standard input.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use offwake::privileges::{self, Task};
use offwake_analysis::analysis::EncodedRecording;
use offwake_recording::{Recording, stream};

/// A recording that is open, of which nothing was read yet.
pub enum OpenInput {
    /// A plain file.
    File {
        /// The file's name.
        path: PathBuf,
        /// The file, open.
        file: File,
    },
    /// Standard input.
    StandardInput,
}

impl OpenInput {
    /// Opens a file, or standard input if `path` is `-`.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::StandardInput);
        }
        let cannot = || format!("cannot read {}", path.display());
        // Before it is opened: a FIFO's opening waits for a writer.
        let metadata = std::fs::metadata(path).with_context(cannot)?;
        if metadata.is_dir() {
            bail!("cannot read {}: it is a directory, not a recording", path.display());
        }
        if !metadata.is_file() {
            bail!("cannot read {}: it is no plain file; `-` reads standard input", path.display());
        }
        Ok(Self::File { path: path.to_path_buf(), file: File::open(path).with_context(cannot)? })
    }

    /// Reads all of standard input, if that is where the recording comes from.
    pub fn fetch(self, max_memory: usize) -> anyhow::Result<Input> {
        match self {
            Self::File { path, file } => Ok(Input::File { path, file }),
            Self::StandardInput => Input::from_standard_input(max_memory),
        }
    }
}

/// Gives up all rights that reading recordings and writing what is made of them does not take. Call
/// this when the recordings are open, and before anything is read of them.
pub fn drop_rights() {
    privileges::restrict_to(Task::Reporting);
}

/// A recording to read.
pub enum Input {
    /// A plain file.
    File {
        /// The file's name.
        path: PathBuf,
        /// The file, open.
        file: File,
    },
    /// Standard input, which can't be read twice.
    Piped(Vec<u8>),
}

impl Input {
    fn from_standard_input(max_memory: usize) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        let limit = u64::try_from(max_memory).unwrap_or(u64::MAX);
        (io::stdin().lock().take(limit.saturating_add(1)).read_to_end(&mut bytes))
            .context("cannot read standard input")?;
        if bytes.len() > max_memory {
            bail!(
                "cannot read standard input: it takes more than {limit} bytes: raise --max-memory"
            );
        }
        Ok(Self::Piped(bytes))
    }

    /// Decodes all of the recording that is undamaged.
    pub fn read(&self, max_memory: usize) -> anyhow::Result<Recording> {
        match self {
            Self::File { path, file } => stream::read(file, max_memory)
                .with_context(|| format!("cannot read {}", path.display())),
            Self::Piped(bytes) => {
                stream::read(&bytes[..], max_memory).context("cannot read standard input")
            }
        }
    }
}

impl EncodedRecording for Input {
    fn copy_to(&self, out: &mut dyn io::Write) -> io::Result<()> {
        match self {
            Self::File { file, .. } => {
                let mut file = file;
                file.seek(SeekFrom::Start(0))?;
                io::copy(&mut file, out).map(drop)
            }
            Self::Piped(bytes) => out.write_all(bytes),
        }
    }
}

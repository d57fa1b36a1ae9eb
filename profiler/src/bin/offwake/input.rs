//! Recordings that are read: from a file, or from standard input.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use anyhow::{Context as _, bail};
use offwake::recording::{Recording, stream};

/// Where the recording is.
pub enum Input<'a> {
    /// In a plain file.
    File {
        /// Its name.
        path: &'a Path,
        /// The file, open.
        file: File,
    },
    /// Standard input, which can't be read twice.
    Piped(Vec<u8>),
}

impl<'a> Input<'a> {
    /// Finds it.
    pub fn open(path: &'a Path, max_memory: usize) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Self::from_standard_input(max_memory);
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
        Ok(Self::File { path, file: File::open(path).with_context(cannot)? })
    }

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

    /// Reads what is whole of it.
    pub fn read(&self, max_memory: usize) -> anyhow::Result<Recording> {
        match self {
            Self::File { path, file } => stream::read(file, max_memory)
                .with_context(|| format!("cannot read {}", path.display())),
            Self::Piped(bytes) => {
                stream::read(&bytes[..], max_memory).context("cannot read standard input")
            }
        }
    }

    /// The recording as it is.
    pub fn copy(&self, out: &mut dyn io::Write) -> io::Result<()> {
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

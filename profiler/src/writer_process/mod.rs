//! Writes a recording's file in a process of its own, which can be given up.
//!
//! ```text
//! client: offwake's store                       server: offwake-writer
//!   a slice's bytes ── Request ──▶                writes, renames, syncs
//!   goes on         ◀── Answer ───                or never answers: a file system whose server is gone
//! ```
//!
//! A thread that waits for such a file system can't be killed, keeps its process from ending, and holds
//! every descriptor of it for as long: what offwake has attached would stay attached. The writer has no BPF
//! descriptor. If it does not answer, it is left behind, and the recording ends with what it had taken.
//!
//! It has no rights but those to write that whoever calls offwake has.

mod client;
mod disk_sync;
mod output_file;

use std::{
    borrow::Cow,
    ffi::OsString,
    io,
    os::{
        fd::AsFd,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
};

pub(crate) use client::WriterProcess;
pub use disk_sync::sync_directory_of;
use output_file::OutputFile;
pub(crate) use output_file::new_file_beside;
use serde::{Deserialize, Serialize};

use crate::{
    own_threads,
    parser::{self, Channel},
    scheduling,
};

/// Bytes that go into one message.
const MAX_BYTES: usize = 1 << 20;

/// What the writer is to do.
#[derive(Debug, Serialize, Deserialize)]
enum Request<'a> {
    /// Make the file, beside its path, which is absolute.
    Create {
        /// The path.
        path: Vec<u8>,
        /// The nice value that offwake began with.
        nice: Option<i32>,
    },
    /// Write behind what was written. What could be written in part alone is cut off again by whoever asks.
    Write(#[serde(with = "parser::bytes")] Cow<'a, [u8]>),
    /// Let the file take its name, and have it written to its disk from now on.
    Name,
    /// Cut the file off.
    Truncate { length: u64 },
    /// All of a slice is there: have it written to the disk if it is time.
    WroteSlice,
    /// Write all that there is to the disk: nothing comes any more.
    Sync,
    /// Remove the file that has got no name.
    Discard,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// It is done.
    Done {
        /// The threads of the writer that have died, as bits.
        dead: u64,
    },
    /// The kernel's error, or another one in words.
    Failed { number: Option<i32>, words: String },
}

impl From<io::Result<()>> for Answer {
    fn from(done: io::Result<()>) -> Self {
        match done {
            Ok(()) => Self::Done { dead: own_threads::dead_bits() },
            Err(error) => Self::Failed { number: error.raw_os_error(), words: error.to_string() },
        }
    }
}

impl Request<'_> {
    fn create(path: &Path) -> Self {
        let (path, nice) = (path.as_os_str().as_bytes().to_vec(), scheduling::nice_at_start());
        Self::Create { path, nice }
    }
}

/// Does what is asked until nobody can ask any more. A file that has got no name by then is removed.
pub fn serve<S: AsFd>(channel: &mut Channel<S>) {
    let mut file = None;
    while let Ok(request) = channel.receive::<Request>() {
        let answer = Answer::from(answer(&mut file, request));
        if channel.send(&answer, &[]).is_err() {
            return;
        }
    }
}

fn answer(output: &mut Option<OutputFile>, request: Request<'_>) -> io::Result<()> {
    if let Request::Create { path, nice } = request {
        scheduling::set_nice_at_start(nice);
        *output = Some(OutputFile::create(&PathBuf::from(OsString::from_vec(path)))?);
        return Ok(());
    }
    let file = output.as_mut().ok_or_else(|| io::Error::other("there is no file"))?;
    match request {
        Request::Create { .. } => Err(io::Error::other("there is a file already")),
        Request::WroteSlice => {
            file.wrote_slice();
            Ok(())
        }
        Request::Write(bytes) => file.write(&bytes),
        Request::Name => file.name(),
        Request::Truncate { length } => file.truncate(length),
        Request::Sync => file.sync(),
        Request::Discard => {
            *output = None;
            Ok(())
        }
    }
}

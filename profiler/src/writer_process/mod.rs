//! Writes outputs in a process of its own, which can be given up.
//!
//! ```text
//! client: whoever has an output                 server: offwake-writer
//!   its bytes       ── Request ──▶                writes, renames, syncs
//!   goes on         ◀── Answer ───                or never answers: a file system whose server is gone
//! ```
//!
//! A thread that waits for such a file system can't be killed, keeps its process from ending, and holds
//! every descriptor of it for as long: what offwake has attached would stay attached. The writer has no BPF
//! descriptor. If it does not answer, it is left behind, and the recording ends with what it had taken. If it
//! dies, another one goes on with the file.
//!
//! It has no rights but those to write that whoever calls offwake has.

mod client;
mod disk_sync;
mod output_file;
mod place;

use std::{
    borrow::Cow,
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
};

pub use client::{WriterProcess, numbered};
use offwake_analysis::formats::Readers;
use output_file::OutputFile;
pub use place::{Place, is_kernel_path};
use serde::{Deserialize, Serialize};

use crate::{
    own_threads,
    parser::{self, Channel},
    scheduling,
};

/// Bytes that go into one message.
const MAX_BYTES: usize = 1 << 20;

/// A path, as it is sent.
type PathBytes = Vec<u8>;

/// What the writer is to do.
#[derive(Debug, Serialize, Deserialize)]
enum Request<'a> {
    /// Say what is at a path, and whether a file could be made there.
    Check { path: PathBytes },
    /// Make a file, beside its path, which is absolute.
    Create { path: PathBytes, mode: u32, nice: Option<i32> },
    /// Go on with a file that a writer which has died had named. It has so many bytes.
    Resume { path: PathBytes, file: FileIdentity, length: u64, nice: Option<i32> },
    /// Write to the open file that comes with this.
    Adopt,
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
    /// Write the file to its disk, and let it take its name: it is whole.
    Finish(Naming),
    /// Remove the file that has got no name.
    Discard,
    /// Remove another file.
    Remove { path: PathBytes },
}

/// What a file that is whole is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Naming {
    /// As it was said to be. What was there before is replaced.
    AsAsked,
    /// The same, with the first number from this one on that no other file has.
    Numbered(u64),
}

/// Which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// It is done.
    Done {
        /// The threads of the writer that have died, as bits.
        dead: u64,
        /// What was to be said.
        said: Said,
    },
    /// There is no file: another writer may have had it.
    NoFile,
    /// The kernel's error, or another one in words.
    Failed { number: Option<i32>, words: String },
}

/// What is said of something that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Said {
    Nothing,
    Place(Place),
    Number(u64),
    File(FileIdentity),
}

impl Answer {
    fn new(done: io::Result<Said>) -> Self {
        match done {
            Ok(said) => Self::Done { dead: own_threads::dead_bits(), said },
            Err(error) => Self::Failed { number: error.raw_os_error(), words: error.to_string() },
        }
    }
}

impl Request<'static> {
    fn create(path: &Path, readers: Readers) -> Self {
        // The kernel takes the umask from these.
        let mode = match readers {
            Readers::Anybody => 0o666,
            Readers::Owner => 0o600,
        };
        Self::Create { path: path_bytes(path), mode, nice: scheduling::nice_at_start() }
    }

    fn resume(path: &Path, file: FileIdentity, length: u64) -> Self {
        Self::Resume { path: path_bytes(path), file, length, nice: scheduling::nice_at_start() }
    }
}

fn path_bytes(path: &Path) -> PathBytes {
    path.as_os_str().as_bytes().to_vec()
}

fn path_from(bytes: PathBytes) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

/// Does what is asked until nobody can ask any more. A file that has got no name by then is removed.
pub fn serve<S: AsFd>(channel: &mut Channel<S>) {
    let mut output = None;
    while let Ok((request, files)) = channel.receive_with_files::<Request>() {
        let answer = answer(&mut output, request, files);
        if channel.send(&answer, &[]).is_err() {
            return;
        }
    }
}

/// What is written to.
enum Output {
    /// A file that is made.
    Made(OutputFile),
    /// One that was open: a pipe, a device, or what standard output goes to.
    Adopted(File),
}

fn answer(output: &mut Option<Output>, request: Request<'_>, files: Vec<OwnedFd>) -> Answer {
    let done = match request {
        Request::Check { path } => place::check(&path_from(path)).map(Said::Place),
        Request::Create { path, mode, nice } => {
            scheduling::set_nice_at_start(nice);
            let made = OutputFile::create(&path_from(path), mode);
            made.map(|file| *output = Some(Output::Made(file))).map(|()| Said::Nothing)
        }
        Request::Resume { path, file, length, nice } => {
            scheduling::set_nice_at_start(nice);
            let resumed = OutputFile::resume(&path_from(path), file, length);
            resumed.map(|file| *output = Some(Output::Made(file))).map(|()| Said::Nothing)
        }
        Request::Adopt => match files.into_iter().next() {
            Some(file) => {
                *output = Some(Output::Adopted(File::from(file)));
                Ok(Said::Nothing)
            }
            None => Err(io::Error::other("there is no file")),
        },
        Request::Remove { path } => std::fs::remove_file(path_from(path)).map(|()| Said::Nothing),
        request => match output {
            None => return Answer::NoFile,
            Some(Output::Made(file)) => {
                let done = answer_of_file(file, &request);
                if let (Request::Finish(_) | Request::Discard, Ok(_)) = (request, &done) {
                    *output = None;
                }
                done
            }
            Some(Output::Adopted(file)) => answer_of_stream(file, &request),
        },
    };
    Answer::new(done)
}

fn answer_of_file(file: &mut OutputFile, request: &Request<'_>) -> io::Result<Said> {
    let done = match request {
        Request::Write(bytes) => file.write(bytes),
        Request::Name => return file.name().map(Said::File),
        Request::Truncate { length } => file.truncate(*length),
        Request::WroteSlice => {
            file.wrote_slice();
            Ok(())
        }
        Request::Sync => file.sync(),
        Request::Finish(naming) => return file.finish(*naming).map(Said::Number),
        // The file goes with what has it.
        Request::Discard => Ok(()),
        Request::Check { .. }
        | Request::Create { .. }
        | Request::Resume { .. }
        | Request::Adopt
        | Request::Remove { .. } => Err(io::Error::other("that is not done to a file")),
    };
    done.map(|()| Said::Nothing)
}

fn answer_of_stream(file: &mut File, request: &Request<'_>) -> io::Result<Said> {
    match request {
        Request::Write(bytes) => file.write_all(bytes).map(|()| Said::Nothing),
        _ => Err(io::Error::other("a stream is written to, and nothing else")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        fs,
        os::unix::net::UnixStream,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use crate::parser::Parser;

    /// A writer in a thread of a test.
    pub(crate) fn in_thread() -> Parser {
        Parser::in_thread(|channel: &mut Channel<UnixStream>| serve(channel))
    }

    #[test]
    fn a_file_that_is_whole_replaces_what_was_there_and_before_that_nothing_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.svg");
        fs::write(&path, "before").unwrap();
        let mut writer = WriterProcess::start(in_thread());
        writer.create(&path, Readers::Anybody).unwrap();
        writer.write(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        assert_eq!(writer.finish().unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"half");
        writer.create(&path, Readers::Anybody).unwrap();
        writer.write(b"never").unwrap();
        drop(writer);
        assert_eq!(fs::read(&path).unwrap(), b"half");
        wait_for_entries(directory.path(), 1);
    }

    /// The thread ends a moment after whoever asked it.
    fn wait_for_entries(directory: &Path, wanted: usize) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while fs::read_dir(directory).unwrap().count() != wanted {
            assert!(std::time::Instant::now() < until, "something is left");
            std::thread::yield_now();
        }
    }

    #[test]
    fn files_with_numbers_replace_none_that_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["wait.1.offwake", "wait.3.offwake"] {
            fs::write(path(name), "of the run before").unwrap();
        }
        let mut writer = WriterProcess::start(in_thread());
        let mut next = 1;
        for (content, name) in
            [("one", "wait.2.offwake"), ("two", "wait.4.offwake"), ("three", "wait.5.offwake")]
        {
            writer.create(&path("wait.offwake"), Readers::Owner).unwrap();
            writer.write(content.as_bytes()).unwrap();
            let (given, after) = writer.finish_numbered(next).unwrap();
            next = after;
            assert_eq!(given, path(name));
            assert_eq!(fs::read_to_string(given).unwrap(), content);
        }
        for name in ["wait.1.offwake", "wait.3.offwake"] {
            assert_eq!(fs::read_to_string(path(name)).unwrap(), "of the run before");
        }
        wait_for_entries(directory.path(), 5);
    }

    /// Answers so many requests, does what the next one wants, and dies before it can say so.
    fn serve_some(channel: &mut Channel<UnixStream>, answers: u32) {
        let mut output = None;
        for turn in 0..=answers {
            let Ok((request, files)) = channel.receive_with_files::<Request>() else { return };
            let answer = answer(&mut output, request, files);
            if turn == answers || channel.send(&answer, &[]).is_err() {
                return;
            }
        }
    }

    #[test]
    fn another_one_goes_on_with_the_file_of_one_that_has_died() {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        fn serve(channel: &mut Channel<UnixStream>) {
            // Makes a file; makes it again, writes, names it, writes; goes on with it, writes twice; and so on.
            let answers = [1, 4, 3, 3, 9][STARTS.fetch_add(1, Ordering::Relaxed)];
            serve_some(channel, answers);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.offwake");
        let mut writer = WriterProcess::start(Parser::in_thread(serve));
        writer.create(&path, Readers::Owner).unwrap();
        writer.write(b"a").unwrap();
        writer.name().unwrap();
        for byte in [b"b", b"c", b"d", b"e", b"f"] {
            writer.write(byte).unwrap();
        }
        writer.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcdef");
        assert_eq!(writer.restarts(), 4);
    }

    #[test]
    fn nobody_goes_on_with_a_file_that_is_another_one() {
        fn serve(channel: &mut Channel<UnixStream>) {
            serve_some(channel, 2);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.offwake");
        let mut writer = WriterProcess::start(Parser::in_thread(serve));
        writer.create(&path, Readers::Owner).unwrap();
        writer.name().unwrap();
        fs::rename(&path, directory.path().join("mine")).unwrap();
        fs::write(&path, "another's").unwrap();
        let failed = writer.write(b"a").unwrap_err().to_string();
        assert!(failed.contains("another file is in its place"), "{failed}");
        assert_eq!(fs::read(&path).unwrap(), b"another's");
    }
}

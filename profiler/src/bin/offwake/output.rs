//! Where outputs go: files that are whole or not there at all, devices and pipes, and a standard
//! output whose reader may leave.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use offwake::{
    parser::{Parser, ParserRole},
    writer_process::{Place, WriterProcess, is_kernel_path},
};
use offwake_analysis::formats::{OutputFormat, Readers};

/// Where an output goes.
#[derive(Debug)]
pub enum Destination {
    /// A file, which is replaced when the output is whole.
    File(PathBuf),
    /// Something that exists and is no plain file: a device, a pipe. It is written to as it is, and
    /// stays open until then: the reader of a FIFO takes its last writer's close for the end.
    Special {
        /// Its name.
        path: PathBuf,
        /// The file, open.
        file: fs::File,
    },
    /// Standard output.
    StandardOutput,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Special { path, .. } => path.display().fmt(f),
            Self::StandardOutput => f.write_str("standard output"),
        }
    }
}

/// One output to write.
#[derive(Debug)]
pub struct Output {
    /// Where the output goes.
    pub destination: Destination,
    /// Its format.
    pub format: &'static dyn OutputFormat,
}

impl Destination {
    /// A path, found to be writable: this is the time to fail if it is not. A process looks that can be given
    /// up, as its file system may never answer.
    pub fn from_path(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        match start_writer().check(path).with_context(cannot)? {
            Place::Special => {
                let file = open_special(path).with_context(cannot)?;
                Ok(Self::Special { path: path.to_path_buf(), file })
            }
            Place::File => Ok(Self::File(path.to_path_buf())),
        }
    }
}

impl Output {
    /// Writes what `render` writes. A file is there afterwards as a whole, or as it was.
    pub fn write(
        &self,
        render: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        match &self.destination {
            Destination::File(path) => self
                .replace(path, render)
                .with_context(|| format!("cannot write {}", path.display())),
            Destination::Special { path, file } => write_buffered(file, render)
                .with_context(|| format!("cannot write {}", path.display())),
            Destination::StandardOutput => ignore_broken_pipe(write_buffered(io::stdout(), render))
                .context("cannot write to standard output"),
        }
    }

    /// Has a file written by a process that can be given up, and that removes what is half written if we go.
    fn replace(
        &self,
        path: &Path,
        render: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut writer = start_writer();
        writer.create(path, self.format.readers())?;
        write_buffered(&mut writer, render)?;
        writer.finish().map(drop)
    }
}

/// A process that writes outputs.
pub fn start_writer() -> WriterProcess {
    WriterProcess::start(Parser::new(ParserRole::Writer))
}

/// Bytes that are worth a message to the process that writes.
const BUFFER: usize = 256 << 10;

fn write_buffered(
    out: impl Write + Send,
    render: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(BUFFER, out);
    render(&mut out)?;
    out.flush()
}

/// Opens a device or a pipe to write to.
fn open_special(path: &Path) -> io::Result<fs::File> {
    let follow = if is_kernel_path(path) { 0 } else { libc::O_NOFOLLOW };
    OpenOptions::new().write(true).custom_flags(follow | libc::O_NOCTTY).open(path)
}

/// A file in the same directory, so that it can take the other's place in one step.
pub fn new_file_beside(path: &Path, readers: Readers) -> io::Result<tempfile::NamedTempFile> {
    // The kernel takes the umask from these.
    let mode = match readers {
        Readers::Anybody => 0o666,
        Readers::Owner => 0o600,
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".offwake-")
        .permissions(fs::Permissions::from_mode(mode))
        .tempfile_in(directory)
}

/// Takes a reader that has seen enough for no error.
pub fn ignore_broken_pipe(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// An error's text without line breaks or other control characters.
pub fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

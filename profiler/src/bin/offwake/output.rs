//! Where outputs go: files that are whole or not there at all, devices and pipes, and a standard
//! output whose reader may leave.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use offwake::capture::sync_directory_of;
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

/// A half-written file, to be removed if the program must leave at once.
pub type PartialFile = Arc<Mutex<Option<PathBuf>>>;

impl Destination {
    /// Whether there is a device or a pipe at a path. It is not opened, which can wait for a reader.
    pub fn is_special(path: &Path) -> bool {
        metadata(path).is_ok_and(|metadata| is_special(&metadata))
    }

    /// A path, found to be writable: this is the time to fail if it is not.
    pub fn from_path(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        match metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(cannot)
            }
            Ok(metadata) if is_special(&metadata) => {
                let file = open_special(path).with_context(cannot)?;
                Ok(Self::Special { path: path.to_path_buf(), file })
            }
            found => {
                if found.is_ok_and(|metadata| metadata.is_file()) {
                    OpenOptions::new().append(true).open(path).with_context(cannot)?;
                }
                // The file itself is replaced, so it is the directory that must be writable.
                drop(new_file_beside(path, Readers::Owner).with_context(cannot)?);
                Ok(Self::File(path.to_path_buf()))
            }
        }
    }
}

impl Output {
    /// Writes what `render` writes. A file is there afterwards as a whole, or as it was.
    pub fn write(
        &self,
        partial_file: &PartialFile,
        render: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        match &self.destination {
            Destination::File(path) => self
                .replace(path, partial_file, render)
                .with_context(|| format!("cannot write {}", path.display())),
            Destination::Special { path, file } => write_buffered(file, render)
                .with_context(|| format!("cannot write {}", path.display())),
            Destination::StandardOutput => ignore_broken_pipe(write_buffered(io::stdout(), render))
                .context("cannot write to standard output"),
        }
    }

    fn replace(
        &self,
        path: &Path,
        partial_file: &PartialFile,
        render: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> io::Result<()> {
        let file = new_file_beside(path, self.format.readers())?;
        set_partial_file(partial_file, Some(file.path().to_path_buf()));
        let written = write_buffered(file.as_file(), render)
            .and_then(|()| file.as_file().sync_all())
            .and_then(|()| file.persist(path).map(drop).map_err(|error| error.error))
            .inspect(|()| sync_directory_of(path));
        set_partial_file(partial_file, None);
        written
    }
}

fn write_buffered(
    out: impl Write + Send,
    render: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    render(&mut out)?;
    out.flush()
}

fn set_partial_file(partial_file: &PartialFile, path: Option<PathBuf>) {
    *partial_file.lock().unwrap_or_else(PoisonError::into_inner) = path;
}

/// Removes the half-written file, if there is one.
pub fn remove_partial_file(partial_file: &PartialFile) {
    let path = partial_file.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(path) = path {
        // It may have been renamed meanwhile, and is whole then.
        let _gone = fs::remove_file(path);
    }
}

/// Looks up what is at a path. A symbolic link stands for itself, and is replaced: where it leads
/// is somebody else's choice. The kernel's own are followed, `/dev/stdout` for one.
fn metadata(path: &Path) -> io::Result<fs::Metadata> {
    match is_kernel_path(path) {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    }
}

fn is_kernel_path(path: &Path) -> bool {
    let has_steps_back = path.components().any(|part| part == Component::ParentDir);
    !has_steps_back && (path.starts_with("/dev") || path.starts_with("/proc"))
}

fn is_special(metadata: &fs::Metadata) -> bool {
    !metadata.is_file() && !metadata.is_dir() && !metadata.is_symlink()
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

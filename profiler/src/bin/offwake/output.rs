//! Writing: files whole or not at all, and a standard output whose reader may leave.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use offwake::report::{self, Format, Report, flame::View};

use crate::formats::{OutputFormat, SpanFormat};

/// Where an output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file, made anew when the report is whole.
    File(PathBuf),
    /// Something that is there and no plain file: a device, a pipe. It is written to as it is.
    Special(PathBuf),
    /// Standard output.
    StandardOutput,
}

/// One output to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where to.
    pub destination: Destination,
    /// In which format.
    pub format: OutputFormat,
}

/// What there is to write.
pub struct Content<'a> {
    /// The report.
    pub report: &'a Report,
    /// How flame graphs look at it.
    pub view: &'a View,
    /// Writes the page.
    pub html: &'a dyn Fn(&mut dyn Write) -> io::Result<()>,
    /// Writes the waits as a table.
    pub waits: &'a dyn Fn(&mut (dyn Write + Send)) -> io::Result<()>,
    /// Writes requests as spans.
    pub spans: &'a dyn Fn(SpanFormat, &mut dyn Write) -> io::Result<()>,
    /// Writes a trace for Perfetto.
    pub perfetto: &'a dyn Fn(&mut dyn Write) -> io::Result<()>,
    /// Writes the recording that it was made from.
    pub recording: &'a dyn Fn(&mut dyn Write) -> io::Result<()>,
}

/// Writes one output.
pub type Render<'a> = dyn Fn(&mut (dyn Write + Send)) -> io::Result<()> + 'a;

/// A half-written file to remove if the program must leave at once.
pub type Unfinished = Arc<Mutex<Option<PathBuf>>>;

impl Destination {
    /// A file, found to be writable: this is the time to say if it is not.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        match about(path) {
            Ok(metadata) if metadata.is_dir() => {
                Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(cannot)
            }
            Ok(metadata) if !metadata.is_file() && !metadata.is_symlink() => {
                open_special(path).with_context(cannot)?;
                Ok(Self::Special(path.to_path_buf()))
            }
            found => {
                if found.is_ok_and(|metadata| metadata.is_file()) {
                    OpenOptions::new().append(true).open(path).with_context(cannot)?;
                }
                // The file itself is replaced, so it is the directory that must be writable.
                drop(new_file_beside(path).with_context(cannot)?);
                Ok(Self::File(path.to_path_buf()))
            }
        }
    }
}

impl Output {
    /// Writes it. A file is there afterwards as a whole, or as it was.
    pub fn write(&self, content: &Content<'_>, unfinished: &Unfinished) -> anyhow::Result<()> {
        self.write_with(&|out| self.render(content, out), unfinished)
    }

    /// The same with what `render` writes.
    pub fn write_with(&self, render: &Render<'_>, unfinished: &Unfinished) -> anyhow::Result<()> {
        match &self.destination {
            Destination::File(path) => self
                .replace(path, render, unfinished)
                .with_context(|| format!("cannot write {}", path.display())),
            Destination::Special(path) => open_special(path)
                .and_then(|file| buffered(render, file))
                .with_context(|| format!("cannot write {}", path.display())),
            Destination::StandardOutput => forgive_closed(buffered(render, io::stdout()))
                .context("cannot write to standard output"),
        }
    }

    fn render(&self, content: &Content<'_>, mut out: &mut (dyn Write + Send)) -> io::Result<()> {
        match self.format {
            OutputFormat::Report(Format::Json) => report::json::write(content.report, &mut out),
            OutputFormat::Report(Format::Folded) => {
                report::folded::write(content.report, content.view, &mut out)
            }
            OutputFormat::Report(Format::Svg) => {
                report::svg::write(content.report, content.view, &mut out)
            }
            OutputFormat::Report(Format::Pprof) => {
                report::pprof::write(content.report, content.view, &mut out)
            }
            OutputFormat::Report(Format::Speedscope) => {
                report::speedscope::write(content.report, content.view, &mut out)
            }
            OutputFormat::Html => (content.html)(&mut out),
            OutputFormat::Perfetto => (content.perfetto)(&mut out),
            OutputFormat::Parquet => (content.waits)(&mut out),
            OutputFormat::Spans(format) => (content.spans)(format, &mut out),
            OutputFormat::Recording => (content.recording)(&mut out),
        }
    }

    fn replace(&self, path: &Path, render: &Render<'_>, unfinished: &Unfinished) -> io::Result<()> {
        // A recording has addresses of the kernel and of every program in it.
        let mode = match self.format {
            OutputFormat::Report(_)
            | OutputFormat::Html
            | OutputFormat::Parquet
            | OutputFormat::Perfetto
            | OutputFormat::Spans(_) => 0o644,
            OutputFormat::Recording => 0o600,
        };
        let file = new_file_beside(path)?;
        note(unfinished, Some(file.path().to_path_buf()));
        let written = buffered(render, file.as_file())
            .and_then(|()| file.as_file().sync_all())
            .and_then(|()| file.as_file().set_permissions(fs::Permissions::from_mode(mode)))
            .and_then(|()| file.persist(path).map(drop).map_err(|error| error.error));
        note(unfinished, None);
        written
    }
}

fn buffered(render: &Render<'_>, out: impl Write + Send) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    render(&mut out)?;
    out.flush()
}

fn note(unfinished: &Unfinished, path: Option<PathBuf>) {
    *unfinished.lock().unwrap_or_else(PoisonError::into_inner) = path;
}

/// Removes what is half written.
pub fn remove_unfinished(unfinished: &Unfinished) {
    let path = unfinished.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(path) = path {
        // It may have been renamed meanwhile, and is whole then.
        let _gone = fs::remove_file(path);
    }
}

/// What is at a path. A symbolic link stands for itself, and is replaced: where it leads is somebody
/// else's choice. The kernel's own are followed, `/dev/stdout` for one.
fn about(path: &Path) -> io::Result<fs::Metadata> {
    match is_of_kernel(path) {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    }
}

fn is_of_kernel(path: &Path) -> bool {
    let has_steps_back = path.components().any(|part| part == Component::ParentDir);
    !has_steps_back && (path.starts_with("/dev") || path.starts_with("/proc"))
}

/// Opens a device or a pipe to write to.
pub fn open_special(path: &Path) -> io::Result<fs::File> {
    let follow = if is_of_kernel(path) { 0 } else { libc::O_NOFOLLOW };
    OpenOptions::new().write(true).custom_flags(follow | libc::O_NOCTTY).open(path)
}

/// A file in the same directory, so that it can take the other's place in one step.
pub fn new_file_beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::Builder::new().prefix(".offwake-").tempfile_in(directory)
}

/// A reader that has seen enough is no error.
pub fn forgive_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// An error's text without line breaks or other control characters.
pub fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

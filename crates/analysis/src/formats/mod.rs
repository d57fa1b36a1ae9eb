//! The formats that an output can be in: one file each, and the list [`FORMATS`].
//!
//! A format says what it is called and what it needs, and writes an [`Analysis`]. Where its bytes
//! go is none of its business.

mod call_path;
pub mod firefox;
mod folded;
mod html;
pub mod json;
mod markdown;
mod otlp;
mod parquet;
mod perfetto;
pub mod pprof;
mod recording;
mod requests;
mod source_frame;
mod spans;
pub mod speedscope;
mod svg;

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{
    analysis::Analysis,
    report::{FilterNote, SmallPaths, diff::Diff, flame::View},
};

pub use self::{parquet::Parquet, recording::RecordingFile};

/// Every format, in the order in which error messages list them.
pub static FORMATS: [&dyn OutputFormat; 15] = [
    &html::Html,
    &markdown::Markdown,
    &json::Json,
    &folded::Folded,
    &svg::Svg,
    &perfetto::Perfetto,
    &pprof::Pprof,
    &speedscope::Speedscope,
    &firefox::Firefox,
    &spans::SpansJson,
    &requests::RequestsJson,
    &requests::RequestsParquet,
    &otlp::Otlp,
    &Parquet,
    &RecordingFile,
];

/// Who may read a file that is written, as far as its user's umask allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Anybody.
    Anybody,
    /// Its owner alone: every process's command line is in it, and can hold a password.
    Owner,
}

/// A format that an output can be in.
pub trait OutputFormat: Sync {
    /// What `--format` calls it.
    fn name(&self) -> &'static str;

    /// What the names of its files end in, without the dot before it. It may have a dot inside.
    fn extension(&self) -> &'static str {
        self.name()
    }

    /// Who may read its files.
    fn readers(&self) -> Readers {
        Readers::Anybody
    }

    /// Whether it is made from the recording's own bytes. A capture in memory keeps them only if
    /// a format needs them.
    fn needs_encoded_recording(&self) -> bool {
        false
    }

    /// Writes what is known of a recording, and returns how much of that.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    fn write(&self, analysis: &Analysis<'_>, out: &mut (dyn Write + Send)) -> io::Result<Written>;

    /// How it writes a comparison of two recordings, if it can.
    fn as_diff_format(&self) -> Option<&dyn DiffFormat> {
        None
    }
}

/// How much of what it shows a format wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Written {
    /// Everything.
    Everything,
    /// All but what there was no room for. The words go on after the file's name: `sums up 12 smaller
    /// waits`.
    Limited(String),
}

impl Written {
    /// What was summed up of a report's entries, and of the paths that are made of them.
    fn from_limits(filter: &FilterNote, small: SmallPaths) -> Self {
        let counts = [
            (filter.limited_waits, "smaller waits"),
            (filter.limited_count, "smaller parts of blame"),
            (filter.limited_wakes, "smaller wakes"),
            (small.count, "smaller paths"),
        ];
        let words: Vec<_> = (counts.into_iter())
            .filter(|&(count, _)| count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        match words.is_empty() {
            true => Self::Everything,
            false => Self::Limited(format!("sums up {}", words.join(", "))),
        }
    }
}

/// A format that can show two recordings side by side.
pub trait DiffFormat {
    /// Writes a comparison.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    fn write_diff(
        &self,
        diff: &Diff<'_>,
        view: &View,
        out: &mut (dyn Write + Send),
    ) -> io::Result<()>;
}

/// Formats are called differently, each of them.
impl PartialEq for dyn OutputFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn OutputFormat {}

impl fmt::Debug for dyn OutputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutputFormat({})", self.name())
    }
}

/// A name that stands for no format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnknownFormat {
    /// A file's.
    #[error(
        "can't tell a format from the name of {}: use one of {}",
        .0.display(),
        list(|format| format!(".{}", format.extension()))
    )]
    Extension(PathBuf),
    /// A format's.
    #[error("no such format: {0:?}: use one of {names}", names = list(|format| format.name().to_owned()))]
    Name(String),
}

fn list(describe: fn(&dyn OutputFormat) -> String) -> String {
    FORMATS.map(describe).join(", ")
}

/// Finds the format of this name.
///
/// # Errors
///
/// If there is none.
pub fn from_name(name: &str) -> Result<&'static dyn OutputFormat, UnknownFormat> {
    let found = FORMATS.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| UnknownFormat::Name(name.to_owned()))
}

/// Finds the format that a file's extension stands for: the longest one that does.
///
/// # Errors
///
/// If no format has it.
pub fn from_path(path: &Path) -> Result<&'static dyn OutputFormat, UnknownFormat> {
    let unknown = || UnknownFormat::Extension(path.to_path_buf());
    let extension = |path: &Path| Some(path.extension()?.to_str()?.to_owned());
    let with = |extension: &str| FORMATS.into_iter().find(|f| f.extension() == extension);
    let last = extension(path).ok_or_else(unknown)?;
    // `.spans.json` is a hidden file, whose name has one extension.
    let before = path.file_stem().and_then(|stem| extension(Path::new(stem)));
    before
        .and_then(|before| with(&format!("{before}.{last}")))
        .or_else(|| with(&last))
        .ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{from_name, from_path};

    #[test]
    fn the_extension_names_the_format() {
        for (path, name) in [
            ("a.b/x.json", "json"),
            ("wait.folded", "folded"),
            ("wait.svg", "svg"),
            ("wait.html", "html"),
            ("wait.md", "md"),
            ("wait.offwake", "offwake"),
            ("wait.parquet", "parquet"),
            ("x.spans.json", "spans"),
            ("x.requests.json", "requests"),
            ("x.requests.parquet", "requests-parquet"),
            ("x.otlp.json", "otlp"),
            ("x.spans.otlp.json", "otlp"),
            ("x.speedscope.json", "speedscope"),
            ("x.firefox.json", "firefox"),
            ("x.pb.gz", "pprof"),
            ("x.pftrace", "pftrace"),
            // A file that is called `.spans` has no such extension.
            (".spans.json", "json"),
            ("spans.json", "json"),
            ("x.other.json", "json"),
        ] {
            assert_eq!(from_path(Path::new(path)).map(|format| format.name()), Ok(name), "{path}");
        }
        for unknown in
            ["", "x", ".svg", "x.png", "x.svg.gz", "x.JSON", "x.spans", "x.otlp", "x.pprof", "x.gz"]
        {
            let error = from_path(Path::new(unknown)).map_err(|e| e.to_string());
            assert!(error.is_err_and(|text| text.contains(".folded")), "{unknown}");
        }
    }

    #[test]
    fn errors_list_every_format() {
        let error = from_path(Path::new("x.png")).map_err(|error| error.to_string());
        let text = "can't tell a format from the name of x.png: use one of .html, .md, .json, .folded, .svg, .pftrace, .pb.gz, .speedscope.json, .firefox.json, .spans.json, .requests.json, .requests.parquet, .otlp.json, .parquet, .offwake";
        assert_eq!(error, Err(text.to_owned()));
        let error = from_name("png").map_err(|error| error.to_string());
        let text = "no such format: \"png\": use one of html, md, json, folded, svg, pftrace, pprof, speedscope, firefox, spans, requests, requests-parquet, otlp, parquet, offwake";
        assert_eq!(error, Err(text.to_owned()));
    }
}

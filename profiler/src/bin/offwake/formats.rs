//! Which format an output is in.

use std::path::{Path, PathBuf};

use offwake::report::Format;

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// A report.
    Report(Format),
    /// A page with everything in it.
    Html,
    /// The waits as a table.
    Parquet,
    /// Requests as spans.
    Spans(SpanFormat),
    /// A trace for Perfetto.
    Perfetto,
    /// The recording that it is made from.
    Recording,
}

/// How spans are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanFormat {
    /// [`offwake::spans::json`]
    Json,
    /// [`offwake::spans::otlp`]
    Otlp,
}

/// A name that stands for no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFormat {
    /// A file's.
    #[error(
        "can't tell a format from the name of {}: use one of .html, .json, .folded, .svg, .pftrace, .pb.gz, .speedscope.json, .spans.json, .otlp.json, .parquet, .offwake",
        .0.display()
    )]
    Extension(PathBuf),
    /// A format's.
    #[error(
        "no such format: {0:?}: use one of html, json, folded, svg, pftrace, pprof, speedscope, spans, otlp, parquet, offwake"
    )]
    Name(String),
}

impl OutputFormat {
    /// The format of this name.
    pub fn from_name(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "offwake" => Ok(Self::Recording),
            "html" => Ok(Self::Html),
            "parquet" => Ok(Self::Parquet),
            "pftrace" => Ok(Self::Perfetto),
            "spans" => Ok(Self::Spans(SpanFormat::Json)),
            "otlp" => Ok(Self::Spans(SpanFormat::Otlp)),
            _ => Format::from_name(name)
                .map(Self::Report)
                .ok_or_else(|| UnknownFormat::Name(name.to_owned())),
        }
    }

    /// The format that a file's extension stands for: the longest one that does.
    pub fn from_path(path: &Path) -> Result<Self, UnknownFormat> {
        let unknown = || UnknownFormat::Extension(path.to_path_buf());
        let extension_of = |path: &Path| Some(path.extension()?.to_str()?.to_owned());
        let last = extension_of(path).ok_or_else(unknown)?;
        let before = path.file_stem().and_then(|stem| extension_of(Path::new(stem)));
        match (before.as_deref(), last.as_str()) {
            (Some("spans"), "json") => Ok(Self::Spans(SpanFormat::Json)),
            (Some("otlp"), "json") => Ok(Self::Spans(SpanFormat::Otlp)),
            (Some("speedscope"), "json") => Ok(Self::Report(Format::Speedscope)),
            (Some("pb"), "gz") => Ok(Self::Report(Format::Pprof)),
            // Alone they are names of formats, and of no files.
            (_, "spans" | "otlp" | "speedscope" | "pprof") => Err(unknown()),
            (_, last) => Self::from_name(last).map_err(|_| unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use offwake::report::Format;

    use super::{OutputFormat, SpanFormat};

    #[test]
    fn the_extension_names_the_format() {
        let report = |format| Ok(OutputFormat::Report(format));
        assert_eq!(OutputFormat::from_path(Path::new("a.b/x.json")), report(Format::Json));
        assert_eq!(OutputFormat::from_path(Path::new("wait.folded")), report(Format::Folded));
        assert_eq!(OutputFormat::from_path(Path::new("wait.svg")), report(Format::Svg));
        assert_eq!(OutputFormat::from_path(Path::new("wait.html")), Ok(OutputFormat::Html));
        let recording = OutputFormat::from_path(Path::new("wait.offwake"));
        assert_eq!(recording, Ok(OutputFormat::Recording));
        let parquet = OutputFormat::from_path(Path::new("wait.parquet"));
        assert_eq!(parquet, Ok(OutputFormat::Parquet));
        let spans = |format| Ok(OutputFormat::Spans(format));
        for (name, expected) in [
            ("x.spans.json", spans(SpanFormat::Json)),
            ("x.otlp.json", spans(SpanFormat::Otlp)),
            ("x.spans.otlp.json", spans(SpanFormat::Otlp)),
            ("x.speedscope.json", report(Format::Speedscope)),
            ("x.pb.gz", report(Format::Pprof)),
            ("x.pftrace", Ok(OutputFormat::Perfetto)),
            // A file that is called `.spans` has no such extension.
            (".spans.json", report(Format::Json)),
            ("spans.json", report(Format::Json)),
            ("x.other.json", report(Format::Json)),
        ] {
            assert_eq!(OutputFormat::from_path(Path::new(name)), expected, "{name}");
        }
        for unknown in
            ["", "x", ".svg", "x.png", "x.svg.gz", "x.JSON", "x.spans", "x.otlp", "x.pprof", "x.gz"]
        {
            let error = OutputFormat::from_path(Path::new(unknown)).map_err(|e| e.to_string());
            assert!(error.is_err_and(|text| text.contains(".folded")), "{unknown}");
        }
    }
}

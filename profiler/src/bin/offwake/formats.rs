//! Which format an output is in.

use std::path::{Path, PathBuf};

use offwake::report::Format;

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// A report.
    Report(Format),
    /// The waits as a table.
    Parquet,
    /// The recording that it is made from.
    Recording,
}

/// A name that stands for no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFormat {
    /// A file's.
    #[error(
        "can't tell a format from the name of {}: use one of .json, .folded, .svg, .parquet, .offwake",
        .0.display()
    )]
    Extension(PathBuf),
    /// A format's.
    #[error("no such format: {0:?}: use one of json, folded, svg, parquet, offwake")]
    Name(String),
}

impl OutputFormat {
    /// The format of this name.
    pub fn from_name(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "offwake" => Ok(Self::Recording),
            "parquet" => Ok(Self::Parquet),
            _ => Format::from_name(name)
                .map(Self::Report)
                .ok_or_else(|| UnknownFormat::Name(name.to_owned())),
        }
    }

    /// The format that a file's extension stands for.
    pub fn from_path(path: &Path) -> Result<Self, UnknownFormat> {
        let unknown = || UnknownFormat::Extension(path.to_path_buf());
        let extension = path.extension().and_then(|extension| extension.to_str());
        Self::from_name(extension.ok_or_else(unknown)?).map_err(|_| unknown())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use offwake::report::Format;

    use super::OutputFormat;

    #[test]
    fn the_extension_names_the_format() {
        let report = |format| Ok(OutputFormat::Report(format));
        assert_eq!(OutputFormat::from_path(Path::new("a.b/x.json")), report(Format::Json));
        assert_eq!(OutputFormat::from_path(Path::new("wait.folded")), report(Format::Folded));
        assert_eq!(OutputFormat::from_path(Path::new("wait.svg")), report(Format::Svg));
        let recording = OutputFormat::from_path(Path::new("wait.offwake"));
        assert_eq!(recording, Ok(OutputFormat::Recording));
        let parquet = OutputFormat::from_path(Path::new("wait.parquet"));
        assert_eq!(parquet, Ok(OutputFormat::Parquet));
        for unknown in ["", "x", ".svg", "x.png", "x.svg.gz", "x.JSON"] {
            let error = OutputFormat::from_path(Path::new(unknown)).map_err(|e| e.to_string());
            assert!(error.is_err_and(|text| text.contains(".folded")), "{unknown}");
        }
    }
}

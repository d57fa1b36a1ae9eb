//! Which format a file's name asks for.

use std::{path::Path, path::PathBuf};

/// A format that a report can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// [`super::json`]
    Json,
    /// [`super::folded`]
    Folded,
    /// [`super::svg`]
    Svg,
}

/// A file whose name does not say how to write it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't tell a format from the name of {}: use one of .json, .folded, .svg", .0.display())]
pub struct UnknownExtension(pub PathBuf);

/// A format that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such format: {0:?}: use one of json, folded, svg")]
pub struct UnknownFormat(pub String);

impl Format {
    /// The format that a file's extension stands for.
    ///
    /// # Errors
    ///
    /// [`UnknownExtension`] if it has none, or none that is known.
    pub fn from_path(path: &Path) -> Result<Self, UnknownExtension> {
        let unknown = || UnknownExtension(path.to_path_buf());
        let extension = path.extension().and_then(|extension| extension.to_str());
        Self::from_name(extension.ok_or_else(unknown)?).map_err(|_| unknown())
    }

    /// The format of this name.
    ///
    /// # Errors
    ///
    /// [`UnknownFormat`] if there is none.
    pub fn from_name(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "json" => Ok(Self::Json),
            "folded" => Ok(Self::Folded),
            "svg" => Ok(Self::Svg),
            _ => Err(UnknownFormat(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Format;

    #[test]
    fn the_extension_names_the_format() {
        assert_eq!(Format::from_path(Path::new("a.b/x.json")), Ok(Format::Json));
        assert_eq!(Format::from_path(Path::new("wait.folded")), Ok(Format::Folded));
        assert_eq!(Format::from_path(Path::new("wait.svg")), Ok(Format::Svg));
        for unknown in ["", "x", ".svg", "x.png", "x.svg.gz", "x.JSON"] {
            let error = Format::from_path(Path::new(unknown)).map_err(|e| e.to_string());
            assert!(error.is_err_and(|text| text.contains(".folded")), "{unknown}");
        }
    }
}

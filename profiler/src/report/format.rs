//! The formats that a report can be written in.

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// [`super::json`]
    Json,
    /// [`super::folded`]
    Folded,
    /// [`super::svg`]
    Svg,
}

impl Format {
    /// The format of this name, which is also its files' extension.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "folded" => Some(Self::Folded),
            "svg" => Some(Self::Svg),
            _ => None,
        }
    }
}

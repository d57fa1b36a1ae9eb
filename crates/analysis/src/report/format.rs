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
    /// [`super::pprof`]
    Pprof,
    /// [`super::speedscope`]
    Speedscope,
}

impl Format {
    /// The format of this name. It is also its files' extension, where that has no dot.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "folded" => Some(Self::Folded),
            "svg" => Some(Self::Svg),
            "pprof" => Some(Self::Pprof),
            "speedscope" => Some(Self::Speedscope),
            _ => None,
        }
    }
}

//! How much effort a benchmark makes.

/// How often and how long a benchmark measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Long enough for the tables of a document.
    Whole,
    /// Long enough to see whether something has become much better or worse.
    Quick,
}

impl Effort {
    /// The effort that the option `--quick` asks for.
    pub fn from_quick_flag(is_quick: bool) -> Self {
        if is_quick { Self::Quick } else { Self::Whole }
    }

    /// The figure for a whole run or the one for a quick run.
    pub fn pick<T>(self, whole: T, quick: T) -> T {
        match self {
            Self::Whole => whole,
            Self::Quick => quick,
        }
    }
}

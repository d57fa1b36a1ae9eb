//! Why no thread could be selected.

use thiserror::Error;

use crate::text;

use super::candidates::Candidates;

/// Why a selection has no threads. Names of other programs are escaped for a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SelectionError {
    /// Nothing in the recording matches a value.
    #[error("the recording has no {wanted}; {candidates}")]
    NoMatch {
        /// What was asked for, in words.
        wanted: String,
        /// What there is instead, in words.
        candidates: Candidates,
    },
    /// Several containers may be meant.
    #[error("{wanted} may be any of {candidates}; say more digits of one's id, or its whole name")]
    Ambiguous {
        /// What was asked for, in words.
        wanted: String,
        /// The containers that it could be, in words.
        candidates: String,
    },
    /// Each criterion is met by some thread, and no thread meets all of them.
    #[error("no thread of the recording is all of this: {}", text::terminal(.words))]
    NoneTogether {
        /// The criteria in words.
        words: String,
    },
    /// What was asked for was seen, but the recording is of another target.
    #[error(
        "no waits of {} were recorded: the recording has those of its own target ({}) alone \
         (--scope target)",
        text::terminal(.words),
        text::terminal(.target)
    )]
    NotRecorded {
        /// The criteria in words.
        words: String,
        /// The recording's target in words.
        target: String,
    },
}

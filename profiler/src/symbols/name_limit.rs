//! The limit for names that come from other programs.

use offwake_analysis::text;

/// Names longer than this many bytes are cut.
pub(crate) const MAX_NAME: usize = 4096;

/// Cuts a name that came from another program to [`MAX_NAME`] bytes.
pub(crate) fn cut_name(name: &str) -> String {
    text::cut_bytes(name, MAX_NAME)
}

//! How much memory texts of others take.

/// A text's or a list's own part, the allocator's included.
pub(crate) const OWNED: usize = 40;

/// Returns about how many bytes these texts take.
pub(crate) fn measure_texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> usize {
    texts.into_iter().map(|text| OWNED + text.len()).sum()
}

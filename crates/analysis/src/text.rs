//! Texts that come from other programs.

/// Cuts a text to `limit` bytes; a `…` behind them says so.
pub fn cut_bytes(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

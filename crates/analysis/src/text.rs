//! Texts that come from other programs: made harmless for each kind of output, and cut.

use std::fmt::Write;

/// Replaces what would break a line of folded stacks: its separator, and control characters.
pub fn folded(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            ';' => ':',
            c if c.is_control() || is_line_break(c) => '?',
            c => c,
        })
        .collect()
}

/// Replaces what a terminal would act on, and what turns text round.
pub fn plain(name: &str) -> String {
    let is_active = |c: char| c.is_control() || is_line_break(c) || is_direction(c);
    name.chars().map(|c| if is_active(c) { '?' } else { c }).collect()
}

/// Writes out what a terminal would act on: `\x1b`, `\n`.
pub fn terminal(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            c if c.is_control() || is_line_break(c) || is_direction(c) => {
                // A String takes everything.
                let _ = write!(text, "\\x{:02x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

/// Writes out what a terminal would act on, and replaces what XML does not allow, escaped or not:
/// <https://www.w3.org/TR/xml/#charsets>.
pub(crate) fn xml(name: &str) -> String {
    terminal(name).replace(['\u{fffe}', '\u{ffff}'], "?")
}

/// Line and paragraph separators, which are no control characters.
fn is_line_break(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

/// Characters that turn the text after them round.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes an amount of data with two digits: `830 MB`, `1.2 GB`. A kilobyte is 1,000 bytes.
pub fn data_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1e3;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    // From here on it would be written as 1000.
    while value >= 999.5
        && let Some(next) = units.next()
    {
        (value, unit) = (value / 1e3, Some(next));
    }
    let unit = unit.copied().unwrap_or_default();
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

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

/// Cuts a text to `width` characters, with `…` where something is missing.
pub fn cut_chars(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Cuts a path to `width` characters. Its end says more than its beginning: `…/data/orders.db`.
pub fn cut_path(path: &str, width: usize) -> String {
    let length = path.chars().count();
    if length <= width {
        return path.to_owned();
    }
    let kept: String = path.chars().skip(length - width.saturating_sub(1)).collect();
    let whole_names = kept.find('/').and_then(|slash| kept.get(slash..));
    format!("…{}", whole_names.unwrap_or(&kept))
}

/// Splits a text at the last space that leaves at most `width` characters before it; cuts it there if
/// there is none.
pub fn split_at_space(text: &str, width: usize) -> (String, String) {
    let end = text.char_indices().nth(width).map_or(text.len(), |(end, _)| end);
    let fits = text.get(..end).unwrap_or(text);
    if fits.len() == text.len() {
        return (text.to_owned(), String::new());
    }
    // The space itself may be the first character for which there is no room.
    let with_next = text.get(..=end).unwrap_or(fits);
    match with_next.rsplit_once(' ') {
        Some((first, _)) if !first.trim().is_empty() => {
            (first.to_owned(), text[first.len() + 1..].to_owned())
        }
        _ => (cut_chars(text, width), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::{cut_chars, cut_path, folded, split_at_space, terminal};

    #[test]
    fn names_are_made_harmless() {
        assert_eq!(folded("a;b\nc\u{1b}[31m d"), "a:b?c?[31m d");
        assert_eq!(terminal("a\u{1b}[31m\n\\"), "a\\x1b[31m\\x0a\\\\");
        assert_eq!(terminal("a\u{202e}b"), "a\\x202eb");
        assert_eq!(cut_chars("abcdef", 4), "abc…");
        assert_eq!(cut_chars("abcd", 4), "abcd");
        assert_eq!(cut_path("/srv/data/orders.db", 16), "…/data/orders.db");
        assert_eq!(cut_path("/srv/data/orders.db", 13), "…/orders.db");
        assert_eq!(cut_path("/srv/data/orders.db", 6), "…rs.db");
        assert_eq!(cut_path("unix /run/app.sock", 9), "…app.sock");
        assert_eq!(cut_path("/srv", 4), "/srv");
    }

    #[test]
    fn a_text_is_split_between_words() {
        let split = |text, width| {
            let (first, second) = split_at_space(text, width);
            (first, second)
        };
        let both = |first: &str, second: &str| (first.to_owned(), second.to_owned());
        assert_eq!(split("one two three", 9), both("one two", "three"));
        assert_eq!(split("one two three", 7), both("one two", "three"));
        assert_eq!(split("one two three", 6), both("one", "two three"));
        assert_eq!(split("one two", 7), both("one two", ""));
        assert_eq!(split("unsplittable", 5), both("unsp…", ""));
        assert_eq!(split("größe über alles", 10), both("größe über", "alles"));
    }
}

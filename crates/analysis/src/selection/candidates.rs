//! What a recording has where what was asked for is missing: the nearest names first.

use std::{collections::BTreeSet, fmt};

use crate::text;

/// How many names are listed; the rest is counted.
const MAX_LISTED: usize = 6;
/// Characters of one such name, and of what is compared: names come from other programs.
const MAX_CHARS: usize = 80;

/// Names that are there, in words: `there are: web, web-2 and 14 more`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// The plural of what is listed.
    what: &'static str,
    /// The nearest names, the nearest first.
    nearest: Vec<String>,
    /// How many there are beside those.
    more: usize,
}

impl Candidates {
    /// Sorts what there is by how near it is to what was asked for. Each candidate is the text that
    /// is compared, and how it is listed.
    pub(super) fn new(
        what: &'static str,
        wanted: &str,
        there: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let wanted: Vec<char> = wanted.to_lowercase().chars().take(MAX_CHARS).collect();
        let distance = |name: &str| {
            let name: Vec<char> = name.to_lowercase().chars().take(MAX_CHARS).collect();
            let holds_other = contains(&name, &wanted) || contains(&wanted, &name);
            (if holds_other { 0 } else { 1 }, edit_distance(&wanted, &name))
        };
        let there: BTreeSet<(String, String)> = there.into_iter().collect();
        let mut there: Vec<_> =
            there.into_iter().map(|(name, listed)| (distance(&name), name, listed)).collect();
        there.sort();
        let more = there.len().saturating_sub(MAX_LISTED);
        let nearest = (there.into_iter().take(MAX_LISTED))
            .map(|(_, _, listed)| text::cut_chars(&text::terminal(&listed), MAX_CHARS))
            .collect();
        Self { what, nearest, more }
    }
}

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, nearest, more } = self;
        match (nearest.is_empty(), more) {
            (true, _) => write!(f, "it has no {what} at all"),
            (false, 0) => write!(f, "its {what} are: {}", nearest.join(", ")),
            (false, more) => {
                write!(f, "the nearest of its {what} are: {} and {more} more", nearest.join(", "))
            }
        }
    }
}

fn contains(text: &[char], part: &[char]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

/// How many characters have to be inserted, removed or replaced to make one text of another
/// ([Levenshtein](https://en.wikipedia.org/wiki/Levenshtein_distance)).
fn edit_distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in one.iter().enumerate() {
        let mut diagonal = n;
        let mut left = n + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (b, above) in other.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(a != b);
            diagonal = *above;
            left = replaced.min(left + 1).min(*above + 1);
            *above = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Candidates, edit_distance};

    fn candidates(wanted: &str, there: &[&str]) -> String {
        let there = there.iter().map(|name| (name.to_string(), name.to_string()));
        Candidates::new("names", wanted, there).to_string()
    }

    #[test]
    fn the_nearest_names_come_first() {
        for (one, other, distance) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("nginx", "nignx", 2), ("web", "wob", 1)]
        {
            let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
            assert_eq!(edit_distance(&one, &other), distance);
        }
        assert_eq!(candidates("nignx", &[]), "it has no names at all");
        assert_eq!(candidates("nignx", &["sshd", "nginx"]), "its names are: nginx, sshd");
        // What has the words in it comes before what only looks alike.
        assert_eq!(candidates("post", &["port", "postgres"]), "its names are: postgres, port");
    }

    #[test]
    fn many_names_are_counted_and_hostile_ones_are_harmless() {
        let names: Vec<String> = (10..30).map(|n| format!("worker{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let said = candidates("worker1", &names);
        assert!(said.starts_with("the nearest of its names are: worker10, worker11"), "{said}");
        assert!(said.ends_with(" and 14 more"), "{said}");

        let long = "\u{1b}[31mx\n".repeat(1000);
        let said = candidates("x", &[&long]);
        assert!(said.chars().count() < 120 && !said.contains(['\u{1b}', '\n']), "{said}");
    }
}

//! What makes an answer a good one.

use anyhow::{Context, Result};
use regex::Regex;

use super::trouble::Innocent;
use crate::report::{Blame, Report};

/// The lines of the summary in which the cause has to be named.
pub const FIRST_LINES: usize = 8;

/// What innocents may have of the blame.
pub const INNOCENT_SHARE: f64 = 0.02;

/// Who is innocent in every incident: threads of the kernel and of runtimes that only ever wait for
/// work, and the profiler.
const ALWAYS_INNOCENT: &str =
    r"^(migration/|ksoftirqd/|rcu_|kthreadd|cpuhp/|C[12] Compiler|VM |GC |G1 |offwake)";

/// Whether the cause is named in the page's first card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Card {
    /// The cause is named.
    Named,
    /// There is a card, and the cause is not named.
    NotNamed,
    /// The page has no such card.
    NoCard,
}

/// What came of one incident.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// How many lines of the summary one has to read until the cause is named; none if it never is.
    pub lines: Option<usize>,
    /// Whether the page's first card names the cause.
    pub card: Card,
    /// What innocents have of the blame; none if there was no report.
    pub innocents: Option<f64>,
}

impl Verdict {
    /// Whether the cause is named in the first lines.
    #[must_use]
    pub fn is_in_first_lines(&self) -> bool {
        self.lines.is_some_and(|lines| lines <= FIRST_LINES)
    }

    /// Whether no innocent is blamed.
    #[must_use]
    pub fn spares_innocents(&self) -> bool {
        self.innocents.is_some_and(|share| share <= INNOCENT_SHARE)
    }

    /// Whether every criterion is met.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.is_in_first_lines() && self.card == Card::Named && self.spares_innocents()
    }
}

/// What names a cause.
pub struct Cause(Vec<Regex>);

impl Cause {
    /// Compiles regular expressions, all of which have to match.
    ///
    /// # Errors
    ///
    /// When one is none.
    pub fn new(regexes: &[String]) -> Result<Self> {
        let compile = |regex: &String| Regex::new(regex).with_context(|| format!("{regex:?}"));
        Ok(Self(regexes.iter().map(compile).collect::<Result<_>>()?))
    }

    /// Whether a text names it. An expression matches within a line, as it has no way to match its end.
    #[must_use]
    pub fn is_named_in(&self, text: &str) -> bool {
        self.0.iter().all(|regex| regex.is_match(text))
    }

    /// How many lines of a text name it, from the first on.
    #[must_use]
    pub fn lines_until_named(&self, text: &str) -> Option<usize> {
        let last = |regex: &Regex| text.lines().position(|line| regex.is_match(line));
        let places: Option<Vec<_>> = self.0.iter().map(last).collect();
        places.map(|places| places.into_iter().max().map_or(0, |place| place + 1))
    }
}

/// What part of all that is not idle is blamed on innocents: that they worked, or were kept from a CPU.
///
/// # Errors
///
/// Never, as long as the list of those who are always innocent is one.
pub fn share_of_innocents(report: &Report, innocents: &[Innocent]) -> Result<f64> {
    let always = Innocent::Named(Regex::new(ALWAYS_INNOCENT)?);
    let is_innocent = |blame: &&Blame| {
        blame.blamed_tid().is_some()
            && innocents.iter().chain([&always]).any(|innocent| innocent.is_blamed(blame))
    };
    let busy = || report.waits.iter().flat_map(|waits| &waits.blame).filter(|blame| !blame.idle);
    let all: u64 = busy().map(|blame| blame.ns).sum();
    let wrong: u64 = busy().filter(is_innocent).map(|blame| blame.ns).sum();
    Ok(if all == 0 { 0.0 } else { wrong as f64 / all as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(regexes: &[&str]) -> Result<Cause> {
        Cause::new(&regexes.iter().map(|&regex| regex.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_cause_is_named_where_the_last_of_its_expressions_matches_first() -> Result<()> {
        let text = "nothing\nsleeps in call_api\n\ncron.py and call_api\n";
        assert_eq!(cause(&["call_api"])?.lines_until_named(text), Some(2));
        assert_eq!(cause(&["call_api", r"cron\.py"])?.lines_until_named(text), Some(4));
        assert_eq!(cause(&["call_api", "psql"])?.lines_until_named(text), None);
        assert!(cause(&["call_api", r"cron\.py"])?.is_named_in(text));
        assert!(!cause(&["nothing.sleeps"])?.is_named_in(text));
        Ok(())
    }

    #[test]
    fn a_verdict_passes_if_all_criteria_are_met() {
        let verdict = Verdict { lines: Some(8), card: Card::Named, innocents: Some(0.02) };
        assert!(verdict.passes());
        assert!(!Verdict { lines: Some(9), ..verdict.clone() }.passes());
        assert!(!Verdict { lines: None, ..verdict.clone() }.passes());
        assert!(!Verdict { card: Card::NoCard, ..verdict.clone() }.passes());
        assert!(!Verdict { innocents: Some(0.03), ..verdict.clone() }.passes());
        assert!(!Verdict { innocents: None, ..verdict }.passes());
    }
}

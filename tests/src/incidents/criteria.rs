//! What makes an answer a good one.

use anyhow::{Context, Result};
use regex::Regex;

use super::told::ToldFinding;

/// The lines of the summary in which the cause has to be named.
pub const FIRST_LINES: usize = 8;

/// What innocents may have of the blame.
pub const INNOCENT_SHARE: f64 = 0.02;

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
    /// What the summary says of the cause, at the line that is marked as it.
    pub cause: Option<String>,
    /// Whether the page's first card names the cause.
    pub card: Card,
    /// What innocents have of the blame; none if there was no report.
    pub innocents: Option<f64>,
    /// What offwake is known not to say.
    pub known_miss: Option<Missed>,
    /// The outputs, if they were measured.
    pub outputs: Vec<OutputCost>,
}

/// A known miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Why offwake can't name the cause as it should.
    pub reason: &'static str,
    /// After how many lines of the summary that much is said which it can say; none if it never is.
    pub lines: Option<usize>,
}

/// What an output costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputCost {
    /// The extension of its file.
    pub extension: &'static str,
    /// How large it is, in bytes.
    pub size: u64,
    /// How long it takes to make it from a recording, in seconds.
    pub seconds: f64,
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

    /// Whether it is as it should be: every criterion is met, or the lab says why that can't be.
    #[must_use]
    pub fn is_expected(&self) -> bool {
        let says_what_it_can =
            |missed: &Missed| missed.lines.is_some_and(|lines| lines <= FIRST_LINES);
        self.passes()
            || self.spares_innocents() && self.known_miss.as_ref().is_some_and(says_what_it_can)
    }

    /// Whether every criterion is met.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.is_in_first_lines() && self.card == Card::Named && self.spares_innocents()
    }
}

/// What names a cause.
pub struct Cause {
    cause: Vec<Regex>,
    context: Vec<Regex>,
}

impl Cause {
    /// Compiles regular expressions: those that have to match the line of the cause, and those that have
    /// to match anywhere in its finding.
    ///
    /// # Errors
    ///
    /// When one is none.
    pub fn new(cause: &[String], context: &[String]) -> Result<Self> {
        let compile = |regexes: &[String]| -> Result<Vec<_>> {
            let compile = |regex: &String| Regex::new(regex).with_context(|| format!("{regex:?}"));
            regexes.iter().map(compile).collect()
        };
        Ok(Self { cause: compile(cause)?, context: compile(context)? })
    }

    /// Whether one of the findings of the page's first card names it.
    #[must_use]
    pub fn is_named_in(&self, card: &[Vec<String>]) -> bool {
        card.iter().any(|lines| {
            ToldFinding::from_card(lines).find_cause(&self.cause, &self.context).is_some()
        })
    }

    /// After how many lines of a summary it is named, from the first on, and how.
    #[must_use]
    pub fn find_in(&self, summary: &str) -> Option<(usize, String)> {
        let findings = ToldFinding::read_summary(summary);
        let named = findings.iter().filter_map(|told| told.find_cause(&self.cause, &self.context));
        named.min().map(|named| (named.lines, named.text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_passes_if_all_criteria_are_met_and_a_known_miss_blames_no_innocent() {
        let verdict = Verdict {
            lines: Some(8),
            cause: None,
            card: Card::Named,
            innocents: Some(0.02),
            known_miss: None,
            outputs: Vec::new(),
        };
        assert!(verdict.passes() && verdict.is_expected());
        let known_miss = Some(Missed { reason: "its frames have no names", lines: Some(3) });
        let miss = Verdict { lines: None, known_miss, ..verdict.clone() };
        assert!(!miss.passes() && miss.is_expected());
        let known_miss = known_miss.map(|missed| Missed { lines: None, ..missed });
        assert!(!Verdict { known_miss, ..miss.clone() }.is_expected());
        // Whoever can't be named, nobody else may be.
        assert!(!Verdict { innocents: Some(0.03), ..miss }.is_expected());
        assert!(!Verdict { lines: Some(9), ..verdict.clone() }.passes());
        assert!(!Verdict { lines: None, ..verdict.clone() }.passes());
        assert!(!Verdict { card: Card::NoCard, ..verdict.clone() }.passes());
        assert!(!Verdict { innocents: Some(0.03), ..verdict.clone() }.passes());
        assert!(!Verdict { innocents: None, ..verdict }.passes());
    }
}

//! Findings as they are told: in a summary, or in the page's first card.
//!
//! ```text
//! 1   84%  python3 812 web.py waits for postgres in checkout          the finding's first line
//!          └ postgres 790 waits for a lock of another postgres        a hop
//!            └ python3 813 cron_tx.py sleeps in call_payment_api      the hop that is the cause:
//!              380 ms at a time while 1 thread waits  ← cause, 81%    it is marked
//! ```

use std::ops::Range;

use regex::Regex;

/// What marks a hop as the cause. What others have named is one too; what is not known is none.
const MARKS: [&str; 4] = ["← cause", "← same cause as", "← the cause of", "the cause is not known"];
const UNKNOWN: &str = MARKS[3];

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldFinding {
    /// Its first line and its hops, each with what stands in further lines.
    parts: Vec<Part>,
}

/// Where a cause is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named<'a> {
    /// How many lines one has to read until everything is said.
    pub lines: usize,
    /// What is said of the cause itself.
    pub text: &'a str,
}

/// A first line or a hop.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    text: String,
    /// Its lines in the whole text.
    lines: Range<usize>,
}

impl ToldFinding {
    /// Reads the findings of a summary, in their order.
    #[must_use]
    pub fn read_summary(text: &str) -> Vec<Self> {
        let mut findings: Vec<Self> = Vec::new();
        let mut is_within = false;
        for (at, line) in text.lines().enumerate() {
            let part = || Part { text: line.trim().to_owned(), lines: at..at + 1 };
            if is_first_line(line) {
                findings.push(Self { parts: vec![part()] });
                is_within = true;
                continue;
            }
            is_within &= line.starts_with(' ');
            let Some(finding) = findings.last_mut().filter(|_| is_within) else { continue };
            match finding.parts.last_mut() {
                Some(last) if !line.trim_start().starts_with('└') => {
                    last.text = format!("{} {}", last.text, line.trim());
                    last.lines.end = at + 1;
                }
                _ => finding.parts.push(part()),
            }
        }
        findings
    }

    /// A finding of the page's first card: its lines as they are shown.
    #[must_use]
    pub fn from_card(lines: &[String]) -> Self {
        let part = |(at, line): (usize, &String)| Part { text: line.clone(), lines: at..at + 1 };
        Self { parts: lines.iter().enumerate().map(part).collect() }
    }

    /// Finds where the cause is named: all of `cause` stand at one hop that is told as the cause, and
    /// each of `context` anywhere in this finding.
    #[must_use]
    pub fn find_cause(&self, cause: &[Regex], context: &[Regex]) -> Option<Named<'_>> {
        let all_of = |part: &&Part| cause.iter().all(|regex| regex.is_match(&part.text));
        let at = self.causes().find(all_of)?;
        let mut lines = at.lines.end;
        for regex in context {
            let part = self.parts.iter().find(|part| regex.is_match(&part.text))?;
            lines = lines.max(part.lines.end);
        }
        Some(Named { lines, text: &at.text })
    }

    /// What is told as the cause: what is marked so. Where nothing is, the first line says it all (that
    /// threads are in a deadlock, say), or leads to the last hop (who holds a lock).
    fn causes(&self) -> impl Iterator<Item = &Part> {
        let is_marked = |part: &&Part| MARKS.iter().any(|mark| part.text.contains(mark));
        let is_any_marked = self.parts.iter().any(|part| is_marked(&part));
        let unmarked = self.parts.first().into_iter().chain(self.parts.last());
        let unmarked = unmarked.filter(move |_| !is_any_marked);
        let causes = self.parts.iter().filter(is_marked).chain(unmarked);
        causes.filter(|part| !part.text.contains(UNKNOWN))
    }
}

/// Whether a finding begins here: its number, and its share.
fn is_first_line(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let number = words.next().is_some_and(|word| word.parse::<u32>().is_ok());
    number && words.next().is_some_and(|word| word.ends_with('%'))
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;

    const SUMMARY: &str = "\
pid 812 python3 · 5.00 s
1   84%  python3 812 web.py waits for postgres in checkout   11×, max 377 ms
         on unix /tmp/.s.PGSQL.5432
         └ postgres 790 waits for a lock of another postgres in ProcSleep  83%
           └ python3 813 cron_tx.py sleeps in call_payment_api
             380 ms at a time while 1 thread waits  ← cause, 81%
         └ postgres 790 runs on a CPU  2%
2   10%  python3 812 web.py waits for redis-server in load_session
         └ redis-server 7 runs on a CPU in lua_pcall  ← cause, 9%
no relevant loss · % of 4.64 s of active thread time
sleeps: 12% (python3 900 idle.py sleeps in dream)
";

    fn lines(cause: &[&str], context: &[&str]) -> Result<Option<usize>> {
        let compile = |regexes: &[&str]| -> Result<Vec<_>> {
            Ok(regexes.iter().map(|regex| Regex::new(regex)).collect::<Result<_, _>>()?)
        };
        let (cause, context) = (compile(cause)?, compile(context)?);
        let findings = ToldFinding::read_summary(SUMMARY);
        let found =
            findings.iter().filter_map(|finding| finding.find_cause(&cause, &context)).min();
        Ok(found.map(|named| named.lines))
    }

    #[test]
    fn a_cause_is_named_where_all_of_it_stands_at_the_hop_that_is_marked() -> Result<()> {
        assert_eq!(lines(&["cron_tx", "call_payment_api", "380 ms"], &[])?, Some(6));
        assert_eq!(lines(&["call_payment_api"], &["checkout", "lock of another"])?, Some(6));
        assert_eq!(lines(&["lua_pcall"], &[])?, Some(9));
        Ok(())
    }

    #[test]
    fn a_cause_is_not_named_at_another_hop_or_finding_or_below_all_of_them() -> Result<()> {
        // Hops that are no cause.
        assert_eq!(lines(&["ProcSleep"], &[])?, None);
        assert_eq!(lines(&["postgres 790"], &[])?, None);
        // Two findings share no cause.
        assert_eq!(lines(&["lua_pcall", "cron_tx"], &[])?, None);
        assert_eq!(lines(&["lua_pcall"], &["checkout"])?, None);
        assert_eq!(lines(&["dream"], &[])?, None);
        Ok(())
    }

    #[test]
    fn what_is_not_marked_is_told_by_its_first_line_or_last_hop() -> Result<()> {
        let until = |text: &str, regex: &str| -> Result<Option<usize>> {
            let findings = ToldFinding::read_summary(text);
            Ok(findings[0].find_cause(&[Regex::new(regex)?], &[]).map(|named| named.lines))
        };
        let lock = "1 100%  a waits for a lock\n         └ it is at /x\n         └ b holds it\n";
        assert_eq!((until(lock, "a lock")?, until(lock, "b holds")?), (Some(1), Some(3)));
        assert_eq!(until(lock, "it is at")?, None);
        let chain = "1 100%  STILL WAITING cat waits\n         └ fs 7 sleeps in fetch  ← cause\n";
        assert_eq!((until(chain, "fetch")?, until(chain, "cat")?), (Some(2), None));
        let unknown = "1 100%  a waits\n         └ b sleeps  ← the cause is not known\n";
        assert_eq!(until(unknown, "b")?, None);
        assert_eq!(until("1 60%  a is throttled in /thumbs\n", "thumbs")?, Some(1));
        Ok(())
    }
}

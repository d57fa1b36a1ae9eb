//! What a guest said on its second serial line.
//!
//! ```text
//! begin doctor
//! |   ok       kernel release: 6.1.0-56-cloud-amd64
//! end 0 4 doctor
//! over
//! ```

use std::collections::BTreeMap;

use super::live_tests;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The exit status, as a shell reports it.
    pub status: i32,
    /// How many seconds of the guest's time it took.
    pub seconds: u64,
    /// What it wrote to both its outputs; the end of it, if that was much.
    pub output: String,
}

/// Everything that it said.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The tasks that have ended, by name.
    pub ended: BTreeMap<String, Ended>,
    /// The one that it was at last, if that has not ended.
    pub current: Option<String>,
    /// Whether it came to the end of its tasks.
    pub is_over: bool,
}

impl Transcript {
    /// Reads what is there so far. A line that makes no sense is read past: serial lines may drop
    /// bytes, and a task without an end is a failure in any case.
    pub fn read(text: &str) -> Self {
        let mut transcript = Self::default();
        let mut output = String::new();
        for line in text.lines().map(str::trim_end) {
            if let Some(name) = line.strip_prefix("begin ") {
                transcript.current = Some(name.to_owned());
                output.clear();
            } else if let Some(said) = line.strip_prefix("| ") {
                output.push_str(said);
                output.push('\n');
            } else if let Some(ended) = line.strip_prefix("end ") {
                let mut words = ended.splitn(3, ' ');
                let mut word = || words.next().unwrap_or_default();
                let (status, seconds, name) = (word().parse(), word().parse(), word());
                if let (Ok(status), Ok(seconds)) = (status, seconds)
                    && transcript.current.as_deref() == Some(name)
                {
                    let output = std::mem::take(&mut output);
                    transcript.ended.insert(name.to_owned(), Ended { status, seconds, output });
                    transcript.current = None;
                }
            } else if line == "over" {
                transcript.is_over = true;
            }
        }
        transcript
    }

    /// The names of the live tests that ended otherwise than well.
    pub fn find_failed_tests(&self) -> Vec<String> {
        let is_failed = |(name, ended): &(&String, &Ended)| {
            name.contains("::") && !live_tests::has_passed(ended.status, &ended.output)
        };
        self.ended.iter().filter(is_failed).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_known_and_what_did_not_too() {
        let text = "begin doctor\r\n| ok\r\n| fine\r\n\r\nend 0 4 doctor\r\nbegin causes::a\r\n| r";
        let transcript = Transcript::read(text);
        let doctor = Ended { status: 0, seconds: 4, output: "ok\nfine\n".to_owned() };
        assert_eq!(transcript.ended, BTreeMap::from([("doctor".to_owned(), doctor)]));
        assert_eq!(transcript.current.as_deref(), Some("causes::a"));
        assert!(!transcript.is_over && Transcript::read("over\n").is_over);
    }

    #[test]
    fn of_what_ended_only_tests_can_have_failed() {
        let text = "begin doctor\nend 1 4 doctor\n\
            begin causes::a\n| test result: ok. 1 passed;\nend 0 9 causes::a\n\
            begin causes::b\n| test result: FAILED. 0 passed;\nend 101 9 causes::b\n";
        assert_eq!(Transcript::read(text).find_failed_tests(), ["causes::b"]);
    }

    #[test]
    fn a_line_that_was_garbled_ends_nothing() {
        let transcript = Transcript::read("begin a\nend 0 4 b\nend x 4 a\nnonsense\n");
        assert!(transcript.ended.is_empty());
        assert_eq!(transcript.current.as_deref(), Some("a"));
    }
}

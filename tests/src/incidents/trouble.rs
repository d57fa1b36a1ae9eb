//! What an incident brought about, and what offwake is expected to say of it.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};

use super::parties::{Others, Parties, Party};

type Action = Box<dyn FnOnce() -> Result<()>>;
type Proof = Box<dyn FnOnce() -> Result<String>>;

/// Trouble that is going on.
pub struct Trouble {
    /// Whom offwake looks at: its arguments.
    pub target: Vec<String>,
    /// Environment variables for offwake.
    pub environment: Vec<(&'static str, String)>,
    /// The command after `--`, if the target is one.
    pub command: Vec<String>,
    /// The true cause in words, with process ids.
    pub truth: String,
    /// Regular expressions that all have to match the line of a finding that is marked as its cause:
    /// who it is, and what they do.
    pub cause: Vec<String>,
    /// Regular expressions that each have to match any line of the same finding.
    pub context: Vec<String>,
    /// What offwake can't say of the cause, where that is known.
    pub known_miss: Option<KnownMiss>,
    /// Who had which part.
    pub parties: Parties,
    /// What the one that suffers measured.
    pub log: Option<ClientLog>,
    /// What the one whose fault it is says of itself.
    pub culprit_log: Option<ClientLog>,
    /// What is done once offwake records.
    pub once_recorded: Option<Action>,
    /// Measures while offwake records that the trouble is what `truth` says, and returns the evidence.
    pub proof: Proof,
}

/// What offwake can't say of a cause, by what is known of it.
#[derive(Clone, Debug)]
pub struct KnownMiss {
    /// Why not.
    pub reason: &'static str,
    /// Regular expressions that all have to match the line of the cause all the same.
    pub least: Vec<String>,
}

/// A file to which a program writes a line for each operation: a name, and the seconds that it took.
#[derive(Clone, Debug)]
pub struct ClientLog {
    /// The file.
    pub path: PathBuf,
    /// How long an operation takes in the mean, if the trouble is real.
    pub least: Duration,
}

/// Operations that a program logged.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies(Vec<f64>);

impl Trouble {
    /// Trouble whose target is a process. Nobody is innocent yet, and nothing else is proved.
    #[must_use]
    pub fn for_process(pid: u32, truth: String) -> Self {
        Self {
            target: vec!["--pid".to_owned(), pid.to_string()],
            environment: Vec::new(),
            command: Vec::new(),
            truth,
            cause: Vec::new(),
            context: Vec::new(),
            known_miss: None,
            parties: Parties::default(),
            log: None,
            culprit_log: None,
            once_recorded: None,
            proof: Box::new(|| Ok(String::new())),
        }
    }

    /// Says what has to match the line that names the cause.
    #[must_use]
    pub fn cause(mut self, regexes: &[&str]) -> Self {
        self.cause = regexes.iter().map(|&regex| regex.to_owned()).collect();
        self
    }

    /// Says what else the same finding has to say.
    #[must_use]
    pub fn context(mut self, regexes: &[&str]) -> Self {
        self.context = regexes.iter().map(|&regex| regex.to_owned()).collect();
        self
    }

    /// Says why offwake can't name the cause as it should, and what has to match the line of the cause
    /// all the same.
    #[must_use]
    pub fn known_miss(mut self, reason: &'static str, least: &[&str]) -> Self {
        let least = least.iter().map(|&regex| regex.to_owned()).collect();
        self.known_miss = Some(KnownMiss { reason, least });
        self
    }

    /// Says whose fault it is. Whoever is not said to have a part in it is innocent.
    #[must_use]
    pub fn culprits(mut self, culprits: impl IntoIterator<Item = Party>) -> Self {
        self.parties.culprits = culprits.into_iter().collect();
        self
    }

    /// Says who stands in between and has something to do meanwhile.
    #[must_use]
    pub fn involved(mut self, involved: impl IntoIterator<Item = Party>) -> Self {
        self.parties.involved = involved.into_iter().collect();
        self
    }

    /// Says who is innocent, threads of a culprit's process for example.
    #[must_use]
    pub fn innocents(mut self, innocents: impl IntoIterator<Item = Party>) -> Self {
        self.parties.innocents = innocents.into_iter().collect();
        self
    }

    /// Says that others may have trouble of their own, which is none of this.
    #[must_use]
    pub fn beside_others(mut self) -> Self {
        self.parties.others = Others::Unknown;
        self
    }

    /// Says where the one that suffers logs what it waited.
    #[must_use]
    pub fn log(mut self, log: ClientLog) -> Self {
        self.log = Some(log);
        self
    }

    /// Says where the one whose fault it is logs what it did for how long.
    #[must_use]
    pub fn culprit_log(mut self, log: ClientLog) -> Self {
        self.culprit_log = Some(log);
        self
    }

    /// Says how the trouble is proved.
    #[must_use]
    pub fn proof(mut self, proof: impl FnOnce() -> Result<String> + 'static) -> Self {
        self.proof = Box::new(proof);
        self
    }

    /// Says what is done once offwake records.
    #[must_use]
    pub fn once_recorded(mut self, action: impl FnOnce() -> Result<()> + 'static) -> Self {
        self.once_recorded = Some(Box::new(action));
        self
    }
}

impl ClientLog {
    /// How long the file is now.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn size(&self) -> Result<usize> {
        let size = fs::metadata(&self.path).with_context(|| self.path.display().to_string())?.len();
        Ok(usize::try_from(size)?)
    }

    /// What was logged after the first `skip` bytes.
    ///
    /// # Errors
    ///
    /// When the file can't be read, or is none of these.
    pub fn read_from(&self, skip: usize) -> Result<Latencies> {
        let text = fs::read_to_string(&self.path)?;
        Latencies::parse(text.get(skip..).context("the log has shrunk")?)
    }
}

impl Latencies {
    /// Reads whole lines; the last one may be under way.
    fn parse(text: &str) -> Result<Self> {
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let seconds = |line: &str| -> Result<f64> {
            let (_, seconds) = line.split_once(' ').with_context(|| format!("in {line:?}"))?;
            seconds.parse().with_context(|| format!("in {line:?}"))
        };
        Ok(Self(whole.lines().map(seconds).collect::<Result<_>>()?))
    }

    /// How many operations there were.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Demands that there were any, and that one took at least so long in the mean.
    ///
    /// # Errors
    ///
    /// When the trouble was not real.
    pub fn check(&self, least: Duration) -> Result<String> {
        ensure!(!self.0.is_empty(), "not one operation ended");
        let sum: f64 = self.0.iter().sum();
        let (mean, longest) =
            (sum / self.0.len() as f64, self.0.iter().copied().fold(0.0, f64::max));
        let words = format!(
            "{} operations, mean {:.1} ms, longest {:.1} ms, together {sum:.2} s",
            self.count(),
            mean * 1e3,
            longest * 1e3
        );
        ensure!(mean >= least.as_secs_f64(), "no trouble, less than {least:?}: {words}");
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_up_to_its_last_whole_line() -> Result<()> {
        let latencies = Latencies::parse("GET 0.5\nGET 1.5e-1\nGE")?;
        assert_eq!(latencies, Latencies(vec![0.5, 0.15]));
        assert!(latencies.check(Duration::from_millis(320)).is_ok());
        assert!(latencies.check(Duration::from_millis(330)).is_err());
        assert!(Latencies::parse("")?.check(Duration::ZERO).is_err());
        assert!(Latencies::parse("GET\n").is_err());
        Ok(())
    }
}

//! Kernels by their version.

use std::{fmt, fs, str::FromStr};

use anyhow::{Context as _, anyhow};

/// A kernel's first two numbers: what its features go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The release of the kernel that runs on this machine.
    ///
    /// # Errors
    ///
    /// When it does not say, or not as Linux does.
    pub fn running() -> anyhow::Result<Self> {
        let path = "/proc/sys/kernel/osrelease";
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let numbers: Vec<&str> = text.trim().split('.').take(2).collect();
        numbers.join(".").parse()
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Release {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let numbers = text.split_once('.').and_then(|(major, minor)| {
            Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
        });
        numbers.ok_or_else(|| anyhow!("not a kernel's version: {text}; one is 6.12"))
    }
}

#[cfg(test)]
mod tests {
    use super::Release;

    #[test]
    fn releases_are_ordered_by_number_and_not_by_letter() {
        let release = |text: &str| text.parse::<Release>().unwrap();
        assert!(release("6.1") < release("6.12") && release("5.15") < release("6.1"));
        assert_eq!(release("6.12").to_string(), "6.12");
        assert!("6".parse::<Release>().is_err() && "6.12.1".parse::<Release>().is_err());
    }
}

//! How many CPUs a guest has, and how many it may come to have.

use std::{fmt, str::FromStr};

use anyhow::{Context as _, ensure};

/// The CPUs of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Those that it has.
    online: u32,
    /// Those that it has, and those that may come: the kernel keeps room for all of them.
    possible: u32,
}

impl Cpus {
    /// Two, as wakes from one CPU to another are what is to be seen.
    pub const USUAL: Self = Self { online: 2, possible: 2 };

    /// Others: one alone, and machines with room for many more. Rings and maps are one for each CPU.
    pub const OTHERS: [Self; 3] = [
        Self { online: 1, possible: 1 },
        Self { online: 2, possible: 64 },
        Self { online: 2, possible: 240 },
    ];

    /// What the emulator is told.
    pub fn argument(self) -> String {
        let Self { online, possible } = self;
        // More than this one knows only how many sockets there may be.
        format!("{online},maxcpus={possible},sockets={possible},cores=1,threads=1")
    }

    /// What the tests of CPUs are told, who would not notice that a kernel has found others.
    pub fn variable(self) -> String {
        let Self { online, possible } = self;
        format!("OFFWAKE_EXPECTED_CPUS={online}/{possible}")
    }

    /// A word for them in the name of a folder; none for the usual ones.
    pub fn suffix(self) -> String {
        match self {
            Self::USUAL => String::new(),
            Self { online, possible } => format!("-{online}-of-{possible}"),
        }
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { online: 1, possible: 1 } => f.write_str("1 CPU"),
            Self { online, possible } if online == possible => write!(f, "{online} CPUs"),
            Self { online, possible } => write!(f, "{online} of {possible} CPUs"),
        }
    }
}

impl FromStr for Cpus {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (online, possible) = text.split_once('/').unwrap_or((text, text));
        let parse = |number: &str| {
            number.parse().with_context(|| {
                format!("not a number of CPUs: {text}; 2 are one, and so are 2/64")
            })
        };
        let (online, possible) = (parse(online)?, parse(possible)?);
        ensure!((1..=possible).contains(&online), "not that many of {possible} CPUs: {online}");
        Ok(Self { online, possible })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_read_as_they_are_written_on_the_command_line() -> anyhow::Result<()> {
        anyhow::ensure!("2".parse::<Cpus>()? == Cpus::USUAL);
        anyhow::ensure!(Cpus::OTHERS.contains(&"1".parse()?));
        anyhow::ensure!(Cpus::OTHERS.contains(&"2/240".parse()?));
        for wrong in ["0", "3/2", "2/", "many"] {
            anyhow::ensure!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn who_has_the_usual_cpus_has_the_kernels_own_folder() {
        assert_eq!(Cpus::USUAL.suffix(), "");
        assert_eq!(Cpus::OTHERS.map(Cpus::suffix), ["-1-of-1", "-2-of-64", "-2-of-240"]);
        assert_eq!(Cpus::OTHERS[2].to_string(), "2 of 240 CPUs");
    }
}

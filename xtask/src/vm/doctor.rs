//! What `offwake doctor` says, taken apart.
//!
//! ```text
//!   ok       kernel release: 6.1.0-56-cloud-amd64
//!   limited  kernel symbols: /proc/kallsyms shows no addresses
//!            -> run as root
//!            sched_switch                  5425 instructions,  64273 verified
//! ```

use std::collections::BTreeMap;

use crate::instructions;

/// How a feature stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The kernel has the feature.
    Works,
    /// offwake does without.
    Limited,
    /// offwake can't do without.
    Missing,
}

/// All of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The features, in the order in which doctor names them.
    pub features: Vec<(String, Standing)>,
    /// Instructions by program.
    pub programs: BTreeMap<String, u32>,
}

impl Findings {
    pub fn read(text: &str) -> Self {
        Self {
            features: text.lines().filter_map(feature).collect(),
            programs: text.lines().filter_map(instructions::parse_program).collect(),
        }
    }

    /// How the feature of that name stands; none if it is not spoken of.
    pub fn standing(&self, name: &str) -> Option<Standing> {
        self.features.iter().find(|(known, _)| known == name).map(|(_, standing)| *standing)
    }
}

fn feature(line: &str) -> Option<(String, Standing)> {
    let (standing, rest) = line.trim_start().split_once(' ')?;
    let standing = match standing {
        "ok" => Standing::Works,
        "limited" => Standing::Limited,
        "MISSING" => Standing::Missing,
        _ => return None,
    };
    let (name, _) = rest.split_once(": ")?;
    Some((name.trim().to_owned(), standing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_and_programs_are_told_from_remedies() {
        let text = "  ok       kernel release: 6.1.0\n  limited  kernel symbols: none: hidden\n\
                    \x20          -> run as root: sudo\n\
                    \x20          sched_switch   5425 instructions,  64273 verified\n\
                    offwake works here.\n";
        let findings = Findings::read(text);
        assert_eq!(
            findings.features,
            [
                ("kernel release".to_owned(), Standing::Works),
                ("kernel symbols".to_owned(), Standing::Limited)
            ]
        );
        assert_eq!(findings.programs, BTreeMap::from([("sched_switch".to_owned(), 5425)]));
        assert_eq!(findings.standing("kernel symbols"), Some(Standing::Limited));
        assert_eq!(findings.standing("programs"), None);
    }
}

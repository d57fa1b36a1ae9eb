//! Names who had the CPUs while threads waited for one.

use indexmap::IndexMap;
use offwake_recording::units::Nanos;

use crate::words;

use super::{describe::Words, tree::Node, who::program_name};

/// Who had a CPU for at least this part of the time is named alone.
const MAIN_HOLDER: f64 = 0.8;
/// Who had a CPU for less than this part of the time is not what threads waited for.
const MIN_HOLDER: f64 = 0.1;
/// Who had the CPUs is known if it is for this part of the time.
const KNOWN: f64 = 0.5;

/// Who had the CPUs that somebody waited for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CpuHolders {
    /// These: `cc1 and 3 others`.
    Named(String),
    /// Many, none of which had them for long.
    Many,
    /// Nobody that is known, for most of the time: the CPUs were idle and took their time to begin, or had by
    /// a thread that is not in the recording.
    Unknown,
}

impl CpuHolders {
    /// Says what somebody does who waits for these CPUs.
    pub(super) fn describe_wait(&self) -> String {
        match self {
            Self::Named(names) => format!("waits {}", words::for_a_cpu(Some(names))),
            Self::Many => format!("waits {}", words::for_a_cpu(None)),
            Self::Unknown => "waits for a CPU (idle, or holder unknown)".to_owned(),
        }
    }
}

impl Words<'_> {
    /// Finds who had the CPUs while the threads of a node waited for one.
    pub(super) fn find_cpu_holders(&self, node: &Node) -> CpuHolders {
        let names = (node.holders.iter())
            .filter_map(|(&id, &time)| Some((program_name(self.programs.program(id?)?), time)));
        name_holders(names, node.holders.values().copied().sum())
    }
}

/// Returns whether a program had the CPUs for enough of the time `all` to be what threads waited for.
pub(super) fn is_holder(time: Nanos, all: Nanos) -> bool {
    time.0 as f64 >= all.0 as f64 * MIN_HOLDER
}

/// Returns whether others are known to have had the CPUs for most of the time `all`. Else they were idle, or
/// had by somebody who is not known: more CPUs would not have helped as far as anybody can tell.
pub(super) fn are_holders_known(known: Nanos, all: Nanos) -> bool {
    known.0 as f64 >= all.0 as f64 * KNOWN
}

/// Names the programs that had the CPUs in the time `all` in which somebody waited for one: `cc1`,
/// `cc1 and make`, `cc1 and 3 others`. Where it is not known who had them for the rest of the time, `cc1
/// (60% of it)`; for most of the time, `cc1 and 3 others (40% of it)`.
pub(super) fn name_holders(
    holders: impl Iterator<Item = (String, Nanos)>,
    all: Nanos,
) -> CpuHolders {
    let mut times = IndexMap::<String, Nanos>::new();
    for (name, time) in holders {
        *times.entry(name).or_default() += time;
    }
    times.sort_by(|one, time, other, other_time| other_time.cmp(time).then(one.cmp(other)));
    let known = times.values().copied().sum::<Nanos>();
    let are_known = are_holders_known(known, all);
    let Some((main, &most)) = times.first().filter(|&(_, &most)| is_holder(most, all)) else {
        return if are_known { CpuHolders::Many } else { CpuHolders::Unknown };
    };
    if most.0 as f64 >= all.0 as f64 * MAIN_HOLDER {
        return CpuHolders::Named(main.clone());
    }
    let names = match (times.len() - 1, times.last()) {
        (1, Some((last, _))) => format!("{main} and {last}"),
        (0, _) | (_, None) => main.clone(),
        (others, _) => format!("{main} and {others} others"),
    };
    if times.len() > 1 && are_known {
        return CpuHolders::Named(names);
    }
    let part = known.0 as f64 * 100.0 / all.0.max(1) as f64;
    CpuHolders::Named(format!("{names} ({part:.0}% of it)"))
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Nanos;

    use super::{CpuHolders, name_holders};

    #[test]
    fn holders_of_cpus_are_named_or_counted() {
        let holders = |holders: &[(&str, u64)]| {
            let holders = holders.iter().map(|&(name, time)| (name.to_owned(), Nanos(time)));
            name_holders(holders, Nanos(100))
        };
        let is_named = |of: &[(&str, u64)], names: &str| {
            assert_eq!(holders(of), CpuHolders::Named(names.to_owned()));
        };
        is_named(&[("make", 10), ("cc1", 85)], "cc1");
        // Two programs of one name.
        is_named(&[("cc1", 45), ("make", 10), ("cc1", 45)], "cc1");
        is_named(&[("make", 30), ("cc1", 70)], "cc1 and make");
        is_named(&[("a", 30), ("b", 40), ("c", 20), ("d", 10)], "b and 3 others");
        // Nobody is made up for the time of which it is not known who had the CPUs.
        is_named(&[("cc1", 60)], "cc1 (60% of it)");
        is_named(&[("cc1", 20), ("make", 20)], "cc1 and make (40% of it)");
        is_named(&[("cc1", 30), ("make", 20), ("as", 20)], "cc1 and 2 others");
        assert_eq!(holders(&[]), CpuHolders::Unknown);
        assert_eq!(holders(&[("cc1", 9)]), CpuHolders::Unknown);
        let many: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| (name, 9)).into();
        assert_eq!(holders(&many), CpuHolders::Many);
    }
}

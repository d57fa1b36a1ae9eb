//! Names who had the CPUs while threads waited for one.

use indexmap::IndexMap;
use offwake_recording::units::Nanos;

use super::{describe::Words, tree::Node, who::program_name};

/// Who had a CPU for at least this part of the time is named alone.
const MAIN_HOLDER: f64 = 0.8;
/// Who had a CPU for less than this part of the time is not what threads waited for.
const MIN_HOLDER: f64 = 0.1;

impl Words<'_> {
    /// Names who had the CPUs while the threads of a node waited for one; nobody if that is mostly unknown.
    pub(super) fn holders(&self, node: &Node) -> Option<String> {
        let (most, _) = node.holders.iter().max_by_key(|&(_, &time)| time)?;
        most.as_ref()?;
        let names = (node.holders.iter())
            .filter_map(|(&id, &time)| Some((program_name(self.programs.program(id?)?), time)));
        name_holders(names, node.holders.values().copied().sum())
    }
}

/// Returns whether a program had the CPUs for enough of the time `all` to be what threads waited for.
pub(super) fn is_holder(time: Nanos, all: Nanos) -> bool {
    time.0 as f64 >= all.0 as f64 * MIN_HOLDER
}

/// Names the programs that had the CPUs in the time `all` in which somebody waited for one: `cc1`,
/// `cc1 and make`, `cc1 and 3 others`. Where it is not known who had them for the rest of the time, `cc1
/// (60% of it)`.
pub(super) fn name_holders(
    holders: impl Iterator<Item = (String, Nanos)>,
    all: Nanos,
) -> Option<String> {
    let mut times = IndexMap::<String, Nanos>::new();
    for (name, time) in holders {
        *times.entry(name).or_default() += time;
    }
    times.sort_by(|one, time, other, other_time| other_time.cmp(time).then(one.cmp(other)));
    let (main, &most) = times.first()?;
    if !is_holder(most, all) {
        return None;
    }
    if most.0 as f64 >= all.0 as f64 * MAIN_HOLDER {
        return Some(main.clone());
    }
    Some(match times.len() - 1 {
        0 => format!("{main} ({:.0}% of it)", most.0 as f64 * 100.0 / all.0.max(1) as f64),
        1 => format!("{main} and {}", times.last()?.0),
        others => format!("{main} and {others} others"),
    })
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Nanos;

    use super::name_holders;

    #[test]
    fn holders_of_cpus_are_named_or_counted() {
        let names = |holders: &[(&str, u64)]| {
            let holders = holders.iter().map(|&(name, time)| (name.to_owned(), Nanos(time)));
            name_holders(holders, Nanos(100)).unwrap_or_default()
        };
        assert_eq!(names(&[]), "");
        assert_eq!(names(&[("make", 10), ("cc1", 85)]), "cc1");
        // Two programs of one name.
        assert_eq!(names(&[("cc1", 45), ("make", 10), ("cc1", 45)]), "cc1");
        assert_eq!(names(&[("make", 30), ("cc1", 70)]), "cc1 and make");
        assert_eq!(names(&[("a", 30), ("b", 40), ("c", 20), ("d", 10)]), "b and 3 others");
        // Nobody is made up for the time of which it is not known who had the CPUs.
        assert_eq!(names(&[("cc1", 60)]), "cc1 (60% of it)");
        assert_eq!(names(&[("cc1", 9)]), "");
    }
}

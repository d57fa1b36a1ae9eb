//! What kernels came to have that offwake uses where it is there: what may be missing on which.

use super::{
    doctor::{Findings, Standing},
    release::Release,
};

/// Something that older kernels than `since` may lack.
#[derive(Debug, PartialEq, Eq)]
pub struct Feature {
    /// The feature's name in the output of `offwake doctor`.
    pub name: &'static str,
    /// The release that brought it.
    pub since: Release,
}

/// What nothing works without: an older kernel is refused.
pub const TASK_REGISTERS: Feature =
    Feature { name: "bpf_task_pt_regs", since: Release::new(5, 15) };

/// State of the thread that leaves, as an argument of `sched_switch`
/// ([`sched.h`](https://github.com/torvalds/linux/blob/v5.18/include/trace/events/sched.h)).
const STATE_AT_SWITCH: Feature =
    Feature { name: "state that sched_switch passes", since: Release::new(5, 18) };

/// `mmap` of `/sys/kernel/btf/vmlinux`
/// ([`sysfs_btf.c`](https://github.com/torvalds/linux/blob/v6.16/kernel/bpf/sysfs_btf.c)).
const MAPPED_TYPES: Feature =
    Feature { name: "kernel types that can be mapped", since: Release::new(6, 16) };

/// What a kernel may lack whatever its release. The first one comes with modules, and Debian 13's kernels refuse
/// those of packages that are not signed. The other one takes an fentry program, which a 6.18 kernel of a
/// virtual machine refused (EPERM) whatever the function.
const OF_CONFIGURATION: [&str; 2] = ["ends of sockets (sock_diag)", "markers (faccessat2)"];

/// Those that `offwake doctor` says of a supported kernel whether they are there.
const OPTIONAL: [&Feature; 2] = [&STATE_AT_SWITCH, &MAPPED_TYPES];

impl Feature {
    /// What a kernel that lacks it is told.
    pub fn lack(&self) -> String {
        format!("no {}, which came with {}", self.name, self.since)
    }
}

/// What a supported kernel lacks, and may.
pub fn lacks(release: Release) -> Vec<&'static Feature> {
    OPTIONAL.into_iter().filter(|feature| release < feature.since).collect()
}

/// What a kernel ought to have and has not, or ought not to have and has: each with why it is wrong.
pub fn surprises(release: Release, findings: &Findings) -> Vec<String> {
    let mut surprises = Vec::new();
    for (name, standing) in &findings.features {
        if OF_CONFIGURATION.contains(&name.as_str()) {
            continue;
        }
        let known = OPTIONAL.iter().find(|feature| feature.name == name);
        let is_due = known.is_none_or(|feature| release >= feature.since);
        match (is_due, *standing) {
            (true, Standing::Works) | (false, Standing::Limited | Standing::Missing) => {}
            (true, Standing::Limited | Standing::Missing) => surprises.push(match known {
                Some(feature) => {
                    format!("{name} is missing on Linux {release}, and came with {}", feature.since)
                }
                None => format!("{name} is missing on Linux {release}"),
            }),
            (false, Standing::Works) => surprises.push(format!(
                "{name} is there on Linux {release}: it did not come with {}",
                known.map_or(release, |feature| feature.since)
            )),
        }
    }
    let unspoken = OPTIONAL.iter().filter(|feature| findings.standing(feature.name).is_none());
    surprises.extend(unspoken.map(|feature| format!("doctor says nothing about {}", feature.name)));
    surprises
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(standing: Standing) -> Findings {
        let mut features = vec![("privileges".to_owned(), Standing::Works)];
        features.extend(OPTIONAL.iter().map(|feature| (feature.name.to_owned(), standing)));
        Findings { features, ..Findings::default() }
    }

    #[test]
    fn what_is_missing_on_a_newer_kernel_is_a_surprise_and_on_an_older_is_not() {
        assert!(surprises(Release::new(5, 15), &findings(Standing::Limited)).is_empty());
        assert_eq!(surprises(Release::new(6, 1), &findings(Standing::Limited)).len(), 1);
        assert_eq!(surprises(Release::new(6, 18), &findings(Standing::Limited)).len(), 2);
        assert!(surprises(Release::new(6, 18), &findings(Standing::Works)).is_empty());
    }

    #[test]
    fn what_nobody_knows_to_be_missing_is_a_surprise_anywhere() {
        let mut findings = findings(Standing::Works);
        findings.features[0].1 = Standing::Missing;
        assert_eq!(
            surprises(Release::new(6, 18), &findings),
            ["privileges is missing on Linux 6.18"]
        );
    }

    #[test]
    fn what_depends_on_how_a_kernel_was_built_is_no_surprise() {
        let mut findings = findings(Standing::Works);
        for name in OF_CONFIGURATION {
            findings.features.push((name.to_owned(), Standing::Limited));
        }
        assert!(surprises(Release::new(6, 18), &findings).is_empty());
    }

    #[test]
    fn a_feature_that_came_earlier_than_is_known_is_a_surprise() {
        assert_eq!(surprises(Release::new(6, 1), &findings(Standing::Works)).len(), 1);
    }
}

//! What this kernel and this process allow, looked at one by one: what `offwake doctor` prints.

use std::{fs, path::Path};

use super::{
    Budget, Kernel, KernelTypes, Messages, ProgramSize, Settings, StackSettings, Survey,
    TargetFilter, UserStacks, attach, object,
};
use crate::unwind::Method;
use crate::{
    cgroup2,
    recording::{Scope, StackMode},
};

/// Whether offwake can do without a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It can't.
    Required,
    /// It can; something is missing from the result then.
    Optional,
}

/// How a feature stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is there.
    Works(String),
    /// It is not.
    Missing {
        /// What that means.
        why: String,
        /// How to get it.
        remedy: String,
    },
}

/// One thing that offwake wants of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether it can be done without.
    pub need: Need,
    /// How it stands.
    pub standing: Standing,
}

/// Everything that offwake wants of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features(pub Vec<Feature>);

impl Features {
    /// Looks at this machine.
    #[must_use]
    pub fn probe() -> Self {
        let types = KernelTypes::of_running_kernel();
        let mut features = vec![kernel_release(), kernel_half(), privileges(), pid_namespace()];
        match &types {
            Ok(types) => {
                features.push(works(
                    "kernel types (BTF)",
                    Need::Required,
                    "/sys/kernel/btf/vmlinux",
                ));
                features.push(fields(types));
                features.push(tracepoints(types, Need::Required, attach::required()));
                features.push(tracepoints(types, Need::Optional, attach::where_present()));
                features.push(survey(types));
            }
            Err(error) => features.push(missing(
                "kernel types (BTF)",
                Need::Required,
                error.to_string(),
                "run a kernel built with CONFIG_DEBUG_INFO_BTF=y; the distributions' are",
            )),
        }
        features.push(kernel_symbols());
        features.push(cgroup_v2());
        Self(features)
    }

    /// Loads and attaches everything for a moment, records nothing, and adds how that went. Gives
    /// back the programs that were loaded.
    pub fn try_programs(&mut self) -> Vec<ProgramSize> {
        const NAME: &str = "programs load and attach";
        let started = KernelTypes::of_running_kernel().and_then(|types| {
            let settings = Settings {
                target: TargetFilter::All,
                scope: Scope::Machine,
                stacks: StackSettings {
                    mode: StackMode::Cached,
                    budget: Budget::percent(1.0),
                    check_one_in: 64,
                    max_stacks: 1024,
                    user: UserStacks::Copied,
                    method: Method::Auto,
                    copies_bytes: 4096,
                },
                sample_hz: 99,
                ring_bytes: 1 << 16,
                stand_in_only: None,
                max_threads: u32::MAX,
                max_targets: 1,
                messages: Messages::Off,
            };
            let (mut kernel, ..) = Kernel::start(&types, &settings)?;
            kernel.survey(Survey::Opening)?;
            Ok(kernel.program_sizes())
        });
        match started {
            Ok(sizes) => {
                let how = format!("{} programs", sizes.len());
                self.0.push(works(NAME, Need::Required, how));
                sizes
            }
            Err(error) => {
                self.0.push(missing(
                    NAME,
                    Need::Required,
                    error.to_string(),
                    "report this line and the kernel's release to offwake",
                ));
                Vec::new()
            }
        }
    }

    /// Whether everything that is required is there.
    #[must_use]
    pub fn suffice(&self) -> bool {
        self.0.iter().all(|feature| {
            feature.need == Need::Optional || matches!(feature.standing, Standing::Works(_))
        })
    }
}

fn works(name: &'static str, need: Need, how: impl Into<String>) -> Feature {
    Feature { name, need, standing: Standing::Works(how.into()) }
}

fn missing(
    name: &'static str,
    need: Need,
    why: impl Into<String>,
    remedy: impl Into<String>,
) -> Feature {
    Feature { name, need, standing: Standing::Missing { why: why.into(), remedy: remedy.into() } }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn kernel_release() -> Feature {
    const NAME: &str = "kernel release";
    let release = read("/proc/sys/kernel/osrelease");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (5, 15) => missing(
            NAME,
            Need::Required,
            format!("{release} is older than 5.15, which brought bpf_task_pt_regs"),
            "run Linux 5.15 or later",
        ),
        _ => works(NAME, Need::Required, release),
    }
}

fn kernel_half() -> Feature {
    const NAME: &str = "embedded BPF programs";
    if object::is_embedded() {
        works(NAME, Need::Required, "built with this binary")
    } else {
        missing(
            NAME,
            Need::Required,
            "this offwake was built without its kernel half",
            "build it with `cargo xtask build`",
        )
    }
}

/// Bits of `CapEff` in `/proc/self/status`: `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF`.
const CAPABILITIES: &[(u32, &str)] = &[(21, "CAP_SYS_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];

fn privileges() -> Feature {
    const NAME: &str = "privileges";
    let status = read("/proc/self/status");
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let lacking: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if lacking.is_empty() {
        works(NAME, Need::Required, "CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN")
    } else {
        missing(
            NAME,
            Need::Required,
            format!("this process lacks {}", lacking.join(", ")),
            "run offwake as root: sudo offwake …",
        )
    }
}

/// The inode number of the root PID namespace, fixed since 3.8:
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/proc_ns.h#L45>
const ROOT_PID_NAMESPACE: &str = "pid:[4026531836]";

fn pid_namespace() -> Feature {
    const NAME: &str = "host's PID namespace";
    match fs::read_link("/proc/self/ns/pid") {
        Ok(link) if link == Path::new(ROOT_PID_NAMESPACE) => {
            works(NAME, Need::Required, "PIDs here are the kernel's own")
        }
        Ok(_) => missing(
            NAME,
            Need::Required,
            "offwake runs in a PID namespace of its own, where processes have other numbers",
            "run it on the host, or in a container with the host's PIDs (docker run --pid=host)",
        ),
        Err(error) => missing(NAME, Need::Required, error.to_string(), "mount /proc"),
    }
}

fn fields(types: &KernelTypes) -> Feature {
    const NAME: &str = "kernel fields";
    match types.offsets(0) {
        Ok(_) => works(NAME, Need::Required, "every field that the programs read is there"),
        Err(error) => missing(
            NAME,
            Need::Required,
            error.to_string(),
            "report this line and the kernel's release to offwake",
        ),
    }
}

fn tracepoints(types: &KernelTypes, need: Need, wanted: &[&'static str]) -> Feature {
    let name = match need {
        Need::Required => "scheduler, softirq, irq and timer tracepoints",
        Need::Optional => "tracepoints of other interrupts",
    };
    let absent: Vec<&str> =
        wanted.iter().copied().filter(|tracepoint| !types.has_tracepoint(tracepoint)).collect();
    if absent.is_empty() {
        works(name, need, format!("all {} are there", wanted.len()))
    } else {
        let why = format!("the kernel has no {}", absent.join(", "));
        match need {
            Need::Required => missing(name, need, why, "run a kernel with CONFIG_TRACEPOINTS=y"),
            Need::Optional => missing(
                name,
                need,
                why,
                "nothing to do: such interrupts are told by the stack that they run on",
            ),
        }
    }
}

fn survey(types: &KernelTypes) -> Feature {
    const NAME: &str = "iterator over threads";
    if types.has_function("bpf_iter_task") {
        works(NAME, Need::Required, "bpf_iter_task")
    } else {
        missing(NAME, Need::Required, "the kernel has no bpf_iter_task", "run Linux 5.15 or later")
    }
}

fn kernel_symbols() -> Feature {
    const NAME: &str = "kernel symbols";
    let shown = fs::read_to_string("/proc/kallsyms").ok().is_some_and(|text| {
        text.lines().take(100).any(|line| !line.starts_with("0000000000000000"))
    });
    if shown {
        works(NAME, Need::Optional, "/proc/kallsyms")
    } else {
        missing(
            NAME,
            Need::Optional,
            "/proc/kallsyms shows no addresses: kernel frames and several causes have no names",
            "run as root, and set kernel.kptr_restrict to 0 or 1",
        )
    }
}

fn cgroup_v2() -> Feature {
    const NAME: &str = "cgroup v2 (for --cgroup, --container)";
    match cgroup2::mount_point() {
        Some(mount) => works(NAME, Need::Optional, mount.display().to_string()),
        None => missing(
            NAME,
            Need::Optional,
            "no cgroup2 filesystem is mounted",
            "mount -t cgroup2 none /sys/fs/cgroup/unified",
        ),
    }
}

//! What this kernel and this process allow, checked one by one: what `offwake doctor` prints.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
};

use offwake_recording::{Scope, StackMode};
use offwake_unwind::Method;

use super::{
    DetailMode, Kernel, KernelTypes, LogMessages, MarkerMode, ProgramSize, Settings, StackBudget,
    StackSettings, Survey, TargetFilter, UserStackMethod, attach, object,
};
use crate::{
    cgroup2, files,
    parser::lacking_sandbox_parts,
    privileges::{Capability, OPTIONAL, REQUIRED},
};

/// Whether offwake can do without a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// offwake can't do without it.
    Required,
    /// offwake can; something is missing from the result then.
    Optional,
}

/// Whether a feature is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureStatus {
    /// The feature works, in this way.
    Works(String),
    /// The feature is missing.
    Missing {
        /// What it means that the feature is missing.
        why: String,
        /// How to get the feature.
        remedy: String,
    },
}

/// One thing that offwake wants of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The feature's name.
    pub name: &'static str,
    /// Whether offwake can do without the feature.
    pub need: Need,
    /// Whether it is there.
    pub status: FeatureStatus,
}

/// Everything that offwake wants of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features(pub Vec<Feature>);

impl Features {
    /// Checks this machine.
    #[must_use]
    pub fn probe() -> Self {
        let types = KernelTypes::from_running_kernel();
        let mut features = vec![
            kernel_release(),
            kernel_half(),
            privileges(),
            more_privileges(),
            pid_namespace(),
            lockdown(),
            compiler(),
            parsers(),
        ];
        match &types {
            Ok(types) => {
                features.push(works(
                    "kernel types (BTF)",
                    Need::Required,
                    "/sys/kernel/btf/vmlinux",
                ));
                features.push(task_registers(types));
                features.push(mapped_types(types));
                features.push(fields(types));
                features.push(tracepoints(types, Need::Required, attach::required_tracepoints()));
                features.push(tracepoints(types, Need::Optional, attach::optional_tracepoints()));
                features.push(state_at_switch(types));
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
        features.push(socket_ends());
        features.push(cgroup_v2());
        Self(features)
    }

    /// Loads and attaches everything for a moment, records nothing, and adds how that went. Returns
    /// the programs that were loaded.
    pub fn try_programs(&mut self) -> Vec<ProgramSize> {
        const NAME: &str = "programs load and attach";
        let started = KernelTypes::from_running_kernel().and_then(|types| {
            let settings = Settings {
                target: TargetFilter::All,
                scope: Scope::Machine,
                stacks: StackSettings {
                    mode: StackMode::Cached,
                    budget: StackBudget::from_percent(1.0),
                    check_one_in: 64,
                    max_stacks: 1024,
                    user: UserStackMethod::Copied,
                    method: Method::Auto,
                    copies_bytes: 4096,
                },
                sample_hz: 99,
                ring_bytes: 1 << 16,
                stand_in_only: None,
                max_threads: u32::MAX,
                max_targets: 1,
                messages: LogMessages::Off,
                detail: DetailMode::Adjustable,
                markers: MarkerMode::IfCheap,
                marker_probes: Vec::new(),
                own_processes: Vec::new(),
            };
            let mut kernel = Kernel::start(&types, &settings)?.kernel;
            kernel.survey(Survey::Opening)?;
            let features = [
                quotas(&types, &kernel),
                disk_use(&types, &kernel),
                file_locks(&types, &kernel),
                markers(&kernel),
            ];
            Ok((kernel.program_sizes(), features))
        });
        match started {
            Ok((sizes, features)) => {
                self.0.extend(features);
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
            feature.need == Need::Optional || matches!(feature.status, FeatureStatus::Works(_))
        })
    }
}

fn works(name: &'static str, need: Need, how: impl Into<String>) -> Feature {
    Feature { name, need, status: FeatureStatus::Works(how.into()) }
}

fn missing(
    name: &'static str,
    need: Need,
    why: impl Into<String>,
    remedy: impl Into<String>,
) -> Feature {
    Feature {
        name,
        need,
        status: FeatureStatus::Missing { why: why.into(), remedy: remedy.into() },
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The release is for people to read. What a kernel can do is asked of the kernel: distributions bring
/// features to older releases.
fn kernel_release() -> Feature {
    works("kernel release", Need::Required, read("/proc/sys/kernel/osrelease"))
}

fn task_registers(types: &KernelTypes) -> Feature {
    const NAME: &str = "registers of a thread (bpf_task_pt_regs)";
    if types.has_helper("task_pt_regs") {
        works(NAME, Need::Required, "the kernel has the helper")
    } else {
        let why = "the kernel has no bpf_task_pt_regs, which Linux 5.15 brought";
        missing(NAME, Need::Required, why, "run Linux 5.15 or later")
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

fn privileges() -> Feature {
    const NAME: &str = "privileges";
    let lacking: Vec<String> = lacking(&REQUIRED);
    if lacking.is_empty() {
        works(NAME, Need::Required, names(&REQUIRED))
    } else {
        missing(
            NAME,
            Need::Required,
            format!("this process lacks {}", lacking.join("; ")),
            "run offwake as root: sudo offwake …",
        )
    }
}

fn more_privileges() -> Feature {
    const NAME: &str = "more privileges";
    let lacking = lacking(&OPTIONAL);
    if lacking.is_empty() {
        works(NAME, Need::Optional, names(&OPTIONAL))
    } else {
        let remedy = "run offwake as root, or give it these capabilities too";
        missing(NAME, Need::Optional, format!("not there: {}", lacking.join("; ")), remedy)
    }
}

fn names(capabilities: &[Capability]) -> String {
    capabilities.iter().map(|capability| capability.name).collect::<Vec<_>>().join(", ")
}

fn lacking(capabilities: &[Capability]) -> Vec<String> {
    let lacking = capabilities.iter().filter(|capability| !capability.is_held());
    lacking.map(|Capability { name, allows, .. }| format!("{name} ({allows})")).collect()
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

/// [`security/lockdown`](https://github.com/torvalds/linux/blob/v6.12/include/linux/security.h): from
/// `LOCKDOWN_CONFIDENTIALITY_MAX` on, programs may not read the kernel's memory.
fn lockdown() -> Feature {
    const NAME: &str = "kernel lockdown";
    let state = read("/sys/kernel/security/lockdown");
    if state.contains("[confidentiality]") {
        missing(
            NAME,
            Need::Required,
            "the kernel is locked down, and lets nobody read its memory",
            "boot without lockdown=confidentiality",
        )
    } else {
        works(NAME, Need::Required, if state.is_empty() { "none".to_owned() } else { state })
    }
}

/// What reads names and stacks is locked in by whatever the kernel has for it.
fn parsers() -> Feature {
    const NAME: &str = "sandbox of what parses";
    let lacking = lacking_sandbox_parts();
    if lacking.is_empty() {
        return works(NAME, Need::Optional, "seccomp and Landlock");
    }
    let why = format!("this kernel lacks {}: parsers run without", lacking.join(" and "));
    missing(
        NAME,
        Need::Optional,
        why,
        "run a kernel with CONFIG_SECCOMP_FILTER=y and landlock among its LSMs",
    )
}

fn compiler() -> Feature {
    const NAME: &str = "compiler of BPF programs";
    match read("/proc/sys/net/core/bpf_jit_enable").as_str() {
        "" | "0" => missing(
            NAME,
            Need::Optional,
            "the kernel interprets programs: each switch costs several times as much",
            "sysctl net.core.bpf_jit_enable=1, on a kernel with CONFIG_BPF_JIT=y",
        ),
        _ => works(NAME, Need::Optional, "programs run as machine code"),
    }
}

fn mapped_types(types: &KernelTypes) -> Feature {
    const NAME: &str = "kernel types that can be mapped";
    if types.is_mapped() {
        works(NAME, Need::Optional, "they are read where the kernel has them")
    } else {
        missing(
            NAME,
            Need::Optional,
            "they are copied, which takes memory and time as offwake starts",
            "run Linux 6.16 or later",
        )
    }
}

fn state_at_switch(types: &KernelTypes) -> Feature {
    const NAME: &str = "state that sched_switch passes";
    if types.switch_has_state() {
        works(NAME, Need::Optional, "the state that a thread left its CPU in")
    } else {
        missing(
            NAME,
            Need::Optional,
            "it is read from the thread, which a waker may have changed meanwhile",
            "run Linux 5.18 or later",
        )
    }
}

/// Whether it can be seen when CPU quotas are used up. Threads are throttled one by one since 6.18;
/// before, their queues are.
fn quotas(types: &KernelTypes, kernel: &Kernel) -> Feature {
    const NAME: &str = "CPU quotas";
    const LACK: &str = "throttled time shows as time in a CPU's queue";
    if !types.has_quotas() {
        let why = format!("{LACK}: the kernel has no quotas, or does not describe them");
        missing(NAME, Need::Optional, why, "run a kernel with CONFIG_CFS_BANDWIDTH=y")
    } else if !kernel.follows_quotas() {
        let why = format!("{LACK}: the kernel lets nobody see when quotas are used up");
        missing(NAME, Need::Optional, why, "run a kernel with CONFIG_FUNCTION_TRACER=y")
    } else if types.throttles_threads() {
        works(NAME, Need::Optional, "each thread says when it is throttled")
    } else {
        works(NAME, Need::Optional, "queues say when they are throttled")
    }
}

/// Whether it can be counted what processes read from disks, and write to them.
fn disk_use(types: &KernelTypes, kernel: &Kernel) -> Feature {
    const NAME: &str = "reads and writes of disks";
    const LACK: &str = "a finding names who else waits for a disk, but not who else uses it";
    if kernel.counts_disk_use() {
        works(NAME, Need::Optional, "counted by process and device")
    } else if let Err(error) = types.find_disk_fields() {
        missing(NAME, Need::Optional, format!("{LACK}: {error}"), "run Linux 5.12 or later")
    } else {
        let remedy = "run a kernel with the tracepoints of the block layer and of writeback";
        missing(NAME, Need::Optional, LACK.to_owned(), remedy)
    }
}

/// Whether it is recorded who is refused a lock on a file.
fn file_locks(types: &KernelTypes, kernel: &Kernel) -> Feature {
    const NAME: &str = "locks on files that are refused";
    const LACK: &str = "who holds a lock of a SQLite database is known at the window's end alone";
    if kernel.follows_file_locks() {
        return works(NAME, Need::Optional, "recorded with the process that had them");
    }
    let why = match types.find_file_lock_fields() {
        Err(error) => format!("{LACK}: {error}"),
        Ok(()) => LACK.to_owned(),
    };
    missing(NAME, Need::Optional, why, "run a kernel with CONFIG_FILE_LOCKING=y")
}

/// Whether the markers are recorded that programs set in their own code.
fn markers(kernel: &Kernel) -> Feature {
    const NAME: &str = "markers (faccessat2)";
    if kernel.marker_source().is_some() {
        return works(NAME, Need::Optional, "ranges and instants that programs mark are recorded");
    }
    missing(
        NAME,
        Need::Optional,
        "the kernel lets nobody follow the syscall alone: what programs mark is not recorded by default",
        "run a kernel with CONFIG_FUNCTION_TRACER=y, or record with --markers always",
    )
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
        Need::Required => "tracepoints of the scheduler, interrupts, timers and mappings",
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
    // Not the whole of it, which the kernel takes 70 ms to write.
    let shown = File::open("/proc/kallsyms").is_ok_and(|file| {
        let mut first = BufReader::new(file).lines().take(100).map_while(Result::ok);
        first.any(|line| !line.starts_with("0000000000000000"))
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

fn socket_ends() -> Feature {
    const NAME: &str = "ends of sockets (sock_diag)";
    let unavailable = files::unavailable_socket_diag();
    if unavailable.is_empty() {
        let how = "TCP, UDP and Unix sockets are told, and who holds them";
        return works(NAME, Need::Optional, how);
    }
    let modules = unavailable.iter().map(|missing| missing.module).collect::<Vec<_>>().join(" ");
    let errors: Vec<_> = unavailable
        .iter()
        .map(|missing| format!("{}: {}", missing.module, missing.error))
        .collect();
    missing(
        NAME,
        Need::Optional,
        format!("not told which sockets belong together: {}", errors.join(", ")),
        format!("modprobe -a {modules}"),
    )
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

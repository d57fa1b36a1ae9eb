//! Loading: makes and fills the maps, and makes offsets and settings constants of the programs.

use std::os::{
    fd::{AsFd as _, AsRawFd as _, OwnedFd},
    unix::net::UnixDatagram,
};

use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{Array, ArrayOfMaps, HashMap, Map, MapData, MapError, RingBuf},
};
use aya_log::EbpfLogger;
use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF;
use offwake_recording::{
    Scope, StackMode,
    units::{CgroupId, Tgid, Tid},
};
use offwake_unwind::Method;
use profiler_ebpf::{
    config::{self, Config, target_origin},
    own_processes,
};

use super::{
    DetailControl, DiskUseReader, KernelError, KernelTypes, LossReader, MarkerMode, MarkerSource,
    ProgramCostReader, ProgramTimer, Ring, StackCountReader, attach,
    btf::COMPAT_MASK,
    map_batch, marker_probes, object,
    sampling_clock::{SamplingClock, online_cpu_list},
    syscalls, tracing_frames, user_stacks,
};
use crate::marker_probes::MarkerProbe;

/// Which threads are the target of the kernel half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetFilter {
    /// All threads.
    All,
    /// The threads of these processes, and of all that descend from them: those that were forked
    /// before come in by [`Kernel::add_children_of_targets`], the others as they are forked.
    Processes(Vec<Tgid>),
    /// The threads of these processes alone.
    ProcessesAlone(Vec<Tgid>),
    /// These threads alone.
    Threads(Vec<Tid>),
    /// The threads in a cgroup of the v2 hierarchy, or below it.
    Cgroup {
        /// The cgroup.
        id: CgroupId,
        /// The cgroup's depth below the root.
        level: u32,
    },
    /// The threads in one of several cgroups of the v2 hierarchy, or below it: in this one, and in
    /// those that [`Kernel::add_target_cgroup`] adds.
    Cgroups {
        /// The first cgroup.
        id: CgroupId,
        /// The depth of all these cgroups below the root.
        level: u32,
    },
}

/// A share of each CPU's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackBudget {
    parts: u32,
}

impl StackBudget {
    /// All of a CPU's time, in the parts that the kernel half counts in.
    const WHOLE: f64 = (1 << 20) as f64;

    /// A share in percent. None if it is not between nothing and all of a CPU's time.
    #[must_use]
    pub fn from_percent(percent: f64) -> Option<Self> {
        let parts = percent / 100.0 * Self::WHOLE;
        // Less than one part would stand for no limit at all.
        (1.0..=Self::WHOLE).contains(&parts).then_some(Self { parts: parts as u32 })
    }

    /// The share in percent.
    #[must_use]
    pub fn as_percent(self) -> f64 {
        f64::from(self.parts) / Self::WHOLE * 100.0
    }
}

/// Whether the programs' own messages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMessages {
    /// The messages are pruned from the programs.
    Off,
    /// The messages go to the `log` crate's logger.
    Logged,
}

/// Whether detail may be given up while recording goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetailMode {
    /// All of it is recorded, and the programs are as short as can be.
    Full,
    /// It may ([`DetailControl::set`]).
    Adjustable,
}

/// What the kernel half is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose waits are reported.
    pub target: TargetFilter,
    /// Whose waits are recorded.
    pub scope: Scope,
    /// How stacks are taken, and what that may cost.
    pub stacks: StackSettings,
    /// On-CPU samples a second on each CPU, 0 for none.
    pub sample_hz: u32,
    /// Bytes of the ring of each CPU that is online: a power of two, and of pages at least one.
    pub ring_bytes: u32,
    /// Entries of the map that stands in for task-local storage; with `Some`, only that map is
    /// used. For tests.
    pub stand_in_only: Option<u32>,
    /// How many threads are tracked at once. Those of the target are in any case, unless the target
    /// is all of them.
    pub max_threads: u32,
    /// Entries of the map of target processes.
    pub max_targets: u32,
    /// Whether the programs' own messages go to the log.
    pub messages: LogMessages,
    /// Whether detail may be given up.
    pub detail: DetailMode,
    /// Whether the markers are recorded that programs set in their own code.
    pub markers: MarkerMode,
    /// The functions and probes that are markers too.
    pub marker_probes: Vec<MarkerProbe>,
    /// The processes that unwind, read and write for this one, and are not recorded either: those that
    /// there are before anything is attached. Those that come later the kernel half sees.
    pub own_processes: Vec<Tgid>,
}

/// How stacks are taken, and what that may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSettings {
    /// Whether stacks are recorded, and whether cached ones are walked again.
    pub mode: StackMode,
    /// How much of each CPU's time may go into walking stacks; None if any amount may.
    pub budget: Option<StackBudget>,
    /// One in so many stacks that were found in the cache is walked all the same.
    pub check_one_in: u32,
    /// How many distinct stacks the kernel half remembers having sent, and how many call sites it
    /// caches stacks for.
    pub max_stacks: u32,
    /// How the user halves are obtained.
    pub user: UserStackMethod,
    /// How copies of user stacks are unwound.
    pub method: Method,
    /// Bytes of the ring of copies: a power of two, and of pages at least one.
    pub copies_bytes: u32,
}

/// How user stacks are obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserStackMethod {
    /// The tops of the stacks are copied, and unwound in user space.
    Copied,
    /// The kernel walks the stacks by frame pointers.
    Walked,
}

/// The loaded kernel half. Dropping it detaches and frees everything.
pub struct Kernel {
    pub(super) ebpf: Ebpf,
    pub(super) clock: Option<SamplingClock>,
    logger: Option<EbpfLogger<&'static dyn log::Log>>,
    pub(super) follows_quotas: bool,
    pub(super) counts_disk_use: bool,
    pub(super) follows_file_locks: bool,
    pub(super) marker_source: Option<MarkerSource>,
    /// What keeps functions and probes attached.
    pub(super) marker_probes: Vec<OwnedFd>,
}

/// The kernel half as it was started, and what reads from it.
pub struct StartedKernel {
    /// The kernel half.
    pub kernel: Kernel,
    /// The rings: one for each CPU that there may be.
    pub rings: Vec<Ring>,
    /// Reads what was lost.
    pub losses: LossReader,
    /// Reads how stacks were obtained.
    pub stacks: StackCountReader,
    /// Measures the programs.
    pub programs: ProgramTimer,
    /// Reads what the programs cost by their own clock.
    pub costs: ProgramCostReader,
    /// Says how much detail is recorded.
    pub detail: DetailControl,
    /// Reads what processes read from disks, and write to them.
    pub disk_uses: DiskUseReader,
}

/// A loaded program, as the kernel counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSize {
    /// The program's name.
    pub name: String,
    /// Instructions after the verifier has rewritten it, what was pruned left out.
    pub instructions: u32,
    /// Instructions that the verifier walked through to prove it.
    pub verified: u32,
}

/// [`Config`] as aya writes it: the wrapper can be [`Pod`].
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodConfig(Config);

// SAFETY: `Config` is `repr(C)`, holds integers alone and has no padding (asserted where it is
// defined).
unsafe impl Pod for PodConfig {}

impl Kernel {
    /// Loads and attaches everything. From now on records come, but the window is not open before
    /// the opening survey.
    ///
    /// # Errors
    ///
    /// If the kernel refuses something that can't be done without.
    pub fn start(types: &KernelTypes, settings: &Settings) -> Result<StartedKernel, KernelError> {
        let object = object::bytes()?;
        let cpus = possible_cpus()?;
        let config = PodConfig(config(types, settings)?);
        // aya-log's levels go from 1, error, to 5, trace.
        let level: u8 = match settings.messages {
            LogMessages::Off => 0,
            LogMessages::Logged => 5,
        };
        let mut loader = EbpfLoader::new();
        loader
            .allow_unsupported_maps()
            .override_global("CONFIG", &config, true)
            .override_global(aya_log::LEVEL, &level, true)
            .map_max_entries("RINGS", cpus)
            .map_max_entries("SENT_STACKS", settings.stacks.max_stacks)
            .map_max_entries("TARGETS", settings.max_targets)
            .map_max_entries(user_stacks::STACK_COPIES, settings.stacks.copies_bytes)
            .map_max_entries(user_stacks::CALL_SITES, settings.stacks.max_stacks)
            .map_max_entries(marker_probes::TEXTS, settings.marker_probes.len().max(1) as u32);
        if let Some(entries) = settings.stand_in_only {
            loader.map_max_entries("STAND_IN", entries);
        }
        let mut ebpf = loader.load(object)?;
        // The loader holds the kernel's types, and attaching needs them once more: 70 MB each.
        drop(loader);
        let logger = match settings.messages {
            LogMessages::Off => None,
            LogMessages::Logged => EbpfLogger::init(&mut ebpf)
                .inspect_err(|error| log::warn!("the programs' messages can't be read: {error}"))
                .ok(),
        };
        let mut kernel = Self {
            ebpf,
            clock: None,
            logger,
            follows_quotas: false,
            counts_disk_use: false,
            follows_file_locks: false,
            marker_source: None,
            marker_probes: Vec::new(),
        };
        kernel.fill_maps(settings)?;
        let sizes = ring_sizes(cpus, &online_cpu_list()?, settings.ring_bytes);
        let rings = kernel.make_rings(&sizes)?;
        attach::attach(&mut kernel, types, settings)?;
        let losses = LossReader::from_ebpf(&mut kernel.ebpf)?;
        let stacks = StackCountReader::from_ebpf(&mut kernel.ebpf)?;
        let programs = ProgramTimer::new(&kernel.ebpf);
        let costs = ProgramCostReader::from_ebpf(&mut kernel.ebpf)?;
        let detail = DetailControl::from_ebpf(&mut kernel.ebpf)?;
        let disk_uses = DiskUseReader::from_ebpf(&mut kernel.ebpf)?;
        Ok(StartedKernel { kernel, rings, losses, stacks, programs, costs, detail, disk_uses })
    }

    /// Whether it is seen when CPU quotas are used up and refilled.
    #[must_use]
    pub fn follows_quotas(&self) -> bool {
        self.follows_quotas
    }

    /// Whether it is counted what processes read from disks, and write to them.
    #[must_use]
    pub fn counts_disk_use(&self) -> bool {
        self.counts_disk_use
    }

    /// Whether it is recorded who is refused a lock on a file.
    #[must_use]
    pub fn follows_file_locks(&self) -> bool {
        self.follows_file_locks
    }

    /// How the markers are seen that programs set in their own code; none if they are not.
    #[must_use]
    pub fn marker_source(&self) -> Option<MarkerSource> {
        self.marker_source
    }

    /// Hands the programs' messages to the log.
    pub fn flush_messages(&mut self) {
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
    }

    /// The loaded programs, by name.
    #[must_use]
    pub fn program_sizes(&self) -> Vec<ProgramSize> {
        /// Bytes of an instruction.
        const INSTRUCTION: u32 = 8;
        let mut sizes: Vec<ProgramSize> = self
            .ebpf
            .programs()
            .filter_map(|(name, program)| {
                let info = program.info().ok()?;
                Some(ProgramSize {
                    name: name.to_owned(),
                    instructions: info.size_translated().unwrap_or(0) / INSTRUCTION,
                    verified: info.verified_instruction_count().unwrap_or(0),
                })
            })
            .collect();
        sizes.sort_by(|a, b| a.name.cmp(&b.name));
        sizes
    }

    pub(super) fn map_mut(&mut self, name: &'static str) -> Result<&mut Map, KernelError> {
        self.ebpf.map_mut(name).ok_or(KernelError::Missing(name))
    }

    fn fill_maps(&mut self, settings: &Settings) -> Result<(), KernelError> {
        let failed = |map| move |source: MapError| KernelError::Map { map, source };
        let mut table: Array<_, u32> =
            Array::try_from(self.map_mut("SYSCALLS")?).map_err(failed("SYSCALLS"))?;
        for (number, flags) in (0_u32..).zip(syscalls::table()) {
            if flags != 0 {
                table.set(number, flags, 0).map_err(failed("SYSCALLS"))?;
            }
        }
        let targets: Vec<u32> = match &settings.target {
            TargetFilter::Processes(processes) | TargetFilter::ProcessesAlone(processes) => {
                processes.iter().map(|tgid| tgid.0).collect()
            }
            TargetFilter::Threads(threads) => threads.iter().map(|tid| tid.0).collect(),
            TargetFilter::All | TargetFilter::Cgroup { .. } | TargetFilter::Cgroups { .. } => {
                Vec::new()
            }
        };
        self.leave_out(&settings.own_processes)?;
        let mut map: HashMap<_, u32, u32> =
            HashMap::try_from(self.map_mut("TARGETS")?).map_err(failed("TARGETS"))?;
        for target in targets {
            map.insert(target, target_origin::ASKED_FOR_OR_FORKED, 0).map_err(failed("TARGETS"))?;
        }
        if let TargetFilter::Cgroups { id, .. } = settings.target {
            self.add_target_cgroup(id)?;
        }
        Ok(())
    }

    /// Has nothing recorded of processes of the profiler that were started before the programs were
    /// attached.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn leave_out(&mut self, processes: &[Tgid]) -> Result<(), KernelError> {
        const NAME: &str = "OWN_PROCESSES";
        let failed = |source| KernelError::Map { map: NAME, source };
        let mut map: Array<_, own_processes::Row> =
            Array::try_from(self.map_mut(NAME)?).map_err(failed)?;
        for Tgid(tgid) in processes {
            let index = own_processes::row_of(*tgid);
            let mut row = map.get(&index, 0).map_err(failed)?;
            if !own_processes::is_in(&row, *tgid) {
                row[own_processes::place_for(&row, *tgid)] = *tgid;
                map.set(index, row, 0).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Adds the threads in another cgroup, and below it, to the target: each from its next switch
    /// on.
    ///
    /// # Errors
    ///
    /// If there is no room for another one.
    pub fn add_target_cgroup(&mut self, id: CgroupId) -> Result<(), KernelError> {
        const NAME: &str = "TARGET_CGROUPS";
        let failed = |source| KernelError::Map { map: NAME, source };
        let mut map: HashMap<_, u64, u32> =
            HashMap::try_from(self.map_mut(NAME)?).map_err(failed)?;
        map.insert(id.0, 1, 0).map_err(failed)
    }

    fn make_rings(&mut self, sizes: &[u32]) -> Result<Vec<Ring>, KernelError> {
        const NAME: &str = "RINGS";
        let failed = |source| KernelError::Map { map: NAME, source };
        let mut rings: Vec<RingBuf<MapData>> = Vec::new();
        let mut descriptors = Vec::new();
        for &bytes in sizes {
            let definition =
                aya_obj::Map::new_from_params(BPF_MAP_TYPE_RINGBUF as u32, 0, 0, bytes, 0);
            let data = MapData::create(definition, "offwake_ring", None).map_err(failed)?;
            descriptors.push(data.fd().as_fd().as_raw_fd());
            rings.push(RingBuf::try_from(Map::RingBuf(data)).map_err(failed)?);
        }
        let map = self.map_mut(NAME)?;
        // With room for 240 CPUs, one by one takes seconds.
        let at_once = match &*map {
            Map::ArrayOfMaps(data) => map_batch::set_maps(data.fd().as_fd(), &descriptors).is_ok(),
            _ => false,
        };
        if !at_once {
            let mut outer: ArrayOfMaps<_, RingBuf<MapData>> =
                ArrayOfMaps::try_from(map).map_err(failed)?;
            for (cpu, ring) in (0..).zip(&rings) {
                outer.set(cpu, ring, 0).map_err(failed)?;
            }
        }
        Ok(rings.into_iter().zip(sizes).map(|(ring, bytes)| Ring::new(ring, *bytes)).collect())
    }
}

/// Bytes of the ring of a CPU that is offline, should it come: drained every 10 ms, these hold some
/// 60,000 records a second.
const OFFLINE_RING_BYTES: u32 = 64 << 10;

/// The sizes of the rings, one for each CPU that there can ever be. The kernel allocates all pages of
/// a ring at once, and a virtual machine with 2 CPUs can have room for 128.
fn ring_sizes(possible: u32, online: &[u32], bytes: u32) -> Vec<u32> {
    let size = |cpu| if online.contains(&cpu) { bytes } else { bytes.min(OFFLINE_RING_BYTES) };
    (0..possible).map(size).collect()
}

fn config(types: &KernelTypes, settings: &Settings) -> Result<Config, KernelError> {
    let (target, cgroup, cgroup_level) = match settings.target {
        TargetFilter::All => (config::target::ALL, 0, 0),
        TargetFilter::Processes(_) => (config::target::PROCESSES, 0, 0),
        TargetFilter::ProcessesAlone(_) => (config::target::PROCESSES_ALONE, 0, 0),
        TargetFilter::Threads(_) => (config::target::THREADS, 0, 0),
        TargetFilter::Cgroup { id, level } => (config::target::CGROUP, id.0, level),
        TargetFilter::Cgroups { level, .. } => (config::target::CGROUPS, 0, level),
    };
    let tracing = tracing_frames::find().unwrap_or_default();
    Ok(Config {
        target,
        scope: match settings.scope {
            Scope::Machine => config::scope::MACHINE,
            Scope::Target => config::scope::TARGET,
        },
        stacks: match settings.stacks.mode {
            StackMode::Cached => config::stacks::CACHED,
            StackMode::Exact => config::stacks::EXACT,
            StackMode::Off => config::stacks::OFF,
        },
        self_tgid: std::process::id(),
        cgroup,
        stack_seed: seed(),
        cgroup_level,
        switch_has_state: u32::from(types.switch_has_state()),
        compat_mask: COMPAT_MASK,
        stand_in_only: u32::from(settings.stand_in_only.is_some()),
        socket_device: socket_device().unwrap_or(0),
        check_threshold: u32::MAX / settings.stacks.check_one_in.max(1),
        stack_budget: settings.stacks.budget.map_or(0, |budget| budget.parts),
        max_threads: settings.max_threads,
        user_stacks: match settings.stacks.user {
            UserStackMethod::Copied => config::user_stacks::COPIED,
            UserStackMethod::Walked => config::user_stacks::WALKED,
        },
        is_adjustable: u32::from(settings.detail == DetailMode::Adjustable),
        tracing_begin: tracing.start,
        tracing_end: tracing.end,
        offsets: types.offsets(cgroup_level)?,
        reserved: 0,
    })
}

/// The device that all sockets are on, in every namespace: the kernel mounts it once
/// ([`sock_init`](https://github.com/torvalds/linux/blob/v6.12/net/socket.c)).
fn socket_device() -> Option<u32> {
    let socket = UnixDatagram::unbound().ok()?;
    let device = rustix::fs::fstat(&socket).ok()?.st_dev;
    // MKDEV() of include/linux/kdev_t.h: twenty bits of minor number.
    Some(rustix::fs::major(device) << 20 | rustix::fs::minor(device))
}

/// A number that no other program can foresee.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the call writes 8 bytes at most. The pool is ready long before anybody runs this;
    // should the call fail all the same, the seed is 0 and stack ids are merely foreseeable.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    u64::from_ne_bytes(bytes)
}

/// How many CPUs there can ever be: `bpf_get_smp_processor_id` stays below this.
fn possible_cpus() -> Result<u32, KernelError> {
    let cpus = aya::util::nr_cpus().map_err(|(_, source)| KernelError::Cpus {
        path: "/sys/devices/system/cpu/possible",
        source,
    })?;
    Ok(u32::try_from(cpus).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::ring_sizes;

    #[test]
    fn only_cpus_that_are_online_have_large_rings() {
        let sizes = ring_sizes(128, &[0, 3], 8 << 20);
        assert_eq!(sizes.len(), 128);
        for (cpu, size) in sizes.iter().enumerate() {
            assert_eq!(*size, if [0, 3].contains(&cpu) { 8 << 20 } else { 64 << 10 }, "CPU {cpu}");
        }
        // Those of the others are no larger than was asked for.
        assert_eq!(ring_sizes(3, &[0], 4096), [4096; 3]);
    }
}

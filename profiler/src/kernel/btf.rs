//! The running kernel's own description of its types: where each field lies, and what there is.

use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use btf_rs::{Backend, Btf, Member, Struct, Type};
use profiler_ebpf::offsets::{
    ArrivalOffsets, DiskOffsets, EpollOffsets, FileLockOffsets, NO_OFFSET, Offsets, QuotaOffsets,
};

use super::KernelError;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The types of a kernel.
pub struct KernelTypes {
    btf: Btf,
    is_mapped: bool,
    /// The types by the names that were asked for: where they are mapped, each name is searched for
    /// among all of the kernel's types, which takes 3 ms.
    by_name: Mutex<HashMap<String, Arc<[Type]>>>,
}

impl KernelTypes {
    /// Opens the types of the running kernel.
    ///
    /// # Errors
    ///
    /// If the kernel publishes none, or they can't be read.
    pub fn from_running_kernel() -> Result<Self, KernelError> {
        Self::from_file(Path::new(VMLINUX))
    }

    /// Opens the types in a file of raw BTF.
    ///
    /// # Errors
    ///
    /// If the file is not there or is no BTF.
    pub fn from_file(path: &Path) -> Result<Self, KernelError> {
        File::open(path)
            .map_err(|source| KernelError::NoBtf { path: PathBuf::from(path), source })?;
        // Parsed as a whole they take tens of megabytes, for the few that are looked up. Older
        // kernels let nobody map what is in sysfs.
        let (btf, is_mapped) = match Btf::from_file_with_backend(path, Backend::Mmap) {
            Ok(btf) => (btf, true),
            Err(_not_mapped) => (Btf::from_file(path)?, false),
        };
        Ok(Self { btf, is_mapped, by_name: Mutex::default() })
    }

    /// Whether the types are read where the kernel has them, which sysfs allows from Linux 6.16 on
    /// ([`btf_sysfs_vmlinux_mmap`](https://github.com/torvalds/linux/blob/v6.16/kernel/bpf/sysfs_btf.c)).
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Frees the types, and gives the system the memory back.
    ///
    /// They are some 70 MB of small pieces, and nothing of that size comes again. Left to itself,
    /// glibc keeps them where anything that was allocated later lies behind them.
    /// <https://man7.org/linux/man-pages/man3/malloc_trim.3.html>
    pub(crate) fn free(self) {
        drop(self);
        // SAFETY: the call takes no pointers, and any thread may make it at any time.
        #[cfg(target_env = "gnu")]
        let _has_released_any = unsafe { libc::malloc_trim(0) };
    }

    /// Whether a tracepoint can be attached to with typed arguments.
    #[must_use]
    pub fn has_tracepoint(&self, name: &str) -> bool {
        let types = self.types_with_name(&format!("btf_trace_{name}"));
        types.iter().any(|found| matches!(found, Type::Typedef(_)))
    }

    /// Whether there is a function of this name.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.types_with_name(name).iter().any(|found| matches!(found, Type::Func(_)))
    }

    /// Whether programs may call a helper, named as in
    /// [`enum bpf_func_id`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h#L6027).
    #[must_use]
    pub fn has_helper(&self, name: &str) -> bool {
        let wanted = format!("BPF_FUNC_{name}");
        self.types_with_name("bpf_func_id").iter().any(|found| {
            let Type::Enum(helpers) = found else { return false };
            helpers
                .members
                .iter()
                .any(|member| self.btf.resolve_name(member).is_ok_and(|it| it == wanted))
        })
    }

    /// Arguments of a tracepoint, the hidden first one left out.
    fn tracepoint_arguments(&self, name: &str) -> Option<usize> {
        let types = self.types_with_name(&format!("btf_trace_{name}"));
        let typedef = types.iter().find_map(|found| match found {
            Type::Typedef(typedef) => Some(typedef),
            _ => None,
        })?;
        // typedef → pointer → function prototype
        let Type::Ptr(pointer) = self.btf.resolve_chained_type(typedef).ok()? else { return None };
        match self.btf.resolve_chained_type(&pointer).ok()? {
            Type::FuncProto(prototype) => prototype.parameters.len().checked_sub(1),
            _ => None,
        }
    }

    /// Whether `sched_switch` passes the state of the thread that leaves (5.18 and later:
    /// [`sched.h`](https://github.com/torvalds/linux/blob/v5.18/include/trace/events/sched.h)).
    #[must_use]
    pub fn switch_has_state(&self) -> bool {
        self.tracepoint_arguments("sched_switch") == Some(4)
    }

    /// The types of a name, of all kinds. None if they can't be read.
    fn types_with_name(&self, name: &str) -> Arc<[Type]> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_name.get(name) {
            return Arc::clone(known);
        }
        let found: Arc<[Type]> = self.btf.resolve_types_by_name(name).unwrap_or_default().into();
        by_name.insert(name.to_owned(), Arc::clone(&found));
        found
    }

    fn structure(&self, name: &str) -> Result<Struct, KernelError> {
        let types = self.types_with_name(name);
        let found = types.iter().find_map(|found| match found {
            Type::Struct(structure) | Type::Union(structure) if structure.size() > 0 => {
                Some(structure.clone())
            }
            _ => None,
        });
        found.ok_or_else(|| KernelError::NoField { field: name.to_owned() })
    }

    /// Byte offset of `structure::path`, where each step of the path is a member of the one before.
    /// Members of anonymous structures and unions count as members of what holds them.
    ///
    /// # Errors
    ///
    /// If there is no such member, or it is a bit field.
    pub fn offset(&self, structure: &str, path: &[&str]) -> Result<u32, KernelError> {
        let missing = || KernelError::NoField { field: format!("{structure}::{}", path.join(".")) };
        let mut current = self.structure(structure)?;
        let mut total = 0;
        for (step, member) in path.iter().enumerate() {
            let (bits, found) = self.find_member(&current, member, 0).ok_or_else(missing)?;
            if bits % 8 != 0 {
                return Err(missing());
            }
            total += bits / 8;
            if step + 1 < path.len() {
                current = match found {
                    Type::Struct(inner) | Type::Union(inner) => inner,
                    _ => return Err(missing()),
                };
            }
        }
        Ok(total)
    }

    /// Bit offset and type of a member, qualifiers and typedefs taken off.
    fn find_member(&self, structure: &Struct, name: &str, depth: usize) -> Option<(u32, Type)> {
        // The kernel nests anonymous unions two or three deep.
        const MAX_NESTING: usize = 8;
        if depth > MAX_NESTING {
            return None;
        }
        for member in &structure.members {
            let member_name = self.btf.resolve_name(member).unwrap_or_default();
            if member_name == name {
                if member.bitfield_size().is_some_and(|bits| bits != 0) {
                    return None;
                }
                return Some((member.bit_offset(), self.plain_type(member)?));
            }
            if member_name.is_empty()
                && let Some(Type::Struct(inner) | Type::Union(inner)) = self.plain_type(member)
                && let Some((bits, found)) = self.find_member(&inner, name, depth + 1)
            {
                return Some((member.bit_offset() + bits, found));
            }
        }
        None
    }

    fn plain_type(&self, member: &dyn btf_rs::BtfType) -> Option<Type> {
        self.btf.chained_type_iter(member).find(|found| {
            !matches!(
                found,
                Type::Typedef(_)
                    | Type::Const(_)
                    | Type::Volatile(_)
                    | Type::Restrict(_)
                    | Type::TypeTag(_)
            )
        })
    }

    /// Every offset that the programs load through on this machine.
    ///
    /// `cgroup_level` is the depth of the target's cgroup, 0 if the target is none.
    ///
    /// # Errors
    ///
    /// If a field that no supported kernel lacks is missing.
    pub fn offsets(&self, cgroup_level: u32) -> Result<Offsets, KernelError> {
        self.offsets_on(Machine::THIS, cgroup_level)
    }

    /// Every offset that the programs would load through on this kind of machine.
    ///
    /// # Errors
    ///
    /// As those of [`KernelTypes::offsets`].
    pub fn offsets_on(&self, machine: Machine, cgroup_level: u32) -> Result<Offsets, KernelError> {
        let field = |structure: &str, member: &str| self.offset(structure, &[member]);
        let optional = |found: Result<u32, KernelError>| found.unwrap_or(NO_OFFSET);
        // An array of pointers, or until 6.0 of 64-bit ids: eight bytes each.
        let by_level = |found: u32| {
            if found == NO_OFFSET { NO_OFFSET } else { found + cgroup_level * 8 }
        };
        let registers = Registers::for_machine(machine);
        let register = |name: &str| match name.split_once('[') {
            Some((array, index)) => {
                let index: u32 = index.trim_end_matches(']').parse().unwrap_or(0);
                Ok(self.offset("pt_regs", &[array])? + index * 8)
            }
            None => field("pt_regs", name),
        };
        let six = |names: [&str; 6]| -> Result<[u32; 6], KernelError> {
            let mut offsets = [0; 6];
            for (offset, name) in offsets.iter_mut().zip(names) {
                *offset = register(name)?;
            }
            Ok(offsets)
        };
        Ok(Offsets {
            task_pid: field("task_struct", "pid")?,
            task_tgid: field("task_struct", "tgid")?,
            task_flags: field("task_struct", "flags")?,
            task_comm: field("task_struct", "comm")?,
            task_state: field("task_struct", "__state")?,
            task_on_cpu: field("task_struct", "on_cpu")?,
            task_on_rq: field("task_struct", "on_rq")?,
            task_start_time: field("task_struct", "start_time")?,
            task_real_parent: field("task_struct", "real_parent")?,
            task_exit_code: field("task_struct", "exit_code")?,
            task_cgroups: field("task_struct", "cgroups")?,
            task_files: field("task_struct", "files")?,
            task_stack: field("task_struct", "stack")?,
            task_exit_state: field("task_struct", "exit_state")?,
            task_sched_delayed: optional(self.offset("task_struct", &["se", "sched_delayed"])),
            task_thread_status: self
                .offset("task_struct", &["thread_info", registers.compat_field])?,
            css_set_dfl_cgrp: field("css_set", "dfl_cgrp")?,
            cgroup_kn: field("cgroup", "kn")?,
            cgroup_level: field("cgroup", "level")?,
            cgroup_ancestor: by_level(optional(field("cgroup", "ancestors"))),
            cgroup_ancestor_id: by_level(optional(field("cgroup", "ancestor_ids"))),
            kernfs_node_id: field("kernfs_node", "id")?,
            files_fdt: field("files_struct", "fdt")?,
            fdtable_fd: field("fdtable", "fd")?,
            fdtable_max_fds: field("fdtable", "max_fds")?,
            file_inode: field("file", "f_inode")?,
            inode_ino: field("inode", "i_ino")?,
            inode_mode: field("inode", "i_mode")?,
            inode_sb: field("inode", "i_sb")?,
            super_block_dev: field("super_block", "s_dev")?,
            pt_regs_args: six(registers.arguments)?,
            pt_regs_compat_args: six(registers.compat_arguments)?,
            pt_regs_syscall: register(registers.syscall)?,
            pt_regs_ip: register(registers.instruction)?,
            pt_regs_sp: register("sp")?,
            pt_regs_fp: register(registers.frame)?,
            task_mm: field("task_struct", "mm")?,
            task_nvcsw: field("task_struct", "nvcsw")?,
            task_signal: field("task_struct", "signal")?,
            signal_live: field("signal_struct", "live")?,
            task_pending_signals: self.offset("task_struct", &["pending", "signal"])?,
            task_blocked_signals: field("task_struct", "blocked")?,
            signal_shared_pending_signals: self
                .offset("signal_struct", &["shared_pending", "signal"])?,
            signal_real_timer: field("signal_struct", "real_timer")?,
            task_thread_pointer: match registers.thread_pointer {
                Some(field) => optional(self.offset("task_struct", &["thread", field])),
                None => NO_OFFSET,
            },
            quota: self.quota_offsets().unwrap_or(QuotaOffsets::UNKNOWN),
            arrival: self.arrival_offsets().unwrap_or_default(),
            epoll: self.epoll_offsets().unwrap_or_default(),
            disk: self.disk_offsets().unwrap_or_default(),
            file_lock: self.file_lock_offsets().unwrap_or_default(),
        })
    }

    /// Where a file has the locks that processes have on it. Since 6.9, a part of the fields is in a
    /// structure of its own.
    fn file_lock_offsets(&self) -> Result<FileLockOffsets, KernelError> {
        let core = |since: &str, before: &str| {
            (self.offset("file_lock", &["c", since]))
                .or_else(|_| self.offset("file_lock", &[before]))
        };
        Ok(FileLockOffsets {
            inode_locks: self.offset("inode", &["i_flctx"])?,
            locks_of_processes: self.offset("file_lock_context", &["flc_posix"])?,
            locks_of_open_files: self.offset("file_lock_context", &["flc_flock"])?,
            link: core("flc_list", "fl_list")?,
            owner: core("flc_owner", "fl_owner")?,
            flags: core("flc_flags", "fl_flags")?,
            access: core("flc_type", "fl_type")?,
            process: core("flc_pid", "fl_pid")?,
            first_byte: self.offset("file_lock", &["fl_start"])?,
            last_byte: self.offset("file_lock", &["fl_end"])?,
        })
    }

    /// Finds where a file has the locks that processes have on it.
    ///
    /// # Errors
    ///
    /// If a field is missing.
    pub(super) fn find_file_lock_fields(&self) -> Result<(), KernelError> {
        self.file_lock_offsets().map(|_offsets| ())
    }

    /// Where an `epoll` keeps what is ready.
    fn epoll_offsets(&self) -> Result<EpollOffsets, KernelError> {
        Ok(EpollOffsets {
            file_private_data: self.offset("file", &["private_data"])?,
            ready_list: self.offset("eventpoll", &["rdllist"])?,
            overflow_list: self.offset("eventpoll", &["ovflist"])?,
            item_ready_link: self.offset("epitem", &["rdllink"])?,
            item_epoll: self.offset("epitem", &["ep"])?,
            item_file: self.offset("epitem", &["ffd", "file"])?,
        })
    }

    /// Where the kernel keeps what is read from disks, and written to them.
    fn disk_offsets(&self) -> Result<DiskOffsets, KernelError> {
        let head = self.enumerator("pageflags", "PG_head");
        let pages = ["_nr_pages", "_folio_nr_pages"];
        let pages = pages.iter().find_map(|name| self.offset("folio", &[name]).ok());
        let (folio_pages, folio_head_flag) =
            head.zip(pages).map_or((NO_OFFSET, 0), |(head, pages)| (pages, head));
        Ok(DiskOffsets {
            bio_device: self.offset("bio", &["bi_bdev"])?,
            bio_operation: self.offset("bio", &["bi_opf"])?,
            bio_size: self.offset("bio", &["bi_iter", "bi_size"])?,
            device_number: self.offset("block_device", &["bd_dev"])?,
            mapping_host: self.offset("address_space", &["host"])?,
            inode_device_number: self.offset("inode", &["i_rdev"])?,
            folio_flags: self.offset("page", &["flags"])?,
            folio_pages,
            folio_head_flag,
            page_shift: page_shift(),
        })
    }

    /// Finds where the kernel keeps what is read from disks, and written to them.
    ///
    /// # Errors
    ///
    /// If a field is missing.
    pub(super) fn find_disk_fields(&self) -> Result<(), KernelError> {
        self.disk_offsets().map(|_offsets| ())
    }

    /// The value of a member of an enumeration.
    fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        self.types_with_name(enumeration).iter().find_map(|found| {
            let Type::Enum(members) = found else { return None };
            let mut members = members.members.iter();
            let found = members.find(|it| self.btf.resolve_name(*it).is_ok_and(|it| it == name));
            found.map(|member| member.val())
        })
    }

    /// Where the scheduler keeps when threads came to their CPUs.
    fn arrival_offsets(&self) -> Result<ArrivalOffsets, KernelError> {
        Ok(ArrivalOffsets {
            task_last_arrival: self.offset("task_struct", &["sched_info", "last_arrival"])?,
            task_queue: self.offset("task_struct", &["se", "cfs_rq"])?,
            queue_rq: self.offset("cfs_rq", &["rq"])?,
            rq_clock: self.offset("rq", &["clock"])?,
        })
    }

    /// Whether it is known where the scheduler keeps CPU quotas.
    #[must_use]
    pub fn has_quotas(&self) -> bool {
        self.quota_offsets().is_ok_and(|offsets| offsets.is_known != 0)
    }

    /// Whether the scheduler throttles threads one by one (6.18 and later), not their queues.
    #[must_use]
    pub fn throttles_threads(&self) -> bool {
        self.quota_offsets().is_ok_and(|offsets| offsets.task_throttled != NO_OFFSET)
    }

    /// Where the scheduler keeps CPU quotas.
    fn quota_offsets(&self) -> Result<QuotaOffsets, KernelError> {
        let field = |structure: &str, member: &str| self.offset(structure, &[member]);
        let task_throttled = field("task_struct", "throttled").unwrap_or(NO_OFFSET);
        let by_thread = task_throttled != NO_OFFSET;
        let (queue_limit, queue_limit_mask) = if by_thread {
            self.bits("cfs_rq", "throttled")?
        } else {
            (field("cfs_rq", "runtime_enabled")?, 0xff)
        };
        let of_thread = |structure: &str, member: &str| {
            if by_thread { field(structure, member) } else { Ok(0) }
        };
        Ok(QuotaOffsets {
            is_known: 1,
            queue_throttled_since: of_thread("cfs_rq", "throttled_clock_self")?,
            queue_throttled_time: of_thread("cfs_rq", "throttled_clock_self_time")?,
            queue_rq: of_thread("cfs_rq", "rq")?,
            rq_clock: of_thread("rq", "clock")?,
            task_throttled,
            task_entity: field("task_struct", "se")?,
            entity_parent: field("sched_entity", "parent")?,
            entity_queue: field("sched_entity", "cfs_rq")?,
            queue_limit,
            queue_limit_mask,
            queue_throttle_count: field("cfs_rq", "throttle_count")?,
            queue_group: field("cfs_rq", "tg")?,
            group_queues: field("task_group", "cfs_rq")?,
            group_cgroup: self.offset("task_group", &["css", "cgroup"])?,
            rq_cpu: field("rq", "cpu")?,
        })
    }

    /// The byte in which a small member lies that may be a bit field, and its bits there.
    fn bits(&self, structure: &str, member: &str) -> Result<(u32, u32), KernelError> {
        let missing = || KernelError::NoField { field: format!("{structure}::{member}") };
        let fields = self.structure(structure)?;
        let is_it = |name: &Member| self.btf.resolve_name(name).is_ok_and(|found| found == member);
        let found = fields.members.iter().find(|found| is_it(found)).ok_or_else(missing)?;
        let (offset, width) = (found.bit_offset(), found.bitfield_size().unwrap_or(0));
        let mask = if width == 0 { 0xff } else { ((1_u32 << width.min(8)) - 1) << (offset % 8) };
        Ok((offset / 8, mask & 0xff))
    }
}

/// The bytes of a page, as a power of two.
fn page_shift() -> u32 {
    u32::try_from(rustix::param::page_size()).map_or(0, u32::ilog2)
}

/// A kind of machine that the kernel half can be built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Machine {
    /// The machine that this program is compiled for.
    #[cfg(target_arch = "x86_64")]
    pub const THIS: Self = Self::X86_64;
    /// The machine that this program is compiled for.
    #[cfg(target_arch = "aarch64")]
    pub const THIS: Self = Self::Aarch64;
}

/// How a machine passes syscalls, in the names of its `struct pt_regs`.
struct Registers {
    arguments: [&'static str; 6],
    compat_arguments: [&'static str; 6],
    syscall: &'static str,
    instruction: &'static str,
    frame: &'static str,
    compat_field: &'static str,
    /// The register for a thread's own storage, in `struct thread_struct`.
    thread_pointer: Option<&'static str>,
}

impl Registers {
    const fn for_machine(machine: Machine) -> Self {
        match machine {
            Machine::X86_64 => Self {
                arguments: ["di", "si", "dx", "r10", "r8", "r9"],
                compat_arguments: ["bx", "cx", "dx", "si", "di", "bp"],
                syscall: "orig_ax",
                instruction: "ip",
                frame: "bp",
                compat_field: "status",
                thread_pointer: Some("fsbase"),
            },
            Machine::Aarch64 => {
                let arguments = ["regs[0]", "regs[1]", "regs[2]", "regs[3]", "regs[4]", "regs[5]"];
                Self {
                    arguments,
                    compat_arguments: arguments,
                    syscall: "syscallno",
                    instruction: "pc",
                    frame: "regs[29]",
                    compat_field: "flags",
                    // Where a C library keeps what belongs to keys is before it, and differs.
                    thread_pointer: None,
                }
            }
        }
    }
}

/// The bit that marks a 32-bit syscall: `TS_COMPAT` in `thread_info::status` on x86, `TIF_32BIT` in
/// `thread_info::flags` on arm64.
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/asm/thread_info.h#L198>
/// <https://github.com/torvalds/linux/blob/v6.12/arch/arm64/include/asm/thread_info.h#L80>
#[cfg(target_arch = "x86_64")]
pub(super) const COMPAT_MASK: u32 = 0x2;
#[cfg(target_arch = "aarch64")]
pub(super) const COMPAT_MASK: u32 = 1 << 22;

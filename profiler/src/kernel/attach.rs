//! Attaching the programs: which must be there, which are attached where the kernel has the
//! tracepoint, and in which order.

use aya::{
    Btf,
    programs::{BtfTracePoint, FEntry, ProgramError},
};

use super::{
    Kernel, KernelError, KernelTypes, Settings,
    load_programs::load_programs,
    marker_probes, markers,
    sampling_clock::{self, SamplingClock},
    survey,
};

/// Interrupts come first: a wake must find its CPU's context known. Of each the end comes before
/// the beginning: a CPU whose interrupt was seen to begin, and not to end, would seem to be in it
/// until the next one of the kind, and a device's may be long in coming.
///
/// The switch comes before the wakes. A thread that is created, and then runs and sleeps before its
/// switches are seen, would seem to wait for its first CPU all the while; and one that was seen to wake
/// somebody would seem to be on its CPU. The wakes of waits that end meanwhile are not missed: those are
/// over before the window opens.
const REQUIRED: &[&str] = &[
    "softirq_exit",
    "softirq_entry",
    "irq_handler_exit",
    "irq_handler_entry",
    "hrtimer_expire_exit",
    "hrtimer_expire_entry",
    "task_rename",
    "vm_unmapped_area",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_switch",
    "sched_migrate_task",
    "sched_wakeup_new",
    "sched_waking",
];

/// x86 has these for interrupts that no `irq_handler_entry` announces. Elsewhere, and on kernels
/// without them, the stack that a program runs on tells an interrupt from a task.
const OPTIONAL: &[&str] = &[
    "local_timer_exit",
    "local_timer_entry",
    "call_function_exit",
    "call_function_entry",
    "call_function_single_exit",
    "call_function_single_entry",
    "irq_work_exit",
    "irq_work_entry",
];

/// The functions that unthrottle a group's queue and throttle it. Since 6.18 threads are throttled
/// one by one, and what is known of that is read as they are switched.
const QUOTA_FUNCTIONS: &[&str] = &["tg_unthrottle_up", "tg_throttle_down"];

/// The programs that count what is read from disks and written to them, and the tracepoints that each may be
/// attached to. The second got its name with folios, in 5.18.
const DISK_PROGRAMS: &[(&str, &[&str])] = &[
    ("block_bio_queue", &["block_bio_queue"]),
    ("writeback_dirty_folio", &["writeback_dirty_folio", "writeback_dirty_page"]),
];

/// The programs at requests for locks of processes and of open files.
const FILE_LOCK_PROGRAMS: &[&str] = &["posix_lock_inode", "flock_lock_inode"];

/// Whether a program does no more than record which interrupt a CPU is in.
pub(super) fn is_interrupt_program(program: &str) -> bool {
    (program.ends_with("_entry") || program.ends_with("_exit")) && !program.starts_with("sched_")
}

/// The tracepoints that offwake can't do without.
#[must_use]
pub fn required_tracepoints() -> &'static [&'static str] {
    REQUIRED
}

/// The tracepoints that offwake uses where the kernel has them.
pub(super) fn optional_tracepoints() -> &'static [&'static str] {
    OPTIONAL
}

pub(super) fn attach(
    kernel: &mut Kernel,
    types: &KernelTypes,
    settings: &Settings,
) -> Result<(), KernelError> {
    let sample_hz = settings.sample_hz;
    let btf = Btf::from_sys_fs()?;
    if types.has_quotas() {
        let attached = attach_quotas(kernel, types, &btf);
        kernel.follows_quotas = attached.is_ok();
        if let Err(error) = attached {
            log::info!("CPU quotas are not followed: {error}");
        }
    }
    let attached = attach_disk_programs(kernel, types, &btf);
    kernel.counts_disk_use = attached.is_ok();
    if let Err(error) = attached {
        log::info!("what is read from disks and written to them is not counted: {error}");
    }
    let attached = attach_file_locks(kernel, types, &btf);
    kernel.follows_file_locks = attached.is_ok();
    if let Err(error) = attached {
        log::info!("who is refused a lock on a file is not recorded: {error}");
    }
    markers::attach(kernel, &btf, settings.markers)?;
    let names: Vec<&'static str> = (OPTIONAL.iter().copied())
        .filter(|name| types.has_tracepoint(name))
        .chain(REQUIRED.iter().copied())
        .collect();
    // Those that are attached last are the largest, and are begun first.
    let clock = (sample_hz > 0).then_some(sampling_clock::PROGRAM);
    let largest_first = names.iter().rev().copied().chain([survey::PROGRAM]).chain(clock);
    load_programs(&mut kernel.ebpf, &btf, &largest_first.collect::<Vec<_>>())?;
    for name in &names {
        attach_tracepoint(kernel, name)?;
    }
    kernel.marker_probes = marker_probes::attach(kernel, &settings.marker_probes)?;
    if sample_hz > 0 {
        kernel.clock = Some(SamplingClock::start(&mut kernel.ebpf, sample_hz)?);
    }
    Ok(())
}

pub(super) fn attach_tracepoint(
    kernel: &mut Kernel,
    name: &'static str,
) -> Result<(), KernelError> {
    let failed = |source| KernelError::Program { action: "attach", program: name, source };
    find_tracepoint(kernel, name)?.attach().map_err(failed)?;
    Ok(())
}

pub(super) fn find_tracepoint<'k>(
    kernel: &'k mut Kernel,
    name: &'static str,
) -> Result<&'k mut BtfTracePoint, KernelError> {
    let failed = |source| KernelError::Program { action: "use", program: name, source };
    kernel.ebpf.program_mut(name).ok_or(KernelError::Missing(name))?.try_into().map_err(failed)
}

/// Attaches what is needed to see when CPU quotas are used up and refilled. A kernel without function
/// tracing refuses it.
fn attach_quotas(kernel: &mut Kernel, types: &KernelTypes, btf: &Btf) -> Result<(), KernelError> {
    if types.throttles_threads() {
        return Ok(());
    }
    QUOTA_FUNCTIONS.iter().try_for_each(|name| attach_function(kernel, btf, name, name))
}

/// Attaches what counts what is read from disks, and written to them.
fn attach_disk_programs(
    kernel: &mut Kernel,
    types: &KernelTypes,
    btf: &Btf,
) -> Result<(), KernelError> {
    types.find_disk_fields()?;
    for &(program, tracepoints) in DISK_PROGRAMS {
        let tracepoint = (tracepoints.iter().find(|name| types.has_tracepoint(name)))
            .ok_or(KernelError::Missing(program))?;
        let failed = |source| KernelError::Program { action: "load", program, source };
        find_tracepoint(kernel, program)?.load(tracepoint, btf).map_err(failed)?;
        attach_tracepoint(kernel, program)?;
    }
    Ok(())
}

/// Attaches what records who is refused a lock on a file.
fn attach_file_locks(
    kernel: &mut Kernel,
    types: &KernelTypes,
    btf: &Btf,
) -> Result<(), KernelError> {
    types.find_file_lock_fields()?;
    for &program in FILE_LOCK_PROGRAMS {
        let failed = |source| KernelError::Program { action: "load", program, source };
        find_tracepoint(kernel, program)?.load(program, btf).map_err(failed)?;
        attach_tracepoint(kernel, program)?;
    }
    Ok(())
}

/// Attaches a program to the beginning of a function of the kernel's.
pub(super) fn attach_function(
    kernel: &mut Kernel,
    btf: &Btf,
    name: &'static str,
    function: &str,
) -> Result<(), KernelError> {
    let failed =
        |action| move |source: ProgramError| KernelError::Program { action, program: name, source };
    let program: &mut FEntry = kernel
        .ebpf
        .program_mut(name)
        .ok_or(KernelError::Missing(name))?
        .try_into()
        .map_err(failed("use"))?;
    program.load(function, btf).map_err(failed("load"))?;
    program.attach().map_err(failed("attach"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{OPTIONAL, REQUIRED};

    #[test]
    fn no_interrupt_is_seen_to_begin_before_its_end_can_be_seen() {
        let order: Vec<&str> = OPTIONAL.iter().chain(REQUIRED).copied().collect();
        let position = |wanted: &str| order.iter().position(|name| *name == wanted);
        let interrupts: Vec<_> =
            order.iter().filter_map(|name| name.strip_suffix("_entry")).collect();
        assert_eq!(interrupts.len(), 7);
        for interrupt in interrupts {
            let (begin, end) = (format!("{interrupt}_entry"), format!("{interrupt}_exit"));
            assert!(position(&end) < position(&begin) && position(&end).is_some(), "{interrupt}");
        }
    }

    #[test]
    fn no_wake_is_seen_before_switches_are() {
        let position = |wanted: &str| REQUIRED.iter().position(|name| *name == wanted);
        let switch = position("sched_switch");
        assert!(switch.is_some());
        assert!(["sched_waking", "sched_wakeup_new"].into_iter().all(|n| switch < position(n)));
    }
}

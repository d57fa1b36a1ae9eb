//! Attaching: what must be there, what is attached where the kernel has it, and in which order.

use aya::{
    Btf,
    programs::{
        BtfTracePoint, PerfEvent, ProgramError,
        perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent},
    },
    util::online_cpus,
};

use super::{Kernel, KernelError, KernelTypes, survey};

/// Interrupts come first: a wake must find its CPU's context known. The switch comes last, as it
/// is what begins waits.
const REQUIRED: &[&str] = &[
    "softirq_entry",
    "softirq_exit",
    "irq_handler_entry",
    "irq_handler_exit",
    "hrtimer_expire_entry",
    "hrtimer_expire_exit",
    "task_rename",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_migrate_task",
    "sched_wakeup_new",
    "sched_waking",
    "sched_switch",
];

/// x86 has these for interrupts that no `irq_handler_entry` announces. Elsewhere, and on kernels
/// without them, the stack that a program runs on tells an interrupt from a task.
const WHERE_PRESENT: &[&str] = &[
    "local_timer_entry",
    "local_timer_exit",
    "call_function_entry",
    "call_function_exit",
    "call_function_single_entry",
    "call_function_single_exit",
    "irq_work_entry",
    "irq_work_exit",
];

/// Whether a program does no more than to note which interrupt a CPU is in.
pub(super) fn says_which_interrupt(program: &str) -> bool {
    (program.ends_with("_entry") || program.ends_with("_exit")) && !program.starts_with("sched_")
}

/// The tracepoints that offwake can't do without.
pub(super) fn required() -> &'static [&'static str] {
    REQUIRED
}

/// The tracepoints that it uses where the kernel has them.
pub(super) fn where_present() -> &'static [&'static str] {
    WHERE_PRESENT
}

pub(super) fn attach(
    kernel: &mut Kernel,
    types: &KernelTypes,
    sample_hz: u32,
) -> Result<(), KernelError> {
    let btf = Btf::from_sys_fs()?;
    for name in WHERE_PRESENT.iter().filter(|name| types.has_tracepoint(name)).chain(REQUIRED) {
        attach_tracepoint(kernel, &btf, name)?;
    }
    survey::load(kernel, &btf)?;
    if sample_hz > 0 {
        attach_clock(kernel, sample_hz)?;
    }
    Ok(())
}

fn attach_tracepoint(
    kernel: &mut Kernel,
    btf: &Btf,
    name: &'static str,
) -> Result<(), KernelError> {
    let failed =
        |action| move |source: ProgramError| KernelError::Program { action, program: name, source };
    let program: &mut BtfTracePoint = kernel
        .ebpf
        .program_mut(name)
        .ok_or(KernelError::Missing(name))?
        .try_into()
        .map_err(failed("use"))?;
    program.load(name, btf).map_err(failed("load"))?;
    program.attach().map_err(failed("attach"))?;
    Ok(())
}

fn attach_clock(kernel: &mut Kernel, hz: u32) -> Result<(), KernelError> {
    const NAME: &str = "clock";
    let failed =
        |action| move |source: ProgramError| KernelError::Program { action, program: NAME, source };
    let program: &mut PerfEvent = kernel
        .ebpf
        .program_mut(NAME)
        .ok_or(KernelError::Missing(NAME))?
        .try_into()
        .map_err(failed("use"))?;
    program.load().map_err(failed("load"))?;
    let cpus = online_cpus().map_err(|(_, source)| KernelError::Cpus {
        path: "/sys/devices/system/cpu/online",
        source,
    })?;
    for cpu in cpus {
        program
            .attach(
                PerfEventConfig::Software(SoftwareEvent::CpuClock),
                PerfEventScope::AllProcessesOneCpu { cpu },
                SamplePolicy::Frequency(u64::from(hz)),
                false,
            )
            .map_err(failed("attach"))?;
    }
    Ok(())
}

//! Attaching the programs: which must be there, which are attached where the kernel has the
//! tracepoint, and in which order.

use std::{
    num::NonZero,
    sync::{Mutex, PoisonError},
    thread,
};

use aya::{
    Btf,
    programs::{BtfTracePoint, FEntry, ProgramError},
};

use super::{Kernel, KernelError, KernelTypes, sampling_clock::SamplingClock, survey};

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

/// Programs that are verified at a time. Three take long, and all others together as long as one of them.
const MOST_LOADED_AT_ONCE: usize = 4;

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
    sample_hz: u32,
) -> Result<(), KernelError> {
    let btf = Btf::from_sys_fs()?;
    if types.has_quotas() {
        let attached = attach_quotas(kernel, types, &btf);
        kernel.follows_quotas = attached.is_ok();
        if let Err(error) = attached {
            log::info!("CPU quotas are not followed: {error}");
        }
    }
    let names: Vec<&'static str> = (OPTIONAL.iter().copied())
        .filter(|name| types.has_tracepoint(name))
        .chain(REQUIRED.iter().copied())
        .collect();
    load_tracepoints(kernel, &btf, &names)?;
    for name in &names {
        attach_tracepoint(kernel, name)?;
    }
    survey::load(kernel, &btf)?;
    if sample_hz > 0 {
        kernel.clock = Some(SamplingClock::start(&mut kernel.ebpf, sample_hz)?);
    }
    Ok(())
}

/// Loads programs, several at a time: the verifier takes a third of a second for some. It verifies programs
/// of privileged processes side by side
/// (<https://elixir.bootlin.com/linux/v6.12/source/kernel/bpf/verifier.c>, `bpf_check`).
fn load_tracepoints(
    kernel: &mut Kernel,
    btf: &Btf,
    names: &[&'static str],
) -> Result<(), KernelError> {
    let mut programs: Vec<(&'static str, &mut BtfTracePoint)> = Vec::with_capacity(names.len());
    for (name, program) in kernel.ebpf.programs_mut() {
        if let Some(name) = names.iter().find(|wanted| **wanted == name) {
            let failed = |source| KernelError::Program { action: "use", program: name, source };
            programs.push((name, program.try_into().map_err(failed)?));
        }
    }
    if let Some(missing) = names.iter().find(|name| programs.iter().all(|(had, _)| had != *name)) {
        return Err(KernelError::Missing(missing));
    }
    // Those that are attached last are the largest, and are begun first.
    programs.sort_by_key(|(had, _)| names.iter().rev().position(|name| name == had));
    let remaining = Mutex::new(programs.into_iter());
    let load_some = || -> Result<(), KernelError> {
        loop {
            let next = remaining.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((name, program)) = next else { return Ok(()) };
            let failed = |source| KernelError::Program { action: "load", program: name, source };
            program.load(name, btf).map_err(failed)?;
        }
    };
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        // A thread that can't be started is no loss: this one loads what is left.
        let helpers: Vec<_> = (1..cpus.min(MOST_LOADED_AT_ONCE))
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, load_some).ok())
            .collect();
        let own = load_some();
        let of_helpers = helpers.into_iter().map(|helper| match helper.join() {
            Ok(loaded) => loaded,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(own).chain(of_helpers).collect()
    })
}

fn attach_tracepoint(kernel: &mut Kernel, name: &'static str) -> Result<(), KernelError> {
    let failed = |source| KernelError::Program { action: "attach", program: name, source };
    find_tracepoint(kernel, name)?.attach().map_err(failed)?;
    Ok(())
}

fn find_tracepoint<'k>(
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
    QUOTA_FUNCTIONS.iter().try_for_each(|name| attach_function(kernel, btf, name))
}

/// Attaches a program to the beginning of a function of the kernel's.
fn attach_function(kernel: &mut Kernel, btf: &Btf, name: &'static str) -> Result<(), KernelError> {
    let failed =
        |action| move |source: ProgramError| KernelError::Program { action, program: name, source };
    let program: &mut FEntry = kernel
        .ebpf
        .program_mut(name)
        .ok_or(KernelError::Missing(name))?
        .try_into()
        .map_err(failed("use"))?;
    program.load(name, btf).map_err(failed("load"))?;
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

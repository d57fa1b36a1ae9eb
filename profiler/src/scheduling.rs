//! How the kernel schedules offwake's own threads and processes.
//!
//! ```text
//!  drain, look-up, store        nice -20, slices of 0.1 ms ──────────▶ look-up names: as offwake began
//!  offwake-unwind, -reader      the same
//!  everything else              as offwake began
//! ```

use std::{io, mem, os::unix::process::CommandExt as _, process::Command, sync::OnceLock};

use rustix::process::{getpriority_process, setpriority_process};

/// The shortest slice that a thread can ask for (`NSEC_PER_MSEC / 10` in
/// [`__setparam_fair`](https://github.com/torvalds/linux/blob/v6.12/kernel/sched/fair.c#L5204)).
const SHORTEST_SLICE_NS: u64 = 100_000;
/// The highest priority that is no real-time priority: 87 times the share of a CPU that others get
/// ([`sched_prio_to_weight`](https://github.com/torvalds/linux/blob/v6.12/kernel/sched/core.c)).
const HIGHEST_PRIORITY: i32 = -20;

/// The nice value that the first thread had that asked for a higher priority.
static NICE_AT_START: OnceLock<i32> = OnceLock::new();

/// Gives the calling thread, and those that it starts from now on, the highest priority below
/// real time, and slices of 0.1 ms.
///
/// A thread that empties a ring has little to do, but the ring is full if it does that late. 400 threads
/// that talk to each other leave one with nice 0 a 200th of a CPU: 46,060 stacks were lost in 10 s, and
/// 356 with nice -10.
///
/// A shorter slice gives it no more of a CPU, but sooner: since Linux 6.12, a thread that wakes with a
/// shorter slice than the one that computes takes its place. Older kernels take no notice.
///
/// # Errors
///
/// If the kernel refuses the priority, which takes `CAP_SYS_NICE`: the slices are asked for all the same.
/// Everything works then, only later.
pub(crate) fn raise_priority() -> io::Result<()> {
    let mut attributes = read_attributes()?;
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return Ok(());
    }
    NICE_AT_START.get_or_init(|| attributes.sched_nice);
    attributes.sched_runtime = SHORTEST_SLICE_NS;
    // What is read besides says which values are there, and can't be set again by everybody.
    attributes.sched_flags &= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    let slices_alone = attributes;
    attributes.sched_nice = HIGHEST_PRIORITY;
    write_attributes(&attributes).or_else(|refused| {
        write_attributes(&slices_alone)?;
        Err(refused)
    })
}

/// The nice value that offwake began with, if it has raised any.
pub(crate) fn nice_at_start() -> Option<i32> {
    NICE_AT_START.get().copied()
}

/// Tells a process that was started with a raised priority what offwake began with.
pub(crate) fn set_nice_at_start(nice: Option<i32>) {
    if let Some(nice) = nice {
        NICE_AT_START.get_or_init(|| nice);
    }
}

/// Gives the calling thread the priority back that offwake began with: what follows can wait.
pub(crate) fn restore_priority() {
    let Some(&nice) = NICE_AT_START.get() else { return };
    // To ask for less takes no rights, unless the priority was raised from outside meanwhile.
    if getpriority_process(None).is_ok_and(|now| now < nice) {
        let _as_before = setpriority_process(None, nice);
    }
}

/// Has a program that is run begin with the [raised priority](raise_priority), as far as the calling
/// thread may give it that.
pub(crate) fn raise_priority_of(program: &mut Command) {
    // Now, as the child of a fork must not wait for a thread that is at it.
    if let Ok(attributes) = read_attributes() {
        NICE_AT_START.get_or_init(|| attributes.sched_nice);
    }
    let raise = || {
        let _as_before = raise_priority();
        Ok(())
    };
    // SAFETY: `raise` makes system calls and reads memory: it takes no lock and no memory.
    unsafe { program.pre_exec(raise) };
}

fn read_attributes() -> io::Result<libc::sched_attr> {
    let size = mem::size_of::<libc::sched_attr>() as u32;
    // SAFETY: all fields are numbers.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes no more than `size` bytes.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if read == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

fn write_attributes(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads a structure that says how long it is.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_in_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(body).join().unwrap()
    }

    #[test]
    fn a_raised_priority_is_given_back() {
        let [before, raised, restored] = run_in_thread(|| {
            let before = read_attributes().unwrap();
            let is_raised = raise_priority().is_ok();
            let raised = read_attributes().unwrap();
            // Whoever may not raise it keeps what it has.
            let expected = if is_raised { HIGHEST_PRIORITY } else { before.sched_nice };
            assert_eq!(raised.sched_nice, expected);
            restore_priority();
            [before, raised, read_attributes().unwrap()]
        });
        assert_eq!(raised.sched_policy, before.sched_policy);
        assert_eq!(restored.sched_nice, before.sched_nice);
        // Kernels before 6.12 say 0.
        assert!([0, SHORTEST_SLICE_NS].contains(&raised.sched_runtime), "{}", raised.sched_runtime);
    }

    #[test]
    fn a_program_begins_with_the_priority_that_its_starter_may_give() {
        let [own, its] = run_in_thread(|| {
            let own = match raise_priority() {
                Ok(()) => HIGHEST_PRIORITY,
                Err(_) => read_attributes().unwrap().sched_nice,
            };
            restore_priority();
            let mut program = Command::new("nice");
            raise_priority_of(&mut program);
            let said = String::from_utf8(program.output().unwrap().stdout).unwrap();
            [own, said.trim().parse().unwrap()]
        });
        assert_eq!(its, own);
    }
}

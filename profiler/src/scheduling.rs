//! How the kernel schedules offwake's own threads.

use std::{io, mem};

/// The shortest slice that a thread can ask for (`NSEC_PER_MSEC / 10` in
/// [`__setparam_fair`](https://github.com/torvalds/linux/blob/v6.12/kernel/sched/fair.c#L5204)).
const SHORTEST_SLICE_NS: u64 = 100_000;

/// Asks the kernel for slices of 0.1 ms for the calling thread, and for those that it starts from now on.
///
/// That gives it no more of a CPU, but sooner: since Linux 6.12, a thread that wakes with a shorter slice
/// than the one that computes takes its place. Where hundreds of threads are runnable, a thread that
/// sleeps again after a few µs, as those do that empty rings and answer each other, would wait most of the
/// time. Any thread may ask for that. Older kernels take no notice.
///
/// # Errors
///
/// If the kernel refuses. Everything works then, only later.
pub(crate) fn ask_for_short_slices() -> io::Result<()> {
    let mut attributes = read_attributes()?;
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return Ok(());
    }
    attributes.sched_runtime = SHORTEST_SLICE_NS;
    // What is read besides says which values are there, and can't be set again by everybody.
    attributes.sched_flags &= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: the kernel reads a structure that says how long it is.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn read_attributes() -> io::Result<libc::sched_attr> {
    let size = mem::size_of::<libc::sched_attr>() as u32;
    // SAFETY: all fields are numbers.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes no more than `size` bytes.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if read == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_asks_keeps_its_policy_and_its_nice_value() {
        let [before, after] = std::thread::spawn(|| {
            let before = read_attributes().unwrap();
            ask_for_short_slices().unwrap();
            [before, read_attributes().unwrap()]
        })
        .join()
        .unwrap();
        let kept = |attributes: &libc::sched_attr| (attributes.sched_policy, attributes.sched_nice);
        assert_eq!(kept(&after), kept(&before));
        // Kernels before 6.12 say 0.
        assert!([0, SHORTEST_SLICE_NS].contains(&after.sched_runtime), "{}", after.sched_runtime);
    }
}

//! The syscall that a thread of another process sleeps in, by `/proc/PID/task/TID/syscall`
//! ([proc(5)](https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html)).

use std::fs;

use offwake_recording::units::{Tgid, Tid};

/// A call, as far as it has to be known to tell it from another one of the same thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadCall {
    pub(crate) number: u32,
    /// The first three arguments.
    pub(crate) arguments: [u64; 3],
}

impl ThreadCall {
    /// Reads the call that a thread is in; none if it is in none, or may not be looked at.
    pub(crate) fn read(tgid: Tgid, tid: Tid) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{tgid}/task/{tid}/syscall")).ok()?)
    }

    /// Parses a number and arguments in hexadecimal: `7 0x7ffc10 0x1 0xffffffff …`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        Some(Self { number, arguments: [argument()?, argument()?, argument()?] })
    }
}

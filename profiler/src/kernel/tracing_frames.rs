//! Where the kernel's own functions lie that run BPF programs at tracepoints.
//!
//! A stack that is walked in such a program begins with frames of the tracing itself: the program's
//! functions, and the one that called it. They are others for each way through the program, and
//! while the kernel measures programs, though the thread is in one and the same place.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    ops::Range,
};

/// `bpf_trace_run1` to `bpf_trace_run12`
/// ([`bpf_trace.c`](https://github.com/torvalds/linux/blob/v6.12/kernel/trace/bpf_trace.c#L2398)).
const PREFIX: &str = "bpf_trace_run";
const COUNT: usize = 12;
/// More bytes than any such function has; behind the last one are helpers of such programs.
const LONGEST: u64 = 1 << 10;

/// Finds the addresses of these functions. None if the kernel does not show them.
pub(super) fn find() -> Option<Range<u64>> {
    parse_kallsyms(BufReader::new(File::open("/proc/kallsyms").ok()?))
}

fn parse_kallsyms(kallsyms: impl BufRead) -> Option<Range<u64>> {
    let addresses =
        (kallsyms.lines().map_while(Result::ok)).filter_map(|line| parse_address(&line));
    let addresses: Vec<u64> = addresses.take(COUNT).collect();
    let (first, last) = (*addresses.iter().min()?, *addresses.iter().max()?);
    (first != 0).then(|| first..last.saturating_add(LONGEST))
}

/// The address in a line of `kallsyms` (`ffffffff814ba320 T bpf_trace_run1`) if it is one of them.
fn parse_address(line: &str) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (address, name) = (fields.next()?, fields.nth(1)?);
    let number = name.strip_prefix(PREFIX)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| u64::from_str_radix(address, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::parse_kallsyms;

    #[test]
    fn the_functions_are_found_and_nothing_else() {
        let kallsyms = "ffffffff81000000 T _stext\nffffffff814ba310 T __pfx_bpf_trace_run1\n\
                        ffffffff814ba320 T bpf_trace_run1\nffffffff814ba4f0 T bpf_trace_run2\n\
                        ffffffff814ba600 t bpf_trace_runner\nffffffffc0000000 t init\t[module]\n";
        assert_eq!(
            parse_kallsyms(kallsyms.as_bytes()),
            Some(0xffff_ffff_814b_a320..0xffff_ffff_814b_a8f0)
        );
    }

    #[test]
    fn what_is_hidden_is_not_made_up() {
        assert_eq!(parse_kallsyms("0000000000000000 T bpf_trace_run1\n".as_bytes()), None);
        assert_eq!(parse_kallsyms("".as_bytes()), None);
    }
}

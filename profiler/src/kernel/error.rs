//! What can go wrong between the user half and the kernel.

use std::{io, path::PathBuf};

use aya::{EbpfError, maps::MapError, programs::ProgramError};
use thiserror::Error;

use crate::own_threads::OwnThread;

/// Says what failed, on what, and what to do about it.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The binary carries no programs.
    #[error(
        "this offwake was built without its kernel half; build it with `cargo xtask build` and run target/release/offwake"
    )]
    NotEmbedded,
    /// There is no BTF.
    #[error(
        "this kernel publishes no type information ({path}): {source}; offwake needs CONFIG_DEBUG_INFO_BTF=y, which Debian, Ubuntu, Fedora and RHEL kernels have; `offwake doctor` tells more"
    )]
    NoBtf {
        /// The file that should have the types.
        path: PathBuf,
        /// Why the file can't be read.
        source: io::Error,
    },
    /// The BTF can't be read.
    #[error("cannot read the kernel's type information: {0}")]
    Btf(#[from] btf_rs::Error),
    /// aya's reader failed.
    #[error("cannot read the kernel's type information: {0}")]
    AyaBtf(#[from] aya::BtfError),
    /// A field that the programs read is not there.
    #[error(
        "this kernel has no `{field}` where offwake looks for it; please report the kernel's release with this line"
    )]
    NoField {
        /// `struct::member`
        field: String,
    },
    /// The object could not be loaded.
    #[error("cannot load the BPF programs: {}", chain(.0))]
    Load(#[from] EbpfError),
    /// A program was refused, or could not be attached.
    #[error("cannot {action} `{program}`: {}", chain(.source))]
    Program {
        /// `load` or `attach`.
        action: &'static str,
        /// The program's name.
        program: &'static str,
        /// The kernel's error.
        source: ProgramError,
    },
    /// A thread that loads programs died.
    #[error("offwake's own thread {} failed", .0.name())]
    Thread(OwnThread),
    /// A function or a probe could not be followed.
    #[error("cannot follow --marker {words}: {error}")]
    Probe {
        /// What the user calls it.
        words: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// A map could not be used.
    #[error("cannot use the BPF map `{map}`: {}", chain(.source))]
    Map {
        /// The map's name.
        map: &'static str,
        /// The kernel's error.
        source: MapError,
    },
    /// The object lacks something that it should have.
    #[error("the embedded BPF object has no `{0}`; build offwake again with `cargo xtask build`")]
    Missing(&'static str),
    /// The iterator over threads could not be run.
    #[error("cannot look at the machine's threads: {0}")]
    Survey(#[source] io::Error),
    /// The list of CPUs can't be read.
    #[error("cannot read which CPUs are online ({path}): {source}")]
    Cpus {
        /// The file that can't be read.
        path: &'static str,
        /// Why the file can't be read.
        source: io::Error,
    },
}

/// An error with its causes on one line; the last line of a verifier's log says what it refused.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = one_line(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = one_line(&cause.to_string());
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        // A verifier's log: its statistics come last, the complaint before them.
        [first, .., _] => {
            let complaint = lines
                .iter()
                .rev()
                .find(|line| {
                    !line.starts_with("processed ")
                        && !line.starts_with("verification time")
                        && !line.starts_with("stack depth")
                        && !line.starts_with("insns ")
                })
                .unwrap_or(first);
            format!("{first} … {complaint}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_verifier_log_shrinks_to_its_complaint() {
        let log = "the BPF_PROG_LOAD syscall returned Permission denied. Verifier output:\n\
                   0: R1=ctx()\naccess beyond struct task_struct at off 65536 size 4\n\
                   processed 12 insns (limit 1000000)\n";
        assert_eq!(
            one_line(log),
            "the BPF_PROG_LOAD syscall returned Permission denied. Verifier output: … \
             access beyond struct task_struct at off 65536 size 4"
        );
        assert_eq!(one_line("one"), "one");
        assert_eq!(one_line(""), "");
    }
}

//! Whether a kernel that does not run here has everything that the programs read and are attached to.
//!
//! ```text
//! cargo run -p offwake --example check-kernel-types -- x86_64|aarch64 TYPES.btf
//! ```
//!
//! The file holds raw BTF, as in `/sys/kernel/btf/vmlinux`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Parser, ValueEnum};
use offwake::kernel::{KernelTypes, Machine, required_tracepoints};

#[derive(Parser)]
struct Arguments {
    machine: For,
    types: PathBuf,
}

/// The machine that the kernel is for.
#[derive(Clone, Copy, ValueEnum)]
enum For {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

fn main() -> anyhow::Result<()> {
    let Arguments { machine, types } = Arguments::parse();
    let machine = match machine {
        For::X86_64 => Machine::X86_64,
        For::Aarch64 => Machine::Aarch64,
    };
    let types = KernelTypes::from_file(&types)
        .with_context(|| format!("cannot read {}", types.display()))?;
    let offsets = types.offsets_on(machine, 0)?;
    let absent: Vec<_> =
        required_tracepoints().iter().filter(|name| !types.has_tracepoint(name)).collect();
    if !absent.is_empty() {
        bail!("the kernel has no tracepoint {absent:?}");
    }
    if !types.has_function("bpf_iter_task") {
        bail!("the kernel has no bpf_iter_task");
    }
    println!("{offsets:#?}");
    Ok(())
}

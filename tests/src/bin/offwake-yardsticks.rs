//! Loads the programs of `profiler-ebpf/src/bin/yardsticks.rs` that offwake is measured against:
//! `offwake-yardsticks OBJECT PROGRAM…`.
//!
//! It attaches them, says `ready`, and holds them until its standard input ends. It is here and not
//! among the benchmarks of `offwake` because those are linked with all of offwake, which takes
//! minutes to compile and is nothing to do with it.

use std::{
    env, fs,
    io::{self, Read as _, Write as _},
};

use anyhow::{Context as _, Result};
use aya::{Btf, Ebpf, programs::BtfTracePoint};
use offwake_tests::workloads::stage::die_with_parent;

/// The programs, and what each is attached to.
const PROGRAMS: [(&str, &str); 3] = [
    ("nothing_at_switch", "sched_switch"),
    ("nothing_at_waking", "sched_waking"),
    ("both_stacks_walked", "sched_switch"),
];

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let object = arguments.next().context("usage: offwake-yardsticks OBJECT PROGRAM...")?;
    let bytes = fs::read(&object).with_context(|| format!("cannot read {object}"))?;
    die_with_parent();
    let btf = Btf::from_sys_fs().context("this kernel has no BTF")?;
    let mut ebpf = Ebpf::load(&bytes).with_context(|| format!("cannot load {object}"))?;
    for name in arguments {
        let (_, tracepoint) = PROGRAMS
            .iter()
            .find(|(known, _)| *known == name)
            .with_context(|| format!("no program {name}"))?;
        let program: &mut BtfTracePoint = ebpf
            .program_mut(&name)
            .with_context(|| format!("{object} lacks {name}"))?
            .try_into()?;
        program.load(tracepoint, &btf).with_context(|| format!("cannot load {name}"))?;
        program.attach().with_context(|| format!("cannot attach {name}"))?;
    }
    println!("ready");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new()).context("cannot read standard input")?;
    Ok(())
}

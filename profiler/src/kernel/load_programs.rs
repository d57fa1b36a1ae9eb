//! Loading several programs at a time. The verifier takes half a second for the largest, and verifies
//! programs of privileged processes side by side
//! (<https://elixir.bootlin.com/linux/v6.12/source/kernel/bpf/verifier.c>, `bpf_check`).

use std::{
    collections::HashMap,
    num::NonZero,
    sync::{Mutex, PoisonError},
    thread,
};

use aya::{
    Btf, Ebpf,
    programs::{Program, ProgramError},
};

use super::KernelError;
use crate::own_threads::{self, OwnThread};

/// Three programs take long, and all others together as long as one of them.
const MOST_AT_ONCE: usize = 4;

/// Loads the programs of these names, and begins with the first.
pub(super) fn load_programs(
    ebpf: &mut Ebpf,
    btf: &Btf,
    names: &[&'static str],
) -> Result<(), KernelError> {
    let mut all: HashMap<&str, &mut Program> = ebpf.programs_mut().collect();
    let programs = (names.iter())
        .map(|&name| Ok((name, all.remove(name).ok_or(KernelError::Missing(name))?)))
        .collect::<Result<Vec<_>, KernelError>>()?;
    let remaining = Mutex::new(programs.into_iter());
    let load_some = || -> Result<(), KernelError> {
        loop {
            let next = remaining.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((name, program)) = next else { return Ok(()) };
            let failed = |source| KernelError::Program { action: "load", program: name, source };
            load(program, name, btf).map_err(failed)?;
        }
    };
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        // A thread that can't be started is no loss: this one loads what is left.
        let helpers: Vec<_> = (1..cpus.min(MOST_AT_ONCE))
            .filter_map(|_| own_threads::spawn_scoped(OwnThread::Load, scope, load_some).ok())
            .collect();
        let own = load_some();
        let of_helpers = helpers.into_iter().map(|helper| match helper.join() {
            Ok(loaded) => loaded,
            Err(_panic) => Err(KernelError::Thread(OwnThread::Load)),
        });
        std::iter::once(own).chain(of_helpers).collect()
    })
}

/// Loads a program; one at a tracepoint has its name.
fn load(program: &mut Program, name: &str, btf: &Btf) -> Result<(), ProgramError> {
    match program {
        Program::BtfTracePoint(program) => program.load(name, btf),
        Program::Iter(program) => program.load("task", btf),
        Program::PerfEvent(program) => program.load(),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

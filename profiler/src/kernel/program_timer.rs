//! Measuring how long the programs run, and what else the kernel tells of a loaded program.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::PathBuf,
};

use aya::{
    Ebpf,
    programs::Program,
    sys::{Stats, enable_stats},
};
use offwake_recording::{
    ProgramTime,
    units::{Nanos, Timestamp},
};

use super::attach;

/// The fdinfo of a loaded program: its path is good for as long as the program is loaded.
pub(super) struct ProgramInfo(PathBuf);

impl ProgramInfo {
    /// None if the program is not loaded.
    pub fn new(program: &Program) -> Option<Self> {
        let fd = program.fd().ok()?.as_fd().as_raw_fd();
        Some(Self(PathBuf::from(format!("/proc/self/fdinfo/{fd}"))))
    }

    /// The number behind a key; None if the kernel has no such key.
    pub fn number(&self, key: &str) -> Option<u64> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().parse().ok()
    }
}

/// A program whose run time is read.
struct TimedProgram {
    is_interrupt_program: bool,
    info: ProgramInfo,
}

/// Has the kernel measure the programs, now and then.
pub struct ProgramTimer {
    programs: Vec<TimedProgram>,
    measured: ProgramTime,
    running: Option<Measurement>,
}

/// A measurement that is under way.
struct Measurement {
    /// How long the programs had run before.
    before: ProgramTime,
    begin: Timestamp,
    /// The kernel measures for as long as this is open.
    enabled: OwnedFd,
}

impl ProgramTimer {
    /// Finds the programs of the loaded kernel half.
    pub(super) fn new(ebpf: &Ebpf) -> Self {
        let programs = ebpf.programs().filter_map(|(name, program)| {
            let info = ProgramInfo::new(program)?;
            let is_interrupt_program = attach::is_interrupt_program(name);
            Some(TimedProgram { is_interrupt_program, info })
        });
        let programs = programs.collect();
        Self { programs, measured: ProgramTime::default(), running: None }
    }

    /// What was measured so far.
    #[must_use]
    pub fn measured(&self) -> ProgramTime {
        self.measured
    }

    /// Whether the programs are being measured.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.running.is_some()
    }

    /// Has the kernel measure the programs from now on, if it can (5.8 and later).
    pub fn start_measuring(&mut self) {
        let Ok(enabled) = enable_stats(Stats::RunTime) else { return };
        self.running = Some(Measurement { before: self.run_times(), begin: super::now(), enabled });
    }

    /// Ends the measurement that is under way, and adds what it has come to.
    pub fn stop_measuring(&mut self) {
        let Some(Measurement { before, begin, enabled }) = self.running.take() else { return };
        let (after, end) = (self.run_times(), super::now());
        drop(enabled);
        self.measured.measured += end.since(begin);
        self.measured.scheduler += Nanos(after.scheduler.0.saturating_sub(before.scheduler.0));
        self.measured.interrupts += Nanos(after.interrupts.0.saturating_sub(before.interrupts.0));
    }

    fn run_times(&self) -> ProgramTime {
        let mut times = ProgramTime::default();
        for TimedProgram { is_interrupt_program, info } in &self.programs {
            let time =
                if *is_interrupt_program { &mut times.interrupts } else { &mut times.scheduler };
            *time += Nanos(info.number("run_time_ns").unwrap_or(0));
        }
        times
    }
}

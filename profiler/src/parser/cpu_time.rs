//! The CPU time of the processes that parse: a part of what offwake costs.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nix::{time::ClockId, unistd::Pid};

/// All processes that were started. Those that have ended have no clock any more.
static ALL: Mutex<Vec<ProcessCpuTime>> = Mutex::new(Vec::new());

struct ProcessCpuTime {
    clock: Option<ClockId>,
    so_far: Duration,
}

impl ProcessCpuTime {
    fn read(&mut self) -> Duration {
        if let Some(now) = self.clock.and_then(|clock| clock.now().ok()) {
            self.so_far = now.into();
        }
        self.so_far
    }
}

fn lock_all() -> MutexGuard<'static, Vec<ProcessCpuTime>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPU time of one process.
pub(super) struct CpuAccount(usize);

impl CpuAccount {
    /// Opens the account of a child. Nobody may wait for the child for as long as the account is
    /// open, so that no other process gets its number.
    pub(super) fn for_child(id: u32) -> Self {
        let id = i32::try_from(id).ok().map(Pid::from_raw);
        let clock = id.and_then(|id| ClockId::pid_cpu_clock_id(id).ok());
        let mut all = lock_all();
        all.push(ProcessCpuTime { clock, so_far: Duration::ZERO });
        Self(all.len() - 1)
    }

    /// How much the process has used; none if that is not known.
    pub(super) fn used(&self) -> Option<Duration> {
        let mut all = lock_all();
        let used = all.get_mut(self.0)?;
        used.clock.is_some().then(|| used.read())
    }
}

impl Drop for CpuAccount {
    fn drop(&mut self) {
        if let Some(used) = lock_all().get_mut(self.0) {
            used.read();
            used.clock = None;
        }
    }
}

/// How much all processes that parse have used until now, those included that have ended.
pub fn cpu_used() -> Duration {
    lock_all().iter_mut().map(ProcessCpuTime::read).sum()
}

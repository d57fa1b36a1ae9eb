//! What the processes that parse have used of CPUs: a part of what offwake costs.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nix::{time::ClockId, unistd::Pid};

/// All that were started. Those that have ended have no clock any more.
static ALL: Mutex<Vec<Used>> = Mutex::new(Vec::new());

struct Used {
    clock: Option<ClockId>,
    so_far: Duration,
}

impl Used {
    fn read(&mut self) -> Duration {
        if let Some(now) = self.clock.and_then(|clock| clock.now().ok()) {
            self.so_far = now.into();
        }
        self.so_far
    }
}

fn all() -> MutexGuard<'static, Vec<Used>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One process.
pub(super) struct Account(usize);

impl Account {
    /// Of a child, which must not be waited for as long as this is there: its number is its own.
    pub(super) fn of_child(id: u32) -> Self {
        let id = i32::try_from(id).ok().map(Pid::from_raw);
        let clock = id.and_then(|id| ClockId::pid_cpu_clock_id(id).ok());
        let mut all = all();
        all.push(Used { clock, so_far: Duration::ZERO });
        Self(all.len() - 1)
    }

    /// What it has used; none if nobody can tell.
    pub(super) fn used(&self) -> Option<Duration> {
        let mut all = all();
        let used = all.get_mut(self.0)?;
        used.clock.is_some().then(|| used.read())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(used) = all().get_mut(self.0) {
            used.read();
            used.clock = None;
        }
    }
}

/// What all of them have used until now, those included that have ended.
pub fn cpu_used() -> Duration {
    all().iter_mut().map(Used::read).sum()
}

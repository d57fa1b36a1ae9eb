//! Holds what recording costs below the limit that the user sets (`--max-overhead`).
//!
//! ```text
//! each 100 ms   programs' run time, by their own clock ─┐
//!               own threads' CPU time ──────────────────┴▶ share of all CPUs ▶ Controller ▶ Step ▶ kernel half
//!                                                                └──────────────────────────▶ recording
//! ```

mod controller;
mod steps;

use offwake_recording::{
    DetailStretch,
    units::{Nanos, Timestamp},
};

use super::clocks::own_cpu_time;
use crate::kernel::{DetailControl, ProgramCostReader, ProgramCosts};
use controller::{Controller, Cost};
use steps::Step;

/// How often it is decided what to give up.
const PERIOD: Nanos = Nanos(100_000_000);

/// How much of the machine's CPU time recording may take: of the time of all CPUs that are online, whether
/// they are busy or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverheadLimit(f64);

impl OverheadLimit {
    /// None if it is no share of a machine.
    #[must_use]
    pub fn from_percent(percent: f64) -> Option<Self> {
        (0.1..=100.0).contains(&percent).then_some(Self(percent / 100.0))
    }

    /// The share in percent.
    #[must_use]
    pub fn as_percent(self) -> f64 {
        self.0 * 100.0
    }
}

/// What was read last.
struct Reading {
    at: Timestamp,
    programs: ProgramCosts,
    own_cpu: Nanos,
}

/// What the kernel half has for it.
pub(super) struct KernelSide {
    pub costs: ProgramCostReader,
    pub detail: DetailControl,
}

/// Measures what recording costs, and gives detail up where that is more than it may be.
pub(super) struct Overhead {
    kernel: KernelSide,
    limit: Option<OverheadLimit>,
    controller: Controller,
    last: Option<Reading>,
    /// What has not been taken yet.
    stretches: Vec<DetailStretch>,
}

impl Overhead {
    pub fn new(kernel: KernelSide, limit: Option<OverheadLimit>) -> Self {
        Self { kernel, limit, controller: Controller::new(), last: None, stretches: Vec::new() }
    }

    /// Measures and decides, if it is time to. Call it often, from the window's opening on.
    pub fn pass(&mut self, now: Timestamp) {
        if self.last.as_ref().is_none_or(|last| now.since(last.at) >= PERIOD) {
            self.measure(now);
        }
    }

    /// What was measured since the last call.
    pub fn take_stretches(&mut self) -> Vec<DetailStretch> {
        std::mem::take(&mut self.stretches)
    }

    /// Measures up to now, whether it is time to or not.
    pub fn measure(&mut self, now: Timestamp) {
        // Without a reading, nothing is known, and what holds goes on to hold.
        let Ok(programs) = self.kernel.costs.read() else { return };
        let reading = Reading { at: now, programs, own_cpu: own_cpu_time() };
        let Some(last) = self.last.replace(reading) else { return };
        let passed = now.since(last.at);
        let cpu_time = Nanos(passed.0.saturating_mul(online_cpus()));
        let (step, threshold) = self.controller.step().describe();
        let stretch = DetailStretch {
            from: last.at,
            until: now,
            step,
            threshold,
            kernel_cost: programs.since(&last.programs),
            own_cost: self.last.as_ref().map_or(Nanos(0), |now| now.own_cpu - last.own_cpu),
            cpu_time,
            limit: self.limit.map(|OverheadLimit(share)| Nanos((cpu_time.0 as f64 * share) as u64)),
        };
        self.decide(&stretch);
        let stretch = match self.stretches.last_mut() {
            Some(before) => before.extend(stretch).err(),
            None => Some(stretch),
        };
        self.stretches.extend(stretch);
    }

    fn decide(&mut self, stretch: &DetailStretch) {
        let Some(limit) = stretch.limit else { return };
        // Right after another one there is too little to go by.
        if stretch.until.since(stretch.from) < Nanos(PERIOD.0 / 2) {
            return;
        }
        let share = |cost: Nanos| cost.0 as f64 / limit.0.max(1) as f64;
        let before = self.controller.step();
        let step = self.controller.decide(Cost {
            programs: share(stretch.kernel_cost),
            threads: share(stretch.own_cost),
        });
        if step != before {
            self.apply(step);
        }
    }

    fn apply(&mut self, step: Step) {
        if let Err(error) = self.kernel.detail.set(step.detail()) {
            log::warn!("what is recorded can't be changed: {error}");
        }
    }
}

/// How many CPUs are online just now.
fn online_cpus() -> u64 {
    // SAFETY: the call has no preconditions.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u64::try_from(count).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::OverheadLimit;

    #[test]
    fn a_limit_is_a_share_of_the_machine() {
        assert_eq!(OverheadLimit::from_percent(10.0).map(OverheadLimit::as_percent), Some(10.0));
        for wrong in [0.0, -1.0, 0.01, 100.1, f64::NAN] {
            assert_eq!(OverheadLimit::from_percent(wrong), None);
        }
    }
}

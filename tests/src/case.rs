//! One workload, profiled once: what offwake says against what is true.
//!
//! The tolerances, and why they are what they are. A shared machine with two CPUs takes a CPU away
//! for milliseconds at any moment, so a workload's own figure for a wait holds more than the wait:
//! it is the time around the call, the time until the thread had a CPU again included. The bounds
//! are wide enough for that, and narrow enough that a wrong waker or a wrong cause breaks them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    clock::ns,
    gaps::check_gaps_of,
    ground_truth::{Activity, GroundTruth, Log, Player},
    intervals::Interval,
    ledger,
    offwake::{Offwake, Outcome},
    report::Report,
    workload::Workload,
};

/// How long each case is profiled: waits of 5 ms come some 150 times, and the one that the window
/// cuts off on either side is less than 1 % of them.
pub const WINDOW: Duration = Duration::from_secs(1);

/// How long a case is profiled that has to bring about something to judge, at first and again.
pub const LONGER_WINDOWS: [Duration; 3] = [WINDOW, Duration::from_secs(4), Duration::from_secs(16)];

/// The part of a role's blocked time that must be on the cause and the waker that the workload is
/// built on. The rest is for the window's edges, page faults and locks inside libc.
pub const SHARE: f64 = 0.95;

/// The part of a wait that must be blamed on the thread that ended it, where that thread had
/// nothing to do but to compute. Lower than [`SHARE`], as a computing thread too may take a page
/// fault or be stopped for a moment.
pub const BLAMED_SHARE: f64 = 0.85;

/// What a length may be off by, relative to it …
pub const RELATIVE: f64 = 0.10;

/// … and absolutely, in ns: a few times the scheduler's slice.
pub const ABSOLUTE_NS: f64 = 20e6;

/// One workload that was profiled once: what offwake reports of it, and what is true.
pub struct Case {
    /// What offwake says.
    pub report: Report,
    /// What is true.
    pub truth: GroundTruth,
    /// How offwake ended, and what else it wrote.
    pub outcome: Outcome,
    players: BTreeMap<String, Player>,
}

impl Case {
    /// Profiles the processes of the workload `name` for [`WINDOW`].
    ///
    /// # Errors
    ///
    /// When either fails, a record was lost, a role has a gap, or a ledger does not close.
    pub fn profile(name: &str) -> Result<Self> {
        Self::profile_processes(name, WINDOW)
    }

    /// Profiles the processes of the workload `name`, for [`WINDOW`] at first and for longer until
    /// `is_enough` says that there is something to judge. How often a workload waits depends on the
    /// machine: an emulated CPU that others want too may manage a single fsync in a second.
    ///
    /// # Errors
    ///
    /// As [`Case::profile`]. A case that was never enough is no error: the checks judge it.
    pub fn profile_until(name: &str, is_enough: impl Fn(&Self) -> bool) -> Result<Self> {
        let [first, longer @ ..] = LONGER_WINDOWS;
        let mut case = Self::profile_processes(name, first)?;
        for window in longer {
            if is_enough(&case) {
                break;
            }
            case = Self::profile_processes(name, window)?;
        }
        Ok(case)
    }

    /// Profiles a workload with the arguments that `target` adds.
    ///
    /// # Errors
    ///
    /// As [`Case::profile`].
    pub fn profile_with(
        workload: Workload,
        target: impl FnOnce(Offwake, &Workload) -> Offwake,
    ) -> Result<Self> {
        Self::profile_window(WINDOW, workload, target, || Ok(()))
    }

    fn profile_processes(name: &str, window: Duration) -> Result<Self> {
        let target =
            |offwake: Offwake, workload: &Workload| offwake.args(["--pid", &workload.pids()]);
        Self::profile_window(window, Workload::start(name)?, target, || Ok(()))
    }

    /// Profiles a workload with the arguments that `target` adds, for `window`; `afterwards` is
    /// called while the workload still runs.
    ///
    /// # Errors
    ///
    /// As [`Case::profile`], and those of `afterwards`.
    pub fn profile_window(
        window: Duration,
        workload: Workload,
        target: impl FnOnce(Offwake, &Workload) -> Offwake,
        afterwards: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        // What stacks may take is not what is asked here, and an emulated CPU takes long for them.
        let offwake = Offwake::profile()?.args([
            "--budget",
            "none",
            "--max-overhead",
            "none",
            "-d",
            &duration_argument(window),
        ]);
        let offwake = offwake.args(["-o", "report.json"]);
        let outcome = target(offwake, &workload).run()?;
        afterwards()?;
        let case = Self::from_outcome(workload, outcome, "report.json")?;
        ledger::check_unfiltered(&case.report)?;
        let loss = &case.report.loss;
        ensure!(loss.records == 0, "records were lost: {loss:?}");
        case.check_gaps()?;
        Ok(case)
    }

    /// Demands that next to none of the roles' time, and of any role's, is in gaps, and prints what is.
    fn check_gaps(&self) -> Result<()> {
        let tids: BTreeSet<u32> = self.players.values().map(|player| player.tid).collect();
        let roles = self.report.threads.iter().filter(|thread| tids.contains(&thread.tid));
        check_gaps_of(&self.report, roles)
    }

    /// Puts a workload that still runs and the report of an offwake that has ended side by side.
    ///
    /// # Errors
    ///
    /// When offwake or the workload failed, or a ledger does not close.
    pub fn from_outcome(workload: Workload, outcome: Outcome, file: &str) -> Result<Self> {
        let report = outcome.report(file)?;
        let players = workload.players().clone();
        let truth = workload.stop()?;
        Ok(Self { report, truth, outcome, players })
    }

    /// The thread that plays `role`.
    #[must_use]
    pub fn tid(&self, role: &str) -> u32 {
        self.players[role].tid
    }

    /// The process of the thread that plays `role`.
    #[must_use]
    pub fn pid(&self, role: &str) -> u32 {
        self.players[role].pid
    }

    /// What `role` measured.
    #[must_use]
    pub fn log(&self, role: &str) -> &Log {
        &self.truth.roles[role]
    }

    /// How long `role` waited inside the window, as it measured itself, in ns.
    #[must_use]
    pub fn waited_ns(&self, role: &str) -> u64 {
        self.log(role).total_ns(Activity::Wait, self.window())
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> Interval {
        self.report.interval()
    }

    /// The children or threads that a role's log names.
    #[must_use]
    pub fn tied_to(&self, role: &str) -> BTreeSet<u32> {
        self.log(role).entries_of(Activity::Wait).map(|entry| entry.tied_to).collect()
    }

    /// Demands that `role` was blocked on `cause`, as good as alone.
    ///
    /// # Errors
    ///
    /// When the report says anything else.
    pub fn check_cause(&self, role: &str, cause: &str) -> Result<()> {
        let blocked = self.report.blocked_ns(self.tid(role), cause);
        let thread = self.report.thread(self.tid(role))?;
        // How much that may be was judged before, by the window: a thread that hardly waited has no share to spare.
        let lost = thread.lost_ns();
        ensure!(thread.blocked_ns > lost, "{role} never waited, this proves nothing: {thread:?}");
        ensure!(
            blocked > 0 && at_least(blocked, SHARE, thread.blocked_ns.saturating_sub(lost)),
            "{role} was blocked on {cause} for {blocked} ns of {}: {}",
            thread.blocked_ns,
            self.describe(role)
        );
        Ok(())
    }

    /// Demands that `role` was blocked on `cause`, as good as alone, for as long as it measured.
    ///
    /// ```text
    ///   what the role measured   |---------------------------------|
    ///   what offwake saw           | blocked           | runnable |
    /// ```
    ///
    /// So the blocked time is never more than what the role measured (1 % and 5 ms for the clock
    /// readings at the window's edges), and together with the runnable time never much less.
    ///
    /// # Errors
    ///
    /// When the report says anything else.
    pub fn check_blocked_on(&self, role: &str, cause: &str) -> Result<()> {
        self.check_cause(role, cause)?;
        let blocked = self.report.blocked_ns(self.tid(role), cause);
        let runnable = self.report.thread(self.tid(role))?.runnable_ns;
        let waited = self.waited_ns(role);
        ensure!(
            at_least(waited, 0.1, self.window().length_ns()),
            "{role} hardly waited, this proves nothing: {waited} ns"
        );
        ensure!(
            blocked as f64 <= waited as f64 * 1.01 + 5e6,
            "{role} waited {waited} ns, offwake says {blocked}: {}",
            self.describe(role)
        );
        ensure!(
            (blocked + runnable) as f64 >= waited as f64 * (1.0 - RELATIVE) - ABSOLUTE_NS,
            "{role} waited {waited} ns, offwake says {blocked} and {runnable} runnable: {}",
            self.describe(role)
        );
        Ok(())
    }

    /// Demands that `role` was blocked on `cause` about as often as it called what blocks: not much
    /// oftener (20 % and 3, for what a spurious wake cuts in two), and at least half as often: on a
    /// busy machine what it waits for may be there already when it gets to wait.
    ///
    /// # Errors
    ///
    /// When the report says anything else.
    pub fn check_wait_count(&self, role: &str, cause: &str) -> Result<()> {
        let window = self.window();
        let waits = self.log(role).intervals(Activity::Wait);
        let calls = waits.iter().filter(|wait| wait.clipped(window).is_some()).count() as f64;
        let count: u64 =
            self.report.waits_of(self.tid(role), Some(cause)).map(|waits| waits.count).sum();
        ensure!(
            (calls * 0.5 - 3.0..=calls * 1.2 + 3.0).contains(&(count as f64)),
            "{role} waited {calls} times, offwake says {count}: {}",
            self.describe(role)
        );
        Ok(())
    }

    /// Demands that no task but `wakers` ended a wait of `role` on `cause`, and that the blame
    /// accuses nobody else.
    ///
    /// # Errors
    ///
    /// When the report says anything else.
    pub fn check_wakers_among(
        &self,
        role: &str,
        cause: &str,
        wakers: &BTreeSet<u32>,
    ) -> Result<()> {
        let woken = self.report.check_wakers_among(self.tid(role), cause, wakers);
        woken.with_context(|| format!("of {role}"))?;
        self.check_blamed_among(role, cause, wakers)
    }

    /// Demands that `wakers`, and no other task, ended the waits of `role` on `cause` that have ended, and that the
    /// blame accuses nobody else. An interrupt accuses nobody, but is wrong too: there is no room
    /// for more than a few.
    ///
    /// # Errors
    ///
    /// When the report says anything else.
    pub fn check_woken_by(&self, role: &str, cause: &str, wakers: &BTreeSet<u32>) -> Result<()> {
        let tid = self.tid(role);
        let right = self
            .report
            .wakes_of(tid)
            .filter(|wakes| wakes.cause == cause)
            .filter(|wakes| wakes.waker.tid.is_some_and(|waker| wakers.contains(&waker)))
            .map(|wakes| wakes.blocked_ns)
            .sum();
        let blocked = self.report.ended_ns(tid, cause);
        ensure!(
            at_least(right, SHARE, blocked),
            "{wakers:?} ended {right} ns of {blocked} of the waits of {role}: {}",
            self.describe(role)
        );
        self.check_wakers_among(role, cause, wakers)
    }

    /// Demands that the blame for the waits of `role` on `cause` accuses `culprits` of nearly all
    /// of the time: they computed, or were kept from computing.
    ///
    /// # Errors
    ///
    /// When the report says anything else.
    pub fn check_blamed_on(&self, role: &str, cause: &str, culprits: &BTreeSet<u32>) -> Result<()> {
        let blame = self.report.blame_of(self.tid(role), Some(cause));
        let accused = |tid: &Option<u32>| tid.is_some_and(|tid| culprits.contains(&tid));
        let right = blame.iter().filter(|((_, tid), _)| accused(tid)).map(|(_, ns)| ns).sum();
        let blocked = self.report.ended_ns(self.tid(role), cause);
        ensure!(
            at_least(right, BLAMED_SHARE, blocked),
            "{culprits:?} are blamed for {right} ns of {blocked} of the waits of {role}: {}",
            self.describe(role)
        );
        Ok(())
    }

    /// Demands that the blame for the waits of `role` on `cause` accuses nobody but `allowed`, not
    /// for a nanosecond, neither of work nor of a sleep.
    ///
    /// # Errors
    ///
    /// When the report says anything else.
    pub fn check_blamed_among(
        &self,
        role: &str,
        cause: &str,
        allowed: &BTreeSet<u32>,
    ) -> Result<()> {
        let waits = self.report.waits_of(self.tid(role), Some(cause));
        for part in waits.flat_map(|waits| &waits.blame).filter(|part| part.ns > 0) {
            ensure!(
                part.accused().is_none_or(|accused| allowed.contains(&accused.tid)),
                "{part:?}: who has nothing to do with {role} is blamed: {}",
                self.describe(role)
            );
        }
        Ok(())
    }

    /// Demands that nothing but the external `kind` is blamed for the waits of `role` on `cause`,
    /// and that no task is said to have ended one.
    ///
    /// # Errors
    ///
    /// When the report says anything else.
    pub fn check_external(&self, role: &str, cause: &str, kind: &str) -> Result<()> {
        let tid = self.tid(role);
        for wakes in self.report.wakes_of(tid).filter(|wakes| wakes.cause == cause) {
            ensure!(wakes.waker.kind != "task", "no task woke {role}, {:?} did not", wakes.waker);
        }
        let blame = self.report.blame_of(tid, Some(cause));
        // The kernel's own threads may stand in between.
        ensure!(blame.keys().all(|(_, accused)| accused.is_none()), "{}", self.describe(role));
        let external = blame.get(&(kind, None)).copied().unwrap_or_default();
        let blocked = self.report.blocked_ns(tid, cause);
        ensure!(
            blocked > 0 && at_least(external, SHARE, blocked),
            "{kind} is blamed for {external} ns of {blocked} of the waits of {role}: {}",
            self.describe(role)
        );
        Ok(())
    }

    /// All that the report says of a role, for messages.
    #[must_use]
    pub fn describe(&self, role: &str) -> String {
        let tid = self.tid(role);
        let waits: Vec<_> = self
            .report
            .waits_of(tid, None)
            .map(|waits| (&waits.cause, waits.count, waits.blocked_ns, &waits.stack, &waits.blame))
            .collect();
        let wakes: Vec<_> = self.report.wakes_of(tid).collect();
        format!("{:?}\nwaits {waits:#?}\nwakes {wakes:#?}", self.report.thread(tid))
    }
}

/// Whether `part` is at least `share` of `whole`.
#[must_use]
pub fn at_least(part: u64, share: f64, whole: u64) -> bool {
    part as f64 >= share * whole as f64
}

/// Whether two lengths are the same but for [`RELATIVE`] and [`ABSOLUTE_NS`].
#[must_use]
pub fn is_close(measured: u64, truth: u64) -> bool {
    (measured as f64 - truth as f64).abs() <= truth as f64 * RELATIVE + ABSOLUTE_NS
}

/// A duration as the command line wants it.
#[must_use]
pub fn duration_argument(duration: Duration) -> String {
    format!("{}ms", ns(duration) / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_likeness_have_the_bounds_that_they_say() {
        assert!(at_least(95, SHARE, 100) && !at_least(94, SHARE, 100));
        assert!(is_close(1_110_000_000, 1_000_000_000) && !is_close(1_130_000_000, 1_000_000_000));
        assert!(is_close(890_000_000, 1_000_000_000) && !is_close(870_000_000, 1_000_000_000));
        assert_eq!(duration_argument(WINDOW), "1000ms");
    }
}

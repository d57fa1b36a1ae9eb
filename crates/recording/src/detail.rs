//! How much detail was recorded, and what that cost.

use strum::{IntoStaticStr, VariantArray};

use crate::units::{Nanos, Timestamp};

/// What was given up so that recording costs no more than it may, each step on top of those before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum DetailStep {
    /// Nothing was.
    #[default]
    Full,
    /// Recognised stacks are checked less often.
    FewerChecks,
    /// Stacks are recognised by registers alone for longer, before they are compared again.
    LongerTrust,
    /// Short waits are summed up, and not recorded one by one. Who ends one of them has no stacks.
    ShortWaitsSummed,
    /// The stacks of whoever ends a wait are taken of longer waits alone.
    FewerWakerStacks,
    /// No stacks are taken.
    NoStacks,
}

impl DetailStep {
    /// The step's name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A stretch of time in which the same detail was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DetailStretch {
    /// Its first moment.
    pub from: Timestamp,
    /// The first moment after it.
    pub until: Timestamp,
    /// What was given up.
    pub step: DetailStep,
    /// How long the waits are of which more is known: of [`DetailStep::FewerWakerStacks`] those whose
    /// enders have stacks, of [`DetailStep::ShortWaitsSummed`] and [`DetailStep::NoStacks`] those that are
    /// recorded one by one.
    pub threshold: Option<Nanos>,
    /// What the programs in the kernel took of all CPUs, by their own clock.
    pub kernel_cost: Nanos,
    /// What the profiler's own threads took.
    pub own_cost: Nanos,
    /// The time of all CPUs that were online: those that idled count, too.
    pub cpu_time: Nanos,
    /// What recording might have taken of that; none if there was no limit.
    pub limit: Option<Nanos>,
}

impl DetailStretch {
    /// Adds a stretch that follows, if the same detail was recorded in it.
    ///
    /// # Errors
    ///
    /// The other stretch, if it has another step or does not follow.
    pub fn extend(&mut self, next: Self) -> Result<(), Self> {
        if next.from != self.until || (next.step, next.threshold) != (self.step, self.threshold) {
            return Err(next);
        }
        self.until = next.until;
        self.kernel_cost += next.kernel_cost;
        self.own_cost += next.own_cost;
        self.cpu_time += next.cpu_time;
        self.limit = self.limit.zip(next.limit).map(|(before, more)| before + more);
        Ok(())
    }
}

//! What the tables are sorted by.

use strum::{IntoStaticStr, VariantArray};

/// Something that a table can be sorted by: one key goes to the next.
pub(super) trait SortOrder: Copy + PartialEq + VariantArray + Into<&'static str> {
    /// Returns the order's name on screen.
    fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the next order.
    fn next(self) -> Self {
        let at = Self::VARIANTS.iter().position(|order| *order == self).unwrap_or(0);
        Self::VARIANTS.get(at + 1).or(Self::VARIANTS.first()).copied().unwrap_or(self)
    }
}

/// The direction of a sorted table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SortDirection {
    /// The largest time, the first letter.
    #[default]
    Usual,
    /// The opposite of the usual direction.
    Reversed,
}

impl SortDirection {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Usual => Self::Reversed,
            Self::Reversed => Self::Usual,
        }
    }
}

/// How one table is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sorting<O> {
    pub(super) order: O,
    pub(super) direction: SortDirection,
}

impl<O: SortOrder> Sorting<O> {
    pub(super) const fn by(order: O) -> Self {
        Self { order, direction: SortDirection::Usual }
    }

    /// Returns the sorting by the next order, in its usual direction.
    pub(super) fn next_order(self) -> Self {
        Self::by(self.order.next())
    }

    pub(super) fn reversed(self) -> Self {
        Self { direction: self.direction.other(), ..self }
    }

    /// `by time`, `by time, reversed`
    pub(super) fn describe(self) -> String {
        let reversed = match self.direction {
            SortDirection::Usual => "",
            SortDirection::Reversed => ", reversed",
        };
        format!("by {}{reversed}", self.order.name())
    }
}

/// What threads and processes are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(super) enum AccountOrder {
    /// Everything but idle time, and time in which nothing is known to have happened.
    #[strum(serialize = "busy time")]
    Busy,
    #[strum(serialize = "on-CPU")]
    OnCpu,
    Runnable,
    Attributed,
    External,
    Unattributed,
    Name,
}

impl SortOrder for AccountOrder {}

/// What waits are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(super) enum WaitOrder {
    /// Blocked time, without what is idle or slept through the whole window.
    #[strum(serialize = "time without idle")]
    Busy,
    Time,
    Longest,
    Count,
    Thread,
    #[strum(serialize = "waited on")]
    WaitedOn,
    #[strum(serialize = "cause")]
    Blocker,
}

impl SortOrder for WaitOrder {}

/// What pairs of a waiter and what it waits for are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub(super) enum BlockingOrder {
    /// Without what is idle.
    #[strum(serialize = "time without idle")]
    Busy,
    Time,
    Waiter,
    #[strum(serialize = "waits for")]
    Blocker,
}

impl SortOrder for BlockingOrder {}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::{SortOrder as _, WaitOrder};

    #[test]
    fn one_key_goes_through_all_orders_and_round() {
        let mut order = WaitOrder::Busy;
        for expected in WaitOrder::VARIANTS {
            assert_eq!(order, *expected);
            order = order.next();
        }
        assert_eq!(order, WaitOrder::Busy);
    }
}

//! What the tables are sorted by.

/// Something that a table can be sorted by: one key goes to the next.
pub(super) trait SortOrder: Copy + PartialEq + 'static {
    /// All orders, the usual one first.
    const ALL: &'static [Self];

    /// Returns the order's name on screen.
    fn name(self) -> &'static str;

    /// Returns the next order.
    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL.get(at + 1).or(Self::ALL.first()).copied().unwrap_or(self)
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountOrder {
    /// Everything but idle time, and time in which nothing is known to have happened.
    Busy,
    OnCpu,
    Runnable,
    Attributed,
    External,
    Unattributed,
    Name,
}

impl SortOrder for AccountOrder {
    const ALL: &'static [Self] = &[
        Self::Busy,
        Self::OnCpu,
        Self::Runnable,
        Self::Attributed,
        Self::External,
        Self::Unattributed,
        Self::Name,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy time",
            Self::OnCpu => "on-CPU",
            Self::Runnable => "runnable",
            Self::Attributed => "attributed",
            Self::External => "external",
            Self::Unattributed => "unattributed",
            Self::Name => "name",
        }
    }
}

/// What waits are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitOrder {
    /// Blocked time, without what is idle or slept through the whole window.
    Busy,
    Time,
    Longest,
    Count,
    Thread,
    Cause,
    Blocker,
}

impl SortOrder for WaitOrder {
    const ALL: &'static [Self] = &[
        Self::Busy,
        Self::Time,
        Self::Longest,
        Self::Count,
        Self::Thread,
        Self::Cause,
        Self::Blocker,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Busy => "time without idle",
            Self::Time => "time",
            Self::Longest => "longest",
            Self::Count => "count",
            Self::Thread => "thread",
            Self::Cause => "cause",
            Self::Blocker => "culprit",
        }
    }
}

/// What pairs of a waiter and its culprit are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockingOrder {
    /// Without what is idle.
    Busy,
    Time,
    Waiter,
    Blocker,
}

impl SortOrder for BlockingOrder {
    const ALL: &'static [Self] = &[Self::Busy, Self::Time, Self::Waiter, Self::Blocker];

    fn name(self) -> &'static str {
        match self {
            Self::Busy => "time without idle",
            Self::Time => "time",
            Self::Waiter => "waiter",
            Self::Blocker => "culprit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SortOrder as _, WaitOrder};

    #[test]
    fn one_key_goes_through_all_orders_and_round() {
        let mut order = WaitOrder::Busy;
        for expected in WaitOrder::ALL {
            assert_eq!(order, *expected);
            order = order.next();
        }
        assert_eq!(order, WaitOrder::Busy);
    }
}

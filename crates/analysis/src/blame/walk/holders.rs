//! The walk through waits for what others hold: a lock, room at a socket.

use offwake_recording::units::{Nanos, Timestamp};

use crate::timeline::WaitIndex;

use super::{
    super::{Reason, StackPairId, slow_readers::SlowReader, work_waits::Expects},
    ChainPosition, HopTo, TimeRange, Walker,
};

impl Walker<'_> {
    /// Walks the part of a wait for room at a socket in which the reader at the other end might have read;
    /// returns the rest of the wait.
    pub(super) fn walk_slow_reader(
        &mut self,
        wait: WaitIndex,
        reason: Reason,
        stretch: TimeRange,
        at: ChainPosition,
    ) -> TimeRange {
        if !matches!(reason, Reason::LocalSoftirq | Reason::TcpTimer) {
            return stretch;
        }
        let Some(SlowReader { thread, last_ran }) = self.blame.slow_reader(wait) else {
            return stretch;
        };
        let readers = stretch.until(last_ran);
        if readers.length() > Nanos(0) {
            let (stack, expects) = (StackPairId::NONE, Expects::Progress);
            self.walk_hop(HopTo { thread, at: readers.to, stack, expects }, readers, at);
        }
        stretch.since(last_ran)
    }

    /// Walks the part of a wait for a lock in which other threads held the lock than the one that
    /// ended the wait; returns the rest of the wait.
    ///
    /// ```text
    /// wait on a lock   |---------------------------------|
    /// released by            X          Y                ^ Z
    ///                  |  X  |    Y     |   the rest     |
    /// ```
    pub(super) fn walk_earlier_holders(
        &mut self,
        wait: WaitIndex,
        stretch: TimeRange,
        at: ChainPosition,
    ) -> TimeRange {
        let blame = self.blame;
        let Some((row, _)) = blame.pattern(wait) else { return stretch };
        // What comes after the stretch tells who held the lock at its end.
        let end = row.woken_at().unwrap_or(row.on + Nanos(1));
        let mut rest = stretch;
        let releases = match blame.releases_between(row.pattern.index(), (stretch.from, end)) {
            [] => blame.timed_locks.between(wait, stretch.from, end),
            releases => releases,
        };
        for release in releases {
            if rest.length() == Nanos(0) {
                break;
            }
            self.walk_lock_holder(release.wait, rest.until(release.at), release.at, at);
            rest = rest.since(release.at);
        }
        rest
    }

    /// Walks the time before a lock's release, which ended some wait. An earlier release may have
    /// been lost.
    ///
    /// ```text
    /// last release              a gap                 release
    ///  -----+-----------------[.......]------------------+---->
    ///       |   not known who holds it |   who releases  |
    /// ```
    pub(super) fn walk_lock_holder(
        &mut self,
        released: WaitIndex,
        stretch: TimeRange,
        release: Timestamp,
        at: ChainPosition,
    ) {
        let lock = self.blame.pattern(released).and_then(|(row, pattern)| {
            self.blame.locks.is_lock(row.pattern.index()).then_some(pattern.lock)?
        });
        let gap =
            lock.and_then(|lock| self.blame.gaps.last_end(lock.process(), stretch.from, release));
        let known = stretch.since(gap.unwrap_or(stretch.from));
        self.push_unattributed(Reason::Lost, known.from.since(stretch.from), at);
        let held = known.since(self.blame.find_start_of_hold(released, (known.from, known.to)));
        self.push_unattributed(Reason::HolderUnknown, held.from.since(known.from), at);
        if held.length() > Nanos(0) {
            self.walk_waker(released, held, at);
        }
    }
}

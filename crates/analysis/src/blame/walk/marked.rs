//! In which ranges of its own a thread on the chain is: a walk goes back in time, through ranges
//! that the program has marked.
//!
//! ```text
//! markers  [----- forward -----][-- save --]
//! thread   -- work --+ blocked +--- work ---* ends the wait
//!          forward   | forward |    save
//! ```

use offwake_recording::units::Timestamp;

use crate::{markers::MarkerPathId, timeline::ThreadIndex};

use super::{
    super::{Hop, StackPairId},
    ChainPosition, HopDetail, TimeRange, Walker,
};

impl Walker<'_> {
    /// Returns whether hops say in which ranges threads are.
    fn tells_markers(&self) -> bool {
        matches!(self.detail, HopDetail::WakerStacks) && !self.blame.markers.is_empty()
    }

    /// Returns a position on the chain with the ranges that its last thread was in at `moment`.
    pub(super) fn mark_position(
        &mut self,
        thread: ThreadIndex,
        moment: Timestamp,
        at: ChainPosition,
    ) -> ChainPosition {
        if !self.tells_markers() {
            return at;
        }
        self.with_path(thread, self.blame.markers.path_at(thread, moment), at)
    }

    fn with_path(
        &mut self,
        thread: ThreadIndex,
        markers: MarkerPathId,
        at: ChainPosition,
    ) -> ChainPosition {
        match self.chains.last_hop(at.chain) {
            Some((shorter, hop)) if hop.thread.thread == thread && hop.markers != markers => {
                let chain = self.chains.extend(shorter, Hop { markers, ..hop });
                ChainPosition { chain, ..at }
            }
            _ => at,
        }
    }

    /// Adds time on a CPU, divided where the ranges change that the thread was in.
    pub(super) fn push_work(
        &mut self,
        thread: ThreadIndex,
        inside: TimeRange,
        left_with: StackPairId,
        at: ChainPosition,
    ) {
        if !self.tells_markers() {
            return self.push_work_of_path(thread, inside, left_with, at);
        }
        let blame = self.blame;
        blame.markers.divide_back(thread, (inside.from, inside.to), |(from, to), markers| {
            let at = self.with_path(thread, markers, at);
            self.push_work_of_path(thread, TimeRange { from, to }, left_with, at);
        });
    }
}

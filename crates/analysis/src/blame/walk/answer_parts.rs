//! The walk through the rest of an answer that came without its sender, such as what TCP had held back.

use super::{
    super::{StackPairId, WakeSource, asks::AnswerInParts, work_waits::Expects},
    ChainPosition, HopTo, Leg, TimeRange, Walker,
    work::WorkStep,
};
use crate::timeline::WaitIndex;

impl Walker<'_> {
    /// Walks the time before the rest of an answer, if the waiter's own request had begun the slice in
    /// which the loop asked for it, through the same connection. The one that was asked had sent a first
    /// part, which another wait of the loop's has ended, and had then waited for its next work.
    ///
    /// ```text
    /// A     --ask--+======================= waits =======================+--
    /// loop  ..poll..[ asks U ]..poll..[ first part ]......poll......[ answers A ]
    /// U     ..........[ works, sends --+ sends the rest ]..waits for work..
    /// TCP                                               |--held back--+
    /// blame of A    |loop|<------------- U ------------>|<--- TCP --->|
    /// ```
    ///
    /// Returns none if that is not what happened.
    pub(super) fn walk_rest_of_answer(
        &mut self,
        wait: WaitIndex,
        rest: TimeRange,
        leg: &Leg,
        at: ChainPosition,
    ) -> Option<WorkStep> {
        let WakeSource::Interrupt(reason) = self.blame.wake_source(wait) else { return None };
        let since = self.find_awake_since(rest.from);
        let AnswerInParts { ask, first_part } = self.blame.find_answer_in_parts(wait, since)?;
        if self.threads.is_waiter(ask.callee) || !self.is_surely_for_waiter(&ask, rest) {
            return None;
        }
        let (sender, begun) = self.blame.recorded_waker_thread(first_part)?;
        let sent = self.find_next_work_wait(sender, begun)?.min(rest.to);
        self.push_unattributed(reason, rest.since(sent).length(), at);
        let (stack, expects) = (StackPairId::NONE, Expects::Answer);
        let hop = HopTo { thread: sender, at: sent, stack, expects };
        self.walk_hop(hop, rest.until(sent).since(ask.at), at);
        Some(self.move_to_asker(ask, rest, leg))
    }
}

//! Who may hold a lock of a server's own, where nobody knows who does: sessions that have a transaction open,
//! by the titles that they give themselves.
//!
//! ```text
//! client ──answer──▶ postgres 812 "SELECT waiting", which waits for a lock: nobody knows who has it
//!                      postgres 790 "idle in transaction"    has slept all the time that 812 waits
//!                      postgres 801 "ALTER TABLE waiting"    stands in line as well
//! ```
//!
//! That is no evidence of who has the lock, so it is a remark, and no part of the chain.

use offwake_recording::Begin;

use crate::{
    blame::cause::{self, Cause, WaitedOn},
    timeline::ThreadIndex,
};

use super::{chain_words::ChainTeller, model::FindingLine, who, write::FindingWriter};

/// What a session of a server says in its title that has a transaction open, and waits for its client's next
/// statement: `PostgreSQL` and what was made from it
/// ([`pgstat_report_activity`](https://github.com/postgres/postgres/blob/REL_15_0/src/backend/tcop/postgres.c#L4480)).
/// `(aborted)` may follow.
const OPEN_TRANSACTION: &str = "idle in transaction";

/// The most sessions that are named of each kind.
const MAX_NAMED: usize = 2;

impl ChainTeller<'_> {
    /// Names the sessions of the server whose lock `waiter` waits for that have a transaction open and have
    /// slept for as long, and those that wait for a lock as well. None of the lines has a share of the time: it is not
    /// known whose that is.
    pub(super) fn describe_possible_holders(
        &self,
        waiter: ThreadIndex,
        depth: u16,
        writer: &mut FindingWriter<'_>,
    ) -> Vec<FindingLine> {
        let (mut open, mut queued) = (Vec::new(), Vec::new());
        for thread in self.graph.threads_of_siblings(waiter) {
            let words = &writer.words;
            let program = words.programs.program_of_thread(thread);
            if program != words.programs.program_of_thread(waiter) {
                continue;
            }
            let hop = words.hop_at_end(
                program,
                &[thread].into(),
                None,
                String::new(),
                Default::default(),
            );
            let has_open = hop.title.as_ref().is_some_and(|it| it.starts_with(OPEN_TRANSACTION));
            if has_open
                && self.graph.open_time(thread) >= self.graph.open_time(waiter)
                && self.is_title_of_open_wait(thread, writer)
            {
                open.push(who::who(&hop));
            } else if self.meaning(thread, writer).is_some_and(|it| it.lock().is_some()) {
                queued.push(who::who(&hop));
            }
        }
        let holders =
            name_some(&open, " or ").map(|names| format!("maybe {names}: asleep as long"));
        let others = name_some(&queued, ", ").map(|names| format!("for a lock wait too: {names}"));
        (holders.into_iter().chain(others))
            .map(|text| FindingLine { depth, ..FindingLine::without_function(text, 0.0, false) })
            .collect()
    }

    /// Names the threads of the same process that wait for another lock of which nobody knows the holder
    /// either: each of them may have the lock that the other one wants. That is only said if all threads of the
    /// process wait for each other, for all that is known: one that runs or sleeps may have the lock.
    pub(super) fn describe_possible_deadlock(
        &self,
        waiter: ThreadIndex,
        depth: u16,
        writer: &mut FindingWriter<'_>,
    ) -> Option<FindingLine> {
        let own = self.awaited_futex(waiter)?;
        let process = self.blame.timeline().thread(waiter)?.tgid;
        let mut named = Vec::new();
        for thread in self.graph.threads_of_process(process) {
            let meaning = self.meaning(thread, writer)?;
            let is_at_lock = meaning.lock().is_some_and(|lock| !lock.is_of_interpreter());
            let other = self.awaited_futex(thread);
            match is_at_lock {
                true if other.is_some_and(|other| other != own)
                    && self.graph.find_link(thread).is_none() =>
                {
                    let name = writer.words.thread_of_process(thread);
                    let function = self.wait_function(thread, writer);
                    let place =
                        function.map_or(String::new(), |function| format!(" in {function}"));
                    named.push(format!("{name}, which waits for another lock{place}"));
                }
                true => {}
                false if may_hold_a_lock(meaning.cause) => return None,
                false => {}
            }
        }
        let named = name_some(&named, " or ")?;
        let text = format!("maybe {named}: a deadlock");
        Some(FindingLine { depth, ..FindingLine::without_function(text, 0.0, false) })
    }

    /// Returns the futex that a thread waits on at the end.
    fn awaited_futex(&self, thread: ThreadIndex) -> Option<u64> {
        let wait = self.graph.open_wait(thread)?;
        let whole = self.blame.recording().waits.get(wait.0 as usize)?;
        match cause::waited_on(&whole, self.blame.cause(wait))? {
            WaitedOn::Futex { address, .. } => Some(address),
            WaitedOn::File { .. } => None,
        }
    }

    /// Returns whether a process's title was read while its thread slept in the wait in which it was at the
    /// end, so that it had that title all along. Titles are read after threads were seen asleep.
    fn is_title_of_open_wait(&self, thread: ThreadIndex, writer: &FindingWriter<'_>) -> bool {
        let (recording, timeline) = (self.blame.recording(), self.blame.timeline());
        let (Some(wait), Some(life)) = (self.graph.open_wait(thread), timeline.thread(thread))
        else {
            return false;
        };
        let program = writer.words.programs.program_of_thread(thread);
        let Some(read) = writer.words.programs.read_at(life.tgid, program) else { return false };
        let row = recording.waits.rows().get(wait.0 as usize);
        row.is_some_and(|row| row.begin() == Begin::BeforeWindow || row.off <= read)
    }
}

/// Returns whether a thread may well have a lock while it waits for this, as what ends such a wait
/// needs no other thread of the process.
fn may_hold_a_lock(cause: Cause) -> bool {
    !matches!(cause, Cause::Futex | Cause::Poll | Cause::Socket | Cause::Pipe | Cause::Signal)
}

/// Joins names, of which only the first few are told.
fn name_some(names: &[String], between: &str) -> Option<String> {
    let mut told: Vec<String> = names.iter().take(MAX_NAMED).cloned().collect();
    match names.len().saturating_sub(MAX_NAMED) {
        0 => {}
        1 => told.push("1 other".to_owned()),
        more => told.push(format!("{more} others")),
    }
    (!told.is_empty()).then(|| told.join(between))
}

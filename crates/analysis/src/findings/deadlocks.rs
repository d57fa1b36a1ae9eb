//! Deadlocks as findings.
//!
//! ```text
//! 1  100%  DEADLOCK ≥10.0 s  bank 7 [a] waits for a lock held by thread b in transfer
//!          └ bank 7 [b] still waits for a lock held by thread a in transfer
//!          └ 1 more thread waits behind them: bank 7 [main thread] waits for the end of thread a
//! ```

use offwake_recording::units::Nanos;

use crate::blame::BlameClass;

use super::{
    chain_words::{ChainTeller, join_hops},
    found::Found,
    model::{Finding, FindingCause, FindingHop, FindingKind, FindingLine},
    open_chains::Deadlock,
    write::{FindingWriter, describe_hop},
};

/// The most threads told that wait behind a deadlock.
const MAX_QUEUED: usize = 2;

/// Describes deadlocks, those with the most threads first.
pub(super) fn describe_deadlocks(
    deadlocks: &[Deadlock],
    teller: ChainTeller<'_>,
    writer: &mut FindingWriter<'_>,
) -> Vec<Found> {
    (deadlocks.iter())
        .filter_map(|deadlock| describe_deadlock(deadlock, teller, writer))
        .map(|finding| Found::chain_alone(finding, BlameClass::HeldBack))
        .collect()
}

fn describe_deadlock(
    deadlock: &Deadlock,
    teller: ChainTeller<'_>,
    writer: &mut FindingWriter<'_>,
) -> Option<Finding> {
    let chain = &deadlock.chain;
    let times = deadlock.threads().map(|thread| teller.graph.open_time(thread));
    let (ns, longest) =
        times.fold((Nanos(0), Nanos(0)), |(sum, longest), time| (sum + time, longest.max(time)));
    let share = writer.share(ns).min(1.0);
    let first = teller.hop(chain, 0, writer)?;
    let (later, hops) = teller.later_lines(chain, share, writer);
    let mut lines =
        vec![FindingLine { detail: format!("≥{longest}"), ..teller.line(&first, 0, share) }];
    // A deadlock has no first one: its threads stand beside each other.
    lines.extend(later.into_iter().map(|line| FindingLine { depth: 1, ..line }));
    lines.extend(queued_lines(deadlock, share, teller, writer));
    let hops: Vec<FindingHop> = std::iter::once(first).chain(hops).collect();
    let text = format!("DEADLOCK: {}", join_hops(&hops));
    Some(Finding {
        disk: None,
        same_cause_as: None,
        with_same_cause: None,
        kind: FindingKind::Deadlock,
        share,
        ns,
        threads: deadlock.threads().count() as u64,
        count: deadlock.threads().count() as u64,
        longest_ns: longest,
        still_waiting: true,
        cause: FindingCause {
            kind: "unattributed",
            reason: Some("still_blocked"),
            share,
            ns,
            text: text.clone(),
        },
        chain: hops,
        text,
        lines,
    })
}

/// Tells who waits for those in the deadlock without being in it.
fn queued_lines(
    deadlock: &Deadlock,
    share: f64,
    teller: ChainTeller<'_>,
    writer: &mut FindingWriter<'_>,
) -> Vec<FindingLine> {
    // The chain begins with one of them if none of the target's threads is in the deadlock itself.
    let told = deadlock.chain.threads.first();
    let others = deadlock.queued.iter().filter(|&thread| Some(thread) != told);
    let hops: Vec<FindingHop> = (others.clone())
        .filter_map(|&thread| teller.hop(&teller.graph.follow(thread), 0, writer))
        .collect();
    let mut lines: Vec<FindingLine> = (hops.iter().take(MAX_QUEUED))
        .map(|hop| {
            FindingLine::without_function(
                format!("stuck behind it: {}", describe_hop(hop)),
                share,
                false,
            )
        })
        .collect();
    match hops.len().saturating_sub(MAX_QUEUED) {
        0 => {}
        1 => {
            lines.push(FindingLine::without_function("and 1 thread more".to_owned(), share, false))
        }
        more => lines.push(FindingLine::without_function(
            format!("and {more} threads more"),
            share,
            false,
        )),
    }
    lines
}

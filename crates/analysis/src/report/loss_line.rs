//! What was lost, in one line.

use offwake_recording::units::Nanos;

use super::Report;
use crate::blame::Reason;

/// What the loss line says when all is well.
pub(super) const NOTHING_LOST: &str = "lost: nothing";

/// Describes what was lost in one line.
pub(crate) fn loss_line(report: &Report) -> String {
    describe_loss(report).map_or_else(|| NOTHING_LOST.to_owned(), |lost| format!("LOST: {lost}"))
}

/// Describes what was lost; none if nothing was.
pub(crate) fn describe_loss(report: &Report) -> Option<String> {
    let loss = &report.loss;
    let counts = [
        (loss.records, "record", "records"),
        (loss.stacks, "stack", "stacks"),
        (loss.undecodable, "unreadable record", "unreadable records"),
        (loss.over_memory, "record over the memory limit", "records over the memory limit"),
        (loss.gaps, "gap", "gaps"),
    ];
    let mut lost: Vec<_> = (counts.into_iter())
        .filter(|&(count, ..)| count > 0)
        .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect();
    if let Some(gaps) = lost.last_mut().filter(|_| loss.gaps > 0) {
        let of_target: Nanos = (report.threads.iter())
            .filter_map(|thread| thread.ledger.unattributed.get(Reason::Lost.name()).copied())
            .sum();
        gaps.push_str(&format!(
            " of {} in all threads' time; for that, {of_target} of the target's are unattributed",
            loss.gap_ns
        ));
    }
    (!lost.is_empty()).then(|| lost.join(", "))
}

//! The waits that traces begin with.

use std::{cmp::Reverse, ops::Range};

use offwake_recording::units::Nanos;

use crate::{
    blame::{ConnectionSide, IdleState},
    filter::Filter,
    timeline::WaitIndex,
};

use super::{LeftOut, findings::Findings};

/// Finds the waits that begin a trace, in the order of their beginnings: those of the target, and
/// those for what it was asked on connections that others made. None lies in what was done for
/// another.
pub(super) fn find_roots(
    findings: &Findings<'_>,
    filter: &Filter,
    lifetime: Nanos,
    left_out: &mut LeftOut,
) -> Vec<WaitIndex> {
    let waits = &findings.evidence.recording.waits;
    let filter = filter.for_recording(findings.evidence.recording);
    let mut roots = Vec::new();
    for &wait in findings.span_waits.waits() {
        if !can_begin_trace(findings, wait) {
            continue;
        }
        if findings.side(wait) == ConnectionSide::Serving {
            left_out.idle += 1;
            continue;
        }
        let blocked = findings.pieces.blocked_time(wait);
        let keeps = |row| filter.keeps(wait, row, blocked, IdleState::Busy);
        if waits.rows().get(wait.0 as usize).is_some_and(keeps) {
            roots.push(wait);
        } else {
            left_out.filtered += 1;
        }
    }
    let short =
        findings.short_waits.waits().iter().filter(|wait| can_begin_trace(findings, **wait));
    left_out.short += short.count() as u64;
    let served = mark_served(findings, &roots, lifetime);
    roots.retain(|wait| served.get(wait.0 as usize) == Some(&false));
    roots.sort_by_key(|&wait| {
        let place = findings.evidence.interval(wait);
        (findings.span_start(wait), Reverse(place.map(|place| place.to)), wait)
    });
    roots
}

/// Returns whether a wait can begin a trace.
fn can_begin_trace(findings: &Findings<'_>, wait: WaitIndex) -> bool {
    let evidence = findings.evidence;
    if findings.is_target(evidence.interval(wait).and_then(|place| place.thread)) {
        return findings.is_request(wait) || evidence.waker_task(wait).is_some();
    }
    findings.side(wait) == ConnectionSide::Asking
        && findings.is_request(wait)
        && (findings.legs(wait).iter()).any(|leg| findings.is_target(Some(leg.thread)))
}

/// Returns which waits lie in what was done for one of `roots`, by [`WaitIndex`].
///
/// What was done ends later than any wait in it, so that no two waits lie in one another.
fn mark_served(findings: &Findings<'_>, roots: &[WaitIndex], lifetime: Nanos) -> Vec<bool> {
    let waits = findings.span_waits.waits();
    // How many more such stretches cover a wait than cover the one before it.
    let mut more = vec![0_i64; waits.len() + 1];
    let mut mark = |Range { start, end }: Range<usize>| {
        if let Some(begin) = more.get_mut(start) {
            *begin += 1;
        }
        if let Some(end) = more.get_mut(end) {
            *end -= 1;
        }
    };
    let followed = roots.iter().filter(|wait| findings.pieces.blocked_time(**wait) <= lifetime);
    for part in followed.flat_map(|&wait| findings.legs(wait)) {
        if findings.evidence.is_recorded(part.thread) {
            mark(findings.span_waits.inside(part.thread, part.from, part.to));
        }
    }
    let mut served = vec![false; findings.evidence.wait_count()];
    let mut covering = 0;
    for (&wait, more) in waits.iter().zip(&more) {
        covering += more;
        if let Some(served) = served.get_mut(wait.0 as usize) {
            *served = covering > 0;
        }
    }
    served
}

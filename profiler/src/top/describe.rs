//! Describes figures. Names from other programs are sanitised here, and nowhere later.

use std::{cmp::Reverse, collections::BTreeMap};

use offwake_analysis::{
    blame::{BlameEntryKind, Reason},
    label::Label,
    report::{ThreadName, describe},
    text,
    top::{Blocker, ChainEnd, WaitFigures, WaitKey},
};
use offwake_recording::units::Nanos;

/// The most characters of a function's name.
const PLACE: usize = 48;

/// Describes a thread: `redis-server 812`.
pub(super) fn thread(thread: &ThreadName) -> String {
    describe::thread(&thread.comm, thread.tid, thread.container.as_deref())
}

/// Describes a label; empty if there is none.
pub(super) fn label(label: Option<&Label>) -> String {
    label.map(|label| label.short_name(PLACE)).unwrap_or_default()
}

/// Describes what a wait is on.
pub(super) fn waited_on(key: &WaitKey) -> String {
    describe::waited_on(key.cause.name(), &key.on)
}

/// Describes what a thread waited for.
pub(super) fn blocker(blocker: &Blocker) -> String {
    match blocker {
        Blocker::Thread(thread) => self::thread(thread),
        Blocker::External(kind, sleeper) => {
            describe::blame(*kind, None, sleeper.as_ref().map(self::thread), None)
        }
    }
}

/// What chain ends have in common that are described as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlameKey<'a> {
    kind: BlameEntryKind,
    reason: Option<Reason>,
    thread: Option<&'a ThreadName>,
    holder: Option<&'a ThreadName>,
}

impl<'a> BlameKey<'a> {
    pub(super) fn new(leaf: &'a ChainEnd) -> Self {
        Self {
            kind: leaf.kind,
            reason: leaf.reason,
            thread: leaf.chain.last().map(|hop| &hop.thread),
            holder: leaf.holder.as_ref(),
        }
    }

    /// Describes the blame as the summary does: `work of db 77`, `db 77 slept`.
    pub(super) fn describe(&self) -> String {
        let holder = self.holder.map(|holder| text::terminal(&holder.comm));
        describe::blame(self.kind, self.reason, self.thread.map(thread), holder)
    }
}

/// Describes what most of a wait's time was spent on, and its share: `work of db 77 40%, 2 more`.
pub(super) fn blame(waited: &WaitFigures) -> String {
    let mut sums = BTreeMap::<BlameKey<'_>, Nanos>::new();
    for (leaf, time) in waited.chain_ends.iter() {
        *sums.entry(BlameKey::new(leaf)).or_default() += time.0;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|&(_, time)| Reverse(time));
    match sums.as_slice() {
        [] => String::new(),
        [(blamed, _)] => blamed.describe(),
        [(blamed, time), rest @ ..] => {
            format!("{} {}, {} more", blamed.describe(), percent(*time, waited.blocked), rest.len())
        }
    }
}

/// Returns a percentage such as `12%`; a part that is not 0 is never `0%`.
pub(super) fn percent(part: Nanos, of: Nanos) -> String {
    let percent = if of.0 == 0 { 0.0 } else { part.0 as f64 * 100.0 / of.0 as f64 };
    if part.0 > 0 && percent < 0.5 { "<1%".to_owned() } else { format!("{percent:.0}%") }
}

#[cfg(test)]
mod tests {
    use super::percent;
    use offwake_recording::units::Nanos;

    #[test]
    fn what_is_there_is_never_nothing() {
        assert_eq!(percent(Nanos(0), Nanos(0)), "0%");
        assert_eq!(percent(Nanos(0), Nanos(9)), "0%");
        assert_eq!(percent(Nanos(1), Nanos(1_000)), "<1%");
        assert_eq!(percent(Nanos(995), Nanos(1_000)), "100%");
    }
}

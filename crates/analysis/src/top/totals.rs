//! Sums since the start, over stretches that follow one another.
//!
//! ```text
//! kept       |------------------- the window ------------------|
//! stretches  ─ summed ─|───── summed ─────|───── current ──────|
//!                                         from                 now
//! ```
//!
//! A stretch is summed before it leaves the window, so that each is analysed with what the window knows of
//! the time before it. No time is in two stretches. A wait that spans two is cut where they meet: the first
//! part is `still_blocked` there, since it had not ended yet.

use offwake_recording::units::{Nanos, Timestamp};

use super::figures::Figures;

/// The sums of all stretches so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The figures of all stretches.
    pub figures: Figures,
    /// Time between stretches that was in none of them, as it had left the window before it was
    /// summed.
    pub missed: Nanos,
    /// The number of stretches.
    pub stretches: u64,
    /// The number of stretches in whose window records, stacks or time were lost.
    pub lossy_stretches: u64,
    /// The end of the newest stretch.
    until: Option<Timestamp>,
}

/// Whether everything of a stretch was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// Everything of the stretch was recorded.
    Complete,
    /// Something of the stretch is missing.
    Lossy,
}

impl Totals {
    /// Sets the beginning of the first window: time that is in no stretch is counted from here on.
    pub fn begin(&mut self, start: Timestamp) {
        self.until.get_or_insert(start);
    }

    /// Returns where the next stretch begins if the window begins at `kept`.
    #[must_use]
    pub fn next_start(&self, kept: Timestamp) -> Timestamp {
        self.until.map_or(kept, |until| until.max(kept))
    }

    /// Adds the next stretch.
    pub fn append(
        &mut self,
        start: Timestamp,
        end: Timestamp,
        figures: Figures,
        completeness: Completeness,
    ) {
        self.missed += self.until.map_or(Nanos(0), |until| start.since(until));
        self.until = Some(end);
        self.stretches += 1;
        self.lossy_stretches += u64::from(completeness == Completeness::Lossy);
        self.figures.append(figures);
    }
}

#[cfg(test)]
mod tests {
    use super::{Completeness, Totals};
    use crate::top::Figures;
    use offwake_recording::units::{Nanos, Timestamp};

    #[test]
    fn a_hole_between_stretches_is_counted() {
        let stretch = |length| Figures { length: Nanos(length), ..Figures::default() };
        let mut totals = Totals::default();
        assert_eq!(totals.next_start(Timestamp(10)), Timestamp(10));
        totals.append(Timestamp(10), Timestamp(20), stretch(10), Completeness::Complete);
        assert_eq!(totals.next_start(Timestamp(15)), Timestamp(20));
        assert_eq!(totals.next_start(Timestamp(23)), Timestamp(23));
        totals.append(Timestamp(23), Timestamp(30), stretch(7), Completeness::Lossy);
        assert_eq!((totals.figures.length, totals.missed), (Nanos(17), Nanos(3)));
        assert_eq!((totals.stretches, totals.lossy_stretches), (2, 1));
    }
}

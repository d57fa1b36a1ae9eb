//! Divides requests by how long they took, and says what a percentile would be without some of it.
//!
//! Percentiles are of the nearest rank: p99 of 1,000 requests is the 990th, the shortest one first.

use std::{fmt, ops::Range, str::FromStr};

use offwake_recording::units::Nanos;
use thiserror::Error;

/// The percentiles between which bands lie.
const PERCENTILES: [f64; 6] = [0.0, 50.0, 90.0, 99.0, 99.9, 100.0];

/// A band of fewer requests is one with the band below it.
pub(super) const FEWEST: usize = 20;

/// A band that somebody asked for: from which percentile of its class, and to which.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandRange {
    from: f64,
    to: f64,
}

/// Why a text names no band.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{:?} is no band: one like p99 (from there on), p50 (the fast half) or p90-99", crate::text::terminal(.0))]
pub struct NotABand(String);

impl BandRange {
    /// Returns whether the request of this rank of so many is in the band. The slowest one is in every band that
    /// goes up to it, however few there are.
    pub(super) fn contains(self, rank: usize, count: usize) -> bool {
        let first = count_up_to(count, self.from).min(count.saturating_sub(1));
        (first..count_up_to(count, self.to)).contains(&rank)
    }
}

impl fmt::Display for BandRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}–{}", self.from, self.to)
    }
}

impl FromStr for BandRange {
    type Err = NotABand;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let not_a_band = || NotABand(text.to_owned());
        let percent = |number: &str| {
            let percent: f64 = number.parse().ok()?;
            (0.0..=100.0).contains(&percent).then_some(percent)
        };
        let range = text.strip_prefix('p').ok_or_else(not_a_band)?;
        let (from, to) = match range.split_once(['-', '–']) {
            Some((from, to)) => (percent(from), percent(to.strip_prefix('p').unwrap_or(to))),
            // Half of all are no slow ones.
            None if range == "50" => (Some(0.0), Some(50.0)),
            None => (percent(range), Some(100.0)),
        };
        let (from, to) = from.zip(to).ok_or_else(not_a_band)?;
        if from < to { Ok(Self { from, to }) } else { Err(not_a_band()) }
    }
}

/// Requests of one class whose latencies lie between two percentiles.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Band {
    /// From which percentile, and to which.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Their places in the order of latencies.
    pub(super) ranks: Range<usize>,
}

impl Band {
    /// `p0–50`
    pub(super) fn name(&self) -> String {
        format!("p{}–{}", self.from, self.to)
    }
}

/// Returns how many of so many requests are at most as long as a percentile.
fn count_up_to(count: usize, percent: f64) -> usize {
    // 99.9 % of 1,000 are 999, though the product is a little more.
    let rank = (count as f64 * percent / 100.0 - 1e-9).ceil();
    (rank.max(0.0) as usize).min(count)
}

/// Divides so many requests into bands, the shortest ones first.
pub(super) fn divide(count: usize) -> Vec<Band> {
    let mut bands: Vec<Band> = (PERCENTILES.windows(2))
        .filter_map(|pair| match *pair {
            [from, to] => {
                let ranks = count_up_to(count, from)..count_up_to(count, to);
                Some(Band { from, to, ranks })
            }
            _ => None,
        })
        .collect();
    let mut merged: Vec<Band> = Vec::new();
    while let Some(band) = bands.pop() {
        match bands.last_mut().filter(|_| band.ranks.len() < FEWEST) {
            Some(below) => {
                *below = Band { to: band.to, ranks: below.ranks.start..band.ranks.end, ..*below }
            }
            None => merged.push(band),
        }
    }
    merged.reverse();
    merged.retain(|band| !band.ranks.is_empty());
    merged
}

/// Returns a percentile of latencies in order; none if there are none.
pub(super) fn percentile(sorted: &[Nanos], percent: f64) -> Option<Nanos> {
    sorted.get(count_up_to(sorted.len(), percent).max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Nanos;
    use proptest::prelude::*;

    use super::{BandRange, FEWEST, divide, percentile};

    #[test]
    fn few_requests_are_one_band() {
        let names = |count| divide(count).iter().map(super::Band::name).collect::<Vec<_>>();
        assert_eq!(names(0), Vec::<String>::new());
        assert_eq!(names(1), ["p0–100"]);
        assert_eq!(names(39), ["p0–100"]);
        assert_eq!(names(40), ["p0–50", "p50–100"]);
        assert_eq!(names(200), ["p0–50", "p50–90", "p90–100"]);
        assert_eq!(names(2_000), ["p0–50", "p50–90", "p90–99", "p99–100"]);
        assert_eq!(names(20_000), ["p0–50", "p50–90", "p90–99", "p99–99.9", "p99.9–100"]);
    }

    #[test]
    fn bands_are_asked_for_by_their_percentiles() {
        let band = |text: &str| text.parse::<BandRange>().map(|band| band.to_string()).ok();
        assert_eq!(band("p99").as_deref(), Some("p99–100"));
        assert_eq!(band("p50").as_deref(), Some("p0–50"));
        assert_eq!(band("p90-99").as_deref(), Some("p90–99"));
        assert_eq!(band("p99–p99.9").as_deref(), Some("p99–99.9"));
        for wrong in ["", "p", "99", "p100", "p101", "p99-90", "p-5", "pNaN", "p50-x", "p1-1"] {
            assert_eq!(band(wrong), None, "{wrong}");
        }
        let slow: BandRange = "p99".parse().unwrap();
        let ranks = (0..1_000).filter(|&rank| slow.contains(rank, 1_000));
        assert_eq!((ranks.clone().count(), ranks.min()), (10, Some(990)));
        // Of few requests, the slowest one.
        assert_eq!((0..10).filter(|&rank| slow.contains(rank, 10)).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let latencies: Vec<Nanos> = (1..=1_000).map(Nanos).collect();
        for (percent, expected) in
            [(50.0, 500), (90.0, 900), (99.0, 990), (99.9, 999), (100.0, 1_000)]
        {
            assert_eq!(percentile(&latencies, percent), Some(Nanos(expected)), "{percent}");
        }
        assert_eq!(percentile(&latencies[..1], 50.0), Some(Nanos(1)));
        assert_eq!(percentile(&[], 50.0), None);
    }

    proptest! {
        #[test]
        fn each_request_is_in_one_band(count in 0_usize..50_000) {
            let bands = divide(count);
            let mut next = 0;
            for band in &bands {
                prop_assert_eq!(band.ranks.start, next);
                next = band.ranks.end;
                prop_assert!(band.ranks.len() >= FEWEST || bands.len() == 1);
            }
            prop_assert_eq!(next, count);
        }
    }
}

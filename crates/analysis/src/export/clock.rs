//! The wall's time of moments, and the hours that it is divided into.

use std::fmt;

use chrono::DateTime;
use offwake_recording::{Clocks, units::Timestamp};

const NS_OF_AN_HOUR: i64 = 3_600_000_000_000;
const NS_OF_A_MICROSECOND: i64 = 1_000;

/// Tells the wall's time of a moment by the reading of the clocks that came last before it: a step
/// or a suspension between two readings is in the later one.
pub(super) struct WallClock {
    /// The readings in order of time.
    readings: Vec<Clocks>,
}

impl WallClock {
    pub(super) fn new(readings: &[Clocks]) -> Self {
        let mut readings = readings.to_vec();
        readings.sort_by_key(|clocks| clocks.monotonic);
        Self { readings }
    }

    /// Returns nanoseconds since 1970, UTC. None if the clocks were never read, or the time is out
    /// of range
    /// (1677 to 2262).
    fn time(&self, at: Timestamp) -> Option<i64> {
        let later = self.readings.partition_point(|clocks| clocks.monotonic <= at);
        let reading = self.readings.get(later.saturating_sub(1))?;
        let since = i128::from(at.0) - i128::from(reading.monotonic.0);
        i64::try_from(i128::from(reading.realtime_ns) + since).ok()
    }

    /// Returns microseconds since 1970, UTC, rounded down. Spark reads no time in nanoseconds.
    pub(super) fn time_us(&self, at: Timestamp) -> Option<i64> {
        self.time(at).map(|ns| ns.div_euclid(NS_OF_A_MICROSECOND))
    }

    pub(super) fn hour(&self, at: Timestamp) -> HourOrNone {
        HourOrNone(self.time(at).map(|time| Hour(time.div_euclid(NS_OF_AN_HOUR))))
    }
}

/// Hours since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub i64);

/// An hour, if the wall's time is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HourOrNone(pub Option<Hour>);

/// Formats the hour as directories of a Hive table: `date=2026-03-01/hour=07`. An unknown hour has
/// the name that Hive gives it.
impl fmt::Display for HourOrNone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Hour(hour)) = self.0 else {
            let unknown = super::partition::UNKNOWN;
            return write!(f, "date={unknown}/hour={unknown}");
        };
        let time = DateTime::from_timestamp_nanos(hour.saturating_mul(NS_OF_AN_HOUR));
        write!(f, "{}", time.format("date=%Y-%m-%d/hour=%H"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(monotonic: u64, realtime_ns: i64) -> Clocks {
        Clocks { monotonic: Timestamp(monotonic), realtime_ns, boottime_ns: monotonic }
    }

    #[test]
    fn hours_are_those_of_utc() {
        let hour = |ns: i64| WallClock::new(&[reading(0, ns)]).hour(Timestamp(0)).to_string();
        assert_eq!(hour(0), "date=1970-01-01/hour=00");
        assert_eq!(hour(-1), "date=1969-12-31/hour=23");
        assert_eq!(hour(1_772_350_000_000_000_000), "date=2026-03-01/hour=07");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_512, "2026-02-28"),
            (20_513, "2026-03-01"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
            (-106_751, "1677-09-22"),
        ] {
            let hour = HourOrNone(Some(Hour(days * 24)));
            assert_eq!(hour.to_string(), format!("date={expected}/hour=00"), "{days}");
        }
        // The first hour that has begun before times in nanoseconds do.
        let first = WallClock::new(&[reading(0, i64::MIN)]).hour(Timestamp(0));
        assert_eq!(first.to_string(), "date=1677-09-21/hour=00");
    }

    #[test]
    fn each_moment_goes_by_the_reading_before_it() {
        // Set back by an hour between the second reading and the third.
        let clock = WallClock::new(&[
            reading(1_000, 50_000),
            reading(2_000, 51_000),
            reading(3_000, 52_000 - NS_OF_AN_HOUR),
        ]);
        let time = |at| clock.time(Timestamp(at));
        assert_eq!(time(1_000), Some(50_000));
        assert_eq!(time(2_999), Some(51_999));
        assert_eq!(time(3_000), Some(52_000 - NS_OF_AN_HOUR));
        assert_eq!(time(3_500), Some(52_500 - NS_OF_AN_HOUR));
        // Before the first: there is no other.
        assert_eq!(time(400), Some(49_400));
    }

    #[test]
    fn microseconds_are_rounded_down_before_1970_too() {
        let time = |ns| WallClock::new(&[reading(0, ns)]).time_us(Timestamp(0));
        assert_eq!([time(1_999), time(-1), time(-1_000)], [Some(1), Some(-1), Some(-1)]);
    }

    #[test]
    fn what_is_not_known_is_no_time() {
        assert_eq!(WallClock::new(&[]).time(Timestamp(7)), None);
        let unknown = "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__";
        assert_eq!(WallClock::new(&[]).hour(Timestamp(7)).to_string(), unknown);
        assert_eq!(WallClock::new(&[reading(0, i64::MAX)]).time(Timestamp(u64::MAX)), None);
    }
}

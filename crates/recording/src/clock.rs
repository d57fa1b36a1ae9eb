//! What ties the clock of the records to that of the wall.

use crate::units::{Nanos, Timestamp};

/// What is less than this is the time that the readings themselves took.
const NOISE_NS: i128 = 1_000_000;

/// Three clocks, read at one moment.
///
/// All run at one rate, that NTP and `adjtime(3)` speed up and slow down: slewing never moves one
/// against the other. The wall's clock is `CLOCK_MONOTONIC` plus an offset that changes when
/// somebody sets it, for a leap second, and by the time that the machine was suspended; only this
/// last is in `CLOCK_BOOTTIME` as well. `timekeeping_adjust()`, `tk_set_wall_to_mono()` and
/// `__timekeeping_inject_sleeptime()` of
/// [`kernel/time/timekeeping.c`](https://github.com/torvalds/linux/blob/v6.12/kernel/time/timekeeping.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, that of the records. It stands still while the machine is suspended.
    pub monotonic: Timestamp,
    /// `CLOCK_REALTIME`: nanoseconds since 1970, UTC.
    pub realtime_ns: i64,
    /// `CLOCK_BOOTTIME`: nanoseconds since boot, suspended ones included.
    pub boottime_ns: u64,
}

impl Clocks {
    /// Nanoseconds by which the wall's clock was set forward (backward if negative) since an earlier
    /// reading; 0 if that is less than a millisecond.
    #[must_use]
    pub fn stepped_since(&self, earlier: &Self) -> i64 {
        let wall = i128::from(self.realtime_ns) - i128::from(earlier.realtime_ns);
        let stepped = wall - self.since_boot(earlier);
        if stepped.abs() < NOISE_NS {
            return 0;
        }
        i64::try_from(stepped).unwrap_or(if stepped < 0 { i64::MIN } else { i64::MAX })
    }

    /// How long the machine was suspended since an earlier reading; 0 if that is less than a
    /// millisecond.
    #[must_use]
    pub fn suspended_since(&self, earlier: &Self) -> Nanos {
        let awake = i128::from(self.monotonic.0) - i128::from(earlier.monotonic.0);
        let suspended = self.since_boot(earlier) - awake;
        if suspended < NOISE_NS {
            return Nanos(0);
        }
        Nanos(u64::try_from(suspended).unwrap_or(u64::MAX))
    }

    fn since_boot(&self, earlier: &Self) -> i128 {
        i128::from(self.boottime_ns) - i128::from(earlier.boottime_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::Clocks;
    use crate::units::{Nanos, Timestamp};

    const MS: i64 = 1_000_000;
    const S: i64 = 1000 * MS;

    const START: Clocks = Clocks {
        monotonic: Timestamp(5_000_000_000),
        realtime_ns: 1_700_000_000 * S,
        boottime_ns: 7_000_000_000,
    };

    /// A later reading: so much time awake, so much suspended, and the wall's clock set by so much.
    fn later(awake: i64, suspended: i64, set: i64) -> Clocks {
        Clocks {
            monotonic: Timestamp(START.monotonic.0.checked_add_signed(awake).unwrap()),
            realtime_ns: START.realtime_ns + awake + suspended + set,
            boottime_ns: START.boottime_ns.checked_add_signed(awake + suspended).unwrap(),
        }
    }

    #[test]
    fn steps_and_suspends_are_told_apart() {
        for awake in [0, 1, S, 86_400 * S] {
            for (suspended, set) in [
                (0, 0),
                (0, S),
                (0, -S),
                (0, 3600 * S),
                (0, -3600 * S),
                (0, MS),
                (0, -MS),
                (S, 0),
                (MS, 0),
                (28_800 * S, 0),
                (28_800 * S, 2 * MS),
                (28_800 * S, -28_800 * S),
            ] {
                let now = later(awake, suspended, set);
                assert_eq!(now.stepped_since(&START), set, "{awake} {suspended} {set}");
                let suspended = Nanos(suspended.unsigned_abs());
                assert_eq!(now.suspended_since(&START), suspended, "{awake} {set}");
            }
        }
    }

    #[test]
    fn what_the_reading_takes_is_nothing() {
        for (suspended, set) in [(0, MS - 1), (0, 1 - MS), (MS - 1, 0), (1 - MS, 0)] {
            let now = later(S, suspended, set);
            assert_eq!((now.stepped_since(&START), now.suspended_since(&START)), (0, Nanos(0)));
        }
        // The other way round, time was not suspended but set back.
        assert_eq!(START.suspended_since(&later(S, S, 0)), Nanos(0));
        assert_eq!(START.stepped_since(&later(S, S, 3 * S)), -3 * S);
    }

    #[test]
    fn absurd_readings_are_no_overflow() {
        let low = Clocks { monotonic: Timestamp(0), realtime_ns: i64::MIN, boottime_ns: u64::MAX };
        let high = Clocks { monotonic: Timestamp(u64::MAX), realtime_ns: i64::MAX, boottime_ns: 0 };
        assert_eq!((high.stepped_since(&low), low.stepped_since(&high)), (i64::MAX, i64::MIN));
        assert_eq!(
            (high.suspended_since(&low), low.suspended_since(&high)),
            (Nanos(0), Nanos(u64::MAX))
        );
    }
}

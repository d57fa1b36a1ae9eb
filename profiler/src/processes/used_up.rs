//! For how long an I/O limit was used up, as readings of the kernel's counts tell.
//!
//! ```text
//! may read 25 times/s    readings   0 s   0.5 s   1 s   1.5 s   2 s
//!                        counted      12      11     1       0        used up for 1 s of 2 s: a burst
//! ```
//!
//! The counts at both ends do not tell that from 12 reads in each second, of which none is held back.

use offwake_recording::{
    IoAmounts, IoLimit, UsedUpTimes,
    units::{Nanos, Timestamp},
};

/// A stretch that allows less says nothing: a single piece would be much of it.
const MIN_BYTES: u64 = 4 << 20;
/// The same of reads and writes.
const MIN_COUNT: u64 = 10;

/// Follows the counts of what a cgroup does with a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedUp {
    /// From where the next stretch is, for each limit.
    from: [(Timestamp, u64); 4],
    times: [Nanos; 4],
}

impl UsedUp {
    /// Begins with counts that were read at some time.
    pub(super) fn begin(at: Timestamp, counts: IoAmounts) -> Self {
        Self { from: numbers(counts).map(|count| (at, count)), times: [Nanos(0); 4] }
    }

    /// Adds the counts that were read later.
    pub(super) fn add(&mut self, at: Timestamp, counts: IoAmounts, per_second: IoAmounts) {
        let pieces = numbers(IoAmounts {
            read_bytes: MIN_BYTES,
            written_bytes: MIN_BYTES,
            reads: MIN_COUNT,
            writes: MIN_COUNT,
        });
        let (counts, per_second) = (numbers(counts), numbers(per_second));
        for n in 0..4 {
            let (since, before) = self.from[n];
            let stretch = at.since(since);
            let allowed = per_second[n] as f64 * stretch.0 as f64 / 1e9;
            if allowed < pieces[n] as f64 {
                continue;
            }
            if counts[n].saturating_sub(before) as f64 >= allowed * IoLimit::USED_UP {
                self.times[n] += stretch;
            }
            self.from[n] = (at, counts[n]);
        }
    }

    pub(super) fn times(&self) -> UsedUpTimes {
        let [read_bytes, written_bytes, reads, writes] = self.times;
        UsedUpTimes { read_bytes, written_bytes, reads, writes }
    }
}

fn numbers(amounts: IoAmounts) -> [u64; 4] {
    [amounts.read_bytes, amounts.written_bytes, amounts.reads, amounts.writes]
}

#[cfg(test)]
mod tests {
    use offwake_recording::{
        IoAmounts, UsedUpTimes,
        units::{Nanos, Timestamp},
    };

    use super::UsedUp;

    const HALF: u64 = 500_000_000;

    /// Reads after each half second.
    fn used_up(per_second: u64, reads: &[u64]) -> UsedUpTimes {
        let amounts = |reads| IoAmounts { reads, ..IoAmounts::default() };
        let mut used = UsedUp::begin(Timestamp(7), amounts(1_000));
        let mut all = 1_000;
        for (n, more) in (1..).zip(reads) {
            all += more;
            used.add(Timestamp(7 + n * HALF), amounts(all), amounts(per_second));
        }
        used.times()
    }

    fn reads(halves: u64) -> UsedUpTimes {
        UsedUpTimes { reads: Nanos(halves * HALF), ..UsedUpTimes::default() }
    }

    #[test]
    fn a_burst_is_told_from_as_much_in_a_longer_time() {
        assert_eq!(used_up(25, &[12, 11, 1, 0]), reads(2));
        assert_eq!(used_up(25, &[6, 6, 6, 6]), reads(0));
        // A little is lost at each turn, where one block is read at a time.
        assert_eq!(used_up(25, &[9, 10, 9, 10]), reads(4));
    }

    #[test]
    fn stretches_are_as_long_as_it_takes_to_tell() {
        // A single read of 4 in a second is no fourth of anything.
        assert_eq!(used_up(4, &[2, 0, 2, 0]), reads(0));
        assert_eq!(used_up(4, &[2, 2, 2, 2, 2]), reads(5));
        assert_eq!(used_up(4, &[2, 0, 0, 0, 0]), reads(0));
    }

    #[test]
    fn what_has_no_limit_is_never_used_up() {
        assert_eq!(used_up(0, &[1_000, 1_000]), reads(0));
    }
}

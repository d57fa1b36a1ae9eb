//! What a block device counts of the requests that it completes, whoever they are for.
//!
//! ```text
//! /sys/dev/block/254:0/stat   5156485 119290 217565146 15950733   1204441 699615 489623712 1821061 …
//!                             reads                    ms         writes                   ms
//! ```
//!
//! A limit of a cgroup keeps a bio from becoming a request
//! ([`submit_bio_noacct()`](https://github.com/torvalds/linux/blob/v6.12/block/blk-core.c) leaves it to
//! `blk_throtl_bio()`), and the time of a request begins as it is allocated
//! ([`blk_mq_rq_time_init()`](https://github.com/torvalds/linux/blob/v6.12/block/blk-mq.c)), and ends as it is done
//! (`blk_account_io_done()`). So what is held back is in neither number.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use offwake_recording::{DeviceRequests, units::Nanos};

/// Bytes of the file that are read: it has 17 numbers.
const MAX_FILE: u64 = 512;
/// Times are known of no longer stretch. They are 32-bit milliseconds: with a thousand requests under way, they come
/// round in 72 minutes.
const MAX_STRETCH: Nanos = Nanos(3_600_000_000_000);

/// How the counts of a device stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestCounts {
    reads: u64,
    read_ms: u32,
    writes: u64,
    write_ms: u32,
}

impl RequestCounts {
    /// Reads those of a device, told by its number. None if there is no such device, or if it hands on what it gets
    /// without requests of its own (LVM, RAID): the time of that is counted in jiffies, and what a limit has held back
    /// begins with one, so that up to a jiffy of each would be missing.
    pub(super) fn read(device: u32) -> Option<Self> {
        Self::read_below(Path::new("/sys"), device)
    }

    fn read_below(sysfs: &Path, device: u32) -> Option<Self> {
        let (major, minor) = (device >> 20, device & 0xf_ffff);
        let folder: PathBuf = sysfs.join(format!("dev/block/{major}:{minor}"));
        if !folder.join("mq").is_dir() {
            return None;
        }
        let mut text = String::new();
        let file = File::open(folder.join("stat")).ok()?;
        file.take(MAX_FILE).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_ascii_whitespace().take(8).collect();
        let [reads, _, _, read_ms, writes, _, _, write_ms] = words.try_into().ok()?;
        Some(Self {
            reads: reads.parse().ok()?,
            read_ms: read_ms.parse().ok()?,
            writes: writes.parse().ok()?,
            write_ms: write_ms.parse().ok()?,
        })
    }

    /// Returns what was done since an earlier reading, so long ago.
    pub(super) fn since(self, earlier: Self, stretch: Nanos) -> Option<DeviceRequests> {
        let time = |last: u32, first: u32| Nanos(u64::from(last.wrapping_sub(first)) * 1_000_000);
        (stretch <= MAX_STRETCH).then_some(())?;
        Some(DeviceRequests {
            reads: self.reads.checked_sub(earlier.reads)?,
            read_time: time(self.read_ms, earlier.read_ms),
            writes: self.writes.checked_sub(earlier.writes)?,
            write_time: time(self.write_ms, earlier.write_ms),
        })
    }
}

/// Parses any bytes as the file of a device, for the fuzzer.
pub(super) fn parse_hostile(bytes: &[u8]) {
    let _counts = RequestCounts::parse(&String::from_utf8_lossy(bytes));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use offwake_recording::{DeviceRequests, units::Nanos};

    use super::{MAX_STRETCH, RequestCounts};

    const STAT: &str = " 5156485   119290 217565146 15950733  1204441   699615 489623712  1821061        \
                        0   493536 17883233   499551      205 233715272    89135   266536    22303\n";

    #[test]
    fn what_a_device_does_between_two_readings_is_the_difference() {
        let first = RequestCounts::parse(STAT).unwrap();
        let last = RequestCounts { reads: 5_156_500, read_ms: 15_950_740, ..first };
        let done = last.since(first, Nanos(1)).unwrap();
        let reads = DeviceRequests { reads: 15, read_time: Nanos(7_000_000), ..Default::default() };
        assert_eq!(done, reads);
    }

    #[test]
    fn times_come_round_and_are_known_of_no_long_stretch() {
        let first = RequestCounts { reads: 1, read_ms: u32::MAX - 1, writes: 0, write_ms: 0 };
        let last = RequestCounts { reads: 2, read_ms: 3, ..first };
        assert_eq!(last.since(first, Nanos(1)).unwrap().read_time, Nanos(5_000_000));
        assert_eq!(last.since(first, Nanos(MAX_STRETCH.0 + 1)), None);
        // Another device has the number now.
        assert_eq!(first.since(last, Nanos(1)), None);
    }

    #[test]
    fn a_device_without_requests_of_its_own_and_one_that_is_gone_are_not_known() {
        let sysfs = tempfile::tempdir().unwrap();
        let folder = |number: &str| sysfs.path().join("dev/block").join(number);
        for (number, stat) in [("8:16", STAT), ("253:0", STAT), ("8:32", "1 2 3\n")] {
            fs::create_dir_all(folder(number)).unwrap();
            fs::write(folder(number).join("stat"), stat).unwrap();
        }
        for number in ["8:16", "8:32", "8:48"] {
            fs::create_dir_all(folder(number).join("mq")).unwrap();
        }
        let read = |major: u32, minor| RequestCounts::read_below(sysfs.path(), major << 20 | minor);
        assert_eq!(read(8, 16), RequestCounts::parse(STAT));
        assert!(read(8, 16).is_some());
        for (major, minor) in [(253, 0), (8, 32), (8, 48), (8, 64)] {
            assert_eq!(read(major, minor), None, "{major}:{minor}");
        }
    }

    #[test]
    fn what_is_no_count_is_not_known() {
        for text in
            ["", "1 2 3 4 5 6 7", "1 2 3 -4 5 6 7 8", "a 2 3 4 5 6 7 8", "1 2 3 4294967296 5 6 7 8"]
        {
            assert_eq!(RequestCounts::parse(text), None, "{text}");
        }
    }
}

//! Which waits for a disk are waits at an I/O limit, and which are not.

use offwake_analysis::{
    filter::Filter,
    findings::{Finding, FindingIoLimit, IoLimitUnit},
};
use offwake_recording::{
    DeviceRequests, DiskUse, FileId, Filesystem, IoAmounts, IoLimit, Recording, UsedUpTimes,
    WakeContext,
    units::{Nanos, Tgid},
};

use crate::{
    disks::{FSYNC, file, filesystem, first_finding, others, used},
    draw::{edit, live, recording},
    fixtures::{kernel, syscall, user},
    golden::report as build_report,
};

const PREAD: u32 = 17;
/// Of a page fault: no syscall that says what is wanted.
const NONE: u32 = 9_999;
const SECOND: u64 = 1_000_000_000;

/// A cgroup that may read 10 MB in a second from `sda`. In the window of 3 s it has read `mb`.
fn read_limit(process: u32, mb: u64) -> IoLimit {
    IoLimit {
        tgid: Tgid(process),
        path: "/shop".to_owned(),
        device: 8,
        block_device: "sda".to_owned(),
        per_second: IoAmounts { read_bytes: 10_000_000, ..IoAmounts::default() },
        used: IoAmounts { read_bytes: mb * 1_000_000, reads: 99, ..IoAmounts::default() },
        counted_for: Nanos(3 * SECOND),
        used_up_for: None,
        device_requests: None,
    }
}

/// What all reads took the disk, and all writes.
fn took(read_ms: u64, write_ms: u64) -> Option<DeviceRequests> {
    let [read_time, write_time] = [read_ms, write_ms].map(|ms| Nanos(ms * 1_000_000));
    Some(DeviceRequests { reads: 90, read_time, writes: 90, write_time })
}

/// Threads that wait for a file on `sda1`, in a call with this number. All are of one process.
fn waiters(window: usize, lives: &[&str], call: u32, waits_in: &str) -> Recording {
    let mut r = recording(window);
    for (thread, life) in (7..).zip(lives) {
        live(&mut r, thread, life, 0);
    }
    let stack = user(&mut r, 7, &["libc.so.6 pread", "app load", "app main"]);
    let waits = kernel(&mut r, &["io_schedule", waits_in, "vfs_read"]);
    edit(&mut r, |rows| {
        for row in rows {
            row.tgid = Tgid(7);
            row.syscall = syscall(call, [3, 0, 0, 0, 0, 0]);
            row.file = Some(file(1));
            (row.user_stack, row.kernel_stack) = (stack, waits);
            row.wake.as_mut().unwrap().context = WakeContext::Softirq(4);
        }
    });
    r.thread_events.iter_mut().for_each(|event| event.tgid = Tgid(7));
    r
}

/// A life that waits for so many ticks of a window, in the middle.
fn waits(window: usize, ticks: usize) -> String {
    let before = (window - ticks) / 2;
    let after = window - before - ticks - 1;
    format!("{}{}r{}", "#".repeat(before), ".".repeat(ticks), "#".repeat(after))
}

/// 7 reads from `sda1` for nearly all of 3 s, and 60 writes to that disk meanwhile.
fn reader() -> Recording {
    let mut r = waiters(3_000, &[&waits(3_000, 2_900)], PREAD, "folio_wait_bit_common");
    live(&mut r, 60, &"#".repeat(3_000), 0);
    r.disk_uses = vec![used(60, 1, ("sda1", "sda"), [0, 0, 800])];
    r.files.files.insert(file(1), offwake_recording::OpenFile::Named("/srv/ledger".to_owned()));
    r
}

/// Returns what is said of a disk of these waits.
fn judge(mut r: Recording, limits: &[IoLimit], on: &Filesystem) -> Finding {
    r.io_limits = limits.to_vec();
    r.filesystems = [(on.device, on.clone())].into();
    r.sort();
    let found = build_report(&r, &Filter::default()).findings.list;
    let of_disk = found.iter().find(|finding| finding.disk.is_some());
    of_disk.unwrap_or_else(|| panic!("no disk: {found:#?}")).clone()
}

fn sda1() -> Filesystem {
    filesystem(1, "/srv", "sda1", "sda")
}

fn under(limit: &IoLimit) -> Finding {
    judge(reader(), std::slice::from_ref(limit), &sda1())
}

fn limit_of(finding: &Finding) -> Option<FindingIoLimit> {
    finding.disk.as_ref()?.limit.clone()
}

fn is_cause(finding: &Finding) -> bool {
    let limit = limit_of(finding).expect("a limit");
    let is_said = finding.text.contains("waits at its I/O limit");
    assert_eq!(is_said, limit.is_cause, "{finding:#?}");
    let is_disk_said = finding.text.contains("waits for the disk sda1 (ext4, /srv)");
    assert_eq!(is_disk_said, !limit.is_cause, "{finding:#?}");
    limit.is_cause
}

fn last_line(finding: &Finding) -> &str {
    &finding.lines.last().unwrap().text
}

#[test]
fn who_has_used_up_an_io_limit_waits_at_it_and_not_for_its_neighbours() {
    let found = under(&read_limit(7, 29));
    let wait = "waits at its I/O limit (cgroup /shop may read 10 MB/s from sda)";
    assert!(found.text.contains(wait), "{found:#?}");
    assert_eq!(last_line(&found), "read 29 MB of 30 MB allowed (97%); file /srv/ledger");
    // Who else used the disk, machines can still read.
    assert_eq!(others(&found), [("thread60", None)]);
    let limit = limit_of(&found).unwrap();
    assert_eq!((limit.unit, limit.per_second), (IoLimitUnit::ReadBytes, 10_000_000));
    assert!(limit.is_cause && (0.96..0.97).contains(&limit.used_share), "{limit:?}");
}

#[test]
fn an_io_limit_that_is_not_used_up_is_told_and_is_no_cause() {
    let found = under(&read_limit(7, 12));
    assert!(!is_cause(&found));
    assert_eq!(
        last_line(&found),
        "cgroup /shop may read 10 MB/s from sda, 40% used; others used this disk too: thread60 60 \
         wrote 800 MB; file /srv/ledger"
    );
}

/// The kernel rounds down, and one read at a time loses a little at each turn.
#[test]
fn a_limit_that_was_nearly_used_up_is_the_cause_if_the_disk_was_quick() {
    for (mb, read_ms, is_the_cause) in [
        (23, Some(100), true),
        (19, Some(1_400), true),
        (17, Some(100), false),
        (23, Some(1_500), false),
        (23, None, false),
        (25, None, true),
    ] {
        let device_requests = read_ms.and_then(|read_ms| took(read_ms, 9_000));
        let found = under(&IoLimit { device_requests, ..read_limit(7, mb) });
        assert_eq!(is_cause(&found), is_the_cause, "{mb} MB, {read_ms:?} ms: {found:#?}");
    }
    let found = under(&IoLimit { device_requests: took(100, 9_000), ..read_limit(7, 23) });
    assert_eq!(
        last_line(&found),
        "read 23 MB of 30 MB allowed (77%); reads took the disk 100 ms in all; file /srv/ledger"
    );
}

/// A slow disk gives now and then as much as a limit allows, or nearly.
#[test]
fn a_slow_disk_is_no_limit_however_near_it_comes() {
    for mb in [19, 24, 28] {
        let found = under(&IoLimit { device_requests: took(2_890, 0), ..read_limit(7, mb) });
        assert!(!is_cause(&found), "{mb} MB: {found:#?}");
        let said = "% used; reads took the disk 2.89 s in all; others used this disk too";
        assert!(last_line(&found).contains(said), "{found:#?}");
    }
}

/// Another disk could hardly have given it more.
#[test]
fn a_limit_of_which_all_was_used_is_the_cause_at_a_slow_disk() {
    let found = under(&IoLimit { device_requests: took(2_890, 0), ..read_limit(7, 29) });
    assert!(is_cause(&found), "{found:#?}");
}

/// The disk was at work for others: 99 reads of 9,000 are the cgroup's, and took 0.7 s if each took as long. Where it
/// did all of them itself, the disk was slow.
#[test]
fn who_keeps_a_disk_busy_does_not_acquit_a_limit() {
    for (reads, mb, is_the_cause) in [(9_000, 25, true), (9_000, 23, false), (110, 25, false)] {
        let read_time = Nanos(64 * SECOND);
        let device_requests = Some(DeviceRequests { reads, read_time, ..Default::default() });
        let found = under(&IoLimit { device_requests, ..read_limit(7, mb) });
        assert_eq!(is_cause(&found), is_the_cause, "{reads} reads, {mb} MB: {found:#?}");
    }
}

/// `queue/iostats` is 0: no request is counted, and none takes time.
#[test]
fn a_disk_that_counts_nothing_was_not_quick() {
    let device_requests = Some(DeviceRequests { writes: 5, ..DeviceRequests::default() });
    for (mb, is_the_cause) in [(23, false), (25, true)] {
        let limit = IoLimit { device_requests, ..read_limit(7, mb) };
        assert_eq!(is_cause(&under(&limit)), is_the_cause, "{mb} MB");
    }
}

/// 7 waits for 2 s of 10 s, and its cgroup has read 20 MB of 100 MB.
fn burst(used_up_ms: Option<u64>, device_requests: Option<DeviceRequests>) -> Finding {
    let r = waiters(10_000, &[&waits(10_000, 2_000)], PREAD, "folio_wait_bit_common");
    let used_up_for = used_up_ms
        .map(|ms| UsedUpTimes { read_bytes: Nanos(ms * 1_000_000), ..UsedUpTimes::default() });
    let limit = IoLimit {
        counted_for: Nanos(10 * SECOND),
        used_up_for,
        device_requests,
        ..read_limit(7, 20)
    };
    judge(r, &[limit], &sda1())
}

#[test]
fn who_uses_a_limit_up_in_a_part_of_the_window_was_held_back_then() {
    let found = burst(Some(1_500), took(100, 0));
    assert!(is_cause(&found), "{found:#?}");
    assert_eq!(
        last_line(&found),
        "used up for 1.50 s: read 20 MB of 100 MB allowed (20%); reads took the disk 100 ms in all"
    );
}

/// The same amount, evenly over the window, has no limit to wait at: what is waited for is the disk, or what comes after
/// it, as with compressed files.
#[test]
fn who_reads_evenly_below_a_limit_is_not_held_back() {
    assert!(!is_cause(&burst(Some(0), took(100, 0))));
    // It was used up for a moment, by somebody.
    assert!(!is_cause(&burst(Some(900), took(100, 0))));
}

#[test]
fn a_burst_is_at_the_limit_only_if_the_disk_is_known_to_have_been_quick() {
    assert!(!is_cause(&burst(Some(1_500), took(1_100, 0))));
    assert!(!is_cause(&burst(Some(1_500), None)));
    // An older recording.
    assert!(!is_cause(&burst(None, took(100, 0))));
}

/// Who reads as much as it may, and hardly waits, wanted no more.
#[test]
fn who_hardly_waits_is_not_held_back_by_an_io_limit() {
    let r = || waiters(3_000, &[&waits(3_000, 998)], PREAD, "folio_wait_bit_common");
    for device_requests in [None, took(600, 0)] {
        let limit = IoLimit { device_requests, ..read_limit(7, 29) };
        assert!(!is_cause(&judge(r(), &[limit], &sda1())));
    }
}

/// Each of them waits for 1 s of 3 s. Nobody waits in the rest.
#[test]
fn threads_that_wait_at_a_time_have_not_waited_for_longer() {
    let life = waits(3_000, 1_000);
    let together = waiters(3_000, &[&life, &life, &life], PREAD, "folio_wait_bit_common");
    let found = judge(together, &[read_limit(7, 29)], &sda1());
    assert!(!is_cause(&found), "{found:#?}");
    let lives = [0, 1_000, 1_990].map(|before| {
        let (before, after) = ("#".repeat(before + 5), "#".repeat(2_995 - before - 981));
        format!("{before}{}r{after}", ".".repeat(980))
    });
    let lives: Vec<&str> = lives.iter().map(String::as_str).collect();
    let in_turns = waiters(3_000, &lives, PREAD, "folio_wait_bit_common");
    let found = judge(in_turns, &[read_limit(7, 29)], &sda1());
    assert!(is_cause(&found), "{found:#?}");
}

/// Eight threads wait for one commit. Together they have waited for a long time.
#[test]
fn a_commit_that_many_wait_for_is_no_limit() {
    let life = waits(3_000, 2_900);
    let lives = [life.as_str(); 8];
    for used_up_for in [None, Some(UsedUpTimes::default())] {
        let limit = IoLimit {
            per_second: IoAmounts { writes: 100, ..IoAmounts::default() },
            used: IoAmounts { writes: 60, ..IoAmounts::default() },
            used_up_for,
            device_requests: took(0, 100),
            ..read_limit(7, 0)
        };
        let r = waiters(3_000, &lives, FSYNC, "jbd2_log_wait_commit");
        let found = judge(r, &[limit], &sda1());
        assert!(!is_cause(&found), "{found:#?}");
    }
}

/// Its cgroup may not read more, and it waits until it has written.
#[test]
fn who_syncs_does_not_wait_at_a_limit_on_reads() {
    let limit = IoLimit {
        used_up_for: Some(UsedUpTimes { read_bytes: Nanos(3 * SECOND), ..UsedUpTimes::default() }),
        device_requests: took(100, 2_900),
        ..read_limit(7, 29)
    };
    for (call, is_the_cause) in [(FSYNC, false), (PREAD, true)] {
        let life = waits(3_000, 2_900);
        let r = waiters(3_000, &[&life], call, "folio_wait_bit_common");
        assert_eq!(is_cause(&judge(r, std::slice::from_ref(&limit), &sda1())), is_the_cause);
    }
}

/// It may be a write that is waited for, and those took long.
#[test]
fn what_a_wait_is_for_that_no_call_tells_may_be_either() {
    for (mb, write_ms, is_the_cause) in [(23, 100, true), (23, 2_900, false), (25, 2_900, true)] {
        let limit = IoLimit { device_requests: took(100, write_ms), ..read_limit(7, mb) };
        let life = waits(3_000, 2_900);
        let r = waiters(3_000, &[&life], NONE, "folio_wait_bit_common");
        let found = judge(r, &[limit], &sda1());
        assert_eq!(is_cause(&found), is_the_cause, "{mb} MB, {write_ms} ms: {found:#?}");
    }
}

/// What `sda` did says nothing of `sdb`.
#[test]
fn one_of_several_disks_that_was_quick_proves_nothing() {
    for (disks, is_the_cause) in [("sda", true), ("sda,sdb", false)] {
        let limit = IoLimit { device_requests: took(100, 0), ..read_limit(7, 23) };
        let found = judge(reader(), &[limit], &filesystem(1, "/srv", "md0", disks));
        let said = found.text.contains("waits at its I/O limit");
        assert_eq!(said, is_the_cause, "{disks}: {found:#?}");
    }
}

/// The counts of its cgroup were read for the first time when its waits were over.
#[test]
fn waits_from_before_the_first_reading_are_not_at_a_limit() {
    let life = format!("#{}r{}", ".".repeat(1_900), "#".repeat(1_098));
    let limit = |mb| IoLimit {
        counted_for: Nanos(SECOND),
        used_up_for: Some(UsedUpTimes { read_bytes: Nanos(SECOND), ..UsedUpTimes::default() }),
        device_requests: took(100, 0),
        ..read_limit(7, mb)
    };
    let r = waiters(3_000, &[&life], PREAD, "folio_wait_bit_common");
    let found = judge(r, &[limit(9)], &sda1());
    assert!(!is_cause(&found), "{found:#?}");
}

#[test]
fn the_limits_of_others_and_of_other_disks_say_nothing() {
    let other_disk = IoLimit { block_device: "sdb".to_owned(), ..read_limit(7, 29) };
    let not_counted = IoLimit { counted_for: Nanos(0), ..read_limit(7, 29) };
    for limits in [vec![], vec![read_limit(60, 29)], vec![other_disk], vec![not_counted]] {
        let found = judge(reader(), &limits, &sda1());
        assert!(found.text.contains("waits for the disk sda1 (ext4, /srv)"), "{found:#?}");
        assert_eq!(limit_of(&found), None, "{limits:?}");
    }
}

#[test]
fn of_several_io_limits_the_one_that_was_used_most_counts() {
    let outer = IoLimit {
        path: "/outer".to_owned(),
        per_second: IoAmounts { reads: 33, ..IoAmounts::default() },
        ..read_limit(7, 12)
    };
    let found = judge(reader(), &[read_limit(7, 12), outer], &sda1());
    let wait = "waits at its I/O limit (cgroup /outer may read 33 times/s from sda)";
    assert!(found.text.contains(wait), "{found:#?}");
    assert_eq!(limit_of(&found).unwrap().unit, IoLimitUnit::Reads);
    assert!(last_line(&found).starts_with("read 99 of 99 times allowed (100%)"), "{found:#?}");
}

/// A page fault names no file, and what was held back is not counted as its process's.
#[test]
fn a_wait_for_an_unknown_disk_is_at_the_io_limit_of_a_process_that_used_no_other() {
    let text = |uses: &[DiskUse]| {
        let mut r = reader();
        edit(&mut r, |rows| rows.iter_mut().for_each(|row| row.file = None::<FileId>));
        r.disk_uses = uses.to_vec();
        r.io_limits = vec![read_limit(7, 29)];
        let found = first_finding(r, &[sda1(), filesystem(2, "/home", "sdc1", "sdc")]);
        assert!(found.text.starts_with("thread7"), "{found:#?}");
        found.lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>().join("\n")
    };
    let of_neighbour = used(60, 1, ("sda1", "sda"), [0, 0, 800]);
    for uses in [vec![], vec![of_neighbour, used(7, 1, ("sda1", "sda"), [5, 0, 0])]] {
        let text = text(&uses);
        assert!(text.contains("waits at its I/O limit") && !text.contains("others"), "{text}");
    }
    let text = text(&[used(7, 2, ("sdb1", "sdb"), [1, 0, 0])]);
    assert!(!text.contains("I/O limit"), "{text}");
}

//! How the scheduler's clock is compared with the records': when a thread came to its CPU whose
//! switch-in was not seen.

use profiler_ebpf::run_queue_clock::{
    JUMP_NS, MAX_AHEAD_NS, MAX_DRIFT_NS,
    RunQueueClock::{Fresh, Stale},
    place_arrival, update_offset,
};

const KNOWN: u64 = 7_000_000_000;

#[test]
fn a_reading_that_comes_late_does_not_count() {
    for clock in [Fresh, Stale] {
        assert_eq!(update_offset(0, KNOWN, clock), KNOWN);
        assert_eq!(update_offset(KNOWN, KNOWN - 400, clock), KNOWN - 400);
        assert_eq!(update_offset(KNOWN, KNOWN + 900, clock), KNOWN + 900);
        // The CPU was taken away for 3 ms between the two.
        assert_eq!(update_offset(KNOWN, KNOWN + 3_000_000, clock), KNOWN + MAX_DRIFT_NS);
    }
    // A clock was set: the scheduler has just read its own.
    let jumped = KNOWN + JUMP_NS + 1;
    assert_eq!(update_offset(KNOWN, jumped, Fresh), jumped);
    assert_eq!(update_offset(KNOWN, jumped, Stale), KNOWN + MAX_DRIFT_NS);
    // Clocks can be behind.
    let behind = 0_u64.wrapping_sub(500);
    assert_eq!(update_offset(behind, 300, Fresh), 300);
}

#[test]
fn a_thread_came_to_its_cpu_after_it_left_and_before_now() {
    let (left, now) = (1_000_000_000, 1_070_000_000);
    assert_eq!(place_arrival(now - 30_000, left, now), Some(now - 30_000));
    // By a little more than there is: just now.
    assert_eq!(place_arrival(now + 8_000, left, now), Some(now));
    assert_eq!(place_arrival(now + MAX_AHEAD_NS, left, now), Some(now));
    assert_eq!(place_arrival(now + MAX_AHEAD_NS + 1, left, now), None);
    // That was its stay before.
    assert_eq!(place_arrival(left, left, now), None);
    assert_eq!(place_arrival(0, left, now), None);
    assert_eq!(place_arrival(u64::MAX, left, u64::MAX), Some(u64::MAX));
}
